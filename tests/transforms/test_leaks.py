"""No stage shows a label in an error, in a log at any level, or in a file other than the input.

The labels are rare numbers outside of the public domain, so that no output can equal one of them. Libraries are made
to fail with these numbers in their messages, as they do in practice.
"""

import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.noise.input_digest import RawSums, input_digest
from labeldp.mechanisms.release import bound_noise, drawing, label_column, label_records, prior_release
from labeldp.transforms import (
    Equals,
    Format,
    LabelColumn,
    NoisyPrior,
    PrivatizeLabels,
    ReadRecordBatches,
    SolveRandomizer,
    Threshold,
    WriteParquet,
    WriteTFRecords,
    batches,
    input_checks,
    usable_records,
)
from labeldp.transforms import privatize_labels as privatize
from labeldp.transforms.csv_input import csv_reader
from labeldp.transforms.readers import arrow_files, file_reader, tfrecord_reader
from labeldp.transforms.shards import shard_formats, shard_writer
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

# Ten digits: shorter ones turn up by chance in times and random names that are logged.
SENTINELS = [4861371529.0625, -7703162518.5, 5912752740.25]
ROWS = 60
COLUMN = LabelColumn("y", (0.0, 1.0, 2.0, 3.0), "id")
CENTERED = LabelColumn("y", (0.0, 1.0, 2.0, 3.0), "id", center="x")


def traces() -> list[bytes]:
    """Text and binary representations of the sentinels."""
    found = []
    for value in SENTINELS:
        rounded = float(np.float32(value))
        found += [str(abs(value)).encode(), str(int(abs(value))).encode(), repr(abs(rounded))[:7].encode()]
        found.append(str(np.float32(abs(value)))[:9].encode())
        found += [struct.pack(code, one) for one in (value, -value) for code in ("<d", "<f", ">d", ">f")]
    return found


TRACES = traces()


def leaks_in(content: str | bytes) -> list[bytes]:
    content = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return [trace for trace in TRACES if trace in content]


def make_input(folder: Path, format: str) -> str:
    """Writes two files whose labels are the sentinels, with one label missing, and returns a glob."""
    folder.mkdir()
    for file in range(2):
        labels: list[float | None] = [SENTINELS[i % 3] for i in range(ROWS)]
        labels[7] = None
        ids = [f"user {file} {i}" for i in range(ROWS)]
        batch = pa.RecordBatch.from_pydict({"id": ids, "x": list(range(ROWS)), "y": labels})
        path = folder / f"part-{file}.{format}"
        if format == "parquet":
            pq.write_table(pa.Table.from_batches([batch]), str(path))
        elif format == "tfrecord":
            path.write_bytes(frame(encode_examples(batch)))
        else:
            lines = [f"{i},{x},{'' if y is None else y}" for i, x, y in zip(*batch.to_pydict().values(), strict=True)]
            path.write_text("\n".join(["id,x,y", *lines]) + "\n")
    assert leaks_in(b"".join(path.read_bytes() for path in folder.iterdir()))
    return f"{folder}/part-*"


@pytest.fixture
def whole_flow(tmp_path: Path, key: Any) -> Callable[[str, str], Callable[[Any], dict[str, Any]]]:
    """(input format, output format) -> pipeline -> PCollections: read, fit, solve, privatize, write."""

    def make(input_format: str, output_format: str = "parquet", where: Equals | None = None, column=COLUMN):
        pattern = make_input(tmp_path / "input", input_format)
        transform = {"parquet": WriteParquet, "tfrecord": WriteTFRecords}[output_format]

        def build(pipeline):
            source = ReadRecordBatches(pattern, Format(input_format), None, where, "y")
            found = pipeline | source
            release = found | NoisyPrior(column, 1.0, key, threshold=Threshold(0.1))
            result = found | PrivatizeLabels(release | SolveRandomizer("rr"), release, column, key)
            files = result.batches | transform(str(tmp_path / "data"), str(tmp_path / "temp"), 2)
            return {"files": files, "letters": result.dead_letters}

        return build

    return make


@pytest.fixture
def shown(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture) -> Callable[[], str]:
    """All logs, stdout, stderr, and the content of all files other than the input, as one text."""
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, name)

    def collect() -> str:
        captured = capfd.readouterr()
        texts = [caplog.text, captured.out, captured.err]
        texts += [repr(record.args) + repr(record.exc_info) for record in caplog.records]
        for path in tmp_path.rglob("*"):
            texts.append(str(path))
            if path.is_file() and path.parent.name != "input":
                texts.append(path.read_bytes().decode("utf-8", "surrogateescape"))
        return "\n".join(texts)

    return collect


def fail_with_labels(*args: Any, **kwargs: Any) -> Any:
    """Raises an error with labels in its message and in its cause."""
    quoted = ", ".join(map(str, SENTINELS))
    try:
        raise KeyError(quoted)
    except KeyError as error:
        raise pa.ArrowNotImplementedError(f"cannot cast [{quoted}]") from error


STAGES = [
    (tfrecord_reader, "_with_length", "tfrecord", "reading"),
    (csv_reader, "whole_row_blocks", "csv", "reading"),
    (arrow_files, "_check_columns", "parquet", "reading"),
    (file_reader, "single_values", "csv", "reading"),
    (input_checks, "record_identities", "csv", "checking ids"),
    (input_checks, "_group", "csv", "checking ids"),
    (usable_records, "usable_labels", "csv", "counting labels"),
    (label_column, "LabelRounder", "parquet", "counting labels"),
    (label_records, "digest_sums", "tfrecord", "counting labels"),
    (bound_noise, "input_digest", "csv", "adding noise"),
    (prior_release, "make_binding", "csv", "adding noise"),
    (prior_release, "noisy_counts", "csv", "adding noise"),
    (privatize, "usable_records", "csv", "privatizing labels"),
    (privatize, "label_sums", "parquet", "privatizing labels"),
    (privatize, "input_digest", "csv", "comparing the passes"),
    (drawing, "words", "tfrecord", "privatizing labels"),
    (privatize, "replace_label", "csv", "privatizing labels"),
    (shard_writer, "shard_of_rows", "csv", "writing"),
    (shard_formats, "_common_schema", "csv", "writing"),
    (shard_formats, "_conformed", "csv", "writing"),
]


@pytest.mark.parametrize(
    ("module", "name", "format", "stage"), STAGES, ids=[f"{stage} {name}" for _, name, _, stage in STAGES]
)
def test_a_failing_stage_shows_no_label(whole_flow, failure, shown, monkeypatch, module, name, format, stage):
    build = whole_flow(format, where=Equals("x", "7") if name == "single_values" else None)
    monkeypatch.setattr(module, name, fail_with_labels)
    text = failure(build)
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_leaks.py:" in text
    assert leaks_in(text) == []
    assert leaks_in(shown()) == []


@pytest.mark.parametrize(
    ("module", "name", "stage"),
    [
        (usable_records, "center_values", "counting labels"),
        (prior_release, "noisy_counts", "adding noise"),
        (privatize, "usable_records", "privatizing labels"),
        (privatize, "privatize_batch", "privatizing labels"),
    ],
)
def test_a_failing_stage_around_a_center_shows_no_label(whole_flow, failure, shown, monkeypatch, module, name, stage):
    build = whole_flow("csv", column=CENTERED)
    monkeypatch.setattr(module, name, fail_with_labels)
    text = failure(build)
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_leaks.py:" in text
    assert leaks_in(text) == []
    assert leaks_in(shown()) == []


@pytest.mark.parametrize("kind", ["array", "batch"])
def test_arrow_itself_may_quote_what_it_chokes_on(whole_flow, failure, shown, monkeypatch, kind):
    """Arrow's own error, from a cast that fails on the labels and quotes them."""

    def cast(batch, column):
        values = batch.column(column.name)
        if kind == "array":
            return values.cast(pa.int8())
        raise ValueError(str(batch.batch.to_pydict()))

    build = whole_flow("csv")
    monkeypatch.setattr(privatize, "usable_records", cast)
    text = failure(build)
    assert "StageError: privatizing labels failed: " in text
    assert leaks_in(text) == []
    assert leaks_in(shown()) == []


@pytest.fixture
def raw_sums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All lanes of the sums passed to `input_digest`, in both passes."""
    found: list[int] = []

    def spy(secret: bytes, sums: RawSums, *request: Any) -> int:
        found.extend(sums.lanes.tolist())
        return input_digest(secret, sums, *request)

    for module in (bound_noise, privatize):
        monkeypatch.setattr(module, "input_digest", spy)
    return found


@pytest.mark.parametrize("column", [COLUMN, CENTERED], ids=["label", "center"])
@pytest.mark.parametrize(("format", "output"), [("csv", "parquet"), ("parquet", "tfrecord"), ("tfrecord", "parquet")])
def test_a_job_that_succeeds_shows_neither_label_nor_key(
    whole_flow, run, shown, raw_sums, tmp_path, format, output, secret, key, column
):
    found = run(whole_flow(format, output, column=column))
    Path(key.path).unlink()
    assert len(found["files"]) == len(os.listdir(tmp_path / "data")) == 2
    assert sorted(letter.row for letter in found["letters"]) == [7, 7]
    assert leaks_in(repr(found["letters"])) == []
    text = shown()
    assert leaks_in(text) == []
    for form in (secret.decode("utf-8", "surrogateescape"), secret.hex(), repr(secret)):
        assert form not in text
    assert len(raw_sums) >= 8
    for lane in raw_sums:
        both = (lane.to_bytes(8, order) for order in ("little", "big"))
        for form in (str(lane), f"{lane:x}", *(one.decode("utf-8", "surrogateescape") for one in both)):
            assert form not in text


def test_the_sentinels_would_be_seen():
    """Self-test of the search: it finds a sentinel in each of its forms."""
    for value in SENTINELS:
        batch = pa.RecordBatch.from_pydict({"y": [value]})
        for form in (f"bad {value}", repr(batch.to_pydict()), str(batch.column(0)), str(np.float32(value))):
            assert leaks_in(form)
        for content in (
            encode_examples(batch)[0],
            batches.LabelledBatchCoder().encode(batches.LabelledBatch.whole("/a", 0, batch)),
        ):
            assert leaks_in(content)
            assert leaks_in(content.decode("utf-8", "surrogateescape"))
