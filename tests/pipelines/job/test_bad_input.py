"""Errors: one line that names the flag, file or row, the right exit code, and no partial output.

Exit code 2 is for errors of the command line, 1 for errors in the data.
"""

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.written_logs import write_log

NOWHERE = "/nowhere/at/all"


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


GRID = ("label_min", "label_max", "label_step")
# Wrong values of one flag, which the error names.
WRONG = {
    "epsilon": ["0", "-1", "nan", "inf", "-inf", "30.1", "1e-10", "one"],
    "prior_epsilon": ["0", "-1", "nan", "inf", "1", "2", "half"],
    "label_min": [4, 5, "nan", "low"],
    "label_max": ["inf"],
    "label_step": [3, 0, -1, "nan", "1e-9"],  # the last makes four billion labels
    "mechanism": ["magic"],
    "loss": ["cubic"],
    "input_format": ["xml"],
    "output_format": ["csv"],
    "compression": ["zip"],
    "num_shards": [0, "many"],
    "csv_types": ["f=duration"],
    "where": ["f", "y=1"],  # of the second, which records are released would depend on the label
    "id_column": ["y"],
    "max_unusable_fraction": [1.1, "nan"],
    "epsilon_cap": [0, "nan"],
    "delta_cap": [-1e-6, "nan"],
    "mechanism_file": [NOWHERE],
    "noise_key_file": [NOWHERE],
    "runner": ["NoSuchRunner", "no.such.Runner", "apache_beam.NoSuchRunner"],
    "experiments": ["enable_data_sampling", "use_portable_job_submission,enable_always_on_exception_sampling"],
    "output": ["", "o[1]"],
}
# Flags, and what the error says.
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({flag: value}, f"--{flag}") for flag, values in WRONG.items() for value in values),
    *(({flag: None}, f"--{flag} is missing") for flag in ("input", "input_format", "label", "epsilon", "output")),
    *(({flag: None}, "--label_min, --label_max and --label_step, or --label_values") for flag in GRID),
    ({"label_values": NOWHERE} | dict.fromkeys(GRID), f"--label_values {NOWHERE}"),
    ({"label_values": NOWHERE}, "--label_values replaces --label_min"),
    ({"label_max": "1e400", "label_step": "1e399"}, "--label_max"),  # larger than any float
    ({"loss": "poisson", "label_min": -1}, "--loss"),
    ({"num_shards": 100_000}, "--num_shards must be from 1 to 99,999"),
    ({"mechanism": "rr:loss=absolute"}, "--mechanism rr: loss: give it as --loss"),
    ({"mechanism_parameters": "bias=0.2"}, "unknown flag --mechanism_parameters"),
    ({"schema": "s.pbtxt"}, "unknown flag --schema"),
    ({"mechanism": "gaussian"}, "--delta"),  # gaussian needs delta; the default is pure DP
    ({"delta": 1e-6}, "--delta is for mechanisms of (epsilon, delta)-DP"),
    ({"mechanism": "gaussian", "delta": 0}, "--delta"),
    ({"mechanism": "gaussian", "delta": 0.9}, "delta must be between"),
    ({"mechanism": "gaussian:delta=0.1"}, "--delta"),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED)
def test_wrong_flags(job: Any, refused: Any, flags: dict[str, Any], said: str) -> None:
    error = refused(job(**flags), 2, said)
    quoted = [flags[name] for name in ("epsilon", "prior_epsilon", "noise_key_file") if flags.get(name) is not None]
    assert all(value in error for value in quoted)


@pytest.mark.parametrize("text", ["", "1\n3\n2\n", "1\n1\n", "1\nnan\n", "1\ntwo\n"])
def test_label_values_that_are_no_domain(job: Any, refused: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "values"
    path.write_text(text)
    refused(job(**dict.fromkeys(GRID), label_values=path), 2, "--label_values", str(path))


@pytest.mark.parametrize("flag", ["--no_such_flag=1", "--no_such_flag", "stray", "--eps=1", "--direct_num_work=1"])
def test_unknown_flags_and_abbreviations(job: Any, refused: Any, flag: str) -> None:
    refused([*job(), flag], 2, flag.partition("=")[0])


def test_a_glob_that_the_shell_has_taken_apart(job: Any, refused: Any) -> None:
    refused([*job(), "b.csv"], 2, "'b.csv': quote a glob")


@pytest.mark.parametrize("flag", ["mechanism", "loss", "rounding"])
def test_what_a_mechanism_file_settles(job: Any, invoke: Any, outputs: Path, flag: str) -> None:
    invoke(job("fit")).ok()
    value = {"mechanism": "unbiased", "loss": "absolute", "rounding": "nearest"}[flag]
    outcome = invoke(job("apply", **{flag: value}))

    assert outcome.code == 2
    assert f"--{flag} is set by the mechanism file; leave it out" in outcome.error
    assert not (outputs / "released").exists()


def test_a_file_whose_name_is_not_utf8(job: Any, refused: Any, tmp_path: Path, write_csv: Any) -> None:
    write_csv(tmp_path / "log" / "caf\udce9.csv", ["1,2"])
    refused(job(input=tmp_path / "log" / "*"), 2, "caf\\udce9.csv", "rename the file")


def test_a_ledger_that_cannot_be_kept(job: Any, refused: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The error is raised before the job runs. Root may write everywhere, so `os.access` is replaced."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "books" not in str(path) and access(path, mode))
    (tmp_path / "books").mkdir()
    refused(job(ledger=tmp_path / "books" / "ledger"), 2, "--ledger", "cannot be created")
    (tmp_path / "books" / "ledger").write_text("")
    refused(job(ledger=tmp_path / "books" / "ledger"), 2, "--ledger", "cannot be read and written")


@pytest.mark.parametrize("command", ["privatize", "fit"])
def test_a_glob_that_matches_nothing(job: Any, refused: Any, tmp_path: Path, command: str) -> None:
    refused(job(command, input=tmp_path / "none-*.csv"), 2, "--input", str(tmp_path / "none-*.csv"))


@pytest.mark.parametrize("name", ["released", "released/kept"])
def test_an_output_that_is_a_file_or_not_empty(job: Any, invoke: Any, outputs: Path, tree: Any, name: str) -> None:
    (outputs / name).parent.mkdir(exist_ok=True)
    (outputs / name).write_text("kept")
    outcome = invoke(job())
    assert (outcome.code, "--output" in outcome.error) == (2, True)
    assert tree(outputs) == {name: b"kept"}


def test_an_output_below_a_file(job: Any, refused: Any, small_log: Path) -> None:
    refused(job(output=small_log / "released"), 2, "--output", str(small_log))


def test_an_output_that_is_a_link_to_an_empty_folder(job: Any, invoke: Any, tmp_path: Path, outputs: Path) -> None:
    """It is either accepted or rejected at the start; the job must not run, be charged and then fail."""
    (tmp_path / "real").mkdir()
    (outputs / "released").symlink_to(tmp_path / "real")

    outcome = invoke(job())

    if outcome.code == 0:
        assert (outputs / "released" / "release.json").exists()
    else:
        assert outcome.code == 2
        assert "--output" in outcome.error
        assert [path.name for path in outputs.iterdir()] == ["released"]


def test_an_empty_output_folder_is_used(job: Any, invoke: Any, outputs: Path) -> None:
    (outputs / "released").mkdir()
    invoke(job()).ok()
    assert (outputs / "released" / "release.json").exists()


def test_a_ledger_inside_the_output(job: Any, refused: Any, outputs: Path) -> None:
    refused(job(ledger=outputs / "released" / "ledger"), 2, "--ledger")


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


# The key.


KEYS = [
    *((size, 0o600, "32 bytes") for size in (0, 31, 33)),
    *((32, mode, "chmod 600 ") for mode in (0o640, 0o604, 0o660)),
]


@pytest.mark.parametrize(("size", "mode", "said"), KEYS)
def test_a_key_of_another_length_or_that_others_can_read(
    job: Any, refused: Any, tmp_path: Path, size: int, mode: int, said: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * size)
    path.chmod(mode)
    refused(job(noise_key_file=path), 2, "--noise_key_file", str(path), said)


def test_a_key_that_is_a_folder(job: Any, refused: Any, tmp_path: Path) -> None:
    refused(job(noise_key_file=tmp_path), 2, "--noise_key_file", str(tmp_path))


def test_a_key_inside_the_output(job: Any, refused: Any, outputs: Path) -> None:
    refused(job(noise_key_file=outputs / "released" / "key"), 2, "--noise_key_file", "--output")


# The data.


def test_a_label_column_that_is_missing(job: Any, refused: Any, small_log: Path) -> None:
    refused(job(label="z"), 2, "--label", str(small_log), "'z'", "it has: f, y")


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


def test_unusable_labels_within_the_threshold(job: Any, invoke: Any, holed: Any, outputs: Path) -> None:
    path = holed("", 1000)
    outcome = invoke(job(input=path)).ok()  # exactly half, the default threshold, is allowed

    assert "1,000 (50 % of 2,000) without a usable label left out" in outcome.out
    lines = [json.loads(line) for line in (outputs / "released" / "dead_letters.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [*range(1000)]
    manifest = json.loads((outputs / "released" / "release.json").read_text())
    assert (manifest["records"], manifest["records_without_label"]) == (1000, 1000)


def test_records_without_a_usable_label_are_named_by_row(job: Any, invoke: Any, holed: Any, outputs: Path) -> None:
    path = holed("inf", 200)
    invoke(job(input=path)).ok()

    lines = [json.loads(line) for line in (outputs / "released" / "dead_letters.jsonl").read_text().splitlines()]
    assert all(set(line) == {"source", "row", "stage", "error"} for line in lines)
    assert [line["row"] for line in lines] == list(range(200))
    assert {line["source"] for line in lines} == {str(path)}
    assert "inf" not in (outputs / "released" / "dead_letters.jsonl").read_text().replace(str(path), "")
    table = pq.read_table(outputs / "released" / "data")
    assert table.column("f").to_pylist() == list(range(200, 2000))
    assert table.column("y").null_count == 0


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
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    refused(job(input_format="tfrecord"), 1, str(small_log), "TFRecord at row 0")


def test_records_that_are_no_examples(job: Any, refused: Any, tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    from labeldp.transforms.tfrecord.framing import frame

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


@pytest.mark.parametrize("flags", [{"id_column": "g"}, {"where": "g=1"}])
def test_a_column_that_is_missing(job: Any, refused: Any, small_log: Path, flags: dict[str, str]) -> None:
    refused(job(**flags), 2, f"--{next(iter(flags))}", str(small_log), "'g'", "it has: f, y")


def test_where_of_another_type(job: Any, refused: Any) -> None:
    refused(job(where="f=text"), 1, "--where f=text", "int64")


def test_csv_types_of_a_column_that_is_missing(job: Any, refused: Any, small_log: Path) -> None:
    refused(job(csv_types="g=string"), 1, "--csv_types", "'g'", str(small_log))


@pytest.mark.parametrize("columns", [{"s": [{"a": 1}]}, {"s": [[[1]]]}])
def test_features_that_an_example_cannot_hold(
    job: Any, refused: Any, tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    path = write_log(tmp_path / "in.parquet", columns | {"y": [1.0]})
    refused(job(input=path, input_format="parquet", output_format="tfrecord"), 2, "'s'", "tf.Example")
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
