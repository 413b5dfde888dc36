"""Three formats, one result: every record with its true row number, and errors that never quote a cell."""

import datetime
import decimal
import gzip
import io
import logging
import os
import subprocess
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from labeldp.transforms import Equals, Format, InputError, LabelledBatch, ReadRecordBatches, read
from labeldp.transforms.batches import label_values, only_values, replace_label
from labeldp.transforms.encoded import framed_records
from labeldp.transforms.read import read_file
from labeldp.transforms.tf_example_encoder import encode_examples
from labeldp.transforms.tfrecord import frame, read_records

SENTINEL = "SENTINEL123"
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(100, 150)),
    "kind": ["red", "green"] * 25,
    "y": [i / 4 for i in range(50)],
}


def csv_text(columns: dict[str, list[Any]]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"


def write(path: Path, format: str, columns: dict[str, list[Any]]) -> str:
    """A file of that format; gzip for a name in .gz. Returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "parquet":
        pa.parquet.write_table(pa.table(columns), str(path))
        return str(path)
    if format == "csv":
        content = csv_text(columns).encode()
    else:
        pytest.importorskip("google_crc32c")
        content = frame(encode_examples(pa.RecordBatch.from_pydict(columns)))
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def read_all(path: str, format: str | Format, **options: Any) -> list[LabelledBatch]:
    format = format if isinstance(format, Format) else Format(format)
    if format.name == "tfrecord":
        pytest.importorskip("tfx_bsl")
    return list(read_file(path, options.pop("first", path), format, **options))


def plain(batches: list[LabelledBatch]) -> dict[int, dict[str, Any]]:
    """{row: the record's single values}, text as text."""
    records: dict[int, dict[str, Any]] = {}
    for batch in batches:
        columns = {}
        for name in batch.batch.schema.names:
            values, present = only_values(batch.column(name))
            found = np.full(batch.batch.num_rows, None, object)
            found[present] = [v.decode() if isinstance(v, bytes) else v for v in values.to_pylist()]
            columns[name] = found.tolist()
        for place, row in enumerate(batch.rows.tolist()):
            records[row] = {name: column[place] for name, column in columns.items()}
    return records


def records_of_columns(columns: dict[str, list[Any]]) -> dict[int, dict[str, Any]]:
    return dict(enumerate(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)))


def assert_tiles(batches: list[LabelledBatch], path: str, rows: int) -> None:
    """Batches of one file follow each other without a gap from its first row to its last."""
    assert [batch.start for batch in batches] == [0, *(batch.stop for batch in batches[:-1])]
    assert batches[-1].stop == rows
    for batch in batches:
        assert batch.source == path
        assert batch.rows.tolist() == sorted(set(batch.rows.tolist()))
        assert all(batch.start <= row < batch.stop for row in batch.rows.tolist())
        assert len(batch.rows) == batch.batch.num_rows


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few records."""
    monkeypatch.setattr(read, "BATCH_ROWS", 7)
    monkeypatch.setattr(read, "_CSV_BLOCK", 64)


FORMATS = ["tfrecord", "parquet", "csv"]
FILES = [
    ("tfrecord", "a.tfrecord"),
    ("tfrecord", "a.tfrecord.gz"),
    ("parquet", "a.parquet"),
    ("csv", "a.csv"),
    ("csv", "a.csv.gz"),
]


# What is in a file.


@pytest.mark.parametrize(("format", "name"), FILES, ids=[name for _, name in FILES])
def test_all_records_with_their_rows(tmp_path, format, name):
    path = write(tmp_path / name, format, COLUMNS)
    batches = read_all(path, format)
    assert_tiles(batches, path, 50)
    assert plain(batches) == records_of_columns(COLUMNS)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("format", "name"), FILES, ids=[name for _, name in FILES])
def test_rows_are_true_across_batches(tmp_path, format, name):
    path = write(tmp_path / name, format, COLUMNS)
    batches = read_all(path, format)
    assert len(batches) > 5
    assert_tiles(batches, path, 50)
    assert plain(batches) == records_of_columns(COLUMNS)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("format", FORMATS)
def test_only_the_columns_asked_for(tmp_path, format):
    path = write(tmp_path / "a", format, COLUMNS)
    batches = read_all(path, format, columns=["y", "id"])
    assert all(sorted(batch.batch.schema.names) == ["id", "y"] for batch in batches)
    expected = records_of_columns({"id": COLUMNS["id"], "y": COLUMNS["y"]})
    assert plain(batches) == expected


@pytest.mark.parametrize("format", FORMATS)
def test_batches_are_bounded(tmp_path, format):
    rows = 100_000
    path = write(tmp_path / "a", format, {"y": list(range(rows))})
    batches = read_all(path, format)
    assert_tiles(batches, path, rows)
    assert max(batch.batch.num_rows for batch in batches) <= 2 * read.BATCH_ROWS


def test_unknown_formats_are_refused():
    with pytest.raises(ValueError, match="unknown format 'avro'; known: tfrecord, parquet, csv"):
        Format("avro")


# Filters.

FEATURES: dict[str, list[Any]] = {
    "number": [1, 2, 3, 2, 1] * 10,
    "text": ["a", "b", "2", "b", ""] * 10,
    "flag": [True, False, False, True, True] * 10,
    "y": [i / 4 for i in range(50)],
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [None, ["y"]], ids=["all", "y"])
@pytest.mark.parametrize(("column", "value"), [("number", "2"), ("text", "b"), ("text", "2"), ("number", "9")])
def test_where_keeps_matching_records_with_their_rows(tmp_path, format, columns, column, value):
    path = write(tmp_path / "a", format, FEATURES)
    batches = read_all(path, format, columns=columns, where=Equals(column, value))
    assert_tiles(batches, path, 50)
    expected = {i: FEATURES["y"][i] for i in range(50) if str(FEATURES[column][i]) == value}
    assert {row: record["y"] for row, record in plain(batches).items()} == expected


@pytest.mark.parametrize(
    ("format", "values"), [("csv", "true"), ("csv", "True"), ("parquet", "true"), ("parquet", "True")]
)
def test_where_on_flags(tmp_path, format, values):
    """In a CSV file a flag may be written True, which is what people then ask for."""
    columns = dict(FEATURES)
    if format == "csv":
        columns["flag"] = [
            values if flag else values.replace("rue", "alse").replace("t", "f").replace("T", "F")
            for flag in FEATURES["flag"]
        ]
    path = write(tmp_path / "a", format, columns)
    kept = plain(read_all(path, format, where=Equals("flag", values)))
    assert sorted(kept) == [i for i in range(50) if FEATURES["flag"][i]]


def test_where_on_flags_of_tfrecords_is_on_numbers(tmp_path):
    path = write(tmp_path / "a", "tfrecord", FEATURES)
    kept = plain(read_all(path, "tfrecord", where=Equals("flag", "1")))
    assert sorted(kept) == [i for i in range(50) if FEATURES["flag"][i]]


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [
        (pa.array([1.5, 2.5, None]), "2.5", [1]),
        (pa.array(["a", "b", None]).dictionary_encode(), "b", [1]),
        (pa.array(["a", "b", None], pa.large_string()), "b", [1]),
        (pa.array([b"a", b"b", None]), "b", [1]),
        (pa.array([b"a", b"b", None], pa.large_binary()), "b", [1]),
        (pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]), "2020-01-02", [1]),
        (pa.array([["a"], ["b"], ["b", "b"]]), "b", [1]),
        (pa.array([[1], [], [2]]), "2", [2]),
        (pa.nulls(3), "b", []),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_where_on_other_types(tmp_path, column, value, kept):
    path = str(tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"f": column, "y": [1.0, 2.0, 3.0]}), path)
    assert sorted(plain(read_all(path, "parquet", where=Equals("f", value)))) == kept


@pytest.mark.parametrize(
    "column",
    [
        pa.array([48613, 2]),
        pa.array([48613, 2], pa.uint16()),
        pa.array([{"a": SENTINEL}] * 2),
        pa.array([decimal.Decimal("48613.5")] * 2),
    ],
    ids=lambda column: str(column.type),
)
def test_where_that_cannot_be_of_the_columns_type(tmp_path, column):
    path = str(tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"f": column}), path)
    with pytest.raises(InputError, match=r"--where f=much: the column holds .*give a value of that type") as caught:
        read_all(path, "parquet", where=Equals("f", "much"))
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_where_needs_its_column(tmp_path, format):
    path = write(tmp_path / "a", format, COLUMNS)
    with pytest.raises(InputError, match="there is no column 'nope'"):
        read_all(path, format, columns=["y"], where=Equals("nope", "1"))


# The transform.


@pytest.mark.parametrize("format", FORMATS)
def test_a_glob_reads_every_file(tmp_path, format, run):
    if format == "tfrecord":
        pytest.importorskip("tfx_bsl")
    parts = {f"day={day}/part-{part}": day * 10 + part for day in (1, 2) for part in (0, 1)}
    for name, start in parts.items():
        write(tmp_path / name, format, {"y": [float(start + i / 8) for i in range(8)]})
    write(tmp_path / "day=1" / "other", format, {"y": [0.5]})
    found = run(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/day=*/part-*", Format(format))})["out"]
    assert sorted(batch.source for batch in found) == sorted(str(tmp_path / name) for name in parts)
    for name, start in parts.items():
        (batch,) = (batch for batch in found if batch.source == str(tmp_path / name))
        assert {row: record["y"] for row, record in plain([batch]).items()} == {i: start + i / 8 for i in range(8)}


def test_match_gives_files_in_order(tmp_path):
    for name in ("b", "a", "c10", "c9"):
        (tmp_path / name).write_text("y\n1\n")
    assert list(read.match(f"{tmp_path}/*").items()) == [(str(tmp_path / name), 4) for name in ("a", "b", "c10", "c9")]


def test_no_match_is_an_error_that_says_what_to_do(tmp_path, failure):
    text = failure(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"))})
    assert f"--input {tmp_path}/*.csv matches no file: check the path and quote the glob" in text


def test_a_relative_pattern_does_not_depend_on_where_the_job_starts(tmp_path, monkeypatch, run):
    path = write(tmp_path / "logs" / "a.csv", "csv", COLUMNS)
    monkeypatch.chdir(tmp_path)
    one = run(lambda p: {"out": p | ReadRecordBatches("logs/*.csv", Format("csv"))})["out"]
    monkeypatch.chdir(tmp_path / "logs")
    two = run(lambda p: {"out": p | ReadRecordBatches("../logs/a.csv", Format("csv"))})["out"]
    assert {batch.source for batch in one + two} == {path}


def test_remote_patterns_stay_as_they_are():
    assert read.absolute("gs://bucket/logs/*.csv") == "gs://bucket/logs/*.csv"


def test_the_label_column_is_read_as_a_number(tmp_path, run):
    write(tmp_path / "a.csv", "csv", {"y": [1, 2, 3]})
    write(tmp_path / "b.csv", "csv", {"y": [0.5, 1.5]})
    build = ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"), label_column="y")
    found = run(lambda p: {"out": p | build})["out"]
    assert [batch.batch.schema.field("y").type for batch in found] == [pa.float64()] * 2


def test_beam_knows_that_batches_come_out(tmp_path):
    """Else batches are pickled, with all of their parents' buffers, wherever they are kept or shuffled."""
    read_batches: Any = beam.Pipeline() | ReadRecordBatches(str(tmp_path / "a.csv"), Format("csv"))
    assert read_batches.element_type is LabelledBatch


@pytest.mark.parametrize("format", FORMATS)
def test_errors_come_through_beam_as_they_are(tmp_path, format, failure):
    if format == "tfrecord":
        pytest.importorskip("tfx_bsl")
    (tmp_path / "a").write_bytes(b"y,x\n1,2\n" + SENTINEL.encode() * 3 + b",3,4\n")
    text = failure(lambda p: {"out": p | ReadRecordBatches(str(tmp_path / "a"), Format(format))})
    assert "InputError" in text
    assert str(tmp_path / "a") in text
    assert SENTINEL not in text


# Columns that are not there.


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_missing_column_is_named_with_the_file(tmp_path, format):
    path = write(tmp_path / "a", format, COLUMNS)
    with pytest.raises(InputError) as caught:
        read_all(path, format, columns=["y", "nope"])
    assert str(caught.value).startswith(f"{path}: there is no column 'nope'")


def test_a_csv_file_without_a_header_does_not_show_its_first_record(tmp_path):
    """Its first line is taken for the header; that line has a label in it."""
    path = tmp_path / "a.csv"
    path.write_text(f"7,{SENTINEL},48613.71529\n8,b,2.5\n")
    with pytest.raises(InputError, match="there is no column 'y'") as caught:
        read_all(str(path), "csv", columns=["y"], label="y")
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


@pytest.mark.parametrize("second", [False, True], ids=["only file", "second file"])
def test_a_csv_column_that_occurs_twice_is_refused(tmp_path, second):
    """Which of the two is the label, nobody said."""
    (tmp_path / "a.csv").write_text("id,y\n1,2\n" if second else "id,y,y\n1,2,3\n")
    (tmp_path / "b.csv").write_text("id,y,y\n1,2,3\n")
    first = str(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"'y'|header"):
        read_all(str(tmp_path / "b.csv") if second else first, "csv", first=first, label="y")


# Parquet.


def test_a_parquet_file_of_another_type_names_both_files_and_the_column(tmp_path):
    one = write(tmp_path / "a", "parquet", {"id": [1], "y": [1.5]})
    two = write(tmp_path / "b", "parquet", {"id": [1], "y": [SENTINEL]})
    with pytest.raises(InputError) as caught:
        read_all(two, "parquet", first=one)
    assert str(caught.value) == (f"{two}: column 'y' holds string, but double in {one}: all files need one schema")


@pytest.mark.parametrize(
    "columns",
    [{"id": [1], "y": [1.5], "new": [2]}, {"id": [1]}, {"y": [1.5], "id": [1]}],
    ids=["more", "less", "order"],
)
def test_a_parquet_file_with_other_columns_names_both_files(tmp_path, columns):
    one = write(tmp_path / "a", "parquet", {"id": [1], "y": [1.5]})
    two = write(tmp_path / "b", "parquet", columns)
    with pytest.raises(InputError) as caught:
        read_all(two, "parquet", first=one)
    assert one in str(caught.value)
    assert str(caught.value).startswith(two)
    assert ("'new'" in str(caught.value)) == ("new" in columns)


def test_metadata_may_differ_between_parquet_files(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        pa.parquet.write_table(pa.table({"y": [1.5]}).replace_schema_metadata({"path": path}), path)
    assert plain(read_all(paths[1], "parquet", first=paths[0])) == {0: {"y": 1.5}}


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.98])
def test_a_truncated_parquet_file(tmp_path, part):
    path = write(tmp_path / "a", "parquet", {"y": [float(i) for i in range(5_000)], "t": [SENTINEL] * 5_000})
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: int(len(content) * part)])
    with pytest.raises(InputError, match="not a Parquet file, or truncated") as caught:
        read_all(path, "parquet")
    assert str(caught.value).startswith(path)


def test_a_parquet_file_with_a_hole_in_it(tmp_path):
    path = write(tmp_path / "a", "parquet", {"y": [float(i) for i in range(5_000)]})
    content = bytearray(Path(path).read_bytes())
    content[4:2_000] = bytes(1_996)
    Path(path).write_bytes(bytes(content))
    with pytest.raises(InputError, match="the Parquet file is damaged"):
        read_all(path, "parquet")


def grouped(folder: Path, name: str, sizes: Sequence[int], first: int = 0) -> str:
    """A Parquet file whose row groups have these sizes."""
    path, schema = str(folder / name), pa.schema([("f", pa.int64()), ("y", pa.float64())])
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for size in sizes:
            numbers = np.arange(first, first + size)
            writer.write_table(pa.table({"f": numbers, "y": numbers / 8}, schema))
            first += size
    return path


@pytest.mark.parametrize(("part_bytes", "most", "parts"), [(1, 64, 9), (1, 4, 3), (1 << 30, 64, 1)])
def test_row_groups_are_read_apart_and_tile_their_file(tmp_path, monkeypatch, run, part_bytes, most, parts):
    monkeypatch.setattr(read, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(read, "_MOST_PARTS", most)
    path = grouped(tmp_path, "a", [100] * 9)
    found = run(lambda p: {"out": p | ReadRecordBatches(path, Format("parquet"))})["out"]
    found.sort(key=lambda batch: batch.start)
    assert_tiles(found, path, 900)
    assert plain(found) == {row: {"f": row, "y": row / 8} for row in range(900)}
    assert len(found) == parts


@pytest.mark.parametrize("sizes", [[], [0], [0, 5, 0], [3, 0, 0, 4]], ids=str)
def test_row_groups_without_a_row(tmp_path, monkeypatch, run, sizes):
    monkeypatch.setattr(read, "_PART_BYTES", 1)
    path = grouped(tmp_path, "a", sizes)
    found = run(lambda p: {"out": p | ReadRecordBatches(path, Format("parquet"))})["out"]
    assert plain(found) == {row: {"f": row, "y": row / 8} for row in range(sum(sizes))}


def test_every_part_of_a_file_is_held_to_the_schema_of_the_first_file(tmp_path, monkeypatch, failure):
    monkeypatch.setattr(read, "_PART_BYTES", 1)
    one, two = grouped(tmp_path, "a", [10, 10]), str(tmp_path / "b")
    pa.parquet.write_table(pa.table({"f": ["x", "y"], "y": [1.0, 2.0]}), two, row_group_size=1)
    text = failure(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*", Format("parquet"))})
    assert f"{two}: column 'f' holds string, but int64 in {one}" in text


def test_another_format_is_no_parquet_file(tmp_path):
    path = write(tmp_path / "a", "csv", COLUMNS)
    with pytest.raises(InputError, match="not a Parquet file"):
        read_all(path, "parquet")


def test_an_empty_parquet_file_has_no_record(tmp_path):
    path = str(tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"y": pa.array([], pa.float64())}), path)
    assert plain(read_all(path, "parquet")) == {}


# CSV.


def csv_file(folder: Path, text: str | bytes, name: str = "a.csv") -> str:
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def types_of(batches: list[LabelledBatch]) -> dict[str, str]:
    return {field.name: str(field.type) for field in batches[0].batch.schema}


def test_csv_types_are_inferred_dates_stay_text_and_the_label_is_a_float(tmp_path):
    path = csv_file(
        tmp_path,
        "i,f,b,t,day,time,hour,none,y\n1,1.5,true,a,2020-01-31,2020-01-31T10:00:00Z,10:30:00,,7\n2,2,false,b,,,,,8\n",
    )
    batches = read_all(path, "csv", label="y")
    assert types_of(batches) == {
        "i": "int64", "f": "double", "b": "bool", "t": "string", "day": "string", "time": "string",
        "hour": "string", "none": "string", "y": "double",
    }  # fmt: skip
    record = plain(batches)[0]
    assert (record["day"], record["time"], record["hour"]) == ("2020-01-31", "2020-01-31T10:00:00Z", "10:30:00")


def test_csv_types_override_the_guess(tmp_path):
    path = csv_file(tmp_path, "zip,n,y\n01234,1,2\n")
    batches = read_all(path, Format("csv", {"zip": "string", "n": "float64"}), label="y")
    assert types_of(batches) == {"zip": "string", "n": "double", "y": "double"}
    assert plain(batches)[0] == {"zip": "01234", "n": 1.0, "y": 2.0}


def test_csv_types_of_an_unknown_column(tmp_path):
    path = csv_file(tmp_path, "n,y\n1,2\n")
    with pytest.raises(InputError, match=r"--csv_types names 'nope', which is not in .*a\.csv"):
        read_all(path, Format("csv", {"nope": "string"}))


def test_csv_types_are_int64_float64_or_string():
    with pytest.raises(ValueError, match="banana"):
        Format("csv", {"n": "banana"})


def test_csv_types_come_from_the_first_file_for_all(tmp_path):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    ordered = csv_file(tmp_path, "y,id\n3.5,4\n", "b.csv")
    batches = read_all(ordered, "csv", first=first, label="y")
    assert types_of(batches) == {"id": "int64", "y": "double"}
    assert plain(batches) == {0: {"id": 4, "y": 3.5}}
    other = csv_file(tmp_path, f"id,y\n4,1\n{SENTINEL},1\n", "c.csv")
    with pytest.raises(InputError) as caught:
        read_all(other, "csv", first=first, label="y")
    message = str(caught.value)
    assert message.startswith(f"{other}: column 'id' on line 3 is not a int64")
    assert "--csv_types id=string" in message
    assert SENTINEL not in message


def test_csv_types_are_learned_once_for_all_files(tmp_path, run, monkeypatch):
    """They take the first file's first block: for a thousand small files, a thousand times would be too often."""
    for i in range(5):
        csv_file(tmp_path, f"id,y\n{i},2\n", f"{i}.csv")
    seen = tmp_path / "seen"
    learn = read._csv_types

    def counting(first: str, *rest: Any) -> Any:
        with seen.open("a") as file:
            file.write(f"{first}\n")
        return learn(first, *rest)

    monkeypatch.setattr(read, "_csv_types", counting)
    found = run(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"))})["out"]
    assert sorted(batch.batch.to_pydict()["id"][0] for batch in found) == [0, 1, 2, 3, 4]
    assert seen.read_text().splitlines() == [str(tmp_path / "0.csv")]


def test_a_swapped_header_names_the_right_column(tmp_path):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    other = csv_file(tmp_path, f"y,id\n1,{SENTINEL}\n", "b.csv")
    with pytest.raises(InputError, match="column 'id' on line 2"):
        read_all(other, "csv", first=first, label="y")


@pytest.mark.parametrize("header", ["id", "id,y,more", "id,Y", "id;y", f"1,{SENTINEL}"])
def test_another_csv_header_names_both_files(tmp_path, header):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    other = csv_file(tmp_path, f"{header}\n" + ",".join("1" * (header.count(",") + 1)) + "\n", "b.csv")
    with pytest.raises(InputError) as caught:
        read_all(other, "csv", first=first, label="y")
    assert str(caught.value) == f"{other}: another header than {first}: all files need the same columns"


@pytest.mark.parametrize("columns", [None, ["y"], ["t", "y"]], ids=str)
@pytest.mark.parametrize("lines", [1, 30], ids=["first block", "later block"])
def test_a_label_that_is_no_number_is_named_by_line(tmp_path, monkeypatch, columns, lines):
    monkeypatch.setattr(read, "_CSV_BLOCK", 64)
    path = csv_file(tmp_path, "id,y,t\n" + "1,2.5,a\n" * lines + f"1,{SENTINEL},a\n")
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=columns, label="y")
    assert f"label column 'y' holds text on line {lines + 2}" in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize("fields", [1, 3, 4])
@pytest.mark.parametrize("lines", [1, 30], ids=["first block", "later block"])
def test_a_line_with_another_number_of_fields_is_named(tmp_path, monkeypatch, fields, lines):
    monkeypatch.setattr(read, "_CSV_BLOCK", 64)
    path = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * lines + ",".join([SENTINEL] * fields) + "\n")
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", label="y")
    assert str(caught.value) == f"{path}: line {lines + 2} has {fields} fields, where the header has 2"


SLOW_READS = """
import sys, time
from apache_beam.io.filesystems import FileSystems
from labeldp.transforms import Format, InputError, read

class Slow:
    closed = False
    def __init__(self, file):
        self._file = file
    def read(self, size=-1):
        time.sleep(0.02)
        return self._file.read(size)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self._file.close()
    def __getattr__(self, name):
        return getattr(self._file, name)

opened = FileSystems.open
FileSystems.open = lambda *args, **kwargs: Slow(opened(*args, **kwargs))
read._CSV_BLOCK = 256
good, bad = sys.argv[1:]
assert sum(batch.batch.num_rows for batch in read.read_file(good, good, Format("csv"), label="y")) == 200
for _ in range(5):
    batches = read.read_file(good, good, Format("csv"), label="y")
    next(batches)
    batches.close()
    try:
        list(read.read_file(bad, good, Format("csv"), label="y"))
    except InputError:
        pass
    else:
        raise SystemExit("no error")
"""


def test_a_slow_filesystem_does_not_stop_the_job(tmp_path):
    """Arrow reads ahead in a thread of its own: whoever drops the reader meanwhile must not wait for it forever.

    In a process of its own, because a deadlock around the interpreter's lock stops everything in it.
    """
    good = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * 200, "good.csv")
    bad = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * 20 + "1,x\n" + "1,2.5\n" * 200, "bad.csv")
    subprocess.run([sys.executable, "-c", SLOW_READS, good, bad], timeout=120, check=True)


@pytest.mark.parametrize("text", ["", "\n\n\n"], ids=["empty", "blank"])
def test_an_empty_csv_file(tmp_path, text):
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError, match="the CSV file is empty: it needs a header line and rows"):
        read_all(path, "csv", label="y")


def test_a_csv_file_of_a_header_alone_has_no_record(tmp_path):
    path = csv_file(tmp_path, "id,y\n")
    assert plain(read_all(path, "csv", label="y")) == {}


@pytest.mark.parametrize(
    "text", ["id,y\r\n1,2\r\n3,4\r\n", "id,y\n1,2\n3,4", "\ufeffid,y\n1,2\n3,4\n", '"id","y"\n"1","2"\n"3","4"\n']
)
def test_csv_dialects(tmp_path, text):
    path = csv_file(tmp_path, text)
    assert plain(read_all(path, "csv", label="y")) == {0: {"id": 1, "y": 2.0}, 1: {"id": 3, "y": 4.0}}


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "NA", "null", "inf", "-inf"])
def test_csv_labels_that_are_missing_have_no_value_or_no_finite_one(tmp_path, cell):
    path = csv_file(tmp_path, f"id,y\n1,2\n3,{cell}\n4,5\n")
    labels = {row: record["y"] for row, record in plain(read_all(path, "csv", label="y")).items()}
    assert labels.pop(1) is None or not np.isfinite(labels.get(1, np.nan))
    assert labels == {0: 2.0, 2: 5.0}


TRICKY = [
    "Expected 7 columns, got 48613",
    "Row #48613: Expected 7 columns, got 48613",
    "Empty CSV file",
    "In CSV column #0: Row #48613: ",
    "line 48613",
]


@pytest.mark.parametrize("cell", TRICKY)
def test_a_cell_that_looks_like_an_arrow_message_is_still_a_cell(tmp_path, cell):
    path = csv_file(tmp_path, f'id,y\n1,2\n3,"{cell}"\n')
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", label="y")
    assert "48613" not in str(caught.value)
    assert "label column 'y' holds text on line 3" in str(caught.value)


BAD_CSV = {
    "label": f"id,y,t\n1,2.5,a\n1,{SENTINEL},a\n",
    "label in quotes": f'id,y,t\n1,2.5,a\n1,"{SENTINEL}, more",a\n',
    "more fields": f"id,y,t\n1,2.5,a\n1,2,a,{SENTINEL}\n",
    "fewer fields": f"id,y,t\n1,2.5,a\n{SENTINEL}\n",
    "open quote": f'id,y,t\n1,2.5,a\n1,"{SENTINEL},a\n1,3,b\n',
    "line break in quotes": f'id,y,t\n1,2.5,a\n1,"2\n{SENTINEL}",a\n',
    "bytes that are no text": f"id,y,t\n1,2.5,a\n1,{SENTINEL}".encode() + b"\xff\xfe,a\n",
    "header that is no text": f"id,{SENTINEL}".encode() + b"\xff,t\n1,2,3\n",
    "no header": f"1,{SENTINEL},a\n2,3.5,b\n",
    "zeros": f"id,y,t\n1,{SENTINEL}".encode() + bytes(20) + b",a\n",
    "huge cell": f"id,y,t\n1,{SENTINEL * 5_000},a\n",
    "one column": f"{SENTINEL};2.5;3\n1;2;3\n",
}


@pytest.mark.parametrize("block", [64, 8 << 20], ids=["small blocks", "one block"])
@pytest.mark.parametrize("text", BAD_CSV.values(), ids=list(BAD_CSV))
def test_no_bad_csv_file_shows_a_cell(tmp_path, monkeypatch, text, block, caplog):
    monkeypatch.setattr(read, "_CSV_BLOCK", block)
    caplog.set_level(logging.DEBUG)
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=["id", "y", "t"], label="y")
    shown = "".join(traceback.format_exception(caught.value))
    assert SENTINEL not in shown.replace("SENTINEL * ", "")
    assert "SENTINEL1" not in caplog.text


# Compressed files that end too early.


def cut(content: bytes, where: str) -> bytes:
    return {"half": content[: len(content) // 2], "checksum": content[:-8], "last byte": content[:-1]}[where]


@pytest.mark.parametrize("where", ["half", "checksum", "last byte"])
@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_a_truncated_gzip_file_is_noticed(tmp_path, format, where):
    path = Path(write(tmp_path / "a.gz", format, {"y": np.random.default_rng(1).random(2_000).tolist()}))
    path.write_bytes(cut(path.read_bytes(), where))
    with pytest.raises(InputError, match=r"a\.gz"):
        read_all(str(path), format)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_a_gzip_file_cut_between_two_records_is_noticed(tmp_path, format):
    """What is there is whole, so only the missing end of the gzip stream tells."""
    records = [f"{i}.25\n".encode() for i in range(100)]
    if format == "tfrecord":
        pytest.importorskip("google_crc32c")
        records = [frame([record]) for record in encode_examples(pa.RecordBatch.from_pydict({"y": [0.5] * 100}))]
    compressor = zlib.compressobj(wbits=31)
    content = b"y\n" if format == "csv" else b""
    content = compressor.compress(content + b"".join(records[:60])) + compressor.flush(zlib.Z_FULL_FLUSH)
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz"):
        read_all(str(path), format)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.99])
def test_a_damaged_gzip_file_is_noticed(tmp_path, format, place):
    path = Path(write(tmp_path / "a.gz", format, {"y": [i / 4 for i in range(2_000)], "t": [SENTINEL] * 2_000}))
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"a\.gz") as caught:
        read_all(str(path), format)
    assert SENTINEL not in str(caught.value)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_gzip_members_one_after_the_other_are_one_file(tmp_path, format):
    """As `cat a.gz b.gz` and many log writers make them."""
    path = tmp_path / "a.gz"
    if format == "csv":
        path.write_bytes(gzip.compress(b"y\n0.5\n1.5\n") + gzip.compress(b"2.5\n"))
    else:
        pytest.importorskip("google_crc32c")
        path.write_bytes(
            b"".join(
                gzip.compress(frame([r])) for r in encode_examples(pa.RecordBatch.from_pydict({"y": [0.5, 1.5, 2.5]}))
            )
        )
    assert {row: record["y"] for row, record in plain(read_all(str(path), format)).items()} == {0: 0.5, 1: 1.5, 2: 2.5}


# TFRecord.


def test_a_missing_feature_leaves_the_records_countable(tmp_path):
    path = write(tmp_path / "a", "tfrecord", COLUMNS)
    batches = read_all(path, "tfrecord", columns=["nope"])
    assert_tiles(batches, path, 50)


def test_a_record_that_is_no_example_names_the_file(tmp_path):
    pytest.importorskip("google_crc32c")
    path = tmp_path / "a"
    path.write_bytes(frame([b"\xff" + SENTINEL.encode()]))
    with pytest.raises(InputError) as caught:
        read_all(str(path), "tfrecord")
    assert str(caught.value).startswith(f"{path}: a record is not a tf.Example")
    assert SENTINEL not in str(caught.value)


def test_a_corrupt_record_names_file_and_offset(tmp_path):
    path = Path(write(tmp_path / "a", "tfrecord", COLUMNS))
    content = bytearray(path.read_bytes())
    content[12] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="corrupt TFRecord at byte offset 0"):
        read_all(str(path), "tfrecord")


def test_an_empty_tfrecord_file_has_no_record(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert read_all(str(tmp_path / "a"), "tfrecord") == []


# Records that are carried along.


def examples_of(columns: dict[str, list[Any]]) -> list[bytes]:
    return encode_examples(pa.RecordBatch.from_pydict(columns))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
@pytest.mark.parametrize("where", [None, Equals("kind", "red")], ids=["all", "where"])
def test_encoded_records_come_with_their_columns_and_go_out_as_they_were(tmp_path, name, where):
    path = write(tmp_path / name, "tfrecord", COLUMNS)
    options: dict[str, Any] = {"columns": ["y", "id"], "where": where, "label": "y"}
    batches = read_all(path, "tfrecord", encoded=True, **options)
    assert_tiles(batches, path, 50)
    plainly = plain(read_all(path, "tfrecord", **options))
    assert len(plainly) == (50 if where is None else 25)
    found = {}
    for batch in batches:
        values = label_values(batch, "y")
        ids = batch.batch.column(batch.batch.schema.get_field_index("id")).to_pylist()
        framed = framed_records(replace_label(batch.batch, "y", values)).to_pybytes()
        records = [record for frames in read_records(io.BytesIO(framed), "out", 99) for record in frames]
        for row, label, key, record in zip(batch.rows.tolist(), values.tolist(), ids, records, strict=True):
            assert plainly[row]["y"] == label
            assert plainly[row]["id"] == key
            found[row] = record
    assert found == {row: record for row, record in enumerate(examples_of(COLUMNS)) if row in plainly}


@pytest.mark.parametrize(
    "options",
    [
        {"format": Format("csv"), "columns": ["y"], "label_column": "y"},
        {"format": Format("tfrecord"), "label_column": "y"},
        {"format": Format("tfrecord"), "columns": ["y"]},
    ],
    ids=["format", "columns", "label"],
)
def test_encoded_records_need_their_format_columns_and_label(options):
    with pytest.raises(ValueError, match="encoded needs the format tfrecord, columns and a label_column"):
        ReadRecordBatches("a", encoded=True, **options)


# Files that cannot be opened.


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_vanished_is_named(tmp_path, format):
    with pytest.raises(InputError, match=f"{tmp_path}/gone: cannot be opened"):
        read_all(str(tmp_path / "gone"), format)


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_is_no_file(tmp_path, format):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}/folder"):
        read_all(str(tmp_path / "folder"), format)


def test_files_are_closed_when_reading_stops_early(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "BATCH_ROWS", 7)
    path = write(tmp_path / "a", "parquet", COLUMNS)
    descriptors = f"/proc/{os.getpid()}/fd"
    if not os.path.isdir(descriptors):
        pytest.skip("no /proc")
    count: Callable[[], int] = lambda: len(os.listdir(descriptors))  # noqa: E731
    before = count()
    for _ in range(5):
        batches = read_file(path, path, Format("parquet"))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert count() <= before
