"""CSV: types inferred once for all files, and errors that name the line but never quote a cell."""

import datetime
import gzip
import io
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, LabelledBatch, ReadRecordBatches
from labeldp.transforms.csv_input import csv_columns, csv_reader
from labeldp.transforms.io import csv_blocks
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers import file_reader
from labeldp.transforms.readers.file_reader import FileReader

SENTINEL = "SENTINEL123"


def csv_file(folder: Path, text: str | bytes, name: str = "a.csv") -> str:
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def types_of(batches: list[LabelledBatch]) -> dict[str, str]:
    return {field.name: str(field.type) for field in batches[0].batch.schema}


def test_csv_types_are_inferred_and_the_label_is_a_float(tmp_path, read_all, plain):
    path = csv_file(
        tmp_path,
        "i,f,b,t,day,time,hour,none,y\n1,1.5,true,a,2020-01-31,2020-01-31T10:00:00Z,10:30:00,,7\n2,2,false,b,,,,,8\n",
    )
    batches = read_all(path, "csv", label_column="y")
    assert types_of(batches) == {
        "i": "int64", "f": "double", "b": "bool", "t": "string", "day": "date32[day]", "time": "timestamp[ms, tz=UTC]",
        "hour": "time32[ms]", "none": "string", "y": "double",
    }  # fmt: skip
    record = plain(batches)[0]
    moment = datetime.datetime(2020, 1, 31, 10, tzinfo=datetime.timezone.utc)
    assert (record["day"], record["time"], record["hour"]) == (moment.date(), moment, datetime.time(10, 30))
    assert plain(batches)[1]["day"] is None


def test_csv_types_override_the_guess(tmp_path, read_all, plain):
    path = csv_file(tmp_path, "zip,n,d,t,y\n01234,1,2020-01-31,,2\n")
    types = {"zip": "string", "n": "float64", "d": "string", "t": "timestamp"}
    batches = read_all(path, Format("csv", types), label_column="y")
    assert types_of(batches) == {"zip": "string", "n": "double", "d": "string", "t": "timestamp[ms]", "y": "double"}
    assert plain(batches)[0] == {"zip": "01234", "n": 1.0, "d": "2020-01-31", "t": None, "y": 2.0}


def test_csv_types_of_an_unknown_column(tmp_path, read_all):
    path = csv_file(tmp_path, "n,y\n1,2\n")
    with pytest.raises(InputError, match=r"--csv_types names 'nope', which is not in .*a\.csv"):
        read_all(path, Format("csv", {"nope": "string"}))


def test_csv_types_are_int64_float64_or_string():
    with pytest.raises(ValueError, match="banana"):
        Format("csv", {"n": "banana"})


def test_csv_types_come_from_the_first_file_for_all(tmp_path, read_all, plain):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    ordered = csv_file(tmp_path, "y,id\n3.5,4\n", "b.csv")
    batches = read_all(ordered, "csv", first=first, label_column="y")
    assert types_of(batches) == {"id": "int64", "y": "double"}
    assert plain(batches) == {0: {"id": 4, "y": 3.5}}
    other = csv_file(tmp_path, f"id,y\n4,1\n{SENTINEL},1\n", "c.csv")
    with pytest.raises(InputError) as caught:
        read_all(other, "csv", first=first, label_column="y")
    message = str(caught.value)
    assert message.startswith(f"{other}: column 'id' on line 3 is not an int64")
    assert "--csv_types id=string" in message
    assert SENTINEL not in message


def test_classes_that_are_text_are_to_be_encoded(tmp_path, read_all):
    path = csv_file(tmp_path, "n,y\n1,yes\n2,no\n")
    with pytest.raises(InputError, match="or declare classes, in privatize and fit, with --label_classes A,B"):
        read_all(path, "csv", label_column="y")


def test_csv_types_are_learned_once_for_all_files(tmp_path, run, monkeypatch):
    """Inference reads the first rows of the first file; repeating it for each of many small files would be slow."""
    for i in range(5):
        csv_file(tmp_path, f"id,y\n{i},2\n", f"{i}.csv")
    seen = tmp_path / "seen"
    learn = csv_reader.find_types

    def counting(part: FilePart, *rest: Any) -> Any:
        with seen.open("a") as file:
            file.write(f"{part.first}\n")
        return learn(part, *rest)

    monkeypatch.setattr(csv_reader, "find_types", counting)
    found = run(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"))})["out"]
    assert sorted(batch.batch.to_pydict()["id"][0] for batch in found) == [0, 1, 2, 3, 4]
    assert seen.read_text().splitlines() == [str(tmp_path / "0.csv")]


def test_a_swapped_header_names_the_right_column(tmp_path, read_all):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    other = csv_file(tmp_path, f"y,id\n1,{SENTINEL}\n", "b.csv")
    with pytest.raises(InputError, match="column 'id' on line 2"):
        read_all(other, "csv", first=first, label_column="y")


@pytest.mark.parametrize("header", ["id", "id,y,more", "id,Y", "id;y", f"1,{SENTINEL}"])
def test_another_csv_header_names_both_files(tmp_path, header, read_all):
    first = csv_file(tmp_path, "id,y\n1,2\n", "a.csv")
    other = csv_file(tmp_path, f"{header}\n" + ",".join("1" * (header.count(",") + 1)) + "\n", "b.csv")
    with pytest.raises(InputError) as caught:
        read_all(other, "csv", first=first, label_column="y")
    assert str(caught.value) == f"{other}: the header is not that of {first}: all files need the same columns"


@pytest.mark.parametrize("columns", [None, ["y"], ["t", "y"]], ids=str)
@pytest.mark.parametrize("lines", [1, 30], ids=["first block", "later block"])
def test_a_label_that_is_no_number_is_named_by_line(tmp_path, monkeypatch, columns, lines, read_all):
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", 64)
    path = csv_file(tmp_path, "id,y,t\n" + "1,2.5,a\n" * lines + f"1,{SENTINEL},a\n")
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=columns, label_column="y")
    assert f"label column 'y' holds text on line {lines + 2}" in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize("fields", [1, 3, 4])
@pytest.mark.parametrize("lines", [1, 30], ids=["first block", "later block"])
def test_a_line_with_another_number_of_fields_is_named(tmp_path, monkeypatch, fields, lines, read_all):
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", 64)
    path = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * lines + ",".join([SENTINEL] * fields) + "\n")
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", label_column="y")
    assert str(caught.value) == f"{path}: line {lines + 2} has {fields} fields, where the header has 2"


SLOW_READS = """
import sys, time
from apache_beam.io.filesystems import FileSystems
from labeldp.transforms import Format, InputError
from labeldp.transforms.io import csv_blocks
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.io.input_format import FilePart

class Slow:
    closed = False
    def __init__(self, file):
        self._file = file
    def read(self, size=-1):
        time.sleep(0.005)
        return self._file.read(size)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self._file.close()
    def __getattr__(self, name):
        return getattr(self._file, name)

opened = FileSystems.open
FileSystems.open = lambda *args, **kwargs: Slow(opened(*args, **kwargs))
csv_blocks._CSV_BLOCK = 256
good, bad = sys.argv[1:]
reader = FileReader(Format("csv"), label_column="y")
assert sum(batch.batch.num_rows for batch in reader.read(FilePart(good, good))) == 200
for _ in range(5):
    batches = FileReader(Format("csv"), label_column="y").read(FilePart(good, good))
    next(batches)
    batches.close()
    try:
        list(FileReader(Format("csv"), label_column="y").read(FilePart(bad, good)))
    except InputError:
        pass
    else:
        raise SystemExit("no error")
"""


def test_a_slow_filesystem_does_not_stop_the_job(tmp_path):
    """Arrow reads ahead in a separate thread; closing the reader meanwhile must not deadlock.

    The test runs in a separate process, because a deadlock on the interpreter's lock would stop all of its threads.
    """
    good = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * 200, "good.csv")
    bad = csv_file(tmp_path, "id,y\n" + "1,2.5\n" * 20 + "1,x\n" + "1,2.5\n" * 200, "bad.csv")
    subprocess.run([sys.executable, "-c", SLOW_READS, good, bad], timeout=120, check=True)


@pytest.mark.parametrize("text", ["", "\n\n\n"], ids=["empty", "blank"])
def test_an_empty_csv_file(tmp_path, text, read_all):
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError, match="the CSV file is empty: it needs a header line and rows"):
        read_all(path, "csv", label_column="y")


def test_a_csv_file_of_a_header_alone_has_no_record(tmp_path, read_all, plain):
    path = csv_file(tmp_path, "id,y\n")
    assert plain(read_all(path, "csv", label_column="y")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "id,y\r\n1,2\r\n3,4\r\n",
        "id,y\r1,2\r3,4\r",
        "id,y\n1,2\n3,4",
        "\ufeffid,y\n1,2\n3,4\n",
        '"id","y"\n"1","2"\n"3","4"\n',
        '\ufeff"id","y"\r\n"1","2"\r\n"3","4"',
    ],
)
def test_csv_dialects(tmp_path, text, read_all, plain):
    path = csv_file(tmp_path, text)
    assert plain(read_all(path, "csv", label_column="y")) == {0: {"id": 1, "y": 2.0}, 1: {"id": 3, "y": 4.0}}


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "NA", "null", "inf", "-inf"])
def test_csv_labels_that_are_missing_have_no_value_or_no_finite_one(tmp_path, cell, read_all, plain):
    path = csv_file(tmp_path, f"id,y\n1,2\n3,{cell}\n4,5\n")
    labels = {row: record["y"] for row, record in plain(read_all(path, "csv", label_column="y")).items()}
    assert labels.pop(1) is None or not np.isfinite(labels.get(1, np.nan))
    assert labels == {0: 2.0, 2: 5.0}


TRICKY = [
    "Expected 7 columns, got 48613",
    "Row #48613: Expected 7 columns, got 48613",
    "Empty CSV file",
    "In CSV column #0: Row #48613: ",
    "line 48613",
]


@pytest.mark.parametrize("cell", TRICKY)
def test_a_cell_that_looks_like_an_arrow_message_is_still_a_cell(tmp_path, cell, read_all):
    path = csv_file(tmp_path, f'id,y\n1,2\n3,"{cell}"\n')
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", label_column="y")
    assert "48613" not in str(caught.value)
    assert "label column 'y' holds text on line 3" in str(caught.value)


BAD_CSV = {
    "label": f"id,y,t\n1,2.5,a\n1,{SENTINEL},a\n",
    "label in quotes": f'id,y,t\n1,2.5,a\n1,"{SENTINEL}, more",a\n',
    "more fields": f"id,y,t\n1,2.5,a\n1,2,a,{SENTINEL}\n",
    "fewer fields": f"id,y,t\n1,2.5,a\n{SENTINEL}\n",
    "open quote": f'id,y,t\n1,2.5,a\n1,"{SENTINEL},a\n1,3,b\n',
    "line break in quotes": f'id,y,t\n1,2.5,a\n1,"2\n{SENTINEL}",a\n',
    "bytes that are no text": f"id,y,t\n1,2.5,a\n1,{SENTINEL}".encode() + b"\xff\xfe,a\n",
    "header that is no text": f"id,{SENTINEL}".encode() + b"\xff,t\n1,2,3\n",
    "a quote in the header that a record closes": f'id,y,"t\n1,{SENTINEL},a\n2,3.5,"b\n1,2,a\n',
    "no header": f"1,{SENTINEL},a\n2,3.5,b\n",
    "zeros": f"id,y,t\n1,{SENTINEL}".encode() + bytes(20) + b",a\n",
    "huge cell": f"id,y,t\n1,{SENTINEL * 5_000},a\n",
    "one column": f"{SENTINEL};2.5;3\n1;2;3\n",
}


@pytest.mark.parametrize("block", [64, 8 << 20], ids=["small blocks", "one block"])
@pytest.mark.parametrize("text", BAD_CSV.values(), ids=list(BAD_CSV))
def test_no_bad_csv_file_shows_a_cell(tmp_path, monkeypatch, text, block, caplog, read_all):
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", block)
    caplog.set_level(logging.DEBUG)
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=["id", "y", "t"], label_column="y")
    shown = "".join(traceback.format_exception(caught.value))
    assert SENTINEL not in shown.replace("SENTINEL * ", "")
    assert "SENTINEL1" not in caplog.text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_name_over_several_lines_is_refused_in_any_file(tmp_path, newline, read_all):
    """It may hold records, where a quote is not closed, and later messages and files would show it."""
    path = csv_file(tmp_path, newline.join(['id,y,"t', f'1,{SENTINEL},a"', "1,2,a", ""]))
    other = csv_file(tmp_path, "id,y,t\n1,2.5,a\n", "b.csv")
    for first in (path, other):
        with pytest.raises(InputError) as caught:
            read_all(path, "csv", label_column="y", first=first)
        assert str(caught.value) == (
            f'{path}: a quote (") opens a name in the header line that goes on over a line break: close the quote, or '
            "write the name on one line"
        )


CELLS = [
    "", "a", "été", '""', '""""', '"a,b"', '"p\nq"', '"\r\n"', '"\n"', '"say ""hi"", twice"', '"""a"""', '",""\n,"',
    '12" x', 'a"b"', 'a""', ' "a"', '"x"y"z', '"x" ""', '"p\n"q"',
]  # fmt: skip
NAMES = ["t", '"t"', 'the "t"', '"t,""u"""', '"t ""u"", v"', '"t"u"']


def records_by_arrow(content: bytes) -> list[tuple[Any, ...]]:
    """Reads the whole file at once with Arrow, all columns as text."""
    names = pyarrow.csv.open_csv(
        pa.BufferReader(content), parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)
    ).schema.names
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return list(zip(*table.to_pydict().values(), strict=True))


def in_blocks(patch: pytest.MonkeyPatch, content: bytes, block: int, window: int) -> None:
    """Replaces every opened file by `content`, and sets the sizes of blocks and of the windows searched for quotes."""
    patch.setattr(csv_blocks, "open_input", lambda path: io.BytesIO(content))
    patch.setattr(csv_blocks, "_CSV_BLOCK", block)
    patch.setattr(csv_blocks, "_CSV_WINDOW", window)


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=1, max_size=25),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff"]),
    st.booleans(),
    st.integers(4, 120),
    st.sampled_from([1, 2, 5, 20, 1 << 16]),
)
def test_quotes_anywhere_are_read_as_arrow_reads_the_whole_file(name, rows, newline, mark, ended, block, window):
    lines = [f"{name},u", *map(",".join, rows)]
    content = (mark + newline.join(lines) + newline * ended).encode()
    with pytest.MonkeyPatch.context() as patch:
        in_blocks(patch, content, block, window)
        (names,) = {
            tuple(csv_columns.column_names_of("a.csv", header))
            for header, _ in csv_blocks.whole_row_blocks("a.csv", [])
        }
        layout = Format("csv", dict.fromkeys(names, "string"))
        found = [
            record
            for batch in FileReader(layout).read(FilePart("a.csv", "a.csv"))
            for record in zip(*batch.batch.to_pydict().values(), strict=True)
        ]
    assert found == records_by_arrow(content)


def row_ends(content: bytes) -> tuple[list[int], bool]:
    """Finds, byte by byte as Arrow's parser, the ends of rows, and whether a quote stays open."""
    ends, state, at = [], "start", 0
    while at < len(content):
        byte = content[at : at + 1]
        if state == "quoted":
            if byte == b'"' and content[at + 1 : at + 2] == b'"':
                at += 1
            elif byte == b'"':
                state = "text"
        elif byte == b'"' and state == "start":
            state = "quoted"
        else:
            state = "start" if byte in b",\r\n" else "text"
            if byte in (b"\n", b"\r"):
                ends.append(at + 1)
        at += 1
    return ends, state == "quoted"


@settings(deadline=None, max_examples=600)
@given(
    st.lists(st.sampled_from(['"', '"', '""', '"""', ",", "\n", "\r", "a", ',"', '"\n']), max_size=60).map("".join),
    st.integers(1, 20),
    st.sampled_from([1, 2, 3, 8, 1 << 16]),
)
def test_every_chunk_is_cut_where_its_last_row_ends(text, size, window):
    """This limits the part of a file in memory to one row and one chunk."""
    content = text.encode()
    ends, opened = row_ends(content)
    found = csv_blocks._RowEnds()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks, "_CSV_WINDOW", window)
        for start in range(0, len(content), size):
            stop = min(start + size, len(content))
            known = [end for end in ends if start < end <= stop and content[end - 1 : end] == b"\n"]
            # A carriage return is a row's end if no newline follows, which the next chunk may tell.
            after = {end: content[end - 1 : end + 1] for end in ends if start <= end < stop}
            known += [end for end, pair in after.items() if pair[:1] == b"\r" and pair != b"\r\n"]
            assert found.last(content[start:stop]) == (max(known) - start if known else None)
            assert found.last(b"") is None
        assert (found.last(b"\n") == 1) == (not opened)


@settings(deadline=None, max_examples=300)
@given(st.text('",\n\ra', max_size=60), st.integers(1, 20))
def test_blocks_are_the_whole_file_cut_between_rows(text, block):
    content = text.encode()
    ends, opened = row_ends(content)
    with pytest.MonkeyPatch.context() as patch:
        in_blocks(patch, content, block, 8)
        if opened:
            with pytest.raises(InputError, match=r"the row that begins on line .* none closes it"):
                list(csv_blocks.whole_row_blocks("a.csv", []))
            return
        blocks = list(csv_blocks.whole_row_blocks("a.csv", []))
    (header,) = {header for header, _ in blocks}
    assert header + b"".join(block for _, block in blocks) == content
    at = len(header)
    for _, block in blocks[:-1]:
        at += len(block)
        assert at in ends


LONG = {
    "a stray quote": 'id,t,y\n0,12" pizza,3\n' + "1,some text,2\n" * 2_000,
    "stray quotes": "id,t,y\n" + '1,12" pizza,2\n' * 2_000,
    "quoted fields": "id,t,y\n" + '1,"some, text",2\n' * 2_000,
    "empty fields in quotes": "id,t,y\n" + '1,"",2\n' * 2_000,
    "a long field": 'id,t,y\n0,"' + "some\ntext " * 2_000 + '",3\n1,a,2\n',
    "a long field of quotes": 'id,t,y\n0,"' + '"' * 20_000 + '",3\n1,a,2\n',
}


@pytest.mark.parametrize("text", LONG.values(), ids=list(LONG))
def test_no_byte_is_looked_at_again_in_the_next_block(monkeypatch, text):
    content, seen, search = text.encode(), [], csv_blocks._last_row_end

    def counting(text: bytes, inside: bool, mark: bytes) -> tuple[int, bool]:
        seen.append(len(text))
        return search(text, inside, mark)

    in_blocks(monkeypatch, content, 256, 64)
    monkeypatch.setattr(csv_blocks, "_last_row_end", counting)
    blocks = [block for _, block in csv_blocks.whole_row_blocks("a.csv", [])]
    assert sum(seen) <= len(content) + 3 * len(seen)
    longest = max(np.diff([0, *row_ends(content)[0]]))
    assert max(map(len, blocks)) <= 256 + longest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f'id,t,y\n1,a,2\n\n2,"{SENTINEL},3\n4,c,5\n', 4),
        (f'id,t,y\n1,"a\nb",2\n2,b,"{SENTINEL}', 4),
        (f'id,t,y\n1,a,"{SENTINEL}""', 2),
        (f'id,"{SENTINEL},y\n1,a,2\n', 1),
    ],
)
@pytest.mark.parametrize("block", [16, 8 << 20], ids=["small blocks", "one block"])
def test_a_quote_that_nothing_closes_is_named_by_line(tmp_path, monkeypatch, text, line, block, read_all):
    """Arrow would read the rest of the file as one cell and lose the records in it."""
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", block)
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_all(path, Format("csv", {"y": "string"}))
    assert str(caught.value) == (
        f'{path}: the row that begins on line {line} has more than 64 MB, or a quote (") opens a field in it and none '
        "closes it: close it, or, if it is text, double it and quote the field"
    )


def test_a_row_without_end_is_not_held(tmp_path, monkeypatch, read_all):
    taken, some = [], csv_blocks._read_some

    def counting(*file: Any) -> bytes:
        taken.append(some(*file))
        return taken[-1]

    monkeypatch.setattr(csv_blocks, "_read_some", counting)
    monkeypatch.setattr(csv_blocks, "_CSV_BLOCK", 1 << 16)
    monkeypatch.setattr(csv_blocks, "_CSV_ROW", 1_000_000)
    path = csv_file(tmp_path, f'id,t,y\n1,a,2\n2,"{SENTINEL},3\n' + "4,c,5\n" * 1_000_000)
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", label_column="y")
    assert str(caught.value) == (
        f'{path}: the row that begins on line 3 has more than 1 MB, or a quote (") opens a field in it and none closes '
        "it: close it, or, if it is text, double it and quote the field"
    )
    # Type inference comes first, then the records.
    assert sum(map(len, taken)) < 2 * (2_000_000 + 4 * (1 << 16))


# Nothing depends on how many bytes labels take.


def outcome(path: str = "a.csv") -> tuple[list[tuple[int, dict[str, str]]], str]:
    """Batches, each with its number of records and its types, and the text of the error."""
    batches, text = [], ""
    try:
        for batch in FileReader(Format("csv"), label_column="y").read(FilePart(path, path)):
            batches.append((batch.batch.num_rows, types_of([batch])))
    except InputError as error:
        text = str(error)
    return batches, text


FIELDS = ["1", "2.5", "x", '"a, b"', '"two\nlines"', "", "true", "2020-01-31"]
WIDTHS = ["0", "0.123456789012345"]
BAD_ROWS = ["", "1,2", "1,2,3,4", "1,text,x", "text,1,2", f"1,2,{'b' * 40}"]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from(FIELDS)), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(BAD_ROWS)), max_size=2),
    st.integers(0, 2),
    st.lists(st.sampled_from(["0", "7", "0.123456789012345", "123456", "-1e5"]), min_size=2, max_size=2),
    st.integers(0, 60),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(8, 200),
    st.integers(1, 400),
    st.integers(1, 400),
)
# Rows whose carriage return ends a block, a blank line between a block and a row that is too long, and a file with both
# kinds of line breaks.
@example([("2.5", "2.5")], [(1, BAD_ROWS[-1])], 0, WIDTHS, 0, "\r", 8, 1, 1)
@example([("1", "1"), ("1", '"a, b"'), ("1", "1")], [(3, ""), (4, BAD_ROWS[-1])], 0, WIDTHS, 0, "\n", 48, 6, 1)
@example([('"two\nlines"', '"two\nlines"'), ("1", "1")], [(2, BAD_ROWS[-1])], 0, WIDTHS, 0, "\r", 19, 1, 1)
def test_one_label_of_another_width_changes_no_batch_no_type_and_no_error(
    rows, bad, place, labels, row, newline, block, sample, most
):
    seen = []
    for label in labels:
        lines = []
        for number, fields in enumerate(rows):
            cells = list(fields)
            cells.insert(place, label if number == row % len(rows) else "1.5")
            lines.append(",".join(cells))
        for at, text in bad:
            lines.insert(at, text)
        header = ["t", "u"]
        header.insert(place, "y")
        content = newline.join([",".join(header), *lines, ""]).encode()
        with pytest.MonkeyPatch.context() as patch:
            in_blocks(patch, content, block, 16)
            patch.setattr(file_reader, "BATCH_ROWS", 7)
            patch.setattr(file_reader, "_BATCH_BYTES", most)
            patch.setattr(csv_blocks, "_SAMPLE_ROWS", 11)
            patch.setattr(csv_blocks, "_SAMPLE_BYTES", sample)
            patch.setattr(csv_blocks, "_CSV_ROW", 30)
            seen.append(outcome())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("label", ["9", "0.1234567890123456"])
def test_one_wider_label_at_eight_megabytes_changes_nothing(tmp_path, label):
    """Types used to come from the first 8 MiB, labels included: the wider label moved the row of text out of them."""
    row, inside = f"{'a' * 116},1,9\n", 69_327
    lines = [f"{'a' * 136},1,{label}\n", *[row] * (inside - 2), f"{'a' * 116},x,9\n", *[row] * 1_000]
    size = len("t,n,y\n") + sum(map(len, lines[:inside]))
    assert (size <= 8 << 20) == (label == "9")
    path = csv_file(tmp_path, "t,n,y\n" + "".join(lines))
    batches, text = outcome(path)
    assert text == f"{path}: column 'n' on line {inside + 1} is not an int64: correct it, or give --csv_types n=string"
    assert [rows for rows, _ in batches] == [16_384] * 4


@pytest.mark.parametrize("label", ["9", "1000000000"])
def test_the_sample_ends_with_a_row_and_no_label_counts(tmp_path, label, read_all):
    """Text in the last row of the sample makes its column text; in the row behind it, the file is refused."""
    for rows, released in ((65_536, True), (65_537, False)):
        lines = [f"1,{label if number < 100 else 9}\n" for number in range(rows - 1)]
        path = csv_file(tmp_path, "n,y\n" + "".join(lines) + "x,9\n")
        if released:
            assert types_of(read_all(path, "csv", label_column="y"))["n"] == "string"
        else:
            with pytest.raises(InputError, match="column 'n' on line 65538 is not an int64"):
                read_all(path, "csv", label_column="y")


def test_of_two_bad_rows_the_first_is_named(tmp_path, read_all):
    """Arrow names the first row with too few fields, or else the first error of the first column that has one."""
    path = csv_file(tmp_path, "id,y\n" + "1,2\n" * 10 + "1,text\n" + "1,2\n" * 10 + "x,2\n1\n")
    with pytest.raises(InputError, match="label column 'y' holds text on line 12"):
        read_all(path, Format("csv", {"id": "int64"}), label_column="y", columns=["id", "y"])


def test_files_with_carriage_returns_alone_are_read_in_blocks(monkeypatch):
    content = b"id,y\r" + b"1,2\r" * 1_000
    in_blocks(monkeypatch, content, 64, 16)
    assert len(list(csv_blocks.whole_row_blocks("a.csv", ["y"]))) > 20
    assert outcome()[0] == [(1_000, {"id": "int64", "y": "double"})]
