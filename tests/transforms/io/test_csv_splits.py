"""Parts of CSV files: they tile their file, whatever is in it, and no label counts for where they begin."""

import codecs
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from labeldp.transforms import Format, InputError, ReadRecordBatches
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.csv_input import csv_reader
from labeldp.transforms.csv_input.csv_reader import split_csv
from labeldp.transforms.io import csv_blocks, input_format
from labeldp.transforms.io.csv_dialect import Dialect
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart
from labeldp.transforms.readers import file_reader
from labeldp.transforms.readers.file_reader import FileReader

ROWS = 6 * BATCH_ROWS + 17
# Quoted fields may have line breaks.
LINES = Dialect(newlines=True)
# Line breaks, commas, quotes and nothing in quotes; blank lines, and two rows at once.
TEXTS = ['"{0}, x"', "{0}", '"{0}\nsecond line"', '"with ""quotes"" {0}"', '""', '"{0}"\n\n', "x\r\n{0},1"]


def rows(label: str = "") -> str:
    """Rows with texts of all kinds, and with labels from 0 to 4 or one label."""
    chosen = np.random.default_rng(0).integers(len(TEXTS), size=ROWS)
    return "\n".join(f"{label or row % 5},{TEXTS[chosen[row]].format(row)}" for row in range(ROWS))


@pytest.fixture(scope="module")
def text() -> str:
    return "y,t\n" + rows()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """(content, name=) -> path of a log, of which a part has two batches, and a block less than one."""
    monkeypatch.setattr(input_format, "_PART_ROWS", 2 * BATCH_ROWS)
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", 100_000)

    def write(content: str | bytes, name: str = "log.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def parts_of(path: str, dialect: Dialect = LINES) -> list[FilePart]:
    return list(split_csv(FilePart(path, path), ["y"], dialect))


def read(part: FilePart, dialect: Dialect = LINES) -> list[LabelledBatch]:
    return list(FileReader(Format("csv", dialect=dialect), label_column="y").read(part))


def assert_tiled(path: str, dialect: Dialect = LINES) -> None:
    parts = parts_of(path, dialect)
    assert len(parts) > 2
    found, expected = [batch for part in parts for batch in read(part, dialect)], read(FilePart(path, path), dialect)
    assert [(batch.start, batch.stop) for batch in found] == [(batch.start, batch.stop) for batch in expected]
    assert all(one.batch.equals(two.batch) for one, two in zip(found, expected, strict=True))


@pytest.mark.parametrize("block", [1_000, 1 << 20])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\r\n"], ids=["open", "closed", "blank lines"])
def test_parts_tile_their_file_with_the_same_batches(write, monkeypatch, text, block, mark, end):
    monkeypatch.setattr(csv_reader, "_BLOCK", block)
    assert_tiled(write(mark + (text + end).encode()))


@pytest.mark.parametrize("line_break", ["\r\n", "\r"])
def test_other_line_breaks(write, text, line_break):
    assert_tiled(write(text.replace("\r\n", "\n").replace("\n", line_break)))


def test_another_delimiter(write, text):
    assert_tiled(write(text.replace(",", ";")), Dialect(";", newlines=True))


def test_large_rows_end_batches_early_as_in_the_whole_file(write, monkeypatch, text):
    monkeypatch.setattr(file_reader, "_BATCH_BYTES", 100_000)
    assert_tiled(write(text))


def test_parts_are_read_in_parallel_and_tile_their_file(write, run, text):
    path = write(text)
    found = run(
        lambda pipeline: {"log": pipeline | ReadRecordBatches(path, Format("csv", dialect=LINES), label_column="y")}
    )
    batches = sorted(found["log"], key=lambda batch: batch.start)
    assert [batch.start for batch in batches[1:]] == [batch.stop for batch in batches[:-1]]
    assert [batch.start for batch in batches] == list(range(0, batches[-1].stop, BATCH_ROWS))


@pytest.mark.parametrize("cuts", [
    tuple(range(7_000, 49_001, 6_000)), (1, 2, 3, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, ROWS - 1),
])  # fmt: skip
@pytest.mark.parametrize("parts", [2, 12, 64])
@pytest.mark.parametrize("line_break", ["\n", "\n\n"], ids=["one break", "blank lines"])
def test_whole_shards_are_read_once(write, text, cut_parts, cuts, parts, line_break):
    path = write(text.replace("\r\n", "\n").replace("\n", line_break))
    whole = FilePart(path, path)
    found = [batch for part in cut_parts(path, parts, cuts) for batch in read(part)]
    assert [batch.start for batch in found] == [0, *(batch.stop for batch in found[:-1])]
    shards, taken = (0, *cuts), min(parts, len(cuts) + 1)
    assert {shards[len(shards) * number // taken] for number in range(taken)} <= {batch.start for batch in found}
    records = [pa.Table.from_batches([batch.batch for batch in each]).combine_chunks() for each in (found, read(whole))]
    assert records[0].equals(records[1])


def test_a_bad_row_of_another_shard_in_the_same_batch(write):
    lines = [f"{number % 5},a" for number in range(ROWS)]
    path = write("\n".join(["y,t", *lines[:5], "8,a,b,c", *lines[6:]]))
    one, other = (FilePart(path, path, number=number, parts=8, cuts=tuple(range(10, 80, 10))) for number in (0, 1))
    for part in (one, other):
        with pytest.raises(InputError, match="line 7 has 4 fields"):
            read(part)


def test_parts_do_not_depend_on_labels(write):
    """Neither on how many bytes they take nor on quotes around them: nothing that a runner sees of a part may tell."""
    narrow, wide = (parts_of(write("y,t\n" + rows(y), name)) for y, name in (("1", "a"), ('"1.0000000000000000"', "b")))
    assert Path(wide[0].path).stat().st_size > 1.5 * Path(narrow[0].path).stat().st_size
    for one, two in zip(narrow, wide, strict=True):
        assert (one.number, one.parts, one.files) == (two.number, two.parts, two.files)
        assert [(batch.start, batch.stop) for batch in read(one)] == [(batch.start, batch.stop) for batch in read(two)]


@pytest.mark.parametrize(
    ("name", "files", "dialect"),
    [("a.csv", 8, LINES), ("a.csv.gz", 1, LINES), ("a.csv", 1, Dialect(encoding="latin-1", newlines=True))],
    ids=["many files", "compressed", "another encoding"],
)
def test_files_that_are_not_split(write, text, name, files, dialect):
    path = write(text, name)
    assert [part.parts for part in split_csv(FilePart(path, path, files=files), ["y"], dialect)] == [1]


@pytest.mark.parametrize("content", ["", "y,t\n", "y,t\n1,a"])
def test_small_files_are_not_split(write, content):
    assert [part.parts for part in parts_of(write(content))] == [1]


@pytest.mark.parametrize("bad", ["8,a,b,c", "eight,a"], ids=["fields", "label"])
@pytest.mark.parametrize("row", [3, 2 * BATCH_ROWS - 1, 2 * BATCH_ROWS, ROWS - 1])
def test_a_bad_row_is_found_in_its_place(write, bad, row):
    lines = [f"{number % 5},a" for number in range(ROWS)]
    path = write("\n".join(["y,t", *lines[:row], bad, *lines[row + 1 :]]))
    messages = []
    for parts in ([FilePart(path, path)], parts_of(path)):
        with pytest.raises(InputError, match=f"line {row + 2}") as caught:
            list(map(read, parts))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert len(parts) == 3


def test_a_quote_that_is_never_closed_is_found_by_the_reader_of_the_whole_file(write):
    lines = "".join(f"{number % 5},a\n" for number in range(ROWS))
    (part,) = parts_of(write(f'y,t\n{lines}1,"a\n{lines}'))
    with pytest.raises(InputError, match=f"the row that begins on line {ROWS + 2} .* none closes it"):
        read(part)


def test_files_of_another_header_are_refused_in_every_part(write, text):
    first, other = write("y,u\n1,a\n", "first.csv"), write(text, "other.csv")
    for part in split_csv(FilePart(other, first), ["y"], LINES):
        with pytest.raises(InputError, match=r"other\.csv: the header is not that of"):
            read(part)


def test_a_file_that_becomes_shorter_is_not_taken_for_a_part(write, text, monkeypatch):
    path = write(text)
    last = parts_of(path)[-1]
    index = csv_reader._index(path, ["y"], LINES)
    Path(path).write_bytes(Path(path).read_bytes()[: int(index.cuts[-2])])
    monkeypatch.setattr(csv_reader, "_index", lambda *_: index)
    with pytest.raises(InputError, match="became shorter while it was read"):
        read(last)


def test_a_missing_file_is_named(tmp_path):
    path = str(tmp_path / "gone")
    (part,) = parts_of(path)
    with pytest.raises(InputError, match=r"gone: cannot be opened: No such file"):
        read(part)
    with pytest.raises(InputError, match=r"gone: cannot be opened: No such file"):
        read(FilePart(path, path, 1, 2))


def test_offsets_of_batches_and_blocks(write, text):
    path = write(text)
    content = Path(path).read_bytes()
    index = csv_reader._index(path, ["y"], LINES)
    ends = csv_blocks.row_ends(content[len(index.header) :]) + len(index.header)
    assert index.rows == len(ends)
    assert index.batches.tolist() == [len(index.header), *ends[BATCH_ROWS - 1 : -1 : BATCH_ROWS], len(content)]
    assert {*index.batches} <= {*index.cuts}
    # A block may end between the blank lines after a row.
    blank = {end + more for end in ends for more in (1, 2) if content[end : end + more] == b"\n" * more}
    assert {*index.cuts} <= {len(index.header), *ends, *blank}
    assert np.diff(index.cuts).max() < 110_000
