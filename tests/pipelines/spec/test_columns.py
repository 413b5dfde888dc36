"""Columns that do not exist: those of the file are listed, unless its header may be a record."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from labeldp.transforms.io.input_format import FilePart, Format
from labeldp.transforms.readers.file_reader import FileReader

from tests.written_logs import write_log


@pytest.mark.parametrize("first", ["17,4", "a,4.5", "a,nan", "a,", "-1,a", "a,NA", "a,true"])
def test_a_csv_file_without_a_header_does_not_show_its_first_record(
    refusal: Any, write_csv: Any, tmp_path: Path, first: str
) -> None:
    log = write_csv(tmp_path / "log.csv", ["1,2", "3,4"], header=first)
    message = refusal(input=log).replace(str(log), "")
    assert "does not look like column names: add a header line" in message
    assert "it has" not in message
    assert "did you mean" not in message
    assert not [cell for cell in first.split(",") if len(cell) > 1 and cell in message]


@pytest.mark.parametrize("first", ["a;4.5", "4.5;a", "a|nan"])
def test_nor_one_that_another_delimiter_divides(refusal: Any, write_csv: Any, tmp_path: Path, first: str) -> None:
    message = refusal(input=write_csv(tmp_path / "log.csv", ["1;2", "3;4"], header=first))
    assert "which has only one, because it has no ',': --csv_dialect delimiter= names another delimiter" in message
    assert first not in message
    assert "did you mean" not in message


def test_a_file_of_one_column_shows_its_name(refusal: Any, write_csv: Any, tmp_path: Path) -> None:
    message = refusal(input=write_csv(tmp_path / "log.csv", ["1", "2"], header="yy"))
    assert "it has: yy; did you mean yy?" in message


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"a": 1}]), pa.array([[{"a": 1}]]), pa.array([[[1]]]), pa.array([datetime.timedelta(1)]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.array([b"ab"], pa.binary(2)),
        pa.array([[1.5, 2.5]], pa.list_(pa.float32(), 2)),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_a_type_that_tfrecords_cannot_hold_is_refused(refusal: Any, tmp_path: Path, column: pa.Array) -> None:
    log = write_log(tmp_path / "log.parquet", {"odd": column, "y": [1.0]})
    message = refusal(input=log, input_format="parquet", output_format="tfrecord")
    assert message.startswith("--output_format tfrecord: column 'odd' holds ")
    assert "--output_format parquet" in message


def test_a_feature_that_the_first_examples_lack_is_warned_of(job: Any, invoke: Any, tmp_path: Path) -> None:
    """A later record may have it, so the job decides."""
    log = write_log(tmp_path / "log.tfrecord", {"city": ["a"] * 20, "weeks": [1.0] * 20})
    outcome = invoke(job(input=log, input_format="tfrecord", label="week"))
    assert outcome.code == 1
    assert "no record has a usable label in 'week'" in outcome.error
    assert "warning: --label: there is no column 'week' in the first records of" in outcome.err
    assert "it has: city, weeks; did you mean weeks?" in outcome.err


def test_the_schema_says_nothing_of_the_label(tmp_path: Path) -> None:
    """Its type would be that of values in CSV and TFRecord files."""
    schemas: dict[str, list[pa.Schema]] = {"csv": [], "tfrecord": []}
    for label in ([1.5, 2.0], ["x", "y"]):
        for kind, found in schemas.items():
            path = str(write_log(tmp_path / f"log.{kind}", {"f": [1, 2], "y": label}))
            found.append(FileReader(Format(kind), label_column="y").schema(FilePart(path, path)))
    for kind, (first, second) in schemas.items():
        assert first.equals(second), kind
        assert pa.types.is_null(first.field("y").type)
        assert pa.types.is_integer(getattr(first.field("f").type, "value_type", first.field("f").type))
