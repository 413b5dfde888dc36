"""Timestamps of the type INT96 are read exactly, or refused: they have nanoseconds, and years that overflow."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms import InputError
from labeldp.transforms.readers.parquet_reader import int96_columns

FAR = ["1000-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999", "1969-12-31T23:59:59.5", "2000-01-01T00:00:00"]


def write(path: Path, table: pa.Table) -> str:
    pq.write_table(table, str(path), use_deprecated_int96_timestamps=True)
    return str(path)


def far_times() -> pa.Array:
    return pa.array(np.array(FAR, "datetime64[us]"))


def test_years_that_nanoseconds_do_not_reach(tmp_path, read_all):
    path = write(tmp_path / "a", pa.table({"t": far_times(), "y": [0.5] * 4}))
    (batch,) = read_all(path, "parquet")
    assert batch.batch.column(0).equals(far_times())


@pytest.mark.parametrize("kind", ["list", "struct", "map"])
def test_times_within_other_columns(tmp_path, kind, read_all):
    times = far_times()
    column = {
        "list": lambda: pa.ListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int32()), times),
        "struct": lambda: pa.StructArray.from_arrays([times, times.cast(pa.timestamp("us", "UTC"))], ["t.x", "z"]),
        "map": lambda: pa.MapArray.from_arrays(pa.array([0, 3, 4], pa.int32()), pa.array(list("abcd")), times),
    }[kind]()
    path = write(tmp_path / "a", pa.table({"y": [0.5] * len(column), "t.x": column}))
    assert int96_columns(path) == ["t.x"]
    (batch,) = read_all(path, "parquet")
    assert batch.batch.column(1).equals(column.cast(batch.batch.column(1).type))


@pytest.mark.parametrize("place", [0, 1, 16_384, 20_000])
@pytest.mark.parametrize("nested", [False, True])
def test_nanoseconds_are_refused_wherever_they_are(tmp_path, place, nested, read_all):
    nanos = np.arange(20_001, dtype=np.int64) * 1000
    nanos[place] += 1
    times = pa.array(nanos).cast(pa.timestamp("ns"))
    column = pa.StructArray.from_arrays([times], ["t"]) if nested else times
    path = write(tmp_path / "a", pa.table({"s": column, "y": [0.5] * len(nanos)}))
    with pytest.raises(InputError, match=r"a: column 's' holds a time that microseconds cannot hold.*TIMESTAMP"):
        read_all(path, "parquet")
    # Other columns can be read.
    assert sum(batch.batch.num_rows for batch in read_all(path, "parquet", columns=["y"])) == 20_001


def test_years_that_microseconds_do_not_reach(tmp_path, read_all):
    """The largest Julian day, where the file has that of 2000-01-01."""
    path = Path(write(tmp_path / "a", pa.table({"t": pa.array([np.datetime64("2000-01-01", "us")] * 3)})))
    content, day = path.read_bytes(), (2_451_545).to_bytes(4, "little")
    assert day in content
    path.write_bytes(content.replace(day, (2**31 - 1).to_bytes(4, "little")))
    with pytest.raises(InputError, match="column 't' holds a time that microseconds cannot hold"):
        read_all(str(path), "parquet")


def test_int96_and_int64_are_one_type_over_files(tmp_path, read_all):
    paths = [write(tmp_path / "a", pa.table({"t": far_times()})), str(tmp_path / "b")]
    pq.write_table(pa.table({"t": far_times()}), paths[1])
    assert int96_columns(paths[0]) == ["t"]
    assert int96_columns(paths[1]) == []
    for first, path in (paths, paths[::-1]):
        (batch,) = read_all(path, "parquet", first=first)
        assert batch.batch.column(0).equals(far_times())


def test_missing_times(tmp_path, read_all):
    moment = datetime.datetime(9999, 12, 31)
    path = write(tmp_path / "a", pa.table({"t": pa.array([None, moment, None], pa.timestamp("us"))}))
    (batch,) = read_all(path, "parquet")
    assert batch.batch.column(0).to_pylist() == [None, moment, None]
