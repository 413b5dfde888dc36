"""Releases around a center of cells under audit: correct ones pass, and each planted change is found."""

import json
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path, audit_report

from tests.audit.written_files import write_document, write_shard

RECORDS, LABELS = 6000, 41
FORMATS = ("parquet", "tfrecord")


def table():
    """Labels that are linear in the features but for an interaction of two, which is worth cells."""
    random = np.random.default_rng(1)
    a, b, c = random.normal(0, 1, (3, RECORDS))
    kind = random.integers(0, 3, RECORDS)
    interaction = np.where((b > 0) == (c > 0), 4, -4)
    labels = np.rint(20 + 5 * a + 3 * b + interaction + 2 * kind + random.normal(0, 1, RECORDS))
    texts = [None if i % 31 == 4 else "uvw"[place] for i, place in enumerate(kind.tolist())]
    return pa.table({"a": a, "b": b, "c": c, "kind": texts, "y": np.clip(labels, 0, LABELS - 1)})


@pytest.fixture(scope="module")
def released(tmp_path_factory, key_file, invoke, command):
    """Releases with cells, by format of the shards."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    folder = tmp_path_factory.mktemp("cells")
    pq.write_table(table(), folder / "log.parquet")
    flags = {"input": folder / "log.parquet", "input_format": "parquet", "noise_key_file": key_file, "label": "y"}
    flags |= {"label_min": 0, "label_max": LABELS - 1, "label_step": 1, "epsilon": 1, "center": "cells"}
    for name in FORMATS:
        invoke(command("privatize", flags | {"output": folder / name, "output_format": name})).ok()
    return {name: folder / name for name in FORMATS}


@pytest.fixture
def copied(released, tmp_path):
    return shutil.copytree(released["parquet"], tmp_path / "released")


@pytest.fixture(scope="module")
def cells(released):
    return json.loads((released["parquet"] / "center.json").read_text())["linear"]["cells"]


def change(folder, edit):
    """Changes the linear center in both files that have it."""
    for name in ("mechanism.json", "center.json"):
        document = json.loads((folder / name).read_text())
        edit(document["center"]["linear"] if name == "mechanism.json" else document["linear"])
        write_document(folder / name, document)


def change_cells(folder, edit):
    change(folder, lambda linear: edit(linear["cells"]))


def problems(folder, data=False):
    return " | ".join(audit_path(str(folder), data=data).problems)


@pytest.mark.parametrize("name", FORMATS)
def test_a_correct_release_passes(released, cells, name):
    assert cells["sums"]
    assert len(cells["trees"]["leaves"]) >= 60
    started = time.process_time()
    audit = audit_path(str(released[name]), data=True)
    assert audit.problems == ()
    assert time.process_time() - started < 10
    low, high = cells["range"]
    (line,) = [line for line in audit_report(audit).splitlines() if line.startswith("cells ")]
    assert line == (
        f"cells        {len(cells['sums'])} cells of features: sums of residuals clipped to {low}..{high} steps, of "
        f"sensitivity {high - low}, with noise of scale {(high - low) / cells['sums_epsilon']!r} for epsilon "
        f"{cells['sums_epsilon']!r}; the histogram of the residuals has epsilon {cells['histogram_epsilon']!r}; "
        f"{len(cells['trees']['leaves'])} trees"
    )
    (line,) = [line for line in audit_report(audit).splitlines() if line.startswith("replayed ")]
    assert line.startswith("replayed     with the program's own code: coefficients from ")
    assert line.endswith(f"trees from the histogram and {len(cells['sums'])} sums of cells")


def worse_split(trees):
    """The first split of a tree, at another code of its column that is further from the best one."""
    cut = trees["cuts"][7][0]
    trees["cuts"][7][0] = cut + 9 if cut < 40 else cut - 9


def fewer_trees(trees):
    kept = len(trees["leaves"]) // 3
    size = max(size for size in (20, 40, 80, 140, 220) if size < kept)
    for key, each in trees.items():
        trees[key] = [tree for fold in range(3) for tree in each[fold * kept : fold * kept + size]]


def move_record(cells):
    """Another number of records in two cells."""
    cells["records"][0] += 1
    cells["records"][-1] -= 1


def swap(values, first, second):
    values[first], values[second] = values[second], values[first]


TREES = "center.linear cannot be replayed: the trees of the center do not follow from its sums"
RANGE = (
    "center.linear cannot be replayed: the range of the residuals of the center does not follow from their histogram"
)
AGAINST = (
    "center.linear cannot be replayed: sums of cells were released that the histogram of the residuals speaks against"
)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda cells: swap(cells["sums"], 3, 4), TREES),
        (lambda cells: cells["sums"].__setitem__(3, cells["sums"][3] + 20), TREES),
        (lambda cells: cells["sums"].__setitem__(3, 1 << 40), "sums are larger than those of any labels"),
        (lambda cells: cells["sums"].pop(), "center.linear.cells.sums do not have"),
        (lambda cells: cells["trees"]["leaves"][0].__setitem__(2, cells["trees"]["leaves"][0][2] + 1), TREES),
        (lambda cells: cells["trees"]["leaves"][-1].__setitem__(2, cells["trees"]["leaves"][-1][2] - 1), TREES),
        (lambda cells: worse_split(cells["trees"]), TREES),
        (lambda cells: swap(cells["trees"]["columns"], 1, 2), TREES),
        (lambda cells: fewer_trees(cells["trees"]), TREES),
        (lambda cells: cells["trees"].update(columns=[], cuts=[], leaves=[]), TREES),
        (lambda cells: [each.pop() for each in cells["trees"].values()], TREES),
        (lambda cells: cells["range"].__setitem__(1, cells["range"][1] + 1), RANGE),
        (lambda cells: cells["range"].__setitem__(0, -40), RANGE),
        (lambda cells: cells["counts"].__setitem__(15, cells["counts"][15] // 2), "center.linear cannot be replayed"),
        (lambda cells: cells.update(counts=[200] * len(cells["counts"])), AGAINST),
        (lambda cells: cells.update(counts=[6000 * (i == 15) for i in range(31)]), AGAINST),
        (lambda cells: cells["counts"].__setitem__(0, 1 << 50), "counts are not those of any labels"),
        (move_record, TREES),
        (lambda cells: cells["records"].__setitem__(5, 100_000), "records are more than center.linear.records"),
        (lambda cells: cells["codes"].__setitem__(0, cells["codes"][1]), "center.linear cannot be replayed"),
        (lambda cells: cells.update(codes=[each[1:] for each in cells["codes"]]), "not those of its sample"),
        (lambda cells: cells.update(sums=[], range=[]), "sums of cells are missing that the histogram"),
    ],
)
def test_a_change_of_what_follows_from_noised_numbers(copied, edit, problem):
    change_cells(copied, edit)
    assert problem in problems(copied)


def test_trees_without_sums(copied):
    def edit(cells):
        cells.update(sums=[], range=[], counts=[200] * len(cells["counts"]))

    change_cells(copied, edit)
    assert TREES in problems(copied)


def test_epsilons_that_are_lowered(copied):
    """The noise was drawn for the true epsilon: range or trees show it even if the manifest states the lower one, too.

    The range is checked first, and depends on the scale only where the best two are close.
    """
    change_cells(copied, lambda cells: cells.update(sums_epsilon=cells["sums_epsilon"] / 2))
    problem = "release.center_epsilon is not the sum of those of the linear center and its cells"
    found = problems(copied)
    assert problem in found
    assert TREES in found or RANGE in found
    release = json.loads((copied / "release.json").read_text())
    release["center_epsilon"] -= json.loads((copied / "center.json").read_text())["linear"]["cells"]["sums_epsilon"]
    write_document(copied / "release.json", release)
    found = problems(copied)
    assert problem not in found
    assert TREES in found or RANGE in found


def test_epsilons_that_add_up_to_more_than_was_stated(copied):
    release = json.loads((copied / "release.json").read_text())
    write_document(copied / "release.json", release | {"center_epsilon": release["center_epsilon"] / 2})
    assert "release.center_epsilon is not the sum" in problems(copied)
    lowered = {"certified_epsilon": release["certified_epsilon"] - 0.01}
    write_document(copied / "release.json", release | lowered)
    assert "release.certified_epsilon is below the sum" in problems(copied)


def replace_column(folder, **columns):
    (path,) = (folder / "data").iterdir()
    shard = pq.read_table(path)
    for name, edit in columns.items():
        values = edit(np.array(shard[name]))
        shard = shard.set_column(shard.schema.get_field_index(name), name, pa.array(values))
    write_shard(shard, path)


def test_a_center_of_a_record(copied):
    def next_label(values):
        values = values.copy()
        values[17] += 1
        return values

    replace_column(copied, y=next_label, y_center=next_label)
    assert problems(copied, data=True) == (
        "data/part-00000-of-00001.parquet has 1 centers that the linear center does not predict from the record's "
        "features, first in record 17"
    )


@pytest.fixture
def without_sums(copied):
    """The release as if no sum had been released: nothing follows from cells and sample, but the data have them."""

    def edit(cells):
        cells.update(sums=[], range=[], counts=[200] * len(cells["counts"]))
        cells["trees"].update(columns=[], cuts=[], leaves=[])

    spent = json.loads((copied / "center.json").read_text())["linear"]["cells"]["sums_epsilon"]
    change_cells(copied, edit)
    release = json.loads((copied / "release.json").read_text())
    release["center_epsilon"] -= spent
    release["center"]["linear"]["epsilon"] = release["center_epsilon"]
    release["center"]["linear"]["cells"] |= {"cells": 0, "trees": 0}
    write_document(copied / "release.json", release)
    return copied


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (move_record, "center.linear.cells.records are not the numbers of records in each cell"),
        (
            # The last row stays the largest.
            lambda cells: cells["codes"].__setitem__(-1, cells["codes"][-1][:-1] + "/"),
            "center.linear.cells.codes are not those of a sample of the records",
        ),
    ],
)
def test_what_only_the_records_show(without_sums, edit, problem):
    correct = problems(without_sums, data=True)
    assert "centers that the linear center does not predict" in correct
    assert "center.linear.cells" not in correct
    change_cells(without_sums, edit)
    assert problems(without_sums) == ""
    assert problem in problems(without_sums, data=True)


def test_the_line_of_cells_without_sums(without_sums, cells):
    audit = audit_path(str(without_sums))
    assert audit.problems == ()
    assert audit.center_line.splitlines()[1] == (
        f"cells        {len(cells['records'])} cells of features, of which no sum was released; the histogram of the "
        f"residuals has epsilon {cells['histogram_epsilon']!r}"
    )


MALFORMED = [
    (("columns", 0, "feature"), 3, "no category, or cuts of one that is"),
    (("columns", 0, "cuts"), [5, 5], "columns.cuts are not ascending"),
    (("columns", 0, "cuts"), [1 << 13], "columns.cuts"),
    (("columns", 0, "cuts"), list(range(64)), "columns.cuts are not at most 63"),
    (("codes", 0), "-" * RECORDS, "codes have characters"),
    (("tree", "children", 0), 2, "tree has children that are not a pair"),
    (("tree", "cuts", 0), 64, "tree has a node before its parent, or a leaf that is split"),
    (("tree", "columns", -1), 1, "tree has a node before its parent, or a leaf that is split"),
    (("range",), [], "range without sums"),
    (("sums", 0), 1 << 91, "sums"),
]


@pytest.mark.parametrize(("path", "value", "problem"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_members(copied, path, value, problem):
    def edit(linear):
        place, key = linear, "cells"
        for each in path:
            place, key = place[key], each
        place[key] = value

    change(copied, edit)
    found = problems(copied)
    assert problem in found
    assert "center.linear.cells" in found
    assert " | " not in found


def test_all_records_are_zero(copied):
    change_cells(copied, lambda cells: cells.update(records=[0] * len(cells["records"])))
    assert problems(copied) == "center.linear.cells.records are all 0"


def test_a_cell_without_a_record_of_the_sample(without_sums):
    assert problems(without_sums) == ""
    change_cells(without_sums, lambda cells: cells.update(codes=["A" * RECORDS for _ in cells["codes"]]))
    assert problems(without_sums) == (
        "center.linear cannot be replayed: a cell of the center has no record of the sample"
    )


def test_cells_of_a_center_without_sums(copied):
    def edit(linear):
        linear.update(weights=[], signal=[], epsilon=0.0, gram=[[65536]], encoders=[], sums=[], coefficients=[0])

    change(copied, edit)
    assert problems(copied) == "center.linear has cells, but no sums that they were made from"
