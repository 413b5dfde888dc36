"""ORC files: stripes decide nothing, columns are found by their names, and what cannot be kept is refused."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.transforms import Format, InputError
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart, file_parts
from labeldp.transforms.readers import orc_reader
from labeldp.transforms.readers.file_reader import FileReader
from pyarrow import orc


def batches(path: Path, columns: list[str] | None = None, first: Path | None = None) -> list[pa.RecordBatch]:
    reader = FileReader(Format("orc"), columns, label_column="y")
    return [batch.batch for batch in reader.read(FilePart(str(path), str(first or path), files=2))]


def test_stripes_decide_nothing(tmp_path):
    rows = 100_000
    values = np.random.default_rng(1).random(rows)
    table = pa.table({"x": np.arange(rows), "s": [str(row) for row in range(rows)], "y": values})
    found = []
    for name, size in (("small", 1 << 16), ("large", 1 << 26)):
        orc.write_table(table, str(tmp_path / name), stripe_size=size)
        found.append((orc.ORCFile(str(tmp_path / name)).nstripes, batches(tmp_path / name)))
    assert found[0][0] > found[1][0] == 1
    assert found[0][1] == found[1][1]
    assert [batch.num_rows for batch in found[0][1]] == [BATCH_ROWS] * 6 + [rows - 6 * BATCH_ROWS]
    assert pa.Table.from_batches(found[0][1]).equals(table)
    (part,) = file_parts([str(tmp_path / "small")], Format("orc"))
    assert list(FileReader(Format("orc"), label_column="y").split(part)) == [part]


def test_types_of_hive(tmp_path):
    columns: dict[str, Any] = {
        "y": pa.array([1], pa.int8()),
        "t": pa.array([datetime.datetime(2024, 1, 31, 10)], pa.timestamp("ns")),
        "z": pa.array([datetime.datetime(2024, 1, 31, 10)], pa.timestamp("ns", "UTC")),
        "d": pa.array([datetime.date(1500, 1, 1)]),
        "n": pa.array([None], pa.decimal128(20, 3)),
        "l": pa.array([[1, None]]),
        "s": pa.array([{"a": 1, "b": "x"}]),
        "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "a.b": pa.array([b"x"]),
    }
    table = pa.table(columns)
    orc.write_table(table, str(tmp_path / "a"))
    (batch,) = batches(tmp_path / "a")
    assert batch.schema.names == table.schema.names
    assert batch.to_pylist() == table.to_pylist()
    (chosen,) = batches(tmp_path / "a", ["s", "y"])
    assert chosen.to_pylist() == [{"y": 1, "s": {"a": 1, "b": "x"}}]
    assert batches(tmp_path / "a", ["a.b"])[0].to_pylist() == [{"a.b": b"x"}]


def test_other_schemas_and_columns(tmp_path):
    orc.write_table(pa.table({"x": [1], "y": [1]}), str(tmp_path / "a"))
    orc.write_table(pa.table({"x": ["1"], "y": [1]}), str(tmp_path / "b"))
    with pytest.raises(InputError, match="column 'x' holds string, but int64 in"):
        batches(tmp_path / "b", first=tmp_path / "a")
    with pytest.raises(InputError, match="there is no column 'z'"):
        batches(tmp_path / "a", ["z"])


def test_what_is_no_orc_file(tmp_path):
    (tmp_path / "a").write_bytes(b"ORC" + bytes(100))
    with pytest.raises(InputError, match="not an ORC file, or damaged"):
        batches(tmp_path / "a")
    with pytest.raises(InputError, match="No such file"):
        batches(tmp_path / "b")
    draws = np.random.default_rng(1).random(50_000)
    orc.write_table(pa.table({"x": draws, "y": draws}), str(tmp_path / "c"), compression="zlib")
    content = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(content[:3] + b"\xff" * 3000 + content[3003:])
    with pytest.raises(InputError, match="the ORC file is corrupt"):
        batches(tmp_path / "c")


def test_times_need_a_library_that_checks_their_range(tmp_path, monkeypatch):
    orc.write_table(pa.table({"y": [1], "s": [{"t": datetime.datetime(2024, 1, 1)}]}), str(tmp_path / "a"))
    assert batches(tmp_path / "a")
    monkeypatch.setattr(pa, "__version__", "24.0.0")
    with pytest.raises(InputError, match="column 's' has times of ORC, whose range only pyarrow 25"):
        batches(tmp_path / "a")
    assert orc_reader._CHECKED_TIMES == 25


def test_a_small_file_does_not_take_the_memory_that_it_expands_to(tmp_path):
    """Texts of a dictionary, whose stripe is some kilobytes, first short and then long ones."""
    rows, texts = 5_000, ["short", "x" * 100_000]
    table = pa.table({"y": np.arange(rows), "s": [texts[row > 1000] for row in range(rows)]})
    orc.write_table(table, str(tmp_path / "a"), compression="zlib", dictionary_key_size_threshold=1.0)
    assert orc.ORCFile(str(tmp_path / "a")).nstripes == 1
    assert (tmp_path / "a").stat().st_size < 1 << 15
    before = most = pa.total_allocated_bytes()
    start = 0
    part = FilePart(str(tmp_path / "a"), str(tmp_path / "a"))
    for batch in FileReader(Format("orc"), label_column="y").read(part):
        assert batch.batch.equals(table.slice(start, len(batch.rows)).to_batches()[0])
        start, most = start + len(batch.rows), max(most, pa.total_allocated_bytes())
        del batch
    assert start == rows
    assert most - before < 1 << 28
