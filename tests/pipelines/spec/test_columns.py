"""Flags that name a column that does not exist: the columns of the file are listed, whatever its format."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FLAGS = ("label", "id_column", "where", "center_column", "center_features")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same records as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("logs")
    rows = range(50)
    table = pa.table({"row": rows, "city": [f"c{i % 3}" for i in rows], "guess": rows, "weeks": [i % 5 for i in rows]})
    pq.write_table(table, folder / "log.parquet")
    (folder / "log.csv").write_text("row,city,guess,weeks\n" + "".join(f"{i},c{i % 3},{i},{i % 5}\n" for i in rows))
    return {kind: folder / f"log.{kind}" for kind in ("csv", "parquet")}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("flag", FLAGS)
def test_the_columns_are_listed(
    job: Any, invoke: Any, logs: dict[str, Path], outputs: Path, tree: Any, kind: str, flag: str
) -> None:
    wrong = {
        "label": "week",
        "id_column": "Row",
        "where": "citi=c1",
        "center_column": "gues",
        "center_features": "citi",
    }
    meant = {"label": "weeks", "id_column": "row", "where": "city", "center_column": "guess", "center_features": "city"}
    flags = {"input": logs[kind], "input_format": kind, "label": "weeks", "mechanism": "rr", flag: wrong[flag]}
    outcome = invoke(job(**flags))

    assert (outcome.code, outcome.out) == (2, "")
    assert f"--{flag}:" in outcome.error
    assert str(logs[kind]) in outcome.error
    assert "it has: row, city, guess, weeks; did you mean" in outcome.error
    assert f"did you mean {meant[flag]}?" in outcome.error
    assert tree(outputs) == {}


def test_the_name_of_a_new_center_column_need_not_exist(job: Any, logs: dict[str, Path], outputs: Path) -> None:
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.spec.fields import Fields
    from labeldp.pipelines.spec.make_release import make_release

    flags = {"input": logs["csv"], "label": "weeks", "center": "linear", "center_column": "new"}
    args, _ = parse(job(**flags))
    assert make_release("privatize", Fields.of(vars(args))).labels[0].column.center == "new"


@pytest.mark.parametrize("first", ["17,4", "a,4.5", "a,nan", "a,", "-1,a", "a,NA", "a,true"])
def test_a_csv_file_without_a_header_does_not_show_its_first_record(
    job: Any, invoke: Any, write_csv: Any, tmp_path: Path, first: str
) -> None:
    log = write_csv(tmp_path / "log.csv", ["1,2", "3,4"], header=first)
    outcome = invoke(job(input=log))

    assert outcome.code == 2
    assert "does not look like column names: add a header line" in outcome.error
    assert "it has" not in outcome.error
    assert "did you mean" not in outcome.error
    message = outcome.error.replace(str(log), "")
    assert not [cell for cell in first.split(",") if len(cell) > 1 and cell in message]


@pytest.mark.parametrize("first", ["a;4.5", "4.5;a", "a|nan"])
def test_nor_one_that_another_delimiter_divides(
    job: Any, invoke: Any, write_csv: Any, tmp_path: Path, first: str
) -> None:
    log = write_csv(tmp_path / "log.csv", ["1;2", "3;4"], header=first)
    outcome = invoke(job(input=log))

    assert outcome.code == 2
    assert (
        "which has only one, because it has no ',': --csv_dialect delimiter= names another delimiter" in outcome.error
    )
    assert first not in outcome.error
    assert "did you mean" not in outcome.error


def test_a_file_of_one_column_shows_its_name(job: Any, invoke: Any, write_csv: Any, tmp_path: Path) -> None:
    outcome = invoke(job(input=write_csv(tmp_path / "log.csv", ["1", "2"], header="yy")))

    assert outcome.code == 2
    assert "it has: yy; did you mean yy?" in outcome.error


def test_a_filter_by_a_folder_is_checked(job: Any, invoke: Any, write_csv: Any, tmp_path: Path) -> None:
    (tmp_path / "month=1").mkdir()
    write_csv(tmp_path / "month=1" / "log.csv", ["1,2", "3,4"], header="f,y")
    pattern = tmp_path / "month=*" / "log.csv"

    outcome = invoke(job(input=pattern, where="months=1"))
    assert outcome.code == 2
    assert "--where: there is no column 'months' in" in outcome.error
    assert "it has: f, y, month; did you mean month?" in outcome.error
    outcome = invoke([*job(input=pattern, where="month=1"), "--dry_run"]).ok()
    assert "month (int32)" in outcome.out


def test_a_feature_that_the_first_examples_lack_is_warned_of(job: Any, invoke: Any, tmp_path: Path) -> None:
    """A later record may have it, so the job decides."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    batch = pa.RecordBatch.from_pydict({"city": ["a"] * 20, "weeks": [1.0] * 20})
    (tmp_path / "log.tfrecord").write_bytes(frame(encode_examples(batch)))
    outcome = invoke(job(input=tmp_path / "log.tfrecord", input_format="tfrecord", label="week"))

    assert outcome.code == 1
    assert "no record has a usable label in 'week'" in outcome.error
    assert "warning: --label: there is no column 'week' in the first records of" in outcome.err
    assert "it has: city, weeks; did you mean weeks?" in outcome.err


def test_the_schema_says_nothing_of_the_label(tmp_path: Path) -> None:
    """Its type would be that of values in CSV and TFRecord files."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    from labeldp.transforms.io.input_format import FilePart, Format
    from labeldp.transforms.readers.file_reader import FileReader
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    schemas: dict[str, list[pa.Schema]] = {"csv": [], "tfrecord": []}
    for number, label in enumerate(([1.5, 2.0], ["x", "y"])):
        batch = pa.RecordBatch.from_pydict({"f": [1, 2], "y": label})
        for kind, content in {
            "csv": "".join(["f,y\n", *(f"{f},{y}\n" for f, y in zip([1, 2], label, strict=True))]).encode(),
            "tfrecord": frame(encode_examples(batch)),
        }.items():
            path = tmp_path / f"{number}.{kind}"
            path.write_bytes(content)
            schemas[kind].append(FileReader(Format(kind), label_column="y").schema(FilePart(str(path), str(path))))
    for kind, (first, second) in schemas.items():
        assert first.equals(second), kind
        assert pa.types.is_null(first.field("y").type)
        assert pa.types.is_integer(getattr(first.field("f").type, "value_type", first.field("f").type))
