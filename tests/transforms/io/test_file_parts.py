"""Parts of TFRecord and CSV files tile their file, whatever is in it, and no label counts for where they begin."""

import codecs
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, Limits, ReadRecordBatches
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.csv_input import csv_reader
from labeldp.transforms.io import input_format
from labeldp.transforms.io.csv_dialect import Dialect
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers import tfrecord_reader
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import batch_offsets, frame

# A part has two batches, and a block less than one.
BATCH = 64
LIMITS = Limits(batch_rows=BATCH, part_rows=2 * BATCH, block_bytes=500, chunk_bytes=500)
ROWS = 6 * BATCH + 17
# Quoted fields may have line breaks.
CSV = Format("csv", dialect=Dialect(newlines=True), limits=LIMITS)
TFRECORD = Format("tfrecord", limits=LIMITS)
# Line breaks, commas, quotes and nothing in quotes; blank lines, and two rows at once.
TEXTS = ['"{0}, x"', "{0}", '"{0}\nsecond line"', '"with ""quotes"" {0}"', '""', '"{0}"\n\n', "x\r\n{0},1"]
CHOSEN = np.random.default_rng(0).integers(len(TEXTS), size=ROWS)


def csv(label: str = "") -> str:
    """Rows with texts of all kinds, and with labels from 0 to 4 or one label."""
    return "y,t\n" + "\n".join(f"{label or row % 5},{TEXTS[CHOSEN[row]].format(row)}" for row in range(ROWS))


def tfrecords(label: int | None = None) -> bytes:
    """Records of many lengths."""
    numbers = np.arange(ROWS)
    labels = pa.array(numbers % 5 if label is None else np.full(ROWS, label))
    texts = pa.array(["x" * (row * row % 31) for row in range(ROWS)])
    return frame(encode_examples(pa.RecordBatch.from_pydict({"n": numbers, "y": labels, "t": texts})))


LOGS = {"csv": (CSV, csv), "tfrecord": (TFRECORD, tfrecords)}
BOTH = pytest.mark.parametrize(("format", "log"), LOGS.values(), ids=list(LOGS))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """(content, name=) -> the path of that file."""

    def write(content: str | bytes, name: str = "log") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def reader(format: Format) -> FileReader:
    return FileReader(format, ["n", "y"] if format.name == "tfrecord" else None, label_column="y")


def parts_of(path: str, format: Format, files: int = 1) -> list[FilePart]:
    return list(reader(format).split(FilePart(path, path, files=files)))


def read(part: FilePart, format: Format) -> list[LabelledBatch]:
    return list(reader(format).read(part))


def places(batches: list[LabelledBatch]) -> list[tuple[int, int]]:
    return [(batch.start, batch.stop) for batch in batches]


def joined(batches: list[LabelledBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches([batch.batch for batch in batches]).combine_chunks()


def assert_tiled(path: str, format: Format) -> None:
    parts = parts_of(path, format)
    assert len(parts) == ROWS // (2 * BATCH) == parts[0].parts
    found, expected = [batch for part in parts for batch in read(part, format)], read(FilePart(path, path), format)
    assert places(found) == places(expected)
    assert found[-1].stop >= ROWS
    assert all(one.batch.equals(two.batch) for one, two in zip(found, expected, strict=True))


@BOTH
@pytest.mark.parametrize("size", [16, 300, 1 << 20], ids=str)
def test_parts_tile_their_file_with_the_same_batches(write, format, log, size):
    """Batches of large rows of CSV end early, as in the whole file."""
    limits = replace(LIMITS, block_bytes=size, chunk_bytes=size)
    assert_tiled(write(log()), replace(format, limits=limits))
    if format.name == "csv":
        assert_tiled(write(log()), replace(format, limits=replace(limits, batch_bytes=500)))


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\r\n"], ids=["open", "closed", "blank lines"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_parts_of_csv_files_of_any_form(write, mark, end, line_break):
    text = (csv() + end).replace("\r\n", "\n").replace("\n", line_break)
    assert_tiled(write(mark + text.encode()), CSV)


@BOTH
def test_parts_are_read_in_parallel_and_tile_their_file(write, run, format, log):
    path = write(log())
    found = run(lambda pipeline: {"log": pipeline | ReadRecordBatches(path, format, label_column="y")})
    batches = sorted(found["log"], key=lambda batch: batch.start)
    assert [batch.start for batch in batches[1:]] == [batch.stop for batch in batches[:-1]]
    assert [batch.start for batch in batches] == list(range(0, batches[-1].stop, BATCH))


@given(st.integers(2, 64), st.lists(st.integers(1, 1000), min_size=7, max_size=70).map(sorted))
def test_parts_of_a_file_with_many_shards_are_whole_shards(parts: int, cuts: list[int]) -> None:
    found: list[Any] = [
        input_format.bounds_of_part(FilePart("a", "a", number=number, parts=parts, cuts=tuple(cuts)), 1, BATCH)
        for number in range(parts)
    ]
    taken = [each for each in found if each != (0, 0)]
    assert found[: len(taken)] == taken, "parts without a shard come last"
    assert [each[0] for each in taken] == [0, *(each[1] for each in taken[:-1])]
    assert taken[-1][1] is None
    assert {each[0] for each in taken} <= {0, *cuts}
    shards = np.diff([*np.searchsorted(cuts, [each[0] for each in taken], "right"), len(cuts) + 1])
    if len(set(cuts)) == len(cuts):
        assert len(taken) == min(parts, len(cuts) + 1)
        assert max(shards) - min(shards) <= 1


@BOTH
@pytest.mark.parametrize("cuts", [
    tuple(range(30, 240, 30)), (1, 2, 3, BATCH - 1, BATCH, BATCH + 1, ROWS - 1), tuple(range(ROWS - 17, ROWS)),
])  # fmt: skip
@pytest.mark.parametrize("parts", [2, 5, 12, 64])
def test_whole_shards_are_read_once(write, cut_parts, format, log, cuts, parts):
    path = write(log())
    found = [batch for part in cut_parts(path, parts, cuts) for batch in read(part, format)]
    assert [batch.start for batch in found] == [0, *(batch.stop for batch in found[:-1])]
    assert all(len(batch.rows) == batch.batch.num_rows <= BATCH for batch in found)
    shards, taken = (0, *cuts), min(parts, len(cuts) + 1)
    assert {shards[len(shards) * number // taken] for number in range(taken)} <= {batch.start for batch in found}
    assert joined(found).equals(joined(read(FilePart(path, path), format)))


@BOTH
def test_parts_do_not_depend_on_labels(write, format, log):
    """Neither on how many bytes they take nor on quotes around them: nothing that a runner sees of a part may tell."""
    values = ("1", '"1.0000000000000000"') if format.name == "csv" else (0, -1)
    paths = [write(log(value), name) for value, name in zip(values, "ab", strict=True)]
    narrow, wide = (parts_of(path, format) for path in paths)
    assert Path(paths[1]).stat().st_size > 1.1 * Path(paths[0]).stat().st_size
    for one, two in zip(narrow, wide, strict=True):
        assert (one.number, one.parts, one.files) == (two.number, two.parts, two.files)
        assert places(read(one, format)) == places(read(two, format))


LATIN = replace(CSV, dialect=Dialect(encoding="latin-1", newlines=True))


@pytest.mark.parametrize(
    ("format", "name", "files", "parts"),
    [
        (TFRECORD, "a", 7, 3), (TFRECORD, "a", 8, 1), (TFRECORD, "a.gz", 1, 1), (TFRECORD, "a.bz2", 1, 1),
        (CSV, "a", 7, 3), (CSV, "a", 8, 1), (CSV, "a.csv.gz", 1, 1), (LATIN, "a.csv", 1, 1),
    ],
    ids=str,
)  # fmt: skip
def test_files_that_are_not_split(write, format, name, files, parts):
    """Many files, compressed ones, and those of another encoding."""
    assert len(parts_of(write(LOGS[format.name][1](), name), format, files)) == parts


DAMAGES = {
    "fields": "line {2} has 4 fields", "label": "holds text on line {2}", "header": "corrupt TFRecord at row {0}",
    "record": "corrupt TFRecord at row {0}", "end": "truncated TFRecord at row {0}",
    "odd end": "truncated TFRecord at row {0}",
}  # fmt: skip


def damaged(path: Path, damage: str, row: int) -> None:
    if damage in ("fields", "label"):
        lines = [f"{number % 5},a" for number in range(ROWS)]
        lines[row] = "8,a,b,c" if damage == "fields" else "eight,a"
        path.write_text("\n".join(["y,t", *lines]))
        return
    content = bytearray(tfrecords())
    path.write_bytes(content)
    with path.open("rb") as file:
        offset = int(batch_offsets(file, 1)[1][row])
    if damage in ("header", "record"):
        content[offset + (9 if damage == "header" else 12)] ^= 1
    else:
        del content[offset + (30 if damage == "end" else 5) :]
    path.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("row", [3, 2 * BATCH - 1, 2 * BATCH, ROWS - 1])
def test_damage_is_found_in_its_place(tmp_path, damage, row):
    path, format = tmp_path / "log", CSV if damage in ("fields", "label") else TFRECORD
    damaged(path, damage, row)
    messages = []
    for parts in ([FilePart(str(path), str(path))], parts_of(str(path), format)):
        with pytest.raises(InputError, match=DAMAGES[damage].format(row, row + 1, row + 2)) as caught:
            _ = [read(part, format) for part in parts]
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert len(parts) >= 1 if "end" in damage else len(parts) == 3 or damage == "header"


def test_a_bad_row_of_another_shard_in_the_same_batch(write):
    lines = [f"{number % 5},a" for number in range(ROWS)]
    path = write("\n".join(["y,t", *lines[:5], "8,a,b,c", *lines[6:]]))
    for number in (0, 1):
        with pytest.raises(InputError, match="line 7 has 4 fields"):
            read(FilePart(path, path, number=number, parts=8, cuts=tuple(range(10, 80, 10))), CSV)


def test_a_quote_that_is_never_closed_is_found_by_the_reader_of_the_whole_file(write):
    lines = "".join(f"{number % 5},a\n" for number in range(ROWS))
    (part,) = parts_of(write(f'y,t\n{lines}1,"a\n{lines}'), CSV)
    with pytest.raises(InputError, match=f"the row that begins on line {ROWS + 2} .* none closes it"):
        read(part, CSV)


def test_files_of_another_header_are_refused_in_every_part(write):
    first, other = write("y,u\n1,a\n", "first.csv"), write(csv(), "other.csv")
    for part in reader(CSV).split(FilePart(other, first)):
        with pytest.raises(InputError, match=r"other\.csv: the header is not that of"):
            read(part, CSV)


@pytest.mark.parametrize(
    ("format", "log", "module", "place", "problem"),
    [
        (CSV, csv, csv_reader, -1, "became shorter while it was read"),
        (TFRECORD, tfrecords, tfrecord_reader, -1, "has changed while the job ran: run again when the files are"),
        (TFRECORD, tfrecords, tfrecord_reader, 0, "truncated TFRecord at row"),
    ],
    ids=["csv", "tfrecord", "tfrecord, first part"],
)
def test_a_file_that_becomes_shorter_is_not_taken_for_a_part(write, monkeypatch, format, log, module, place, problem):
    path = write(log())
    part, content = parts_of(path, format)[place], Path(path).read_bytes()

    def opened(*args: Any) -> Any:
        Path(path).write_bytes(content[: len(content) // 5])
        return open(*args)

    # The places of its records are known by then.
    monkeypatch.setattr(module, "open", opened, raising=False)
    with pytest.raises(InputError, match=problem):
        read(part, format)


@BOTH
def test_a_missing_file_is_named(tmp_path, format, log):
    path = str(tmp_path / "gone")
    with pytest.raises(InputError, match=r"gone: cannot be opened: No such file"):
        _ = [read(part, format) for part in parts_of(path, format)]
    with pytest.raises(InputError, match=r"gone: cannot be opened: No such file"):
        read(FilePart(path, path, 1, 2), format)


@pytest.mark.parametrize("sizes", [[0], [0, 5, 200_000, 3], [100_000 - 16] * 3, [0] * 100_000, []])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_offsets_of_records_of_any_size(tmp_path, sizes, rows):
    path = tmp_path / "log"
    path.write_bytes(frame([bytes(size) for size in sizes]))
    starts = np.cumsum([0, *(size + 16 for size in sizes)])[:-1]
    with path.open("rb") as file:
        count, offsets = batch_offsets(file, rows, 100_000)
    assert count == len(sizes)
    assert offsets.tolist() == starts[::rows].tolist()
