"""`--dry_run`: says what the job would do, reads of labels which are missing, writes nothing and charges nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import write_key
from tests.written_logs import write_log

ROWS = 3000
LABEL = 7.0
"""Label of all records: its bytes are found in files, to be corrupted."""


def table(label: Any = LABEL) -> pa.Table:
    return pa.table(
        {"row": range(ROWS), "city": [f"c{i % 3}" for i in range(ROWS)], "weeks": [label] * ROWS}
    )  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Function (format, label of all records) -> a file of that format, always at the same path."""

    def written(kind: str, label: Any = LABEL) -> Path:
        path = tmp_path / f"log.{kind}"
        if kind != "parquet":
            return write_log(path, table(label))
        pq.write_table(table(label), path, compression="none", use_dictionary=False)
        return path

    return written


@pytest.fixture
def dry(job: Any, invoke: Any, write: Any) -> Callable[..., list[str]]:
    """Function (format, label, command, flags) -> the lines of a dry run."""

    def lines(kind: str, label: Any = LABEL, command: str = "privatize", **flags: Any) -> list[str]:
        path = flags.pop("path", None) or write(kind, label)
        argv = job(command, input=path, input_format=kind, label="weeks", **flags)
        return invoke([*argv, "--dry_run"]).ok().out.splitlines()

    return lines


def _damage(path: Path) -> None:
    """Overwrites the label's column chunk, so that it cannot be read."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert chunk.path_in_schema == "weeks"
    content = bytearray(path.read_bytes())
    start, size = chunk.data_page_offset, chunk.total_compressed_size
    content[start : start + size] = b"\xff" * size
    path.write_bytes(content)


def test_its_split_and_its_loss_are_those_of_the_job(
    dry: Any, job: Any, invoke: Any, write: Any, outputs: Path
) -> None:
    """For a flat histogram: the labels are equally frequent. Records named by ids have the same noise in every run.

    Of 1,500 keys, 1.8 % move the loss by more than 10 %.
    """
    path = write("parquet")
    flat = table().set_column(2, "weeks", pa.array([float(i % 5) for i in range(ROWS)]))
    pq.write_table(flat, path)
    flags = {"id_column": "row", "mechanism": "rr_on_bins"}
    lines = dict(line.split(maxsplit=1) for line in dry("parquet", path=path, **flags))
    outcome = invoke(job(input=path, input_format="parquet", label="weeks", **flags)).ok()
    real = dict(line.split(maxsplit=1) for line in outcome.out.splitlines() if line[:1].islower())

    assert lines["budget"].endswith("of 3,000 records")
    assert real["budget"].split()[1] in lines["budget"]
    found = float(real["expected"].split()[2].rstrip(","))
    assert float(lines["expected"].split()[2]) == pytest.approx(found, rel=0.1)
    # Then the ledger knows the request.
    again = dict(line.split(maxsplit=1) for line in dry("parquet", path=path, output=outputs / "again", **flags))
    assert again["expected"].startswith(f"squared loss {found:.6g}, as in the earlier release of this request")
    assert "which has 1 so far; nothing, if the input has not changed" in again["charged"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "tfrecord"])
@pytest.mark.parametrize("command", ["privatize", "fit"])
def test_nothing_is_written_and_no_key_made(
    dry: Any, outputs: Path, tree: Any, home: Path, kind: str, command: str
) -> None:
    key = home / "labeldp" / "noise.key"
    kept = key.read_bytes() if key.exists() else None
    if kept is not None:
        key.unlink()
    before = tree(outputs.parent)
    lines = dry(kind, command=command, mechanism="auto", noise_key_file=None)

    assert f"key        {key}, which the job creates" in lines
    assert not key.exists()
    assert tree(outputs) == {}
    assert {name for name in tree(outputs.parent) if name not in before} == {f"log.{kind}"}
    if kept is not None:
        write_key(key, kept)


def test_a_label_that_cannot_be_read_fails_as_in_the_job(job: Any, invoke: Any, write: Any) -> None:
    damaged = write("parquet")
    _damage(damaged)
    for path, kind, text in ((damaged, "parquet", "corrupt"), (write("csv", "no number"), "csv", "'weeks'")):
        argv = job(input=path, input_format=kind, label="weeks")
        found, told = invoke(argv), invoke([*argv, "--dry_run"])
        assert (told.code, told.error.partition(" (")[0]) == (1, found.error.partition(" (")[0])
        assert text in told.error


@pytest.mark.parametrize("kind", ["csv", "tfrecord"])
def test_labels_of_any_kind_give_the_same_lines(dry: Any, kind: str) -> None:
    expected = dry(kind, 1.0, mechanism="auto")

    for label in (4.0, 123456.5):
        assert dry(kind, label, mechanism="auto") == expected


@pytest.mark.parametrize(
    ("holes", "flags", "expected"),
    [
        (0, {}, "0 of the first 3,000 records (0 %) have no usable label"),
        (1500, {}, "1,500 of the first 3,000 records (50 %) have no usable label"),
        (1501, {"where": "city=c0"}, "501 of the first 1,000 records (50 %) have no usable label: the job refuses more "
         "than --max_unusable_fraction 0.5; if a missing label means a value that is still to come, as no conversion "
         "yet, give --missing_label 0; otherwise fix them, or exclude them with --where"),
        (3, {"max_unusable_fraction": 0}, "3 of the first 3,000 records (0.1 %) have no usable label: the job refuses "
         "more than --max_unusable_fraction 0"),
        (3000, {"missing_label": 2}, "a missing label counts as 2"),
    ],
)  # fmt: skip
def test_it_says_how_many_labels_are_missing(dry: Any, tmp_path: Path, holes: int, flags: Any, expected: str) -> None:
    path = tmp_path / "holed.parquet"
    labels = pa.array([None] * holes + [LABEL] * (ROWS - holes), pa.float64())
    pq.write_table(table().set_column(2, "weeks", labels), path)
    assert f"missing    {expected}" in dry("parquet", path=path, mechanism="auto", **flags)


def test_a_release_beyond_the_cap_is_refused(job: Any, invoke: Any, outputs: Path) -> None:
    invoke(job()).ok()
    outcome = invoke([*job(epsilon=2, epsilon_cap=2.5, output=outputs / "second"), "--dry_run"])

    assert outcome.code == 2
    assert "2.5" in outcome.error
    assert not (outputs / "second").exists()


@pytest.mark.parametrize("classes", ["a,b", "a, b ,\tc", 'a,"b, c"'])
def test_it_warns_of_classes_with_spaces_around_them(classes: str, job: Any, invoke: Any, write: Any) -> None:
    grid = dict.fromkeys(("label_min", "label_max", "label_step"))
    argv = job(
        "privatize", input=write("parquet", "a"), input_format="parquet", label="weeks", label_classes=classes, **grid
    )
    warned = invoke([*argv, "--dry_run"]).ok().err
    text = "warning: weeks: ' b ' of --label_classes has white space at its beginning or end, and so have 1 more: texts"
    assert (text in warned) == (" b " in classes)
    assert ("classes with commas are given in a file" in warned) == ('"' in classes)
