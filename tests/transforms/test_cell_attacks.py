"""Centers of cells as an attacker sees them: fresh noise, what elements and errors show, sizes; order and retries."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pickle
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from labeldp.mechanisms.center.cell_center import CellCenter, CellDesign
from labeldp.mechanisms.center.linear_center import LinearCenter
from labeldp.mechanisms.release import center_release
from labeldp.mechanisms.release.center_release import (
    CellSummary,
    CenterFeatures,
    add_cells,
    cells_key,
    release_cells,
    sum_cells,
)
from labeldp.transforms import LabelColumn
from labeldp.transforms.center import fit_center
from labeldp.transforms.center.feature_columns import center_columns
from labeldp.transforms.center.feature_sample import SampleFeatures
from labeldp.transforms.center.fit_center import DesignCells, DesignCenter, FitCells, FitLinearCenter, MergeSummaries
from labeldp.transforms.label_summary import usable_records

DOMAIN = tuple(float(label) for label in range(21))
COLUMN = LabelColumn("y", DOMAIN, center="y_center")
FEATURES = CenterFeatures(("a", "b", "word"), cells=True)
ROWS = 3000
LABEL = 7361.25
"""Outside the domain, so that no output can be equal to it."""


def columns_of(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    first, second, code = rng.normal(size=ROWS), rng.normal(size=ROWS), rng.integers(0, 3, ROWS)
    labels = np.clip(np.rint(10 + 4 * first + 2 * np.sign(first) * second + code), 0, 20)
    return {"a": first, "b": second, "word": [f"w{value}" for value in code.tolist()], "y": labels}


def fitted(pipeline: Any, batches: list[Any], key: Any, epsilon: float = 1.0) -> dict[str, Any]:
    """Design of cells and center of batches that are read three times."""
    one, two, three = (pipeline | name >> beam.Create(batches, reshuffle=False) for name in ("one", "two", "three"))
    sample = one | SampleFeatures(FEATURES, key)
    linear = two | FitLinearCenter(COLUMN, sample | DesignCenter(epsilon), key)
    design = linear | DesignCells(sample, epsilon)
    return {"linear": linear, "design": design, "center": three | FitCells(COLUMN, linear, design, key)}


@pytest.fixture(scope="module")
def made(labelled: Any, run: Any, secret: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Linear center, design and center of one batch."""
    from labeldp.transforms import NoiseKeyFile

    path = tmp_path_factory.mktemp("key") / "noise.key"
    path.write_bytes(secret)
    path.chmod(0o600)
    found = run(lambda pipeline: fitted(pipeline, [labelled(columns_of())], NoiseKeyFile(str(path))))
    return {name: one for name, (one,) in found.items()}


def summarized(batch: Any, made: dict[str, Any], secret: bytes, column: LabelColumn = COLUMN) -> CellSummary:
    records, linear = usable_records(batch, column, centered=False), made["linear"]
    features = center_columns(records.batch, linear.design.map)
    return sum_cells(records.labels, features, linear, made["design"], secret)


def key_of(columns: dict[str, Any], labelled: Any, made: dict[str, Any], secret: bytes, **others: Any) -> bytes:
    summary = summarized(labelled(columns), made, secret, others.get("column", COLUMN))
    linear, design = others.get("linear", made["linear"]), others.get("design", made["design"])
    return cells_key(summary, others.get("column", COLUMN), linear, design, secret)


def changed(columns: dict[str, Any], name: str, rows: list[int], values: Any) -> dict[str, Any]:
    column = np.array(columns[name])
    column[rows] = values
    return {**columns, name: column}


# The noise.


def test_a_job_makes_the_cells(made: dict[str, Any], labelled: Any, secret: bytes) -> None:
    center, design = made["center"], made["design"]
    assert isinstance(center, CellCenter)
    assert isinstance(design, CellDesign)
    assert len(center.cells.sums) == len(design.partition.tree.leaves)
    assert len(center.cells.trees.leaves) > 0
    summary = summarized(labelled(columns_of()), made, secret)
    again = release_cells(summary, COLUMN, made["linear"], design, secret)
    assert (again.cells.counts, again.cells.sums) == (center.cells.counts, center.cells.sums)


def test_the_noise_is_fresh_if_tables_stay_and_labels_change(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    """Two records of one cell with equal centers swap their labels: the tables are equal, the labels are not."""
    columns = columns_of()
    for name in ("a", "b", "word"):
        columns = changed(columns, name, [1], [columns[name][0]])
    one, two = (changed(columns, "y", [0, 1], labels) for labels in ([3.0, 17.0], [17.0, 3.0]))
    first, second = (summarized(labelled(each), made, secret) for each in (one, two))
    assert (first.tables.counts == second.tables.counts).all()
    assert (first.tables.sums == second.tables.sums).all()
    assert key_of(one, labelled, made, secret) != key_of(two, labelled, made, secret)


def test_the_noise_is_fresh_if_tables_stay_and_records_change_places(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    """Two records of one label swap their features, and so their cells."""
    columns = changed(columns_of(), "y", [0, 1], [9.0, 9.0])
    swapped = columns
    for name in ("a", "b", "word"):
        swapped = changed(swapped, name, [0, 1], [columns[name][1], columns[name][0]])
    first, second = (summarized(labelled(each), made, secret) for each in (columns, swapped))
    assert (first.tables.counts == second.tables.counts).all()
    assert (first.tables.sums == second.tables.sums).all()
    assert key_of(columns, labelled, made, secret) != key_of(swapped, labelled, made, secret)


def test_everything_else_that_a_release_depends_on_gives_fresh_noise(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    columns, linear, design = columns_of(), made["linear"], made["design"]
    first = key_of(columns, labelled, made, secret)
    assert key_of(columns, labelled, made, secret) == first, "the same input has the same noise"
    moved = dataclasses.replace(linear, coefficients=(linear.coefficients[0] + 1, *linear.coefficients[1:]))
    wider = LabelColumn("y", tuple(10 * label for label in DOMAIN), center="y_center")
    others = [
        key_of(columns, labelled, made, bytes(32)),
        key_of(columns, labelled, made, secret, column=wider),
        key_of(columns, labelled, made, secret, column=dataclasses.replace(COLUMN, rounding="randomized")),
        key_of(columns, labelled, made, secret, linear=moved),
        key_of(columns, labelled, made, secret, design=dataclasses.replace(design, epsilon=0.25)),
        key_of(columns, labelled, made, secret, design=dataclasses.replace(design, histogram=0.25)),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_histogram_and_sums_have_noise_of_their_own(
    labelled: Any, made: dict[str, Any], monkeypatch: Any, secret: bytes
):
    keys: list[bytes] = []
    noised = center_release.noised_cells

    def spy(design: Any, center: Any, tables: Any, *used: bytes) -> Any:
        keys.extend(used)
        return noised(design, center, tables, *used)

    monkeypatch.setattr(center_release, "noised_cells", spy)
    summary = summarized(labelled(columns_of()), made, secret)
    release_cells(summary, COLUMN, made["linear"], made["design"], secret)
    assert len({*keys, secret, cells_key(summary, COLUMN, made["linear"], made["design"], secret)}) == 4


# The order of records, bundles and retries.


def test_cells_do_not_depend_on_batches_or_their_order(
    labelled: Any, recut: Any, run: Any, key: Any, made: dict[str, Any]
) -> None:
    pieces = recut(labelled(columns_of()), 7, 8, 150, 700, 1500)
    (center,) = run(lambda pipeline: fitted(pipeline, pieces[::-1], key))["center"]
    expected = made["center"].cells
    assert (center.cells.counts, center.cells.sums) == (expected.counts, expected.sums)
    np.testing.assert_array_equal(center.cells.trees.leaves, expected.trees.leaves)


def test_summaries_merge_in_any_order(labelled: Any, recut: Any, made: dict[str, Any], secret: bytes) -> None:
    batch = labelled(columns_of())
    parts = [summarized(each, made, secret) for each in recut(batch, 3, 100, 1999)]
    whole, merge = summarized(batch, made, secret), MergeSummaries(add_cells)
    for order in itertools.permutations(range(4)):
        first = merge.merge_accumulators([parts[place] for place in order[:2]])
        found = merge.merge_accumulators([merge.create_accumulator(), first, *(parts[place] for place in order[2:])])
        assert found is not None
        assert (found.tables.counts == whole.tables.counts).all()
        assert (found.tables.sums == whole.tables.sums).all()
        assert (found.records, found.unusable) == (ROWS, 0)
        np.testing.assert_array_equal(found.digest.lanes, whole.digest.lanes)
        np.testing.assert_array_equal(found.places.lanes, whole.places.lanes)
    assert merge.extract_output(merge.create_accumulator()) is None


def test_without_a_design_the_linear_center_is_the_center(labelled: Any, run: Any, key: Any) -> None:
    """At epsilon 4, cells do not pay."""
    found = run(lambda pipeline: fitted(pipeline, [labelled(columns_of())], key, 4.0))
    assert found["design"] == [None]
    (center,) = found["center"]
    assert type(center) is LinearCenter


# What elements show.


def test_tables_have_one_size(labelled: Any, made: dict[str, Any], secret: bytes) -> None:
    """Runners show the sizes of elements: they must not tell where residuals lie."""
    columns = columns_of()
    others = [{**columns, "y": np.full(ROWS, label)} for label in (0.0, 7.0, 20.0)]
    stored = [pickle.dumps(summarized(labelled(each), made, secret)) for each in (columns, *others)]
    assert len({len(each) for each in stored}) == 1


def test_representations_show_no_count(labelled: Any, made: dict[str, Any], secret: bytes) -> None:
    summary = summarized(labelled(columns_of()), made, secret)
    shown = f"{summary!r} {summary} {[summary]} {summary.tables!r}"
    assert "array" not in shown
    for each in (*summary.digest.lanes.tolist(), *summary.places.lanes.tolist()):
        assert str(each) not in shown


def fail_with_labels(*args: Any, **kwargs: Any) -> Any:
    """Raises an error with a label in its message and in its cause."""
    try:
        raise KeyError(str(LABEL))
    except KeyError as error:
        raise pa.ArrowNotImplementedError(f"cannot cast [{LABEL}]") from error


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("sum_cells", "summing residuals"),
        ("release_cells", "noising the center"),
        ("design_cells", "designing the center"),
    ],
)
def test_a_failing_stage_shows_no_label(
    labelled: Any, failure: Any, key: Any, monkeypatch: Any, caplog: Any, capfd: Any, name: str, stage: str
) -> None:
    caplog.set_level(logging.DEBUG)
    columns = columns_of()
    columns["y"][::9] = LABEL
    monkeypatch.setattr(fit_center, name, fail_with_labels)
    text = failure(lambda pipeline: fitted(pipeline, [labelled(columns)], key))
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_cell_attacks.py:" in text
    printed = capfd.readouterr()
    for shown in (text, caplog.text, printed.out, printed.err):
        assert "7361" not in shown


def test_the_design_has_not_seen_a_label(labelled: Any, run: Any, key: Any, made: dict[str, Any]) -> None:
    """Given the linear center, other labels give the same partition: it is a function of sample and center alone."""
    columns = {**columns_of(), "y": columns_of(2)["y"]}
    sample = run(lambda pipeline: {"s": pipeline | beam.Create([labelled(columns)]) | SampleFeatures(FEATURES, key)})
    again = fit_center.design_cells(sample["s"][0].columns, made["linear"], ROWS, 1.0)
    assert again is not None
    np.testing.assert_array_equal(again.codes, made["design"].codes)
    np.testing.assert_array_equal(again.partition.tree.cuts, made["design"].partition.tree.cuts)
    assert again.partition.columns == made["design"].partition.columns
