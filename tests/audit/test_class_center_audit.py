"""Releases of classes drawn from a center under audit: correct ones pass, and each planted change is found."""

import copy
import dataclasses
import hashlib
import itertools
import json
import shutil
import struct
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_mechanism import audit_mechanism
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.center_replay import PublishedSplits, class_replay_problems
from labeldp.audit.class_center_document import read_class_center, sum_zero_variance
from labeldp.audit.class_columns import probabilities_of_column, probabilities_of_messages
from labeldp.audit.class_predictions import coded_probabilities
from labeldp.audit.documents import RefusedDocument
from labeldp.audit.drawn_classes import DrawnClasses
from labeldp.mechanisms.center.cell_partition import CellTree
from labeldp.mechanisms.center.class_center import ClassCellDesign, ReleasedClassCells, cells_epsilon
from labeldp.mechanisms.center.class_document import class_document
from labeldp.mechanisms.center.class_document import read_class_center as product_center
from labeldp.mechanisms.center.class_logit import LinearClasses
from labeldp.mechanisms.noise import sum_zero_laplace
from labeldp.mechanisms.noise.discrete_laplace import ByteStream

from tests.audit.written_files import write_document, write_shard
from tests.commands import write_key

RECORDS = 6000
ILL = ("none", "cold", "flu", "rare")
FEATURES = ("a", "b", "c", "kind")
NOISE = tuple(f"n{place}" for place in range(24))
RELEASES: dict[str, dict[str, Any]] = {
    "two": {"label": "sold", "label_classes": "0,1", "epsilon": 1},
    "four": {"label": "ill", "label_classes": ",".join(ILL), "epsilon": 2, "num_shards": 2},
    "records": {
        "label": "sold", "label_classes": "0,1", "epsilon": 2, "output_format": "tfrecord",
        "center_features": "a,b,far,kind",
    },
    "sumless": {"label": "sold", "label_classes": "0,1", "epsilon": 0.1, "center_features": ",".join(FEATURES + NOISE)},
}  # fmt: skip


def table(records=RECORDS, seed=1):
    """Classes whose logits are linear in the features but for an interaction of two, which is worth cells.

    In float32, `far` has two digits after the point.
    """
    random = np.random.default_rng(seed)
    a, b, c, *noise = random.normal(0, 1, (3 + len(NOISE), records))
    kind = random.integers(0, 3, records)
    logits = 1.5 * a + np.where((b > 0) == (c > 0), 1.6, -1.6) + 0.8 * (kind == 1) - 0.3
    weights = np.exp(np.stack([2 * a, 1.5 * b - 1, np.where(c > 0, 1.5, -1) * (kind == 1), -2 * a], axis=1))
    ill = (weights.cumsum(axis=1) < random.random((records, 1)) * weights.sum(axis=1, keepdims=True)).sum(axis=1)
    texts = [None if i % 31 == 4 else "uvw"[place] for i, place in enumerate(kind.tolist())]
    sold = (random.random(records) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    features = {
        "id": np.arange(records),
        "a": a,
        "b": b,
        "c": c,
        "far": c + 1e5,
        "kind": texts,
        **dict(zip(NOISE, noise, strict=True)),
    }
    return pa.table(features | {"sold": sold, "ill": np.array(ILL)[ill].tolist()})


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Folder of the log and of a key: with ids of the records, the noise is the same in every run."""
    folder = tmp_path_factory.mktemp("centers")
    pq.write_table(table(), folder / "log.parquet")
    write_key(folder / "noise.key", bytes(range(32)))
    return folder


@pytest.fixture(scope="module")
def flags(logs):
    flags = {"input": logs / "log.parquet", "input_format": "parquet", "noise_key_file": logs / "noise.key"}
    flags |= {"id_column": "id"}
    return flags | {"center": "cells", "center_features": ",".join(FEATURES), "output_format": "parquet"}


@pytest.fixture(scope="module")
def released(logs, flags, invoke, command):
    """Folders of the releases by name."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    for name, own in RELEASES.items():
        invoke(command("privatize", flags | own | {"output": logs / name})).ok()
    return {name: logs / name for name in RELEASES}


@pytest.fixture
def copied(released, tmp_path):
    """Function (name) -> a copy of a release."""
    return lambda name: shutil.copytree(released[name], tmp_path / "released")


@pytest.fixture(scope="module")
def mechanisms(released):
    return {name: json.loads((folder / "mechanism.json").read_text()) for name, folder in released.items()}


def problems(folder, data=False):
    return " | ".join(audit_path(str(folder), data=data).problems)


def change(folder, edit):
    """Changes the center in both files that have it, and its summary in the manifest."""
    mechanism = json.loads((folder / "mechanism.json").read_text())
    center = mechanism["class_center"]["center"]
    edit(center)
    write_document(folder / "mechanism.json", mechanism)
    document = json.loads((folder / "center.json").read_text())
    write_document(folder / "center.json", document | {"center": center})
    release = json.loads((folder / "release.json").read_text())
    text = json.dumps(center, sort_keys=True, separators=(",", ":"))
    release["class_center"] |= {
        "fingerprint": hashlib.blake2b(text.encode(), digest_size=32).hexdigest(),
        "sums": len(center["linear"]["sums"]),
        "cells": len(center["cells"]["counts"]),
        "trees": len(center["cells"]["trees"]["leaves"]),
    }
    write_document(folder / "release.json", release)


@pytest.mark.parametrize("name", RELEASES)
def test_a_correct_release_passes(released, mechanisms, name):
    center = mechanisms[name]["class_center"]["center"]
    assert bool(center["linear"]["sums"]) == (name != "sumless")
    assert len(center["cells"]["trees"]["leaves"]) >= (0 if name == "sumless" else 30)
    started = time.process_time()
    audit = audit_path(str(released[name]), data=True)
    assert audit.problems == ()
    assert time.process_time() - started < 15
    report = audit_report(audit)
    cells, epsilon = center["cells"], center["cells"]["epsilon"]
    scale = float(1 / Fraction(epsilon))
    trees = f"{len(cells['trees']['leaves'])} trees"
    assert "\nreplayed     with the program's own code: " in report
    assert (
        f"partition of the sample, coefficients and {trees} from the counts of {len(cells['counts'])} cells" in report
    )
    noise = f"counts of the classes with noise of scale {scale!r} for epsilon {epsilon!r}"
    assert f"cells        {len(cells['counts'])} cells of features: {noise}; {trees}" in report
    assert "all probabilities are those that the published center predicts" in report
    assert "the center was made from as many records, with the same cells and sums of features" in report
    assert ("from features before they were rounded to float32" in report) == (name == "records")
    assert ("class sums   none" in report) == (name == "sumless")
    told = "would have about" if name in ("four", "records") else "would pass, too"
    assert f"true classes in place of all draws {told}" in report
    assert "not shown    that draws depend on nothing else" in report


def worse_split(trees):
    """The first split of a tree, at another code of its column that is further from the best one."""
    cut = trees["cuts"][7][0]
    trees["cuts"][7][0] = cut + 9 if cut < 40 else cut - 9


def fewer_trees(trees):
    kept = len(trees["leaves"]) // 3
    size = max(size for size in (10, 20, 40, 80, 140, 220) if size < kept)
    for key, each in trees.items():
        trees[key] = [tree for fold in range(3) for tree in each[fold * kept : fold * kept + size]]


UNIT = 1 / (1 << 16)
"""Probabilities are multiples of it."""


def move(values, first, second, amount=1):
    """Moves an amount from one number of a list to another, so that they add up to the same."""
    values[first] -= amount
    values[second] += amount


def rotate_codes(cells, column):
    text = cells["codes"][column]
    cells["codes"][column] = text[1:] + text[:1]


def halved(center):
    """All parts of the budget lowered, as if noise had been twice as large."""
    grain = 2.0**-24
    total = sum(center["budget"].values()) / 2
    counts, left = center["budget"]["counts"] / 2, (total - center["budget"]["counts"] / 2) // grain * grain
    sums = left / 4 // grain * grain
    center["budget"] = {"counts": counts, "sums": sums, "cells": left - sums}
    center["linear"]["epsilon"], center["cells"]["epsilon"] = sums, center["budget"]["cells"]


SUMS = "class_center.center.linear.sums are larger"
REPLAYED = "class_center.center cannot be replayed: "
LINEAR = f"{REPLAYED}the coefficients of the center do not follow from its sums"
CELLS = f"{REPLAYED}the coefficients or trees of the center do not follow from the counts of the cells"
TREE = f"{REPLAYED}the tree of the cells does not follow from the codes of its sample"
ORDER = "in ascending order: their order could hold labels"


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda center: move(center["counts"], 0, 1, 1 << 40), "counts are not those of any labels"),
        (lambda center: move(center["linear"]["sums"][1], 0, 1, 5000), LINEAR),
        (lambda center: move(center["linear"]["sums"][2], 0, 1, 1 << 50), SUMS),
        (lambda center: move(center["linear"]["sums"][0], 0, 1, 1 << 50), SUMS),
        (lambda center: center["linear"]["sums"][0].__setitem__(0, 1 << 40), "sums of the constant add up to more"),
        (lambda center: move(center["linear"]["coefficients"][1], 0, 1), LINEAR),
        (lambda center: move(center["linear"]["coefficients"][0], 0, 1, 2), LINEAR),
        (lambda center: center["linear"]["signal"].__setitem__(0, 0.3), LINEAR),
        (lambda center: center["cells"]["counts"][5].__setitem__(0, 100), "cells.counts do not add up"),
        (lambda center: move(center["cells"]["counts"][5], 0, 1, 1 << 40), "cells.counts are not those of any labels"),
        (lambda center: move(center["cells"]["counts"][5], 0, 1, 3), CELLS),
        (lambda center: move(center["cells"]["coefficients"][2], 0, 1, -1), CELLS),
        (lambda center: worse_split(center["cells"]["trees"]), CELLS),
        (lambda center: center["cells"]["trees"]["cuts"][3].__setitem__(1, 64), CELLS),
        (lambda center: fewer_trees(center["cells"]["trees"]), CELLS),
        (lambda center: center["cells"]["trees"].update(columns=[], cuts=[], leaves=[]), CELLS),
        (lambda center: [each.pop() for each in center["cells"]["trees"].values()], CELLS),
        (lambda center: move(center["cells"]["trees"]["leaves"][0][2], 0, 1), CELLS),
        (lambda center: move(center["cells"]["trees"]["leaves"][-1][7], 1, 0), CELLS),
        (lambda center: rotate_codes(center["cells"], 0), REPLAYED),
        (lambda center: rotate_codes(center["cells"], -1), REPLAYED),
        (lambda center: center["cells"]["rows"].__setitem__(1, center["cells"]["rows"][2]), REPLAYED),
        (lambda center: center["linear"]["rows"].__setitem__(0, center["linear"]["rows"][1]), "out of range"),
        (lambda center: center["linear"]["rows"].__setitem__(1, center["linear"]["rows"][2]), REPLAYED),
        (lambda center: center["cells"].__setitem__("epsilon", 0.5), "cells.epsilon is not class_center.center.budget"),
        (lambda center: center["linear"].__setitem__("epsilon", 0.125), "linear.epsilon is not class_center.center"),
        (lambda center: center["budget"].__setitem__("sums", 0.0125), "budget.sums is not the part of epsilon"),
        (halved, REPLAYED),
    ],
)
def test_a_change_of_what_follows_from_noised_numbers(copied, edit, problem):
    folder = copied("two")
    change(folder, edit)
    assert problem in problems(folder)


def refitted(center, edit):
    """The document of a center whose public part is edited, with coefficients and trees that follow from it."""
    cells, linear = center.cells, center.linear
    parts = SimpleNamespace(
        design=linear.design, sums=linear.sums, sample=cells.design.sample, tree=cells.design.sample.partition.tree,
        counts=cells.counts,
    )  # fmt: skip
    edit(parts)
    linear = LinearClasses.fit(parts.design, parts.sums)
    partition = dataclasses.replace(parts.sample.partition, tree=parts.tree)
    design = ClassCellDesign(
        dataclasses.replace(parts.sample, partition=partition), cells_epsilon(linear, center.budget)
    )
    cells = ReleasedClassCells.fit(design, linear, parts.counts)
    return class_document(dataclasses.replace(center, linear=linear, cells=cells))


def changed_part(name, **values):
    """An edit of a part: of each field by a function of its value."""

    def edit(parts):
        part = getattr(parts, name)
        own = {key: change(copy.copy(getattr(part, key))) for key, change in values.items()}
        setattr(parts, name, dataclasses.replace(part, **own))

    return edit


def swapped(places, others):
    def change(array):
        array[places], array[others] = array[others], array[places].copy()
        return array

    return change


def other_cut(parts):
    """Moves the cut of a split, so that each cell has a record of the sample still."""
    for node, step in itertools.product(reversed(range(len(parts.tree.cuts))), (1, -1)):
        cuts = parts.tree.cuts + step * (np.arange(len(parts.tree.cuts)) == node)
        tree = dataclasses.replace(parts.tree, cuts=cuts)
        if parts.tree.children[node] != node and len(np.unique(tree.cells(parts.sample.codes))) == len(tree.leaves):
            parts.tree = tree
            return
    pytest.fail("no cut can be moved")


def other_turn(parts):
    """Exchanges the last two splits: the same cells in another order."""
    children = parts.tree.children.copy()
    first, second = (children.tolist().index(len(children) - last) for last in (2, 4))
    children[[first, second]] = children[[second, first]]
    parts.tree = dataclasses.replace(parts.tree, children=children)


def one_cell_less(parts):
    """Takes the last split of the tree back, as if the budget allowed one cell less."""
    tree, last = parts.tree, len(parts.tree.children) - 2
    node = tree.children.tolist().index(last)
    columns, cuts, children = (each[:last].copy() for each in (tree.columns, tree.cuts, tree.children))
    columns[node], cuts[node], children[node] = 0, 64, node
    parts.tree = dataclasses.replace(tree, columns=columns, cuts=cuts, children=children)
    place = parts.tree.leaves.tolist().index(node)
    parts.counts = np.insert(parts.counts[:-2], place, parts.counts[-2:].sum(axis=0), axis=0)


def add_at(place, amount):
    def change(array):
        array[place] += amount
        return array

    return change


def without_sums(parts):
    parts.design, parts.sums = dataclasses.replace(parts.design, epsilon=0.0), ()


@pytest.mark.parametrize(
    ("name", "edit", "problem"),
    [
        ("two", lambda parts: None, ""),
        ("sumless", lambda parts: None, ""),
        ("two", other_cut, TREE),
        ("sumless", other_cut, TREE),
        ("two", other_turn, TREE),
        ("two", one_cell_less, TREE),
        ("two", without_sums, f"{REPLAYED}class sums are missing, though they would say enough"),
        (
            "two",
            changed_part("design", map=lambda rows: dataclasses.replace(rows, norm=rows.norm << 8)),
            f"{REPLAYED}class sums were released, though noise leaves too much unknown",
        ),
        ("two", changed_part("design", rows=swapped(0, -1)), f"{REPLAYED}rows of the linear part are not in asc"),
        ("two", changed_part("design", rows=add_at((-1, 1), 16)), "not those of a part of the sample of the cells"),
        ("two", changed_part("sample", codes=swapped(0, 1), rows=swapped(0, 1)), f"codes of the cells are not {ORDER}"),
        ("two", changed_part("sample", codes=add_at((-1, -1), 1)), "codes of components and of logits are not those"),
    ],
)
def test_a_public_part_that_is_chosen_otherwise(mechanisms, name, edit, problem):
    """The party does the arithmetic as it should, but for another partition or sample, or without class sums."""
    document = refitted(product_center(mechanisms[name]["class_center"]["center"]), edit)
    found = " | ".join(class_replay_problems(document))
    assert problem in found
    assert bool(found) == bool(problem)


def test_split_columns_are_the_widest_under_some_scales():
    """Two splits that compare two columns in opposite ways contradict each other, whatever the scales are."""
    ranks = np.array([[0.0, 0.0], [1.0, 1.2], [3.0, 0.0], [4.0, 0.9]])
    for columns, exist in (([0, 0], True), ([0, 1], False), ([1, 1], False)):
        tree = CellTree(np.array(columns), np.array([1, 1]), np.array([1, 1]))
        splits = PublishedSplits(tree, ranks, 2)
        for node, members in enumerate((np.array([0, 1]), np.array([2, 3]))):
            assert splits.column(node, members, np.array([True, True])) == columns[node]
        assert splits.widest_under_some_scales() == exist


def test_a_center_without_sums_has_no_coefficients_of_its_own(copied):
    folder = copied("sumless")
    change(folder, lambda center: move(center["linear"]["coefficients"][1], 0, 1))
    assert LINEAR in problems(folder)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("center_epsilon",), 0.5, "release.center_epsilon is not the sum of those of class_center, rounded up"),
        (("certified_epsilon",), 0.5, "release.certified_epsilon is below release.center_epsilon"),
        (("delta",), 1e-9, "release.delta is not 0"),
        (("format",), "labeldp-release-1", "release.json is not a release manifest of this mechanism"),
        (("prior_epsilon",), 0.001, "release.prior_epsilon is there, but mechanism.json has no randomizer"),
        (("expected_loss",), {}, "release.expected_loss is there, but mechanism.json has no randomizer"),
        (("mechanism",), "rr", "release.mechanism is there, but mechanism.json has no randomizer"),
        (("class_center", "column"), "other", "release.class_center.column is not that of mechanism.json"),
        (("class_center", "features"), ["a", "b"], "release.class_center.features is not that"),
        (("class_center", "cells"), 900.0, "release.class_center.cells is not that"),
        (("class_center", "trees"), 3, "release.class_center.trees is not that"),
        (("class_center", "fingerprint"), "0" * 64, "release.class_center.fingerprint is not that"),
        (("class_center", "more"), 1, "release.class_center.more is not that"),
        (("warnings",), ["label_error"], "release.warnings has unknown names"),
        (("label",), "kind", "the label column is a feature of the center"),
        (("label",), "sold_probabilities", "class_center.column is the label column"),
    ],
)
def test_a_change_of_the_manifest(copied, path, value, problem):
    folder = copied("two")
    release = json.loads((folder / "release.json").read_text())
    place = release
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    write_document(folder / "release.json", release)
    assert problem in problems(folder)


def test_both_files_have_one_center(copied):
    folder = copied("two")
    document = json.loads((folder / "center.json").read_text())
    document["center"]["counts"] = document["center"]["counts"][::-1]
    write_document(folder / "center.json", document)
    assert "center.json is not the center of classes of mechanism.json" in problems(folder)
    (folder / "center.json").unlink()
    assert "center.json is missing: mechanism.json has a center of classes" in problems(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mechanism": "rr"}, "mechanism is there beside class_center"),
        ({"prior": {"weights": [0.5, 0.5], "epsilon": 0.0}}, "prior is there beside class_center"),
        ({"missing_label": "2"}, "missing_label is not one of the classes"),
        ({"classes": {"values": ["0", "1", "2"], "other": 0}}, "class_center.center.counts are not one for each class"),
        ({"classes": None}, "classes is not an object"),
        ({"label": 1}, "label is not"),
        ({"format": "labeldp-mechanism-1"}, "class_center is there beside a randomizer"),
    ],
)
def test_nothing_beside_the_center_holds_labels(mechanisms, change, problem):
    """A document has neither randomizer nor prior; one of another version, with both, is refused."""
    first = {**json.loads(Path(__file__).with_name("response.json").read_text()), **mechanisms["two"]}
    first["classes"] = {"values": ["0", "1", "2"], "other": 0}
    first["labels"] = first["outputs"] = [0.0, 1.0, 2.0]
    document = (first if "format" in change else mechanisms["two"]) | change
    assert problem in " | ".join(audit_mechanism(document).problems)


def put(document, path, value):
    for key in path[:-1]:
        document = document[key]
    if value is ...:
        del document[path[-1]]
    else:
        document[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("column",), "", "class_center.column is not a name"),
        (("center", "budget", "cells"), 31.0, "budget.cells is not between"),
        (("center", "counts"), [6000], "counts are not those of 2 to 128 classes"),
        (("center", "linear", "epsilon"), 0.0, "linear.sums do not have 0 rows"),
        (("center", "linear", "norm"), 255, "linear.norm is not between"),
        (("center", "linear", "rows", 0), "E", "linear.rows are not base64"),
        (("center", "linear", "rows", 0), "EB==", "linear.rows have another spelling"),
        (("center", "linear", "rows", 0), "EA==", "linear.rows are not of one length"),
        (("center", "cells", "features", 0, "cuts"), [3, 2], "cells.features"),
        (("center", "cells", "tree", "children", 0), 2, "cells.tree has children that are not a pair"),
        (("center", "cells", "counts", 0, 0), 1 << 51, "cells.counts are not integers"),
        (("center", "cells", "trees", "leaves", 0, 0, 0), 1 << 41, "cells.trees.leaves are not integers"),
    ],
)
def test_malformed_members_are_refused(mechanisms, path, value, problem):
    document = copy.deepcopy(mechanisms["two"])
    put(document, ("class_center", *path), value)
    with pytest.raises(RefusedDocument, match=problem):
        read_class_center(document)


def shards(folder):
    return sorted((folder / "data").iterdir())


def rewrite(folder, edit):
    """Changes the table of the first Parquet shard."""
    path = shards(folder)[0]
    write_shard(edit(pq.read_table(path)), path)


def with_column(found, name, values):
    return found.set_column(found.schema.get_field_index(name), name, values)


def with_probabilities(found, edit, name="ill_probabilities", kind=None):
    lists = found[name].to_pylist()
    edit(lists)
    return with_column(found, name, pa.array(lists, found.schema.field(name).type if kind is None else kind))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (
            lambda lists: move(lists[7], 0, 1, UNIT),
            "1 probabilities that the center does not predict from the record's",
        ),
        (lambda lists: move(lists[7], 1, 3, UNIT), "first in record 7"),
        (
            lambda lists: lists[7].__setitem__(0, lists[7][0] + UNIT),
            "1 probabilities that the center does not predict",
        ),
        (lambda lists: lists.__setitem__(7, lists[8]), "1 probabilities that the center does not predict"),
        (lambda lists: lists[7].pop(), "has a record without exactly 4 probabilities"),
        (lambda lists: lists.__setitem__(7, None), "has a record without exactly 4 probabilities"),
        (lambda lists: lists[7].__setitem__(0, None), "has a record without exactly 4 probabilities"),
    ],
)
def test_a_change_of_probabilities(copied, edit, problem):
    folder = copied("four")
    rewrite(folder, lambda found: with_probabilities(found, edit))
    assert problem in problems(folder, data=True)


def test_probabilities_of_another_type(copied):
    folder = copied("four")
    kind = pa.list_(pa.float64())
    rewrite(folder, lambda found: with_probabilities(found, lambda lists: None, kind=kind))
    assert "has probabilities that are not float32" in problems(folder, data=True)
    rewrite(folder, lambda found: with_column(found, "ill_probabilities", found["a"]))
    assert "has probabilities that are not lists" in problems(folder, data=True)


def test_a_feature_that_is_another_one(copied):
    folder = copied("four")
    values = pq.read_table(shards(folder)[0])["a"].to_pylist()
    rewrite(folder, lambda found: with_column(found, "a", pa.array([values[0] + 0.3, *values[1:]])))
    assert "1 probabilities that the center does not predict" in problems(folder, data=True)


def test_a_class_that_is_not_listed(copied):
    folder = copied("four")
    values = pq.read_table(shards(folder)[0])["ill"].to_pylist()
    rewrite(folder, lambda found: with_column(found, "ill", pa.array(["other", *values[1:]])))
    assert "1 labels that are no class that the mechanism releases, first in record 0" in problems(folder, data=True)


def replace_classes(folder, classes):
    """Replaces the released classes of all Parquet shards."""
    start = 0
    for path in shards(folder):
        found = pq.read_table(path)
        write_shard(with_column(found, "ill", classes[start : start + len(found)].combine_chunks()), path)
        start += len(found)


def test_true_classes_in_place_of_draws(copied):
    folder = copied("four")
    replace_classes(folder, table()["ill"])
    assert "the classes follow the noised counts of the cells, as true classes do" in problems(folder, data=True)


def test_true_classes_in_place_of_a_tenth_of_the_draws(copied):
    folder = copied("four")
    drawn = pa.concat_tables([pq.read_table(path) for path in shards(folder)])["ill"]
    replace_classes(folder, pa.chunked_array([*table()["ill"][:600].chunks, *drawn[600:].chunks]))
    assert "the classes of a run of records follow the noised counts of the cells" in problems(folder, data=True)


def test_likeliest_classes_in_place_of_draws(copied):
    folder = copied("four")
    chances = np.array(
        pa.concat_tables([pq.read_table(path) for path in shards(folder)])["ill_probabilities"].to_pylist()
    )
    replace_classes(folder, pa.chunked_array([np.array(ILL)[chances.argmax(axis=1)].tolist()]))
    assert "the classes were not drawn from their probabilities" in problems(folder, data=True)


def test_a_center_of_other_records(released, logs, flags, invoke, command, tmp_path):
    """What was counted is compared with the records it was counted from, and the report says if these are others."""
    pq.write_table(table(1500, seed=7), tmp_path / "log.parquet")
    own = {key: flags[key] for key in ("input_format", "noise_key_file", "output_format", "id_column")}
    own |= {"input": tmp_path / "log.parquet", "output": tmp_path / "applied", "label": "ill"}
    invoke(command("apply", own | {"mechanism_file": released["four"] / "mechanism.json"})).ok()
    audit = audit_path(str(tmp_path / "applied"), data=True)
    assert audit.problems == ()
    assert "the center was made from other records" in audit_report(audit)
    assert "not shown    that draws are independent of true classes" in audit_report(audit)


def encoded(multiples, kind=0x12):
    """Feature of a packed list of floats, multiples of 1 / 65,536."""
    packed = struct.pack(f"<{len(multiples)}f", *(each / (1 << 16) for each in multiples))
    own = bytes([0x0A, len(packed)]) + packed
    return bytes([kind, len(own)]) + own


def test_encodings_of_probabilities():
    wanted = [[1 << 15, (1 << 15) - 1], [1, 65535], [65536, 0]]
    assert probabilities_of_messages([encoded(each) for each in wanted], 2).tolist() == wanted
    assert probabilities_of_messages([], 2).shape == (0, 2)
    many = list(range(1, 101))
    own = struct.pack("<100f", *(each / (1 << 16) for each in many))
    long = bytes([0x12, 0x93, 0x03, 0x0A, 0x90, 0x03]) + own
    assert probabilities_of_messages([long], 100).tolist() == [many]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        encoded([40000]),
        encoded([40000, 40000, 40000]),
        encoded([40000, 40000], kind=0x1A),
        encoded([40000, 40000]) + b"\x80",
        bytes([0x12, 0x8A, 0x00]) + encoded([40000, 40000])[2:],
        bytes([0x12, 0x0A, 0x0D, 0, 0, 0, 0x3F, 0x0D, 0, 0, 0, 0x3F]),  # not packed
    ],
)
def test_other_encodings_of_probabilities_are_refused(message):
    with pytest.raises(RefusedDocument, match="has a record whose probabilities are not"):
        probabilities_of_messages([message], 2)


@pytest.mark.parametrize("value", [-0.0, np.nan, np.inf, -0.5, 0.5 + 2.0**-20, 1.5, 1e-30])
def test_floats_that_are_no_probabilities(value):
    """More bits than a multiple of the unit has could hold a label; none of them is taken as the multiple."""
    column = pa.array([[0.5, value]], pa.list_(pa.float32()))
    assert probabilities_of_column(column, 2).tolist() == [[1 << 15, -1]]
    message = encoded([1 << 15, 0])[:-4] + struct.pack("<f", value)
    assert probabilities_of_messages([message], 2).tolist() == [[1 << 15, -1]]


def test_probabilities_of_a_tfrecord(copied):
    """Without checksums that fit, no change of a record gets as far as its probabilities."""
    folder = copied("records")
    path = shards(folder)[0]
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    place = content.index(b"sold_probabilities", 12) + len(b"sold_probabilities") + 6
    assert place < 12 + length
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert "wrong checksum" in problems(folder, data=True)


@pytest.mark.parametrize("classes", [2, 3, 7, 100])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(7, 2), Fraction(10**6)])
def test_variance_of_the_noise(classes, scale):
    expected = sum_zero_laplace.sum_zero_variance(scale, classes)
    assert sum_zero_variance(scale, classes) == pytest.approx(expected, rel=1e-9)


def test_probabilities_add_up_and_are_never_0():
    logits = np.array([[0, 0, 0], [1 << 24, 0, -(1 << 24)], [-5, 3, 1]])
    found = coded_probabilities(logits)
    assert found.sum(axis=1).tolist() == [1 << 16] * 3
    assert found[1].tolist() == [65534, 1, 1]
    assert found[0].tolist() == [21846, 21845, 21845]


@pytest.fixture
def random():
    return np.random.default_rng(5)


def center_of(counts, epsilon) -> Any:
    return SimpleNamespace(
        counts=[0] * counts.shape[1], cells=SimpleNamespace(counts=counts.tolist(), epsilon=Fraction(epsilon))
    )


@pytest.mark.parametrize("classes", [2, 5])
def test_draws_pass_and_what_they_must_not_know_is_found(random, classes):
    """True classes are told from draws, though their probabilities are right; what is expected of them is found."""
    cells = random.integers(0, 1500, 12_000)
    chances = coded_probabilities((random.normal(0, 1, (12_000, classes)) * (1 << 16)).astype(np.int64))
    drawn, true = (
        (chances.cumsum(axis=1) <= random.integers(0, 1 << 16, (12_000, 1))).sum(axis=1).astype(float) for _ in range(2)
    )
    counts = np.bincount(cells * classes + true.astype(int), minlength=1500 * classes).reshape(-1, classes)
    counts += sum_zero_laplace.sum_zero_laplace(ByteStream(bytes(32), b"test"), Fraction(1), classes, 1500)
    for labels, problem in ((drawn, ""), (true, "follow the noised counts of the cells")):
        tallies = DrawnClasses(center_of(counts, 1))
        for part in np.array_split(np.arange(12_000), 3):
            tallies.add(chances[part], labels[part], cells[part])
        assert problem in " | ".join(tallies.problems(True))
        assert bool(list(tallies.problems(True))) == bool(problem)
        assert list(tallies.problems(False)) == []
        draws = tallies.cell_draws()
        assert draws is not None
        if problem:
            assert draws.deviation == pytest.approx(draws.expected, rel=0.5)
            assert draws.expected > 2 * draws.bound
