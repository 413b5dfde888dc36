"""Properties of all formats: records with their row numbers in the file, and errors that never quote a cell."""

import io
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from labeldp.transforms import Equals, Format, InputError, Limits, ReadRecordBatches
from labeldp.transforms.batches import label_values, replace_label
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame, read_records

SENTINEL = "SENTINEL123"
SMALL = Limits(batch_rows=7, block_bytes=64)
FORMATS = ["tfrecord", "parquet", "csv", "orc"]
FILES = [
    ("tfrecord", "a.tfrecord"),
    ("tfrecord", "a.tfrecord.gz"),
    ("parquet", "a.parquet"),
    ("csv", "a.csv"),
    ("orc", "a.orc"),
    ("csv", "a.csv.gz"),
]


def by_row(columns: dict[str, list[Any]]) -> dict[int, dict[str, Any]]:
    return dict(enumerate(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)))


# Contents of a file.


@pytest.mark.parametrize(("format", "name"), FILES, ids=[name for _, name in FILES])
def test_all_records_with_their_rows(tmp_path, format, name, write, read_all, plain, assert_tiles, columns):
    path = write(tmp_path / name, format, columns)
    batches = read_all(path, format)
    assert_tiles(batches, path, 50)
    assert plain(batches) == by_row(columns)


@pytest.mark.parametrize(("format", "name"), FILES, ids=[name for _, name in FILES])
def test_rows_are_true_across_batches(tmp_path, format, name, write, read_all, plain, assert_tiles, columns):
    path = write(tmp_path / name, format, columns)
    batches = read_all(path, format, limits=SMALL)
    assert len(batches) > 5
    assert_tiles(batches, path, 50)
    assert plain(batches) == by_row(columns)


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_columns_asked_for(tmp_path, format, write, read_all, plain, columns):
    path = write(tmp_path / "a", format, columns)
    batches = read_all(path, format, columns=["y", "id"], limits=SMALL)
    assert all(sorted(batch.batch.schema.names) == ["id", "y"] for batch in batches)
    expected = by_row({"id": columns["id"], "y": columns["y"]})
    assert plain(batches) == expected


@pytest.mark.parametrize("format", FORMATS)
def test_batches_are_bounded(tmp_path, format, write, read_all, assert_tiles):
    rows = 100_000
    path = write(tmp_path / "a", format, {"y": list(range(rows))})
    batches = read_all(path, format)
    assert_tiles(batches, path, rows)
    assert max(batch.batch.num_rows for batch in batches) <= 2 * BATCH_ROWS


# Missing columns.


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_missing_column_is_named_with_the_file(tmp_path, format, write, read_all, columns):
    path = write(tmp_path / "a", format, columns)
    with pytest.raises(InputError) as caught:
        read_all(path, format, columns=["y", "nope"])
    assert str(caught.value).startswith(f"{path}: there is no column 'nope'")


# TFRecord.


def test_a_record_that_is_no_example_names_the_file(tmp_path, read_all):
    path = tmp_path / "a"
    path.write_bytes(frame([b"\xff" + SENTINEL.encode()]))
    with pytest.raises(InputError) as caught:
        read_all(str(path), "tfrecord")
    assert str(caught.value).startswith(f"{path}: a record is not a tf.Example")
    assert SENTINEL not in str(caught.value)


# Encoded records in batches.


def examples_of(columns: dict[str, list[Any]]) -> list[bytes]:
    return encode_examples(pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
@pytest.mark.parametrize("where", [None, Equals("kind", "red")], ids=["all", "where"])
def test_encoded_records_come_with_their_columns_and_go_out_as_they_were(
    tmp_path, name, where, write, read_all, plain, assert_tiles, columns
):
    path = write(tmp_path / name, "tfrecord", columns)
    options: dict[str, Any] = {"columns": ["y", "id"], "where": where, "label_column": "y", "limits": SMALL}
    batches = read_all(path, "tfrecord", encoded=True, **options)
    assert_tiles(batches, path, 50)
    plainly = plain(read_all(path, "tfrecord", **options))
    assert len(plainly) == (50 if where is None else 25)
    found = {}
    for batch in batches:
        if not batch.batch.num_rows:
            continue
        values, column = label_values(batch, "y"), batch.column("id")
        assert column is not None
        ids = column.to_pylist()
        encoded = replace_label(batch, "y", values).encoded
        assert encoded is not None
        framed = io.BytesIO(encoded.framed().to_pybytes())
        records = [record for frames in read_records(framed, "out", 99) for record in frames]
        for row, label, key, record in zip(batch.rows.tolist(), values.tolist(), ids, records, strict=True):
            assert plainly[row]["y"] == label
            assert plainly[row]["id"] == key
            found[row] = record
    assert found == {row: record for row, record in enumerate(examples_of(columns)) if row in plainly}


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


# Unreadable files.


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_vanished_is_named(tmp_path, format, read_all):
    with pytest.raises(InputError, match=f"{tmp_path}/gone: cannot be opened"):
        read_all(str(tmp_path / "gone"), format)


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_is_no_file(tmp_path, format, read_all):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}/folder"):
        read_all(str(tmp_path / "folder"), format)


def test_files_are_closed_when_reading_stops_early(tmp_path, write, columns):
    path = write(tmp_path / "a", "parquet", columns)
    descriptors = f"/proc/{os.getpid()}/fd"
    if not os.path.isdir(descriptors):
        pytest.skip("no /proc")
    count: Callable[[], int] = lambda: len(os.listdir(descriptors))  # noqa: E731
    before = count()
    for _ in range(5):
        batches = FileReader(Format("parquet", limits=SMALL)).read(FilePart(path, path))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert count() <= before
