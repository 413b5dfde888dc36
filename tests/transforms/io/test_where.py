"""--where keeps the records in which a column of any type has the given value, with their row numbers."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms import Equals, Format, InputError, Limits, ReadRecordBatches
from labeldp.transforms.tfrecord.example_columns import ExampleColumns

SENTINEL = "SENTINEL123"
FORMATS = ["tfrecord", "parquet", "csv", "orc"]
FEATURES: dict[str, list[Any]] = {
    "number": [1, 2, 3, 2, 1] * 10,
    "text": ["a", "b", "2", "b", ""] * 10,
    "flag": [True, False, False, True, True] * 10,
    "y": [i / 4 for i in range(50)],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [None, ["y"]], ids=["all", "y"])
@pytest.mark.parametrize(("column", "value"), [("number", "2"), ("text", "b"), ("text", "2"), ("number", "9")])
def test_where_keeps_matching_records_with_their_rows(
    tmp_path, format, columns, column, value, write, read_all, plain, assert_tiles
):
    path = write(tmp_path / "a", format, FEATURES)
    limits = Limits(batch_rows=7, block_bytes=64)
    batches = read_all(path, format, columns=columns, where=Equals(column, value), label_column="y", limits=limits)
    assert_tiles(batches, path, 50)
    expected = {i: FEATURES["y"][i] for i in range(50) if str(FEATURES[column][i]) == value}
    assert {row: record["y"] for row, record in plain(batches).items()} == expected


@pytest.mark.parametrize(
    ("format", "values"), [("csv", "true"), ("csv", "True"), ("parquet", "true"), ("parquet", "True")]
)
def test_where_on_flags(tmp_path, format, values, write, read_all, plain):
    """CSV files may write flags as True, and --where accepts that spelling."""
    columns = dict(FEATURES)
    if format == "csv":
        columns["flag"] = [
            values if flag else values.replace("rue", "alse").replace("t", "f").replace("T", "F")
            for flag in FEATURES["flag"]
        ]
    path = write(tmp_path / "a", format, columns)
    kept = plain(read_all(path, format, where=Equals("flag", values), label_column="y"))
    assert sorted(kept) == [i for i in range(50) if FEATURES["flag"][i]]


def test_where_on_flags_of_tfrecords_is_on_numbers(tmp_path, write, read_all, plain):
    path = write(tmp_path / "a", "tfrecord", FEATURES)
    kept = plain(read_all(path, "tfrecord", where=Equals("flag", "1"), label_column="y"))
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
def test_where_on_other_types(tmp_path, column, value, kept, read_all, plain):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"f": column, "y": [1.0, 2.0, 3.0]}), path)
    assert sorted(plain(read_all(path, "parquet", where=Equals("f", value), label_column="y"))) == kept


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
def test_where_that_cannot_be_of_the_columns_type(tmp_path, column, read_all):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"f": column}), path)
    with pytest.raises(InputError, match=r"`where` f=much: the column holds .*give a value of that type") as caught:
        read_all(path, "parquet", where=Equals("f", "much"), label_column="y")
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


@pytest.mark.parametrize(
    ("label", "message"), [("y", "where must not look at the label"), (None, "where needs a label_column")]
)
def test_where_may_not_look_at_the_label(label, message):
    """The set and the number of released records are public."""
    with pytest.raises(ValueError, match=message):
        ReadRecordBatches("in", Format("csv"), where=Equals("y", "7"), label_column=label)
    ReadRecordBatches("in", Format("csv"), where=Equals("x", "7"), label_column="y")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_where_needs_its_column(tmp_path, format, write, read_all):
    path = write(tmp_path / "a", format, FEATURES)
    with pytest.raises(InputError, match="there is no column 'nope'"):
        read_all(path, format, columns=["y"], where=Equals("nope", "1"), label_column="y")


def test_of_tfrecords_only_the_matching_ones_are_decoded(tmp_path, write, read_all, plain, monkeypatch):
    """Also where records are not canonical, and are decoded and encoded again to be compared."""
    decoded: list[int] = []
    read = ExampleColumns.read

    def counted(self: ExampleColumns, frames: Any) -> pa.RecordBatch:
        decoded.append(len(frames))
        return read(self, frames)

    monkeypatch.setattr(ExampleColumns, "read", counted)
    path = write(tmp_path / "a", "tfrecord", FEATURES)
    kept = plain(read_all(path, "tfrecord", columns=["y", "text"], where=Equals("number", "3"), label_column="y"))
    assert kept == {i: {"y": FEATURES["y"][i], "text": "2"} for i in range(2, 50, 5)}
    assert sum(decoded) == 10
