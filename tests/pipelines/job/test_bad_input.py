"""Errors: one line that names the flag, file or row, the right exit code, and no partial output.

Exit code 2 is for errors of the command line, 1 for errors in the data. `tests/pipelines/spec/test_refused_requests.py`
has the wrong values of flags.
"""

import gc
import gzip
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms.tfrecord.example_encoder import encode_examples
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


# The data.


def csv(*rows: str, header: str = "f,y") -> bytes:
    return "".join(f"{line}\n" for line in [header, *rows]).encode()


def records(columns: dict[str, Any]) -> bytes:
    """The columns as TFRecords."""
    return bytes(frame(encode_examples(pa.RecordBatch.from_pydict(columns))))


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


FIFTHS = [f"{row},{row % 5}" for row in range(200)]
EXAMPLES = [records({"f": [row], "y": [float(row % 5)]}) for row in range(500)]
FRAMES, START = b"".join(EXAMPLES), sum(map(len, EXAMPLES[:123]))
NUMBERS = parquet({"f": range(1000), "y": [1.0] * 1000})
UNNAMED = "is compressed with gzip, but its name does not end in .gz"
# Format, contents of the files, flags, and what the error says.
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    # Labels.
    *(("csv", {"in.csv": csv(*rows)}, {}, ("in/in.csv", "'y'", f"line {line}", "--label"))
      for rows, line in ((["1,two", "2,1"], 2), (["1,1"] * 50 + ["2,two"], 52), ([f"{i},no" for i in range(9)], 2))),
    ("parquet", {"in": {"f": [1, 2], "y": ["1", "2"]}}, {}, ("in/in", "'y'", "--label")),
    # Beside truth values.
    ("csv", {"in.csv": csv(*["1,true", "1,false", "1,1"] * 20, "1,yes", *["1,true"] * 20)}, {"label_max": 1},
     ("in.csv: label column 'y' holds text on line 62, not a number",)),
    *(("csv", {"in.csv": csv(*(f"{i},{hole if i < 1001 else i % 5}" for i in range(2000)))}, {},
       ("1,001 of 2,000", "'y'", "--max_unusable_fraction 0.5")) for hole in ("", "inf")),
    ("csv", {"in.csv": csv(*(f"{i}," for i in range(2000)))}, {"max_unusable_fraction": 1},
     ("no record has a usable label", "--label")),
    ("parquet", {"in": {"y": [[1.0, 2.0]] * 500}}, {},
     ("all 500 records hold several values, but a label is one number",)),
    ("parquet", {"in": {"y": [[1.0, 2.0]] * 7 + [[1.0]] * 500}}, {"max_unusable_fraction": 0.001},
     ("7 of 507 records have no usable label in 'y' (7 of them have several values; ",)),
    ("tfrecord", {"in": records({"y": [[1.0, 2.0]] * 500})}, {},
     ("all 500 records have no value or several, NaN or infinity, but a label is one number",)),
    # Records.
    *((format, {"in": {"f": pa.array([], pa.int64()), "y": pa.array([], pa.float64())}}, {},
       ("the input is empty", "--input")) for format in ("csv", "parquet", "tfrecord")),
    ("csv", {"in.csv": b""}, {}, ("in/in.csv", "empty")),
    ("csv", {"in.csv": csv("1,2", "1,2,3", "1,2")}, {}, ("in/in.csv", "line 3", "3 fields")),
    *(("parquet", {"in": NUMBERS[:kept]}, {}, ("in/in: not a Parquet file, or damaged",)) for kept in (3, -3)),
    # The length of a record, its checksum, the data, and their checksum.
    *(("tfrecord", {"in": flipped(FRAMES, place)}, {}, ("in/in", "corrupt TFRecord at row 123"))
      for place in (START, START + 8, START + 14, START + len(EXAMPLES[123]) - 1)),
    *(("tfrecord", {"in": FRAMES[:-lost]}, {}, ("in/in", "truncated TFRecord at row 499")) for lost in (1, 20)),
    ("tfrecord", {"in": bytes(frame([b"\xff\xff not a protocol buffer"]))}, {}, ("in/in", "tf.Example")),
    ("parquet", {"in": csv(*FIFTHS)}, {}, ("in/in", "Parquet")),
    ("tfrecord", {"in": csv(*FIFTHS)}, {}, ("in/in", "TFRecord at row 0")),
    ("csv", {"a.csv": gzip.compress(csv(*FIFTHS))}, {}, (f"a.csv: {UNNAMED}, or it is compressed twice",)),
    ("csv", {"a.csv.gz": gzip.compress(gzip.compress(csv(*FIFTHS)))}, {}, (f"a.csv.gz: {UNNAMED}",)),
    ("tfrecord", {"a.tfrecord": gzip.compress(FRAMES)}, {}, (f"a.tfrecord: {UNNAMED}",)),
    ("tfrecord", {"a.tfrecord": zlib.compress(FRAMES * 10)}, {},
     ("a.tfrecord: is compressed with zlib, which is not read: write it with GZIP",)),
    # Columns. The first line may be a record, so its names are not quoted.
    *(("csv", {"one.csv": csv("1,2"), "two.csv": csv(",".join("1" * len(header.split(","))), header=header)}, {},
       ("one.csv", "two.csv")) for header in ("f,z", "f,y,z", "y")),
    *(("csv", {"in.csv": csv(*["1,2,3"] * 5, header=header)}, {}, ("in.csv", "occurs twice"))
      for header in ("y,f,y", "f,f,y")),
    *(("parquet", {"in": pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names)}, {}, ("in/in", repr(names[0])))
      for names in (["y", "f", "y"], ["f", "f", "y"])),
    *(("parquet", {"one": {"f": [1], "y": [1.0]}, "two": columns}, {}, ("in/two", *named))
      for columns, named in (
          ({"f": ["1"], "y": [1.0]}, ("'f'", "schema")), ({"f": [1], "y": [1.0], "g": [1]}, ("'g'", "schema")),
          ({"y": [1.0]}, ("in/one", "all files need the same columns")),
      )),
    ("tfrecord", {"in": records({"odd": [1.5] * 500, "y": [1] * 500}) + records({"odd": ["x"] * 500, "y": [1] * 500})},
     {"center": "linear", "center_features": "odd"}, ("in/in: feature 'odd' changes its type between records",)),
    ("csv", {"in.csv": csv(*FIFTHS)}, {"where": "f=text"}, ("--where f=text", "int64")),
    ("csv", {"in.csv": csv(*FIFTHS)}, {"csv_types": "g=string"}, ("--csv_types", "'g'", "in/in.csv")),
    # Ids.
    ("csv", {"one.csv": csv(*FIFTHS[:100]), "two.csv": csv(*FIFTHS[:100:-1], "42,1")}, {"id_column": "f"},
     ("one.csv row 42", "two.csv row 99", "--id_column f", "unique")),
    *(("csv", {"in.csv": csv(*rows)}, {"id_column": "f"}, ("in.csv", "'f'", "--id_column", named))
      for rows, named in ((["1,1", ",1", "3,1"], "row 1"), (["1.5,1", "2.5,1"], "row 0"), (["true,1"], "bool"))),
]  # fmt: skip


@pytest.mark.parametrize(("format", "files", "flags", "texts"), REFUSED, ids=range(len(REFUSED)))
def test_data_that_are_refused(
    job: Any, refused: Any, tmp_path: Path, format: str, files: dict[str, Any], flags: dict[str, Any],
    texts: tuple[str, ...],
) -> None:  # fmt: skip
    for name, content in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else write_log(path, content, format)
    refused(job(input=tmp_path / "in" / "*", input_format=format, **flags), 1, *texts)


def test_a_column_whose_type_changes(job: Any, refused: Any, tmp_path: Path, write_csv: Any) -> None:
    one = write_csv(tmp_path / "one.csv", ["1,2"] * 10)
    two = write_csv(tmp_path / "two.csv", ["1,2", "x,2"])
    message = refused(job(input=tmp_path / "*.csv"), 1, str(two), "'f'", "line 3", "--csv_types f=string")
    assert str(one) not in message
    gc.collect()  # a file that is left open would make a warning here


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
