"""Errors: one line that names the flag, file or row, the right exit code, and no partial output.

Exit code 2 is for errors of the command line, 1 for errors in the data. `tests/pipelines/spec/test_refused_requests.py`
has the wrong values of flags.
"""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from labeldp.transforms.tfrecord.framing import frame

from tests.written_logs import write_log


@pytest.fixture
def refused(invoke: Any, outputs: Path) -> Callable[..., str]:
    """Function (arguments, exit code, *texts of the message) -> the message, after a check that nothing was written."""

    def check(argv: list[str], code: int, *texts: str) -> str:
        outcome = invoke(argv)
        assert outcome.code == code, outcome.err
        for text in texts:
            assert text in outcome.error
        assert outcome.error.startswith(f"labeldp {argv[0]}: error: ")
        assert outcome.out == ""
        assert list(outputs.iterdir()) == [], "something was left where the output should be"
        return outcome.error

    return check


# The command line.


@pytest.mark.parametrize(
    "flag",
    [
        "--no_such_flag=1", "--no_such_flag", "stray", "--eps=1", "--direct_num_work=1", "--schema=s.pbtxt",
        "--mechanism_parameters=bias=0.2", "--runner=NoSuchRunner", "--runner=no.such.Runner",
        "--runner=apache_beam.NoSuchRunner",
    ],
)  # fmt: skip
def test_unknown_flags_abbreviations_and_runners(job: Any, refused: Any, flag: str) -> None:
    refused([*job(), flag], 2, flag.partition("=")[0])


@pytest.mark.parametrize("before", ["", "use_portable_job_submission,"])
@pytest.mark.parametrize("kind", ["data", "exception", "always_on_exception"])
def test_sampling_is_refused(job: Any, refused: Any, before: str, kind: str) -> None:
    refused([*job(), f"--experiments={before}enable_{kind}_sampling"], 2, f"--experiments enable_{kind}_sampling")


def test_a_glob_that_the_shell_has_taken_apart(job: Any, refused: Any) -> None:
    refused([*job(), "b.csv"], 2, "'b.csv': quote a glob")


def test_a_ledger_that_cannot_be_kept(job: Any, refused: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The error is raised before the job runs. Root may write everywhere, so `os.access` is replaced."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "books" not in str(path) and access(path, mode))
    (tmp_path / "books").mkdir()
    refused(job(ledger=tmp_path / "books" / "ledger"), 2, "--ledger", "cannot be created")
    (tmp_path / "books" / "ledger").write_text("")
    refused(job(ledger=tmp_path / "books" / "ledger"), 2, "--ledger", "cannot be read and written")


def test_an_empty_output_folder_is_used(job: Any, invoke: Any, outputs: Path) -> None:
    (outputs / "released").mkdir()
    invoke(job()).ok()
    assert (outputs / "released" / "release.json").exists()


@pytest.mark.parametrize("cap", [None, 9])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        # Nothing tells that it is a ledger.
        ("{not json\n", 2),
        ("[]\n", 2),
        ('{"charges": 1}\n', 1),
        ('{"request": "r", "charges": [{}]}\n', 1),
    ],
)
def test_a_corrupt_ledger(job: Any, refused: Any, tmp_path: Path, text: str, code: int, cap: float | None) -> None:
    path = tmp_path / "ledger"
    path.write_text(text)

    refused(job(ledger=path, epsilon_cap=cap), code, "ledger", str(path))

    assert path.read_text() == text


# The data.


@pytest.mark.parametrize("rows", [["1,two", "2,1"], ["1,1"] * 50 + ["2,two"], [f"{i},no" for i in range(9)]])
def test_a_label_that_is_text(job: Any, refused: Any, tmp_path: Path, write_csv: Any, rows: list[str]) -> None:
    path = write_csv(tmp_path / "in.csv", rows)
    line = 2 + next(i for i, row in enumerate(rows) if not row.endswith(",1"))
    refused(job(input=path), 1, str(path), "'y'", f"line {line}", "--label")


def test_a_label_that_is_text_in_parquet(job: Any, refused: Any, tmp_path: Path) -> None:
    path = write_log(tmp_path / "in.parquet", {"f": [1, 2], "y": ["1", "2"]})
    refused(job(input=path, input_format="parquet"), 1, str(path), "'y'", "--label")


@pytest.fixture
def holed(tmp_path: Path, write_csv: Any) -> Callable[..., Path]:
    """Function (text in place of a label, number of such rows among 2,000) -> a CSV file."""

    def write(hole: str, holes: int) -> Path:
        return write_csv(tmp_path / "in.csv", [f"{i},{hole if i < holes else i % 5}" for i in range(2000)])

    return write


@pytest.mark.parametrize("hole", ["", "nan", "inf", "-inf", "NA"])
def test_too_many_unusable_labels(job: Any, refused: Any, holed: Any, hole: str) -> None:
    refused(job(input=holed(hole, 1001)), 1, "1,001 of 2,000", "'y'", "--max_unusable_fraction 0.5")


def test_no_usable_label_at_all(job: Any, refused: Any, holed: Any) -> None:
    refused(job(input=holed("", 2000), max_unusable_fraction=1), 1, "no record has a usable label", "--label")


@pytest.mark.parametrize("format", ["csv", "parquet", "tfrecord"])
def test_input_without_records(job: Any, refused: Any, tmp_path: Path, format: str) -> None:
    path = write_log(tmp_path / f"in.{format}", {"f": pa.array([], pa.int64()), "y": pa.array([], pa.float64())})
    refused(job(input=path, input_format=format), 1, "the input is empty", "--input")


def test_a_csv_file_of_no_bytes(job: Any, refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"")
    refused(job(input=path), 1, str(path), "empty")


def test_a_line_with_too_many_fields(job: Any, refused: Any, tmp_path: Path, write_csv: Any) -> None:
    path = write_csv(tmp_path / "in.csv", ["1,2", "1,2,3", "1,2"])
    refused(job(input=path), 1, str(path), "line 3", "3 fields")


def test_a_column_whose_type_changes(job: Any, refused: Any, tmp_path: Path, write_csv: Any) -> None:
    one = write_csv(tmp_path / "one.csv", ["1,2"] * 10)
    two = write_csv(tmp_path / "two.csv", ["1,2", "x,2"])
    message = refused(job(input=tmp_path / "*.csv"), 1, str(two), "'f'", "line 3", "--csv_types f=string")
    assert str(one) not in message
    gc.collect()  # a file that is left open would make a warning here


@pytest.mark.parametrize("header", ["f,z", "f,y,z", "y"])
def test_another_header_than_its_siblings(job: Any, refused: Any, tmp_path: Path, write_csv: Any, header: str) -> None:
    one = write_csv(tmp_path / "one.csv", ["1,2"])
    two = write_csv(tmp_path / "two.csv", [",".join("1" for _ in header.split(","))], header)
    refused(job(input=tmp_path / "*.csv"), 1, str(one), str(two))


@pytest.mark.parametrize("header", ["y,f,y", "f,f,y"])
def test_two_columns_of_one_name(job: Any, refused: Any, tmp_path: Path, write_csv: Any, header: str) -> None:
    """One column would be lost. The message omits the name, because the first line may be a record."""
    path = write_csv(tmp_path / "in.csv", ["1,2,3"] * 5, header)
    refused(job(input=path), 1, str(path), "occurs twice")


@pytest.mark.parametrize("names", [["y", "f", "y"], ["f", "f", "y"]])
def test_two_columns_of_one_name_in_parquet(job: Any, refused: Any, tmp_path: Path, names: list[str]) -> None:
    path = write_log(tmp_path / "in.parquet", pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names))
    refused(job(input=path, input_format="parquet"), 1, str(path), repr(max(names, key=names.count)))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"f": ["1"], "y": [1.0]}, "'f'"),
        ({"f": [1], "y": [1.0], "g": [1]}, "'g'"),
        ({"y": [1.0]}, "one.parquet"),
    ],
)
def test_another_schema_than_its_siblings(
    job: Any, refused: Any, tmp_path: Path, columns: dict[str, list[Any]], named: str
) -> None:
    write_log(tmp_path / "one.parquet", {"f": [1], "y": [1.0]})
    two = write_log(tmp_path / "two.parquet", columns)
    refused(job(input=tmp_path / "*.parquet", input_format="parquet"), 1, str(two), named, "schema")


@pytest.mark.parametrize("kept", [3, 40, -3])
def test_a_truncated_parquet_file(job: Any, refused: Any, tmp_path: Path, kept: int) -> None:
    path = write_log(tmp_path / "in.parquet", {"f": range(1000), "y": [1.0] * 1000})
    path.write_bytes(path.read_bytes()[:kept])
    refused(job(input=path, input_format="parquet"), 1, str(path), "truncated")


@pytest.fixture
def tfrecord(tmp_path: Path) -> tuple[Path, list[int]]:
    """A TFRecord file of 500 Examples, and the offset at which each begins."""
    path = write_log(tmp_path / "in.tfrecord", {"f": range(500), "y": [float(i % 5) for i in range(500)]})
    content, offsets, at = path.read_bytes(), [], 0
    while at < len(content):
        offsets.append(at)
        at += int.from_bytes(content[at : at + 8], "little") + 16  # the length, its checksum and that of the data
    return path, offsets


@pytest.mark.parametrize("place", [0, 8, 14, -1], ids=["length", "length checksum", "data", "data checksum"])
def test_a_corrupt_tfrecord(job: Any, refused: Any, tfrecord: tuple[Path, list[int]], place: int) -> None:
    path, offsets = tfrecord
    number = 123
    content = bytearray(path.read_bytes())
    content[offsets[number] + place if place >= 0 else offsets[number + 1] + place] ^= 0x10
    path.write_bytes(bytes(content))
    refused(job(input=path, input_format="tfrecord"), 1, str(path), f"corrupt TFRecord at row {number}")


@pytest.mark.parametrize("lost", [1, 4, 20])
def test_a_truncated_tfrecord(job: Any, refused: Any, tfrecord: tuple[Path, list[int]], lost: int) -> None:
    path, offsets = tfrecord
    path.write_bytes(path.read_bytes()[:-lost])
    refused(job(input=path, input_format="tfrecord"), 1, str(path), f"truncated TFRecord at row {len(offsets) - 1}")


def test_a_file_of_another_format(job: Any, refused: Any, small_log: Path) -> None:
    refused(job(input_format="parquet"), 1, str(small_log), "Parquet")
    refused(job(input_format="tfrecord"), 1, str(small_log), "TFRecord at row 0")


def test_records_that_are_no_examples(job: Any, refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.tfrecord"
    path.write_bytes(frame([b"\xff\xff not a protocol buffer"]))
    refused(job(input=path, input_format="tfrecord"), 1, str(path), "tf.Example")


def test_an_id_that_occurs_twice(job: Any, refused: Any, tmp_path: Path, write_csv: Any) -> None:
    one = write_csv(tmp_path / "one.csv", [f"{i},{i % 5}" for i in range(100)])
    two = write_csv(tmp_path / "two.csv", [f"{i},{i % 5}" for i in range(200, 100, -1)] + ["42,1"])
    refused(
        job(input=tmp_path / "*.csv", id_column="f"), 1, f"{one} row 42", f"{two} row 100", "--id_column f", "unique"
    )


@pytest.mark.parametrize(
    ("rows", "named"), [(["1,1", ",1", "3,1"], "row 1"), (["1.5,1", "2.5,1"], "row 0"), (["true,1"], "bool")]
)
def test_ids_that_are_none(job: Any, refused: Any, tmp_path: Path, write_csv: Any, rows: list[str], named: str) -> None:
    path = write_csv(tmp_path / "in.csv", rows)
    refused(job(input=path, id_column="f"), 1, str(path), "'f'", "--id_column", named)


def test_where_of_another_type(job: Any, refused: Any) -> None:
    refused(job(where="f=text"), 1, "--where f=text", "int64")


def test_csv_types_of_a_column_that_is_missing(job: Any, refused: Any, small_log: Path) -> None:
    refused(job(csv_types="g=string"), 1, "--csv_types", "'g'", str(small_log))


@pytest.fixture
def with_text(tmp_path: Path, write_csv: Any) -> Path:
    """CSV file with a label that is text, which a worker finds."""
    return write_csv(tmp_path / "text.csv", ["1,1", "2,two"])


def test_a_failed_run_leaves_what_was_there(
    job: Any, after_job: Any, invoke: Any, outputs: Path, tree: Any, with_text: Path
) -> None:
    after_job()
    before = tree(outputs)

    assert invoke(job(output=outputs / "second", input=with_text)).code == 1

    assert tree(outputs) == before


# The command as a process, as a shell sees it.


def test_a_process_and_worker_threads_fail_with_the_same_line(
    job: Any, spawn: Any, invoke: Any, outputs: Path, with_text: Path
) -> None:
    said = f"labeldp privatize: error: {with_text}: label column 'y' holds text on line 3"
    for outcome in (spawn(job(input=with_text)), invoke(job(input=with_text, direct_num_workers=2))):
        assert (outcome.code, outcome.out, list(outputs.iterdir())) == (1, "", [])
        assert outcome.error.startswith(said)
