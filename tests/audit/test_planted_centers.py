"""Planted changes of centers, with all that follows from them: the audit replays what a center was made from."""

import copy
import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.mechanisms.center import cell_center
from labeldp.mechanisms.center.center_model import read_center
from labeldp.mechanisms.center.class_center import ClassCellDesign, ReleasedClassCells, cells_epsilon
from labeldp.mechanisms.center.class_document import class_document, read_class_center
from labeldp.mechanisms.center.class_logit import LinearClasses
from labeldp.mechanisms.center.marginal_center import (
    MarginalCenter,
    ReleasedMarginals,
    chosen_range,
    marginals_document,
)

from tests.audit.written_files import Row, law, plant, planted

SAMPLED = 3000


def minus(amount: float) -> Callable[[float], float]:
    return lambda value: value - amount


def plus(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def swap(first: int, second: int) -> Callable[[list[Any]], None]:
    def change(values: list[Any]) -> None:
        values[first], values[second] = values[second], values[first]

    return change


def move(first: int, second: int, amount: int = 1) -> Callable[[list[Any]], None]:
    """Moves an amount from one number to another, so that they add up to the same."""

    def change(values: list[Any]) -> None:
        values[first] -= amount
        values[second] += amount

    return change


def other_split(trees: dict[str, Any]) -> None:
    """The first split of a tree, at another code of its column that is further from the best one."""
    cut = trees["cuts"][7][0]
    trees["cuts"][7][0] = cut + 9 if cut < 40 else cut - 9


def other_number(trees: dict[str, Any]) -> None:
    """Twice as many trees of each fold."""
    size = len(trees["leaves"]) // 3
    for key, values in trees.items():
        trees[key] = [tree for fold in range(3) for tree in values[fold * size : fold * size + size] * 2]


def one_less(trees: dict[str, Any]) -> None:
    for values in trees.values():
        values.pop()


NO_TREES = {"trees.columns": [], "trees.cuts": [], "trees.leaves": []}


def flat(counts: list[int]) -> list[int]:
    return [200] * len(counts)


# A linear center and its cells.


@pytest.fixture(autouse=True)
def _a_histogram_may_speak_against_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells need a center that explains a quarter here: that of the release explains more than 5 % whatever is left."""
    monkeypatch.setattr(cell_center, "LEAST_EXPLAINED", 0.25)


REPLAYED = "center.linear cannot be replayed: "
TREES = f"{REPLAYED}the trees of the center do not follow from its sums"
RANGE = f"{REPLAYED}the range of the residuals of the center does not follow from their histogram"
AGAINST = f"{REPLAYED}sums of cells were released that the histogram of the residuals speaks against"
COEFFICIENTS = f"{REPLAYED}the coefficients of the center do not follow from its sums"


def of_cells(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"cells.{path}": value for path, value in changes.items()}


LINEAR: list[tuple[str, Any, str]] = [
    # The least change of a coefficient; sums have noise, of which a coefficient shows only the size.
    *(("center", {f"coefficients.{place}": plus(1)}, COEFFICIENTS) for place in (0, -1)),
    *(("center", {f"sums.{place}": plus(120_000)}, COEFFICIENTS) for place in (0, -1)),
    (
        "center",
        {"sums": lambda sums: [value + (1 << 60) for value in sums]},
        "sums are larger than those of any labels",
    ),
    ("center", {"encoders.0.name": "y"}, "the label column is a feature of the linear center"),
    ("center", {"encoders.0.name": "y_center"}, "the center column is a feature of the linear center"),
    ("center", {"encoders.0.name": "k"}, "center.linear.encoders have one name twice"),
    ("center", {"norm": 255}, "norm is not a number from 256"),
    ("center", {"epsilon": 0.0}, "components without an epsilon"),
    ("center", {"sampled": 0}, "sampled is not a number from 1"),
    ("center", {"labels": 20}, "labels is not the number of labels"),
    ("center", {"more": 1}, "linear has members that labeldp does not write: more"),
    ("center", {"signal": []}, "signal do not have 3 entries"),
    ("center", {"weights": [[1 << 30]]}, "weights"),
    ("center", {"gram": [[1]]}, "gram"),
    ("center", {"sums": [0.5]}, "sums"),
]
CELLS: list[tuple[dict[str, Any], str]] = [
    ({"sums": swap(3, 4)}, TREES),
    ({"sums.3": plus(20)}, TREES),
    ({"sums.3": 1 << 40}, "sums are larger than those of any labels"),
    ({"sums.-1": ...}, "center.linear.cells.sums do not have"),
    ({"trees.leaves.0.2": plus(1)}, TREES),
    ({"trees.leaves.-1.2": plus(-1)}, TREES),
    ({"trees": other_split}, TREES),
    ({"trees.columns": swap(1, 2)}, TREES),
    ({"trees": other_number}, TREES),
    (NO_TREES, TREES),
    ({"trees": one_less}, TREES),
    ({"range.1": plus(1)}, RANGE),
    ({"range.0": -20}, RANGE),
    ({"counts.12": lambda count: count // 2}, "center.linear cannot be replayed"),
    ({"counts": flat}, AGAINST),
    ({"counts": lambda counts: [SAMPLED * (place == len(counts) // 2) for place in range(len(counts))]}, AGAINST),
    ({"counts.0": 1 << 50}, "counts are not those of any labels"),
    ({"records": move(0, -1)}, TREES),
    ({"records.5": 100_000}, "records are more than center.linear.records"),
    ({"codes": lambda codes: [codes[1], *codes[1:]]}, "center.linear cannot be replayed"),
    ({"codes": lambda codes: [column[1:] for column in codes]}, "not those of its sample"),
    ({"sums": [], "range": []}, "sums of cells are missing that the histogram"),
    ({"sums": [], "range": [], "counts": flat}, TREES),
    # The noise was drawn for the true epsilon.
    (
        {"sums_epsilon": lambda spent: spent / 2},
        "release.center_epsilon is not the sum of those of the parts of the center",
    ),
    ({"records": lambda records: [0] * len(records)}, "= center.linear.cells.records are all 0"),
]
MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"columns.0.feature": 1}, "no category, or cuts of one that is"),
    ({"columns.0.cuts": [5, 5]}, "columns.cuts is not strictly ascending"),
    ({"columns.0.cuts": [1 << 13]}, "columns.cuts"),
    ({"columns.0.cuts": [*range(64)]}, "columns.cuts does not have 0 to 63"),
    ({"codes.0": "-" * SAMPLED}, "codes is not a text of the form"),
    ({"tree.children.0": 2}, "tree has children that are not a pair"),
    ({"tree.cuts.0": 64}, "tree has a node before its parent, or a leaf that is split"),
    ({"tree.columns.-1": 1}, "tree has a node before its parent, or a leaf that is split"),
    ({"range": []}, "range do not have 2 entries"),
    ({"sums.0": 1 << 91}, "sums"),
]


def center_of(folder: Path) -> Any:
    return json.loads((folder / "center.json").read_text())["linear"]


def without_sums(folder: Path) -> None:
    """The release as if no sum had been released: nothing follows from cells and sample, but the data have them."""
    spent = center_of(folder)["cells"]["sums_epsilon"]
    plant(folder, "center", of_cells({"sums": [], "range": [], "counts": flat, **NO_TREES}))
    less = {"center_epsilon": minus(spent), "center.linear.epsilon": minus(spent)}
    plant(folder, "release", {**less, "center.linear.cells.cells": 0, "center.linear.cells.trees": 0})


def after_that(changes: dict[str, Any]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        without_sums(folder)
        plant(folder, "center", of_cells(changes))

    return change


def lowered(folder: Path) -> None:
    """Half of the epsilon of the sums, also where the manifest states it."""
    spent = center_of(folder)["cells"]["sums_epsilon"]
    plant(folder, "center", {"cells.sums_epsilon": spent / 2})
    plant(folder, "release", {path: minus(spent / 2) for path in ("center_epsilon", "center.linear.epsilon")})


NOTHING: dict[str, Any] = {
    "weights": [], "signal": [], "epsilon": 0.0, "gram": [[65536]], "encoders": [], "sums": [], "coefficients": [0],
}  # fmt: skip
OF_CELLS: list[tuple[str, Any, str]] = [
    *(("center", of_cells(change), words) for change, words in (*CELLS, *MALFORMED)),
    ("", without_sums, ""),
    ("", lowered, TREES),
    (
        "",
        after_that({"codes": lambda codes: ["A" * SAMPLED for _ in codes]}),
        "= center.linear cannot be replayed: a cell of the center has no record of the sample",
    ),
    ("", after_that({"records": move(0, -1)}), ""),
    ("center", NOTHING, "= center.linear has cells, but no sums that they were made from"),
]


# Marginal sums.

EFFECTS = f"{REPLAYED}the marginals of the center do not follow from their sums"


def of_marginals(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"marginals.{path}": value for path, value in changes.items()}


def moved(folder: Path) -> None:
    """One record moved between parts, and another back: all parts have as many as before, and all follows from that."""
    center = read_center(center_of(folder))
    assert isinstance(center, MarginalCenter)
    given, common = center.marginals, center.marginals.common.copy()
    last, other = len(common) - 2, len(common) - 3
    for row, column, amount in ((last, 0, 1), (last, 1, -1), (other, 0, -1), (other, 1, 1)):
        common[row, column] += amount
        common[column, row] += amount
    taken = chosen_range(given.design, center.labels, common, given.counts)
    fitted = ReleasedMarginals.fit(given.design, center.labels, common, given.counts, taken, given.sums)
    plant(folder, "center", {"marginals": lambda _: marginals_document(fitted)})


MARGINALS: list[tuple[str, Any, str]] = [
    *(("center", of_marginals(changes), words) for changes, words in [
        ({"effects.2": plus(1)}, EFFECTS),
        ({"constant": plus(-1)}, EFFECTS),
        ({"sums.1": plus(1 << 40)}, "sums are larger than those of any labels"),
        ({"sums.1": plus(1000)}, EFFECTS),
        ({"counts.0": 1 << 50}, "counts are not those of any labels"),
        ({"range.0": plus(1)}, EFFECTS),
        ({"range.1": 50}, "range is not one of labels"),
        ({"common.3.0": plus(1)}, "common is not of records that are in one part of each feature"),
        ({"common.1.0": plus(1), "common.0.0": plus(-1), "common.1.1": plus(-1)}, "common"),
        ({"cuts.0": []}, "cuts of a category, or none of a number"),
        ({"cuts.0.1": -4096}, "cuts is not strictly ascending"),
        ({"effects.-1": ...}, "effects do not have"),
        ({"common.-1": ...}, "common do not have"),
        ({"more": 1}, "marginals has members that labeldp does not write: more"),
        ({"sums_epsilon": lambda spent: spent / 2}, "release.center_epsilon is not the sum of those of the parts"),
    ]),
    ("center", {"marginals": ...}, "features without a component"),
]  # fmt: skip


# Centers of classes.

CENTER = "class_center.center "
REPLAY = "class_center.center cannot be replayed: "
SUMS = "class_center.center.linear.sums are larger"
CLASS_COEFFICIENTS = f"{REPLAY}the coefficients of the center do not follow from its sums"
CLASS_CELLS = f"{REPLAY}the coefficients or trees of the center do not follow from the counts of the cells"
TREE = f"{REPLAY}the tree of the cells does not follow from the codes of its sample"
ORDER = "in ascending order: their order could hold labels"


def rotated(text: str) -> str:
    return text[1:] + text[:1]


def copied_row(place: int) -> Callable[[list[str]], None]:
    """A row that is the next one, too."""

    def change(rows: list[str]) -> None:
        rows[place] = rows[place + 1]

    return change


def halved(center: dict[str, Any]) -> None:
    """All parts of the budget lowered, as if noise had been twice as large."""
    grain = 2.0**-24
    total = sum(center["budget"].values()) / 2
    counts, left = center["budget"]["counts"] / 2, (total - center["budget"]["counts"] / 2) // grain * grain
    sums = left / 4 // grain * grain
    center["budget"] = {"counts": counts, "sums": sums, "cells": left - sums}
    center["linear"]["epsilon"], center["cells"]["epsilon"] = sums, center["budget"]["cells"]


CLASSES: list[tuple[Any, str]] = [
    ({"counts": move(0, 1, 1 << 40)}, "counts are not those of any labels"),
    ({"linear.sums.1": move(0, 1, 5000)}, CLASS_COEFFICIENTS),
    ({"linear.sums.2": move(0, 1, 1 << 50)}, SUMS),
    ({"linear.sums.0": move(0, 1, 1 << 50)}, SUMS),
    ({"linear.sums.0.0": 1 << 40}, "sums of the constant add up to more"),
    ({"linear.coefficients.1": move(0, 1)}, CLASS_COEFFICIENTS),
    ({"linear.coefficients.0": move(0, 1, 2)}, CLASS_COEFFICIENTS),
    ({"linear.signal.0": 0.3}, CLASS_COEFFICIENTS),
    ({"cells.counts.5.0": 100}, "cells.counts do not add up"),
    ({"cells.counts.5": move(0, 1, 1 << 40)}, "cells.counts are not those of any labels"),
    ({"cells.counts.5": move(0, 1, 3)}, CLASS_CELLS),
    ({"cells.coefficients.2": move(0, 1, -1)}, CLASS_CELLS),
    ({"cells.trees": other_split}, CLASS_CELLS),
    ({"cells.trees.cuts.3.1": 64}, CLASS_CELLS),
    ({"cells.trees": other_number}, CLASS_CELLS),
    (of_cells(NO_TREES), CLASS_CELLS),
    ({"cells.trees": one_less}, CLASS_CELLS),
    ({"cells.trees.leaves.0.2": move(0, 1)}, CLASS_CELLS),
    ({"cells.trees.leaves.-1.7": move(1, 0)}, CLASS_CELLS),
    ({"cells.codes.0": rotated}, REPLAY),
    ({"cells.codes.-1": rotated}, REPLAY),
    ({"cells.rows": copied_row(1)}, REPLAY),
    ({"linear.rows": copied_row(0)}, "out of range"),
    ({"linear.rows": copied_row(1)}, REPLAY),
    ({"cells.epsilon": 0.5}, "cells.epsilon is not class_center.center.budget"),
    ({"linear.epsilon": 0.125}, "linear.epsilon is not class_center.center"),
    ({"budget.sums": 0.0125}, "budget.sums is not the part of epsilon"),
    (halved, REPLAY),
    ({"budget.cells": 31.0}, "budget.cells is not a number from 0"),
    ({"counts": [6000]}, "counts does not have 2 to 128"),
    ({"linear.epsilon": 0.0}, "linear.sums do not have 0 entries"),
    ({"linear.norm": 255}, "linear.norm is not a number from 256"),
    ({"linear.rows.0": "E"}, "linear.rows are not base64"),
    ({"linear.rows.0": "EB=="}, "linear.rows have another spelling"),
    ({"linear.rows.0": "EA=="}, "linear.rows are not of one length"),
    ({"cells.features.0.cuts": [3, 2]}, "cells.features"),
    ({"cells.tree.children.0": 2}, "cells.tree has children that are not a pair"),
    ({"cells.counts.0.0": 1 << 51}, "cells.counts is not a number"),
    ({"cells.trees.leaves.0.0.0": 1 << 41}, "cells.trees.leaves is not a number"),
]


def refitted(edit: Callable[[Any], None]) -> Callable[[dict[str, Any]], None]:
    """The party does the arithmetic as it should, but for another public part."""

    def change(document: dict[str, Any]) -> None:
        center = read_class_center(document)
        cells, linear = center.cells, center.linear
        assert cells is not None
        parts = SimpleNamespace(
            design=linear.design, sums=linear.sums, sample=cells.design.sample, counts=cells.counts,
            tree=cells.design.sample.partition.tree,
        )  # fmt: skip
        edit(parts)
        linear = LinearClasses.fit(parts.design, parts.sums)
        partition = dataclasses.replace(parts.sample.partition, tree=parts.tree)
        design = ClassCellDesign(
            dataclasses.replace(parts.sample, partition=partition), cells_epsilon(linear, center.budget)
        )
        cells = ReleasedClassCells.fit(design, linear, parts.counts)
        document.update(class_document(dataclasses.replace(center, linear=linear, cells=cells)))

    return change


def changed_part(name: str, **values: Callable[[Any], Any]) -> Callable[[Any], None]:
    """An edit of a part: of each field by a function of its value."""

    def edit(parts: Any) -> None:
        part = getattr(parts, name)
        own = {key: change(copy.copy(getattr(part, key))) for key, change in values.items()}
        setattr(parts, name, dataclasses.replace(part, **own))

    return edit


def swapped(places: int, others: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[places], array[others] = array[others], array[places].copy()
        return array

    return change


def added(place: tuple[int, int], amount: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] += amount
        return array

    return change


def other_cut(parts: Any) -> None:
    """Moves the cut of a split, so that each cell has a record of the sample still."""
    for node, step in itertools.product(reversed(range(len(parts.tree.cuts))), (1, -1)):
        cuts = parts.tree.cuts + step * (np.arange(len(parts.tree.cuts)) == node)
        tree = dataclasses.replace(parts.tree, cuts=cuts)
        if parts.tree.children[node] != node and len(np.unique(tree.cells(parts.sample.codes))) == len(tree.leaves):
            parts.tree = tree
            return
    pytest.fail("no cut can be moved")


def other_turn(parts: Any) -> None:
    """Exchanges the last two splits: the same cells in another order."""
    children = parts.tree.children.copy()
    first, second = (children.tolist().index(len(children) - last) for last in (2, 4))
    children[[first, second]] = children[[second, first]]
    parts.tree = dataclasses.replace(parts.tree, children=children)


def one_cell_less(parts: Any) -> None:
    """Takes the last split of the tree back, as if the budget allowed one cell less."""
    tree, last = parts.tree, len(parts.tree.children) - 2
    node = tree.children.tolist().index(last)
    columns, cuts, children = (each[:last].copy() for each in (tree.columns, tree.cuts, tree.children))
    columns[node], cuts[node], children[node] = 0, 64, node
    parts.tree = dataclasses.replace(tree, columns=columns, cuts=cuts, children=children)
    place = parts.tree.leaves.tolist().index(node)
    parts.counts = np.insert(parts.counts[:-2], place, parts.counts[-2:].sum(axis=0), axis=0)


def no_sums(parts: Any) -> None:
    parts.design, parts.sums = dataclasses.replace(parts.design, epsilon=0.0), ()


REFITTED: list[tuple[Callable[[Any], None], str]] = [
    (lambda parts: None, ""),
    (other_cut, TREE),
    (other_turn, TREE),
    (one_cell_less, TREE),
    (no_sums, f"{REPLAY}class sums are missing, though they would say enough"),
    (
        changed_part("design", map=lambda rows: dataclasses.replace(rows, norm=rows.norm << 8)),
        f"{REPLAY}class sums were released, though noise leaves too much unknown",
    ),
    (changed_part("design", rows=swapped(0, -1)), f"{REPLAY}rows of the linear part are not in asc"),
    (changed_part("design", rows=added((-1, 1), 16)), "not those of a part of the sample of the cells"),
    (changed_part("sample", codes=swapped(0, -1), rows=swapped(0, -1)), f"codes of the cells are not {ORDER}"),
    (changed_part("sample", codes=added((-1, -1), 9)), "codes of components and of logits are not those"),
]
ROWS: list[Row] = [
    *(("parquet to parquet, linear", *row) for row in LINEAR),
    *(("cells", *row) for row in OF_CELLS),
    *(("marginals", *row) for row in MARGINALS),
    *(("center of classes", "center", *row) for row in CLASSES),
    *(("center of classes", "center", refitted(edit), words) for edit, words in REFITTED),
    ("center of classes without sums", "center", {"linear.coefficients.1": move(0, 1)}, CLASS_COEFFICIENTS),
    ("center of classes without sums", "center", refitted(lambda parts: None), ""),
    ("center of classes without sums", "center", refitted(other_cut), TREE),
]


@planted(ROWS)
def test_the_audit_names_what_was_planted(name: str, file: str, change: Any, words: str, copied: Any) -> None:
    law(copied(name), file, change, words)


@planted([
    ("marginals", "", moved, "center.linear.marginals.common is not the number of records that two parts have in"),
    ("cells", "", without_sums, "centers that the linear center does not predict"),
    ("cells", "", after_that({"records": move(0, -1)}),
     "center.linear.cells.records are not the numbers of records in each cell"),
    # The last row stays the largest.
    ("cells", "", after_that({"codes.-1": lambda column: column[:-1] + "/"}),
     "center.linear.cells.codes are not those of a sample of the records"),
])  # fmt: skip
def test_the_records_show_it(name: str, file: str, change: Any, words: str, copied: Any) -> None:
    law(copied(name), file, change, words, data=True)


def test_the_report_on_cells(release: Any, copied: Any) -> None:
    folder, started = release("cells"), time.process_time()
    cells, report = center_of(folder)["cells"], audit_report(audit_path(str(folder), data=True)).splitlines()
    assert time.process_time() - started < 10
    low, high = cells["range"]
    of, histogram = f"{len(cells['sums'])} cells of features", f"has epsilon {cells['histogram_epsilon']!r}"
    assert (
        f"cells        {of}: sums of residuals clipped to {low}..{high} steps, of sensitivity {high - low}, with noise "
        f"of scale {(high - low) / cells['sums_epsilon']!r} for epsilon {cells['sums_epsilon']!r}; the histogram of "
        f"the residuals {histogram}; {len(cells['trees']['leaves'])} trees"
    ) in report
    (line,) = [line for line in report if line.startswith("replayed ")]
    assert line.startswith("replayed     with the program's own code: coefficients from ")
    assert line.endswith(f"trees from the histogram and {len(cells['sums'])} sums of cells")
    without_sums(changed := copied("cells"))
    assert audit_path(str(changed)).lines[0].splitlines()[1] == (
        f"cells        {of}, of which no sum was released; the histogram of the residuals {histogram}"
    )
