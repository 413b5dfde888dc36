"""Rows of others: fields of any type, event times and windows come back as they were."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import labeldp
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream as beam_streams
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows, TimestampedValue, WindowFn
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Timestamp
from labeldp.mechanisms import Prior, solve
from labeldp.templates.beam_yaml import LabelDP

from tests.embedding.conftest import DOMAIN

COLUMN = labeldp.LabelColumn("y", DOMAIN, "id")
RR = solve("rr", Prior(np.array(DOMAIN), np.ones(5)), 1.0)


class Place(NamedTuple):
    """Type of a field of rows."""

    city: str


# Types of fields, and a value of each.
VALUES: dict[str, tuple[Any, Any]] = {
    "datetime": (datetime.datetime, datetime.datetime(2024, 2, 29, 12)),
    "date": (datetime.date, datetime.date(2024, 2, 29)),
    "Decimal": (Decimal, Decimal("0.10")),
    "Timestamp": (Timestamp, Timestamp(micros=5)),
    "Any": (Any, {"any": 1}),
    "dict": (dict[str, int], {"a": 1}),
    "row": (Place, Place("Bern")),
    "list": (list[int], [1, 2]),
    "text": (str, "text"),
    "bytes": (bytes, b"\xff"),
    "missing": (datetime.date | None, None),
}


def with_time(row: Any, time: Any = beam.DoFn.TimestampParam) -> tuple[int, float]:
    """Id and event time of a row."""
    return row.id, float(time)


def typed(rows: Any, **fields: Any) -> Any:
    """The rows with a schema of an id, a label, and other fields."""
    names = {"id": int, "y": float, **fields}
    kind = RowTypeConstraint.from_fields(list(names.items()))
    select = beam.Map(lambda row: beam.Row(**{name: getattr(row, name) for name in names}))
    return rows | "Typed" >> select.with_output_types(kind)


@pytest.mark.parametrize(("kind", "value"), VALUES.values(), ids=VALUES)
def test_unused_fields_pass_as_they_are(kind: Any, value: Any, label_dp: dict[str, Any]) -> None:
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create(range(30)) | beam.Map(lambda i: beam.Row(id=i, y=float(i % 5), other=value))
        released = typed(rows, other=kind) | LabelDP(**label_dp)
        pairs = released["rows"] | beam.Map(lambda row: (row.id, row.other))
        assert_that(pairs, equal_to([(i, value) for i in range(30)]))


def test_bytes_of_a_file_are_never_unpickled() -> None:
    value = beam.coders.FastPrimitivesCoder().encode({"any": 1})
    columns = pa.RecordBatch.from_pydict({"y": [1.0], "other": pa.array([value], pa.large_binary())})
    with beam.Pipeline() as pipeline:
        batches = pipeline | beam.Create([labeldp.LabelledBatch.whole("/logs/rows", 0, columns)])
        rows: Any = batches | labeldp.BatchesToRows({"y": float, "other": Any}, "y")
        assert_that(rows | beam.Map(lambda row: row.other), equal_to([value]))


@pytest.mark.parametrize("field", ["id", "y"])
def test_used_fields_that_cannot_be_read_are_named(field: str, label_dp: dict[str, Any]) -> None:
    for name in ("datetime", "date", "Decimal", "Any", "dict"):
        rows = typed(beam.Pipeline() | beam.Create([]), **{field: VALUES[name][0]})
        with pytest.raises(labeldp.InputError, match=f"^the field '{field}' has the type .*{name}.*: convert it"):
            _ = rows | LabelDP(**label_dp)


def test_elements_without_a_schema_are_told_how_to_get_one(label_dp: dict[str, Any]) -> None:
    with pytest.raises(labeldp.InputError, match=r"have no schema.*beam\.Row\(id=int"):
        _ = beam.Pipeline() | beam.Create([{"id": 1, "y": 1.0}]) | LabelDP(**label_dp)


def test_rows_keep_their_event_times(label_dp: dict[str, Any], rows: list[Any]) -> None:
    with beam.Pipeline() as pipeline:
        timed: Any = pipeline | beam.Create(rows[:100]) | beam.Map(lambda row: TimestampedValue(row, row.id / 4))
        released: Any = typed(timed) | LabelDP(**label_dp)
        windows: Any = released["rows"] | beam.WindowInto(FixedWindows(10))
        counts: Any = windows | beam.Map(lambda row: 1) | beam.CombineGlobally(sum).without_defaults()
        assert_that(counts, equal_to([40, 40, 20]))
        times: Any = released["rows"] | beam.Map(with_time)
        assert_that(times, equal_to([(row.id, row.id / 4) for row in rows[:100]]), "Times")


def test_rows_without_times_have_none_after(label_dp: dict[str, Any], rows: list[Any]) -> None:
    with beam.Pipeline() as pipeline:
        released: Any = pipeline | beam.Create(rows) | LabelDP(**label_dp)
        timed: Any = released["rows"] | beam.Map(with_time) | beam.Filter(lambda pair: pair[1] > -1e6)
        assert_that(timed, is_empty())


def test_rows_in_windows_are_refused_and_the_advice_works(label_dp: dict[str, Any], rows: list[Any]) -> None:
    with beam.Pipeline() as pipeline:
        timed: Any = pipeline | beam.Create(rows) | beam.Map(lambda row: TimestampedValue(row, row.id))
        windows: Any = typed(timed) | beam.WindowInto(FixedWindows(20))
        with pytest.raises(labeldp.InputError, match=r"apply beam.WindowInto\(GlobalWindows\(\)\) before it"):
            _ = windows | LabelDP(**label_dp)
        released: Any = windows | "Global" >> beam.WindowInto(GlobalWindows()) | "Again" >> LabelDP(**label_dp)
        again: Any = released["rows"] | "Back" >> beam.WindowInto(FixedWindows(20))
        assert_that(again | beam.Map(lambda row: 1) | beam.CombineGlobally(sum).without_defaults(), equal_to([20] * 15))


@pytest.mark.parametrize("windows", [FixedWindows(60), SlidingWindows(60, 30)], ids=["fixed", "sliding"])
def test_streams_keep_times_and_windows(windows: Any, key: str, rows: list[Any], tmp_path: Path) -> None:
    source = beam_streams.TestStream(coder=beam.coders.FastPrimitivesCoder())
    for row in rows[:50]:
        source = source.add_elements([TimestampedValue(row, 10 * row.id)]).advance_watermark_to(10 * row.id)
    log = tmp_path / "log"

    def write(row: Any, time: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam) -> None:
        with log.open("a") as file:
            file.write(f"{row.id} {float(time)} {float(window.start)}\n")

    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as pipeline:
        stream: Any = typed(pipeline | source.advance_watermark_to_infinity()) | beam.WindowInto(windows)
        batches: Any = stream | labeldp.RowsToBatches("id")
        private = batches | labeldp.PrivatizeLabels(RR, labeldp.StreamBinding("r"), COLUMN, labeldp.NoiseKeyFile(key))
        _ = private.batches | labeldp.BatchesToRows({"id": int, "y": float}, "y") | beam.Map(write)
    expected = {(i, 10.0 * i, float(window.start)) for i in range(50)
                for window in windows.assign(WindowFn.AssignContext(Timestamp.of(10 * i)))}  # fmt: skip
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {(int(i), float(time), float(start)) for i, time, start in lines} == expected
    assert len(lines) == len(expected)
