"""Centers of classes as an attacker sees them: fresh noise, sensitivity, what elements and errors show, order."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center.class_center import ClassCellDesign, ClassCenter
from labeldp.mechanisms.center.class_model import center_fingerprint
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.release.bound_noise import NoiseBinding
from labeldp.mechanisms.release.center_release import CenterFeatures
from labeldp.mechanisms.release.class_release import (
    ClassCounts,
    add_class_cells,
    class_cells_key,
    class_sums_key,
    count_class_cells,
    release_class_cells,
    release_class_counts,
    sum_class_rows,
)
from labeldp.mechanisms.release.label_records import count_labels
from labeldp.mechanisms.release.unit_bound import UnitBound
from labeldp.transforms import LabelColumn
from labeldp.transforms import draw_classes as draw_classes_stage
from labeldp.transforms.center import fit_classes
from labeldp.transforms.center.feature_columns import center_columns
from labeldp.transforms.center.feature_sample import SampleFeatures
from labeldp.transforms.center.fit_center import MergeSummaries
from labeldp.transforms.center.fit_classes import (
    DesignClassCells,
    DesignClasses,
    FitClassCells,
    FitClassSums,
    ReleaseClassCounts,
)
from labeldp.transforms.draw_classes import DrawClasses
from labeldp.transforms.label_summary import usable_records

CLASSES = LabelClasses(("low", "mid", "high"))
COLUMN = LabelColumn("y", CLASSES.domain, center="y_probabilities", classes=CLASSES)
FEATURES = CenterFeatures(("a", "b", "word"), cells=True)
ROWS = 3000


def columns_of(seed: int = 1) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    first, second, code = random.normal(size=ROWS), random.normal(size=ROWS), random.integers(0, 3, ROWS)
    places = np.searchsorted([-0.5, 0.8], first + np.sign(first * second) * 0.7 + random.normal(0, 0.5, ROWS))
    return {
        "a": first, "b": second, "word": [f"w{value}" for value in code.tolist()],
        "y": np.array(CLASSES.values)[places].tolist(),
    }  # fmt: skip


def fitted(pipeline: Any, batches: list[Any], key: Any, epsilon: float = 2.0) -> dict[str, Any]:
    """All parts of a center, of batches that are read four times."""
    names = ("one", "two", "three", "four")
    one, two, three, four = (pipeline | name >> beam.Create(batches, reshuffle=False) for name in names)
    sample = one | SampleFeatures(FEATURES, key)
    counts = two | ReleaseClassCounts(COLUMN, epsilon, key)
    linear = three | FitClassSums(COLUMN, counts | DesignClasses(sample), key)
    design = linear | DesignClassCells(sample, counts)
    center = four | FitClassCells(COLUMN, counts, linear, design, key)
    return {"counts": counts, "linear": linear, "design": design, "center": center}


@pytest.fixture(scope="module")
def made(labelled: Any, run: Any, secret: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Parts and center of one batch."""
    from labeldp.transforms import NoiseKeyFile

    path = tmp_path_factory.mktemp("key") / "noise.key"
    path.write_bytes(secret)
    path.chmod(0o600)
    found = run(lambda pipeline: fitted(pipeline, [labelled(columns_of())], NoiseKeyFile(str(path))))
    return {name: one for name, (one,) in found.items()}


def records_of(batch: Any, column: LabelColumn = COLUMN) -> Any:
    return usable_records(batch, column, centered=False)


def cells_of(batch: Any, made: dict[str, Any], secret: bytes, column: LabelColumn = COLUMN) -> Any:
    records, linear = records_of(batch, column), made["linear"]
    features = center_columns(records.batch, linear.design.map)
    return count_class_cells(records.labels, features, linear, made["design"], secret)


def sums_of(batch: Any, made: dict[str, Any], secret: bytes, column: LabelColumn = COLUMN) -> Any:
    records, row_map = records_of(batch, column), made["linear"].design.map
    return sum_class_rows(records.labels, row_map.rows(center_columns(records.batch, row_map)), secret)


def keys_of(columns: dict[str, Any], labelled: Any, made: dict[str, Any], secret: bytes, **others: Any) -> list[Any]:
    """Keys of the noise of sums and cells, and the noised counts of the classes."""
    column, batch = others.get("column", COLUMN), labelled(columns)
    linear, design = others.get("linear", made["linear"]), others.get("design", made["design"])
    summary = count_labels(records_of(batch, column).labels, secret)
    counts = release_class_counts(summary, column, others.get("epsilon", 2.0), secret)
    return [
        class_sums_key(sums_of(batch, made, secret, column), column, linear.design, secret),
        class_cells_key(cells_of(batch, made, secret, column), column, linear, design, secret),
        (counts.counts - summary.counts).tolist(),
    ]


def changed(columns: dict[str, Any], name: str, rows: list[int], values: list[Any]) -> dict[str, Any]:
    column = np.array(columns[name], object)
    column[rows] = values
    return {**columns, name: column.tolist()}


def test_a_job_makes_the_center(made: dict[str, Any], labelled: Any, secret: bytes) -> None:
    center, design = made["center"], made["design"]
    assert isinstance(center, ClassCenter)
    assert isinstance(design, ClassCellDesign)
    assert center.cells is not None
    assert center.linear.sums
    assert len(center.cells.counts) == design.cells
    assert center.epsilon <= 2
    again = release_class_cells(cells_of(labelled(columns_of()), made, secret), COLUMN, center.linear, design, secret)
    np.testing.assert_array_equal(again.counts, center.cells.counts)
    np.testing.assert_array_equal(center.cells.counts.sum(axis=1), cells_of(
        labelled(columns_of()), made, secret).counts.sum(axis=1))  # fmt: skip


# Sensitivity.


@settings(max_examples=20, deadline=None)
@given(row=st.integers(0, ROWS - 1), label=st.sampled_from(CLASSES.values))
def test_a_changed_label_moves_one_record_between_classes(
    row: int, label: str, labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    columns = columns_of()
    batches = [labelled(each) for each in (columns, changed(columns, "y", [row], [label]))]
    first, second = (cells_of(batch, made, secret).counts for batch in batches)
    moved = second - first
    assert np.abs(moved).sum() in (0, 2)
    assert (moved.sum(axis=1) == 0).all()
    row_map = made["linear"].design.map
    before, after = (np.array(sums_of(batch, made, secret).sums).reshape(row_map.size, 3) for batch in batches)
    assert ((after - before).sum(axis=1) == 0).all()
    # The noise has the scale norm / epsilon, for half of the L1 distance.
    assert np.abs(after - before).sum() / 2 <= row_map.norm


# The noise.


def test_the_noise_is_fresh_if_tables_stay_and_labels_change(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    """Two records of equal features swap their labels: counts and sums are equal, the labels are not."""
    columns = columns_of()
    for name in ("a", "b", "word"):
        columns = changed(columns, name, [1], [columns[name][0]])
    one, two = (changed(columns, "y", [0, 1], labels) for labels in (["low", "high"], ["high", "low"]))
    first, second = (cells_of(labelled(each), made, secret) for each in (one, two))
    assert (first.counts == second.counts).all()
    assert sums_of(labelled(one), made, secret).sums == sums_of(labelled(two), made, secret).sums
    keys = zip(keys_of(one, labelled, made, secret), keys_of(two, labelled, made, secret), strict=True)
    assert all(a != b for a, b in keys)


def test_the_noise_is_fresh_if_tables_stay_and_records_change_places(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    """Two records of one label swap their features, and so their cells and rows."""
    columns = changed(columns_of(), "y", [0, 1], ["mid", "mid"])
    swapped = columns
    for name in ("a", "b", "word"):
        swapped = changed(swapped, name, [0, 1], [columns[name][1], columns[name][0]])
    first, second = (cells_of(labelled(each), made, secret) for each in (columns, swapped))
    assert (first.counts == second.counts).all()
    one, two = keys_of(columns, labelled, made, secret), keys_of(swapped, labelled, made, secret)
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_everything_else_that_a_release_depends_on_gives_fresh_noise(
    labelled: Any, made: dict[str, Any], secret: bytes
) -> None:
    columns, linear, design = columns_of(), made["linear"], made["design"]
    first = keys_of(columns, labelled, made, secret)
    assert keys_of(columns, labelled, made, secret) == first, "the same input has the same noise"
    others = [
        keys_of(columns, labelled, made, bytes(32)),
        keys_of({**columns, "z": columns["y"]}, labelled, made, secret, column=dataclasses.replace(COLUMN, name="z")),
        keys_of(columns, labelled, made, secret, column=dataclasses.replace(
            COLUMN, classes=LabelClasses(CLASSES.values, 1))),
    ]  # fmt: skip
    for each in others:
        assert all(a != b for a, b in zip(first, each, strict=True))
    assert keys_of(columns, labelled, made, secret, epsilon=1.0)[2] != first[2]
    moved = dataclasses.replace(linear, sums=((linear.sums[0][0] + 1, *linear.sums[0][1:]), *linear.sums[1:]))
    assert keys_of(columns, labelled, made, secret, linear=moved)[1] != first[1]
    assert keys_of(columns, labelled, made, secret, design=dataclasses.replace(design, epsilon=0.25))[1] != first[1]


def test_units_give_fresh_noise(labelled: Any, made: dict[str, Any], secret: bytes) -> None:
    column = dataclasses.replace(COLUMN, unit=UnitBound("word", 5000))
    batch = labelled(columns_of())
    plain = class_sums_key(sums_of(batch, made, secret), COLUMN, made["linear"].design, secret)
    assert class_sums_key(sums_of(batch, made, secret), column, made["linear"].design, secret) != plain


# The order of records, bundles and retries.


def test_a_center_does_not_depend_on_batches_or_their_order(
    labelled: Any, recut: Any, run: Any, key: Any, made: dict[str, Any]
) -> None:
    pieces = recut(labelled(columns_of()), 7, 8, 150, 700, 1500)
    (center,) = run(lambda pipeline: fitted(pipeline, pieces[::-1], key))["center"]
    assert center_fingerprint(center) == center_fingerprint(made["center"])


def test_summaries_merge_in_any_order(labelled: Any, recut: Any, made: dict[str, Any], secret: bytes) -> None:
    batch = labelled(columns_of())
    parts = [cells_of(each, made, secret) for each in recut(batch, 3, 100, 1999)]
    whole, merge = cells_of(batch, made, secret), MergeSummaries(add_class_cells)
    for order in itertools.permutations(range(4)):
        first = merge.merge_accumulators([parts[place] for place in order[:2]])
        found = merge.merge_accumulators([merge.create_accumulator(), first, *(parts[place] for place in order[2:])])
        assert found is not None
        assert (found.counts == whole.counts).all()
        assert (found.records, found.unusable) == (ROWS, 0)
        np.testing.assert_array_equal(found.digest.lanes, whole.digest.lanes)
        np.testing.assert_array_equal(found.places.lanes, whole.places.lanes)
    assert merge.extract_output(merge.create_accumulator()) is None


# Draws.


def drawn(pipeline: Any, batches: list[Any], center: Any, binding: Any, key: Any) -> dict[str, Any]:
    centers, bindings = pipeline | "c" >> beam.Create([center]), pipeline | "b" >> beam.Create([binding])
    found = pipeline | beam.Create(batches, reshuffle=False) | DrawClasses(centers, bindings, COLUMN, key)
    return {
        "batches": found.batches,
        "digest": found.digest,
        "mechanism": found.mechanism,
        "letters": found.dead_letters,
    }


def test_draws_depend_on_the_record_alone(
    labelled: Any, recut: Any, run: Any, key: Any, made: dict[str, Any], records_of: Any
) -> None:
    batch = labelled(columns_of())
    whole = run(lambda pipeline: drawn(pipeline, [batch], made["center"], made["counts"], key))
    parts = run(lambda pipeline: drawn(pipeline, recut(batch, 9, 500)[::-1], made["center"], made["counts"], key))
    assert records_of(whole["batches"]) == records_of(parts["batches"])
    assert whole["digest"] == parts["digest"] == [made["counts"].digest]
    assert whole["mechanism"] == [center_fingerprint(made["center"])]


def test_another_input_is_not_released(labelled: Any, failure: Any, key: Any, made: dict[str, Any]) -> None:
    other = changed(columns_of(), "y", [5], ["low" if columns_of()["y"][5] != "low" else "mid"])
    text = failure(lambda pipeline: drawn(pipeline, [labelled(other)], made["center"], made["counts"], key))
    assert "the input changed while the job ran" in text


def test_classes_of_another_center_are_not_released(
    labelled: Any, failure: Any, key: Any, made: dict[str, Any], monkeypatch: Any
) -> None:
    """A runner may compute a center once for each worker, with another result on another CPU."""
    center = made["center"]
    coefficients = center.cells.coefficients.copy()
    coefficients[0, 0] += 1
    other = dataclasses.replace(center, cells=dataclasses.replace(center.cells, coefficients=coefficients))
    assert center_fingerprint(other) != center_fingerprint(center)
    draw = draw_classes_stage.draw_batch
    monkeypatch.setattr(draw_classes_stage, "draw_batch", lambda records, _, key: draw(records, other, key))
    monkeypatch.setattr(draw_classes_stage, "center_fingerprint", lambda _: center_fingerprint(other))
    text = failure(lambda pipeline: drawn(pipeline, [labelled(columns_of())], center, made["counts"], key))
    assert "labels were drawn by another mechanism" in text


# What elements show.


def test_summaries_have_one_size(labelled: Any, made: dict[str, Any], secret: bytes) -> None:
    """Runners show the sizes of elements: they must not tell how many records have a class."""
    columns = columns_of()
    others = [{**columns, "y": [label] * ROWS} for label in CLASSES.values]
    for summarize in (cells_of, sums_of):
        stored = [pickle.dumps(summarize(labelled(each), made, secret)) for each in (columns, *others)]
        assert len({len(each) for each in stored}) == 1


def test_representations_show_no_count(labelled: Any, made: dict[str, Any], secret: bytes) -> None:
    summary = cells_of(labelled(columns_of()), made, secret)
    shown = f"{summary!r} {summary} {[summary]}"
    assert "array" not in shown
    for each in (*summary.digest.lanes.tolist(), *summary.places.lanes.tolist()):
        assert str(each) not in shown


def fail_with_labels(*args: Any, **kwargs: Any) -> Any:
    """Raises an error with a label in its message and in its cause."""
    try:
        raise KeyError("sentinel7361")
    except KeyError as error:
        raise pa.ArrowNotImplementedError("cannot cast [sentinel7361]") from error


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("release_class_counts", "noising the counts"),
        ("design_classes", "designing the center"),
        ("sum_class_rows", "summing features"),
        ("release_class_sums", "noising the center"),
        ("design_class_cells", "designing the center"),
        ("count_class_cells", "counting cells"),
        ("release_classes", "noising the center"),
    ],
)
def test_a_failing_stage_shows_no_label(
    labelled: Any, failure: Any, key: Any, monkeypatch: Any, caplog: Any, capfd: Any, name: str, stage: str
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(fit_classes, name, fail_with_labels)
    text = failure(lambda pipeline: fitted(pipeline, [labelled(columns_of())], key))
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_class_attacks.py:" in text
    printed = capfd.readouterr()
    for shown in (text, caplog.text, printed.out, printed.err):
        assert "sentinel7361" not in shown


def test_a_label_that_is_a_feature_is_refused(labelled: Any, failure: Any, key: Any) -> None:
    def build(pipeline: Any) -> Any:
        batches = [labelled(columns_of())]
        one, two, three = (pipeline | name >> beam.Create(batches, reshuffle=False) for name in "abc")
        sample = one | SampleFeatures(CenterFeatures(("a", "y"), cells=True), key)
        counts = two | ReleaseClassCounts(COLUMN, 2.0, key)
        return {"linear": three | FitClassSums(COLUMN, counts | DesignClasses(sample), key)}

    assert "the label column 'y' is a feature of the center" in failure(build)


def test_bindings_hold_no_secret(made: dict[str, Any], secret: bytes) -> None:
    counts = made["counts"]
    assert isinstance(counts, ClassCounts)
    assert isinstance(counts, NoiseBinding)
    assert secret.hex() not in repr(counts)
