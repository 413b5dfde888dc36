"""Preconditions of transforms are checked where they are applied: windows, unbounded input, and an order of rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import labeldp
import pyarrow as pa
import pytest
from apache_beam.testing import test_stream as beam_streams
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from labeldp.mechanisms.release.unit_bound import UnitBound
from labeldp.transforms import CountUniqueIds
from labeldp.transforms.shards.shard_ranges import CountRows
from labeldp.transforms.units.unit_bounds import BoundUnits
from labeldp.transforms.units.unit_counts import CountUnits

from tests.embedding.conftest import DOMAIN

COLUMN = labeldp.LabelColumn("y", DOMAIN, "id", unit=UnitBound("unit", 2))
PRIVATE = labeldp.LabelColumn("y", DOMAIN, "id")
# Transforms that take all records at once.
WHOLE: dict[str, Callable[[Any, str], beam.PTransform]] = {
    "NoisyPrior": lambda key, folder: labeldp.NoisyPrior(PRIVATE, 1.0, key),
    "BindNoise": lambda key, folder: labeldp.BindNoise(PRIVATE, labeldp.BudgetSplit(0.0, 1.0), key),
    "CountUniqueIds": lambda key, folder: CountUniqueIds("id"),
    "BoundUnits": lambda key, folder: BoundUnits(COLUMN, key),
    "CountUnits": lambda key, folder: CountUnits("y", "unit", key),
    "CountRows": lambda key, folder: CountRows(),
    "WriteParquet": lambda key, folder: labeldp.WriteParquet(folder, f"{folder}/temp", 2),
    "WriteTFRecords": lambda key, folder: labeldp.WriteTFRecords(folder, f"{folder}/temp", 2),
}


def batch(start: int = 0, rows: int = 10) -> labeldp.LabelledBatch:
    columns = {"id": range(rows), "unit": ["u"] * rows, "y": [1.0] * rows}
    return labeldp.LabelledBatch.whole(
        "/a", start, pa.RecordBatch.from_pydict({k: list(v) for k, v in columns.items()})
    )


@pytest.mark.parametrize("transform", WHOLE.values(), ids=WHOLE)
def test_windows_are_refused_with_the_way_out(transform: Any, key: str, tmp_path: Path) -> None:
    made = transform(labeldp.NoiseKeyFile(key), str(tmp_path / "out"))
    batches: Any = beam.Pipeline() | beam.Create([batch()]) | beam.WindowInto(FixedWindows(10))
    with pytest.raises(labeldp.InputError, match=r"without windows: apply beam.WindowInto\(GlobalWindows\(\)\) before"):
        _ = batches | made
    _ = batches | "Advice" >> beam.WindowInto(GlobalWindows()) | "Followed" >> made
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("transform", WHOLE.values(), ids=WHOLE)
def test_unbounded_input_is_refused(transform: Any, key: str, tmp_path: Path) -> None:
    made = transform(labeldp.NoiseKeyFile(key), str(tmp_path / "out"))
    with pytest.raises(labeldp.InputError, match="unbounded input"):
        _ = beam.Pipeline() | beam_streams.TestStream().with_output_types(labeldp.LabelledBatch) | made


@pytest.mark.parametrize("writer", ["WriteParquet", "WriteTFRecords"])
def test_writers_refuse_batches_of_rows(writer: str, rows: list[beam.Row], tmp_path: Path) -> None:
    batches: Any = beam.Pipeline() | beam.Create(rows) | labeldp.RowsToBatches("id") | beam.Reshuffle()
    later = batches | beam.Map(lambda element: element).with_output_types(labeldp.LabelledBatch)
    with pytest.raises(labeldp.InputError, match=f"{writer} writes batches of files, .* with BatchesToRows"):
        _ = later | WHOLE[writer](None, str(tmp_path / "out"))


def test_writers_refuse_several_batches_of_the_same_rows(tmp_path: Path) -> None:
    batches = [batch(0), batch(10), batch(0)]
    with pytest.raises(Exception, match=r"several batches begin at one row of /a"), beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create(batches) | labeldp.WriteParquet(str(tmp_path / "out"), str(tmp_path / "temp"), 1)
