"""Bounded records of units by their ids: rows without a place in a file, and streams, per window."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as StreamOf
from apache_beam.transforms.trigger import AccumulationMode, AfterCount
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.release.unit_bound import UnitBound
from labeldp.transforms import (
    BatchesToRows,
    BoundUnitsById,
    InputError,
    LabelColumn,
    PrivatizeLabels,
    RowsToBatches,
    StreamBinding,
)

DOMAIN = (0.0, 1.0)
FIELDS = {"id": int, "user": str, "y": float}
RR = solve("rr", Prior(np.array(DOMAIN), np.ones(2)), 1.0)


def column_of(most: int) -> LabelColumn:
    return LabelColumn("y", DOMAIN, "id", unit=UnitBound("user", most))


def test_of_each_unit_so_many_records_are_kept(labelled, run, key, recut) -> None:
    rng = np.random.default_rng(1)
    users: list[str | None] = [f"user {int(each)}" for each in np.minimum(rng.zipf(1.5, 900), 200)]
    users[::30] = [None] * 30
    log = labelled({"id": np.arange(900), "user": users, "y": np.arange(900) % 2.0}, "rows")
    expected = Counter(user for user in users if user is not None)
    kept = []
    for batches in ([log], recut(log, 100, 101, 640)[::-1]):

        def build(pipeline, batches=batches):
            bounded = pipeline | beam.Create(batches) | BoundUnitsById(column_of(2), key)
            return {"batches": bounded.batches, "counts": bounded.counts}

        found = run(build)
        records = [record for batch in found["batches"] for record in batch.batch.to_pylist()]
        assert Counter(record["user"] for record in records) == {user: min(n, 2) for user, n in expected.items()}
        (counts,) = found["counts"]
        assert (counts.units, counts.without_unit) == (len(expected), 30)
        assert counts.left_out == 870 - len(records)
        assert sum(batch.left_out for batch in found["batches"]) == 900 - len(records)
        kept.append({record["id"] for record in records})
    assert kept[0] == kept[1]


def test_units_of_two_kinds_are_refused(labelled, failure, key) -> None:
    log = [labelled({"id": [1], "user": [7], "y": [0.0]}), labelled({"id": [2], "user": ["7"], "y": [0.0]})]
    text = failure(lambda p: {"x": (p | beam.Create(log) | BoundUnitsById(column_of(1), key)).batches})
    assert "`unit_column` 'user' holds integers in some records and text in others" in text


def events(*pairs: tuple[int, str]) -> list[beam.Row]:
    return [beam.Row(id=number, user=user, y=float(number % 2)) for number, user in pairs]


def stream(*parts: tuple[float, list[beam.Row]]) -> StreamOf:
    source = StreamOf(coder=beam.coders.FastPrimitivesCoder())
    for time, rows in parts:
        source = source.add_elements([TimestampedValue(row, time) for row in rows]).advance_watermark_to(time + 1)
    return source.advance_watermark_to_infinity()


def typed(rows: Any) -> Any:
    kind = RowTypeConstraint.from_fields(list(FIELDS.items()))
    return rows | "Typed" >> beam.Map(lambda row: row).with_output_types(kind)


def test_a_stream_is_bounded_in_each_window(key, tmp_path: Path) -> None:
    log = tmp_path / "found"
    log.write_text("")

    def write(row: Any, window: Any = beam.DoFn.WindowParam) -> None:
        with log.open("a") as file:
            file.write(json.dumps([float(window.start), row.id, row.user]) + "\n")

    parts = (
        (10.0, events((1, "a"), (2, "a"), (3, "b"))),
        (20.0, events((4, "a"), (2, "a"))),  # 2 is delivered twice
        (130.0, events((5, "a"), (6, "b"), (7, "b"), (8, "c"))),
    )
    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as pipeline:
        windows = typed(pipeline | stream(*parts)) | beam.WindowInto(FixedWindows(60))
        batches: Any = windows | RowsToBatches("id")
        privatized = batches | PrivatizeLabels(RR, StreamBinding("ads"), column_of(1), key)
        _ = privatized.batches | BatchesToRows(FIELDS, "y") | beam.Map(write)
    found = [json.loads(line) for line in log.read_text().splitlines()]
    kept = {(window, number, user) for window, number, user in found}
    assert Counter((window, user) for window, _, user in kept) == {
        (0.0, "a"): 1, (0.0, "b"): 1, (120.0, "a"): 1, (120.0, "b"): 1, (120.0, "c"): 1
    }  # fmt: skip


def test_a_stream_whose_windows_end_more_than_once_is_refused(key) -> None:
    def batches(window: Any) -> Any:
        rows = typed(beam.Pipeline() | stream((0, events((1, "a")))))
        return (rows if window is None else rows | window) | RowsToBatches("id")

    with pytest.raises(InputError, match="bounded per window: apply WindowInto first"):
        _ = batches(None) | PrivatizeLabels(RR, StreamBinding("ads"), column_of(1), key)
    early = beam.WindowInto(FixedWindows(60), trigger=AfterCount(2), accumulation_mode=AccumulationMode.DISCARDING)
    late = beam.WindowInto(FixedWindows(60), allowed_lateness=30)
    for window in (early, late):
        with pytest.raises(InputError, match="use the default trigger and no allowed lateness"):
            _ = batches(window) | PrivatizeLabels(RR, StreamBinding("ads"), column_of(1), key)


def test_bounding_by_ids_needs_ids_and_leaves_records_out(key) -> None:
    with pytest.raises(ValueError, match="give a unit and an id_column"):
        BoundUnitsById(LabelColumn("y", DOMAIN, unit=UnitBound("user", 1)), key)
