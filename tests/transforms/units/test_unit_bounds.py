"""Bounded records of units: by place in a file, over any files, batches and bundles; and counts of units."""

from collections import Counter
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from labeldp.mechanisms.release.unit_bound import UnitBound
from labeldp.transforms import (
    BoundUnits,
    CountUnits,
    LabelColumn,
    LabelledBatch,
    LeaveOut,
    NoisyPrior,
)
from labeldp.transforms.batches import LabelledBatchCoder
from labeldp.transforms.units import unit_bounds

DOMAIN = (0.0, 1.0, 2.0)
ROWS = 600


def column_of(most: int, id_column: str | None = None) -> LabelColumn:
    return LabelColumn("y", DOMAIN, id_column, unit=UnitBound("user", most))


def log_of(labelled: Any, sources: int = 3, seed: int = 5) -> list[LabelledBatch]:
    """Files of records of Zipf-like users; some records have no label, some no user."""
    rng = np.random.default_rng(seed)
    batches = []
    for number in range(sources):
        users: list[str | None] = [f"user {int(each)}" for each in np.minimum(rng.zipf(1.6, ROWS), 300)]
        labels: list[float | None] = (rng.integers(0, 3, ROWS) * 1.0).tolist()
        users[::50], labels[::40] = [None] * len(users[::50]), [None] * len(labels[::40])
        columns = {"id": np.arange(ROWS) + number * ROWS, "user": users, "y": pa.array(labels, pa.float64())}
        batches.append(labelled(columns, f"/logs/{number}"))
    return batches


def kept_rows(run: Any, key: Any, batches: list[LabelledBatch], column: LabelColumn, groups: int = 8) -> Any:
    """The batches after LeaveOut, and the counts."""

    def build(pipeline):
        read = pipeline | beam.Create(batches)
        bounded = read | BoundUnits(column, key, groups)
        assert isinstance(column.unit, UnitBound)
        return {"batches": read | LeaveOut(bounded.exclusions, column.unit), "counts": bounded.counts}

    found = run(build)
    return found["batches"], found["counts"][0]


@pytest.mark.parametrize("most", [1, 3, 50])
def test_no_unit_has_more_records_and_none_has_fewer_than_it_may(labelled, run, key, records_of, most) -> None:
    log = log_of(labelled)
    batches, counts = kept_rows(run, key, log, column_of(most))
    before, after = (
        Counter(r["user"] for r in records_of(part).values() if r["user"] is not None and r["y"] is not None)
        for part in (log, batches)
    )
    assert after == Counter({user: min(records, most) for user, records in before.items()})
    assert counts.units == len(before)
    assert counts.left_out == sum(before.values()) - sum(after.values())
    everyone, kept = records_of(log), records_of(batches)
    assert counts.without_unit == sum(r["user"] is None and r["y"] is not None for r in everyone.values())
    assert not any(r["user"] is None and r["y"] is not None for r in kept.values())
    unlabelled = {place for place, record in everyone.items() if record["y"] is None}
    assert unlabelled <= set(kept), "records without a label are left to the stage that reports them"
    assert all(batch.unit == ("user", most) for batch in batches)


def test_the_same_records_are_kept_however_the_input_is_cut(
    labelled, run, key, records_of, recut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other batches, another order, another number of groups, blocks that end elsewhere, and an id column."""
    log = log_of(labelled)
    batches, counts = kept_rows(run, key, log, column_of(3))
    pieces = [piece for batch in log for piece in recut(batch, 1, 17, 400, 401)]
    for groups in (1, 64):
        again, same = kept_rows(run, key, pieces[::-1], column_of(3), groups)
        assert records_of(again) == records_of(batches)
        assert same == counts
    monkeypatch.setattr(unit_bounds, "BLOCK_ROWS", 128)
    small, _ = kept_rows(run, key, pieces, column_of(3))
    assert records_of(small) == records_of(batches)
    by_id, _ = kept_rows(run, key, log, column_of(3, id_column="id"))
    moved = [LabelledBatch.whole("/logs/all", 0, pa.concat_batches([batch.batch for batch in log]))]
    moved_by_id, _ = kept_rows(run, key, moved, column_of(3, id_column="id"))
    ids = [sorted(r["id"] for r in records_of(found).values() if r["y"] is not None) for found in (by_id, moved_by_id)]
    assert ids[0] == ids[1], "ids stay with their records"


def test_labels_do_not_decide_which_records_are_kept(labelled, run, key, records_of) -> None:
    log = log_of(labelled, 1)
    place = log[0].batch.schema.get_field_index("y")
    for labels in ([2.0] * ROWS, np.arange(ROWS) % 3 * 1.0):
        values = pa.array(np.where(log[0].batch.column(place).is_valid(), labels, np.nan), pa.float64())
        changed = LabelledBatch.whole("/logs/0", 0, log[0].batch.set_column(place, "y", values))
        kept, _ = kept_rows(run, key, [changed], column_of(2))
        expected, _ = kept_rows(run, key, log, column_of(2))
        assert set(records_of(kept)) == set(records_of(expected))


def test_labels_of_units_that_were_not_bounded_are_refused(labelled, failure, key) -> None:
    """A pipeline of one's own that forgets BoundUnits, or bounds by another number."""
    batch = labelled({"user": ["a", "a"], "y": [0.0, 1.0]})
    for unit in (None, ("user", 2)):
        marked = LabelledBatch(batch.source, 0, 2, batch.rows, batch.batch, unit=unit)
        text = failure(lambda p, m=marked: {"prior": p | beam.Create([m]) | NoisyPrior(column_of(1), 1.0, key)})
        assert "the records of each unit of 'user' were not bounded to 1: apply BoundUnits and LeaveOut" in text


@pytest.mark.parametrize(
    "users",
    [
        pa.array([3, 3, 5, 3]),
        pa.array([3.0, 3.0, 5.0, 3.0], pa.float32()),
        pa.array([[3.0], [3.0], [5.0], [3.0]]),
        pa.array(["c", "c", "e", "c"]).dictionary_encode(),
        pa.array([[3], [3], [5], [3]]),
        pa.array(["3", "3.0", "5", "03"]),
        pa.array([b"3", b"+3", b"5", b" 3.00"]),
    ],
    ids=["integers", "floats", "lists of floats", "dictionary", "lists", "spellings", "spellings in bytes"],
)
def test_units_of_any_kind(labelled, run, key, records_of, users) -> None:
    batches, counts = kept_rows(run, key, [labelled({"user": users, "y": [0.0, 1.0, 2.0, 0.0]})], column_of(1))
    assert len(records_of(batches)) == 2
    assert (counts.units, counts.left_out) == (2, 2)


def test_a_unit_that_some_files_name_by_a_number_and_others_by_text_is_refused(labelled, failure, key) -> None:
    log = [labelled({"user": [7], "y": [0.0]}, "/logs/a"), labelled({"user": ["7"], "y": [0.0]}, "/logs/b")]
    text = failure(lambda p: {"counts": (p | beam.Create(log) | BoundUnits(column_of(1), key)).counts})
    assert "`unit_column` 'user' holds integers in some records and text in others" in text


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [True, False], "y": [0.0, 1.0]}, "unit column 'user' holds bool, not integers, text or bytes: write"),
        ({"user": [1.0, 2.5], "y": [0.0, 1.0]}, "/logs/a: row 1: the unit in 'user' is a number that is not whole"),
        ({"user": [2.0**53], "y": [0.0]}, "row 0: the unit in 'user' is a number that is not whole, or too large"),
        ({"y": [0.0, 1.0]}, "there is no column 'user': name another column with `unit_column`"),
    ],
)
def test_a_column_that_names_no_units_is_refused(labelled, failure, key, columns, message) -> None:
    log = [labelled(columns)]
    assert message in failure(lambda p: {"x": (p | beam.Create(log) | BoundUnits(column_of(1), key)).counts})


def test_a_unit_sends_few_records_of_a_block(labelled, key) -> None:
    """One unit with all records of a file: only M of them are sent to the worker that decides."""
    batch = labelled({"user": ["hot"] * 10_000, "y": np.zeros(10_000)})
    column = column_of(3)
    assert isinstance(column.unit, UnitBound)
    stage = unit_bounds._FindUnits(column, column.unit, key, 4)
    stage.setup()
    stage.start_bundle()
    list(stage.process(batch))
    sent = [element for element in stage._flush() if isinstance(element, tuple)]
    assert sum(len(records.rows) for _, records in sent) == 3


def test_batches_travel_with_their_marks(labelled) -> None:
    batch = labelled({"user": ["a", "b", "c"], "y": [0.0, 1.0, 2.0]})
    marked = LabelledBatch("s", 0, 3, batch.rows, batch.batch, None, ("user", 2))
    coder = LabelledBatchCoder()
    for each in (marked, marked.keep(np.array([False, True, True])), batch):
        found = coder.decode(coder.encode(each))
        assert found.unit == each.unit
        assert found.batch.equals(each.batch)
        np.testing.assert_array_equal(found.rows, each.rows)


def test_units_are_counted_by_their_records(labelled, run, key, records_of, recut) -> None:
    log = log_of(labelled)
    users = Counter(r["user"] for r in records_of(log).values() if r["user"] is not None and r["y"] is not None)
    pieces = [piece for batch in log for piece in recut(batch, 5, 300)]
    for batches in (log, pieces):
        (found,) = run(lambda p, b=batches: {"counts": p | beam.Create(b) | CountUnits("y", "user", key)})["counts"]
        assert found == Counter(users.values())
