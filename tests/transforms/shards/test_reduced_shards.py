"""Shards without some records: the others have the bytes that a shard of them alone would have."""

import datetime
import gzip
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms.errors import InputError
from labeldp.transforms.progress_log import Progress
from labeldp.transforms.shards.reduced_shards import read_column, select_records, write_reduced
from labeldp.transforms.shards.shard_formats import GroupWriter, compressed_file
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

ROWS = 70_000
"""More than a row group."""


def frames_of(content: bytes) -> list[bytes]:
    """The frames of a TFRecord file, by the lengths in their headers."""
    found, place = [], 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        found.append(content[place : place + length + 16])
        place += length + 16
    return found


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def reduce(source: Path, dropped: np.ndarray) -> Path:
    target = source.parent / "reduced" / source.name
    write_reduced(str(source), str(target), str(source.parent), dropped, Progress("rewrote"))
    return target


@pytest.fixture
def records() -> list[bytes]:
    columns = {"id": [f"user {i}".encode() for i in range(999)], "x": [i / 7 for i in range(999)]}
    return encode_examples(pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dropped", [rows(0), rows(3, 4, 500, 998), rows(*range(999))])
def test_frames_are_copied(tmp_path: Path, records: Any, compressed: bool, dropped: np.ndarray) -> None:
    plain = b"".join(frame([record]) for record in records)
    source = tmp_path / ("part-00000-of-00001.tfrecord" + ".gz" * compressed)
    if compressed:
        with source.open("wb") as file, compressed_file(file) as shard:
            shard.write(plain)
    else:
        source.write_bytes(plain)
    found = reduce(source, dropped).read_bytes()
    kept = [each for place, each in enumerate(frames_of(plain)) if place not in dropped]
    if compressed:
        with (tmp_path / "expected").open("wb") as file, compressed_file(file) as shard:
            shard.write(b"".join(kept))
        assert found == (tmp_path / "expected").read_bytes()
        found = gzip.decompress(found)
    assert frames_of(found) == kept


def table(records: int) -> pa.Table:
    random = np.random.default_rng(1)
    numbers = random.integers(0, 1000, records)
    return pa.table({
        "id": pa.array([f"user {i}" for i in range(records)], pa.large_string()),
        "few": pa.array([("a", None, "c")[i % 3] for i in range(records)]),
        "count": pa.array(numbers, pa.uint16()),
        "x": random.normal(0, 1, records),
        "single": random.normal(0, 1, records).astype(np.float32),
        "list": pa.array([[float(i)] for i in numbers.tolist()], pa.large_list(pa.float32())),
        "raw": pa.array([bytes([i % 256]) for i in numbers.tolist()]),
        "flag": pa.array(numbers % 2 == 0),
    })  # fmt: skip


def write(path: Path, table: pa.Table, compression: str) -> bytes:
    with path.open("wb") as file, GroupWriter(file, table.schema, compression) as writer:
        for batch in table.combine_chunks().to_batches(10_000):
            writer.write(batch)
    return path.read_bytes()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("dropped", [rows(0, 1), rows(5, 65_535, 65_536, 69_999), rows(*range(ROWS))])
def test_a_parquet_shard_is_written_as_the_job_writes_it(tmp_path: Path, compression: str, dropped: np.ndarray) -> None:
    source, whole = tmp_path / "part-00000-of-00001.parquet", table(ROWS)
    write(source, whole, compression)
    kept = whole.take(np.setdiff1d(np.arange(ROWS), dropped))
    expected = write(tmp_path / "expected.parquet", kept, compression)
    found = reduce(source, dropped)
    assert pq.read_table(found).equals(kept)
    if len(kept):
        assert found.read_bytes() == expected


def test_types_and_values_that_parquet_stores_otherwise_stay(tmp_path: Path) -> None:
    source = tmp_path / "part-00000-of-00001.parquet"
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 10, 0, 1)
    whole = pa.table({
        "kind": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "day": pa.array([day, None, day, day]),
        "second": pa.array([moment] * 4, pa.timestamp("s", "Europe/Paris")),
        "nano": pa.array([1, 2, 3, 4], pa.timestamp("ns")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.01")], pa.decimal128(9, 2)),
        "nested": pa.array([{"p": [1, 2], "q.r": "x"}, None, {"p": None, "q.r": "y"}, {"p": [], "q.r": None}]),
        "dotted.name": [1, 2, 3, 4],
    })  # fmt: skip
    write(source, whole, "gzip")
    before, found = pq.read_table(source), reduce(source, rows(1))
    assert pq.read_table(found).equals(before.take([0, 2, 3]))
    assert pq.read_schema(found).equals(pq.read_schema(source), check_metadata=True)
    assert [each.values.to_pylist() for each in read_column(str(found), "dotted.name") if each.values] == [[1, 3, 4]]


@pytest.mark.parametrize("name", ["part-00000-of-00001.parquet", "part-00000-of-00001.tfrecord.gz"])
def test_a_shard_that_loses_nothing_is_copied(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_bytes(b"not even a shard")
    assert reduce(source, rows()).read_bytes() == b"not even a shard"


def test_a_damaged_shard_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "part-00000-of-00001.parquet"
    content = write(source, table(100), "none")
    source.write_bytes(content[:-20])
    with pytest.raises(InputError, match=r"part-00000-of-00001.parquet: cannot be read as Parquet"):
        list(read_column(str(source), "id"))
    assert not (tmp_path / "reduced").exists()


def test_some_records_are_selected(tmp_path: Path) -> None:
    source, target = tmp_path / "part-00000-of-00001.parquet", tmp_path / "some.parquet"
    write(source, table(500), "none")
    select_records(str(source), str(target), rows(7, 400))
    assert pq.read_table(target).equals(table(500).take([7, 400]))
