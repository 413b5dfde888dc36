"""Two logs that differ in one label, of another width: equal batches, errors and Beam counters, for every format."""

import dataclasses
import functools
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.transforms import Format, InputError, LabelColumn, Limits, NoisyPrior, ReadRecordBatches
from labeldp.transforms.batches import LabelledBatchCoder
from labeldp.transforms.io.input_format import Equals, FilePart
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord import example_columns, framing
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from pyarrow import orc

from tests.written_logs import write_log

ROWS = 40_000
FORMATS = ["csv", "csv.gz", "tfrecord", "tfrecord.gz", "parquet", "orc"]
LABELS = [9, 1 << 40]


def corrupt(records: list[bytes], where: str) -> list[bytes]:
    changed = bytearray(records[20_000])
    changed[-1 if where == "corrupt" else 0] ^= 0x40
    return [*records[:20_000], bytes(changed), *records[20_001:]]


def columns_with(label: int) -> dict[str, np.ndarray]:
    """Columns of integers: id, x and y, with that label in row 7."""
    labels = np.arange(ROWS) % 50
    labels[7] = label
    return {"id": np.arange(ROWS), "x": np.arange(ROWS) % 13, "y": labels}


@functools.cache
def records_with(name: str, label: int) -> tuple[bytes, tuple[bytes, ...], bytes]:
    """Head of a file of CSV or TFRecords, its records, and what record 20,000 is replaced by in a corrupt file."""
    columns = columns_with(label)
    if name == "csv":
        rows = tuple(b"%d,%d,%d\n" % row for row in zip(*columns.values(), strict=True))
        return b"id,x,y\n", rows, b"1,2,text\n"
    examples = encode_examples(pa.RecordBatch.from_pydict(columns))
    frames = tuple(bytes(framing.frame([example])) for example in examples)
    return b"", frames, frames[20_000][:-1] + bytes([frames[20_000][-1] ^ 1])


def log(folder: Path, format: str, label: int, damage: str = "none") -> str:
    """A log of `columns_with` that label."""
    path, name = folder / f"log.{format}", format.removesuffix(".gz")
    folder.mkdir(exist_ok=True)
    if name == "parquet":
        pq.write_table(pa.table(columns_with(label)), path, row_group_size=3_000)
        content = path.read_bytes()
    elif name == "orc":
        # Several stripes, which end by their bytes.
        orc.write_table(pa.table(columns_with(label)), str(path), stripe_size=1 << 14)
        content = path.read_bytes()
    else:
        head, frames, broken = records_with(name, label)
        records = list(frames)
        if damage == "corrupt":
            records[20_000] = broken
        if damage == "open":
            records[20_000] = b'1,"2,3\n' if name == "csv" else bytes(16)
        if damage == "truncated":
            records = [*records[:20_000], records[20_000][:5]]
        content = head + b"".join(records)
    if damage != "none" and name in ("parquet", "orc"):
        content = content[:4] + bytes(2_000) + content[2_004:] if damage == "corrupt" else content[:20_000]
    if format.endswith(".gz"):
        content = gzip.compress(content, compresslevel=1, mtime=0)
        if damage == "truncated":
            content = content[: len(content) - 5]
    path.write_bytes(content)
    return str(path)


def read(path: str, format: str, **options: Any) -> tuple[list[tuple[int, int, int, str]], str]:
    """Place, size and schema of each batch, and the text of the error, without the folder."""
    batches, text = [], ""
    try:
        settings: dict[str, Any] = {"label_column": "y", **options}
        limits = settings.pop("limits", Limits())
        reader = FileReader(Format(format.removesuffix(".gz"), limits=limits), **settings)
        for batch in reader.read(FilePart(path, path)):
            batches.append((batch.start, batch.stop, batch.batch.num_rows, str(batch.batch.schema)))
    except InputError as error:
        text = str(error).replace(str(Path(path).parent), "")
    return batches, text


@pytest.mark.parametrize("damage", ["none", "corrupt", "open", "truncated"])
@pytest.mark.parametrize("options", [{}, {"columns": ["y"]}], ids=["all", "label"])
@pytest.mark.parametrize("format", FORMATS)
def test_batches_and_errors_are_equal(tmp_path: Path, format: str, options: dict[str, Any], damage: str) -> None:
    seen = [read(log(tmp_path / str(label), format, label, damage), format, **options) for label in LABELS]
    assert seen[0] == seen[1]
    batches, text = seen[0]
    # The damage of Parquet and ORC files lies in another column than the label.
    assert bool(text) == (damage != "none") or (format in ("parquet", "orc") and damage == "corrupt")
    assert "offset" not in text
    if damage == "none":
        assert [batch[2] for batch in batches] == [16_384, 16_384, 7_232]


@pytest.mark.parametrize("format", ["csv", "tfrecord", "parquet", "orc"])
def test_another_private_column_decides_nothing_either(tmp_path: Path, format: str) -> None:
    """As the CSV type of the column would, which is that of the first rows."""
    private = {"label_column": "x", "other_labels": ["y"]}
    seen = [read(log(tmp_path / str(label), format, label), format, **private) for label in LABELS]
    assert seen[0] == seen[1]
    with pytest.raises(ValueError, match="where must not look at the label"):
        FileReader(Format(format), where=Equals("y", "9"), **private)


@pytest.mark.parametrize("format", ["csv", "tfrecord", "parquet", "orc"])
def test_texts_of_classes_decide_nothing(tmp_path: Path, format: str) -> None:
    """Not even the sizes of encoded elements, where a class, or a text that is not listed, is longer than another."""
    classes, sizes = LabelClasses(("a", "a class with a longer name")), []
    for number, label in enumerate(("a", classes.values[1], "x" * 5000)):
        values = [label if row == 7 else "a" for row in range(2000)]
        table = pa.table({"x": np.arange(2000), "y": values})
        path = tmp_path / f"{number}" / f"log.{format}"
        write_log(path, table)
        if format == "tfrecord":
            examples = encode_examples(table.to_batches()[0])
            assert len({*example_columns.FeatureSizes("log", ["y"])(framing.Frames.of(examples)).tolist()[:7]}) == 1
            bounds = example_columns.FeatureSizes("log", ["y"])(framing.Frames.of(examples))
            assert bounds[7] == bounds[6]
        reader = FileReader(Format(format, classes={"y": classes}), label_column="y")
        coder = LabelledBatchCoder()
        sizes.append(
            [
                (
                    batch.start,
                    batch.stop,
                    len(coder.encode(dataclasses.replace(batch, source=""))),
                    str(batch.batch.schema),
                )
                for batch in reader.read(FilePart(str(path), str(path)))
            ]
        )
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.parametrize("labels", [["y"], ["x", "y"], ["y", "x"]], ids=",".join)
@pytest.mark.parametrize("encoded", [False, True])
def test_batches_of_large_records_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: bool, labels: list[str]
) -> None:
    """The limit of bytes lies where the wider label would move it, if it counted."""
    files, sizes = [], np.zeros(0)
    for label in LABELS:
        values = [label if row == 3 else 9 for row in range(40)]
        columns = {"id": np.arange(40), **dict.fromkeys(labels, values)}
        examples = encode_examples(pa.RecordBatch.from_pydict(columns))
        files.append(tmp_path / f"{label}")
        files[-1].write_bytes(framing.frame(examples))
        sizes = example_columns.FeatureSizes("log", labels)(framing.Frames.of(examples))
        assert len(set(sizes.tolist())) == 1
    for limit in range(int(8 * sizes[0]) - 8, int(8 * sizes[0]) + 9):
        options = {
            "limits": Limits(frames_bytes=limit),
            "columns": labels,
            "label_column": labels[0],
            "other_labels": labels[1:],
        }
        found = [read(str(path), "tfrecord", encoded=encoded, **options) for path in files]
        assert found[0] == found[1]
        assert found[0][0][0][2] in (8, 9)


def counters(build: Callable[[beam.Pipeline], Any]) -> dict[str, Any]:
    """Element counts of all stages, as Beam counted them."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    build(pipeline)
    result: Any = pipeline.run()
    result.wait_until_finish()
    found = {}
    for stage, infos in sorted(result._monitoring_infos_by_stage.items()):
        for info in infos:
            if info.urn == "beam:metric:element_count:v1":
                found[f"{stage} {sorted(info.labels.items())}"] = info.payload
    return found


@pytest.mark.parametrize("format", ["csv", "tfrecord", "parquet", "orc"])
def test_element_counts_are_equal(tmp_path: Path, format: str, key: Any) -> None:
    column = LabelColumn("y", tuple(float(label) for label in range(50)))

    def of(label: int) -> dict[str, Any]:
        path = Path(log(tmp_path / "log", format, label))

        def build(pipeline: beam.Pipeline) -> None:
            labels = pipeline | "Labels" >> ReadRecordBatches(str(path), Format(format), ["y"], None, "y")
            _ = labels | NoisyPrior(column, 1.0, key)
            encoded = format == "tfrecord"
            records = pipeline | "Records" >> ReadRecordBatches(
                str(path), Format(format), ["y"] if encoded else None, None, "y", encoded
            )
            _ = records | beam.Reshuffle()

        return counters(build)

    one, other = of(LABELS[0]), of(LABELS[1])
    assert len(one) > 10
    assert one == other


@pytest.mark.parametrize("format", ["csv", "tfrecord", "parquet", "orc"])
def test_sizes_that_runners_sample_are_equal(tmp_path: Path, format: str) -> None:
    """Runners show the mean size of elements, as their coder estimates or encodes them."""
    coder, seen = LabelledBatchCoder(), []
    for label in LABELS:
        path = log(tmp_path, format, label)
        options: dict[str, Any] = {"columns": ["y"], "encoded": True} if format == "tfrecord" else {}
        batches = FileReader(Format(format), label_column="y", **options).read(FilePart(path, path))
        seen.append([(coder.estimate_size(batch), len(coder.encode(batch))) for batch in batches])
    assert seen[0] == seen[1]
