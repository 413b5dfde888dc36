"""CSV: types inferred once for all files, and errors that name the line but never quote a cell."""

import datetime
import gzip
import io
import itertools
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, LabelledBatch, Limits, ReadRecordBatches
from labeldp.transforms.csv_input import csv_reader
from labeldp.transforms.io import csv_blocks
from labeldp.transforms.io.csv_dialect import Dialect
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers.file_reader import FileReader

SENTINEL = "SENTINEL123"
SMALL = Limits(block_bytes=64, window_bytes=16)
# Quoted fields may have line breaks.
LINES = Format("csv", dialect=Dialect(newlines=True))


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
    assert "`csv_types` id=string" in message
    assert SENTINEL not in message


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


@pytest.mark.parametrize("columns", [None, ["y"], ["t", "y"]], ids=str)
@pytest.mark.parametrize("lines", [1, 30], ids=["first block", "later block"])
def test_a_label_that_is_no_number_is_named_by_line(tmp_path, columns, lines, read_all):
    path = csv_file(tmp_path, "id,y,t\n" + "1,2.5,a\n" * lines + f"1,{SENTINEL},a\n")
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=columns, label_column="y", limits=SMALL)
    assert f"label column 'y' holds text on line {lines + 2}" in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("sep=;", "the first line, 'sep=;', is not a header line: remove it"),
        ('"SEP=\t"', "is not a header line: remove it"),
        ("# made by 41.625", "begins with '#': if it is a comment, it is not a header line: remove it"),
        ('"id";"y"', "line 1 has ';' behind a quoted field: if it is the delimiter, give `csv_dialect` delimiter=';'"),
    ],
)
def test_a_first_line_that_is_no_header_line(tmp_path, first, problem, read_all):
    with pytest.raises(InputError) as refused:
        read_all(csv_file(tmp_path, f"{first}\nid,y\n1,2\n"), "csv", label_column="y")
    assert problem in str(refused.value)
    assert "41.625" not in str(refused.value)


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
def test_no_bad_csv_file_shows_a_cell(tmp_path, text, block, caplog, read_all):
    caplog.set_level(logging.DEBUG)
    path = csv_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_all(path, "csv", columns=["id", "y", "t"], label_column="y", limits=Limits(block_bytes=block))
    shown = "".join(traceback.format_exception(caught.value))
    assert SENTINEL not in shown.replace("SENTINEL * ", "")
    assert "SENTINEL1" not in caplog.text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_name_over_several_lines_is_refused_in_any_file(tmp_path, newline, read_all):
    """It may hold records, where a quote is not closed, and later messages and files would show it."""
    path = csv_file(tmp_path, newline.join(['id,y,"t', f'1,{SENTINEL},a"', "1,2,a", ""]))
    other = csv_file(tmp_path, "id,y,t\n1,2.5,a\n", "b.csv")
    for first in (path, other):
        for layout, problem in (
            (Format("csv"), f"line 1 {csv_blocks._UNCLOSED}"),
            (LINES, 'a quote (") opens a name in the header line that goes on over a line break: close the quote, or '
             "write the name on one line"),
        ):  # fmt: skip
            with pytest.raises(InputError) as caught:
                read_all(path, layout, label_column="y", first=first)
            assert str(caught.value) == f"{path}: {problem}"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], str]:
    """(content) -> the path of the file, whose content is replaced."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"

    def write(content: bytes) -> str:
        path.write_bytes(content)
        return str(path)

    return write


def test_any_file_is_read_as_python_reads_it(fuzzed):
    """In any dialect, blocks and windows; or it is refused in one line that shows no label."""
    fuzzed("csv")


def rows_by_byte(content: bytes, newlines: bool) -> tuple[list[int], int | None, bool]:
    """(ends, fault, opened), byte by byte: ends of lines outside quotes, before the first quote that is out of place.

    fault: a place on the line that has one; None if there is none. opened: whether a quote stays open at the end.
    """
    ends, state = [], "start"
    for at in range(len(content)):
        byte = content[at : at + 1]
        if byte == b'"':
            if state == "text":
                return ends, at, False
            state = {"start": "quoted", "quoted": "closing", "closing": "quoted"}[state]
        elif state == "quoted":
            if byte in b"\r\n" and not newlines:
                return ends, at, False
        elif byte in b",\r\n":
            state = "start"
            if byte == b"\n" or (byte == b"\r" and content[at + 1 : at + 2] != b"\n"):
                ends.append(at + 1)
        elif state == "closing":
            return ends, at, False
        else:
            state = "text"
    return ends, len(content) if state == "quoted" and not newlines else None, state == "quoted"


def line_at(content: bytes) -> int:
    """Number of the line after some text."""
    return 1 + len(content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")) - 1


@settings(deadline=None, max_examples=1_500)
@given(
    st.lists(
        st.sampled_from(['"', '""', '"""', ",", "\n", "\r", "\r\n", "a", ',"', '",', '"\n', ',"a"']), max_size=40
    ).map("".join),
    st.integers(1, 20),
    st.sampled_from([1, 2, 3, 8, 1 << 16]),
    st.booleans(),
)
def test_blocks_are_the_whole_file_cut_between_rows_up_to_a_quote_out_of_place(file, text, block, window, newlines):
    content, blocks, error = text.encode(), [], ""
    ends, fault, opened = rows_by_byte(content, newlines)
    limits = Limits(block_bytes=block, window_bytes=window)
    try:
        for each in csv_blocks.whole_row_blocks(file(content), [], Dialect(newlines=newlines), limits):
            blocks.append(each)
    except InputError as caught:
        error = str(caught)
    last = ends[-1] if ends else 0
    if fault is None and not opened:
        assert not error
        last = len(content)
    else:
        where = (
            f"line {line_at(content[:fault])} has"
            if fault is not None
            else f"row that begins on line {line_at(content[:last])} "
        )
        assert where in error
    # Blank lines above the header line are passed over.
    blank = min(len(content) - len(content.lstrip(b"\r\n")), last)
    content, last, ends = content[blank:], last - blank, [end - blank for end in ends if end > blank]
    header = blocks[0][0] if blocks else b""
    assert header + b"".join(block for _, block in blocks) == content[:last]
    assert all(each == header for each, _ in blocks)
    assert {*(np.cumsum([len(block) for _, block in blocks[:-1]]) + len(header)).tolist()} <= {0, *ends}
    rows = content[len(header) : last]
    if rows:
        assert csv_blocks.row_ends(rows).tolist() == [
            end - len(header)
            for begin, end in itertools.pairwise(
                [len(header), *(e for e in ends if e > len(header)), *([last] if last not in ends else [])]
            )
            if rows[begin - len(header) : end - len(header)].strip(b"\r\n")
        ]


LONG = {
    "quoted fields": "id,t,y\n" + '1,"some, text",2\n' * 2_000,
    "empty fields in quotes": "id,t,y\n" + '1,"",2\n' * 2_000,
    "a long field": 'id,t,y\n0,"' + "some\ntext " * 2_000 + '",3\n1,a,2\n',
    "a long field of quotes": 'id,t,y\n0,"' + '"' * 20_000 + '",3\n1,a,2\n',
}


@pytest.mark.parametrize("text", LONG.values(), ids=list(LONG))
def test_a_block_has_no_more_than_a_row_and_what_is_read_at_a_time(file, text):
    """This limits the part of a file in memory to one row and one chunk."""
    content, limits = text.encode(), Limits(block_bytes=256, window_bytes=64)
    blocks = [block for _, block in csv_blocks.whole_row_blocks(file(content), [], LINES.dialect, limits)]
    longest = max(np.diff([0, *rows_by_byte(content, True)[0]]))
    assert max(map(len, blocks)) <= 256 + longest


OUT_OF_PLACE = {
    "never closed": (f'id,t,y\n1,a,2\n\n2,"{SENTINEL},3\n4,c,5\n', (4, csv_blocks._UNCLOSED), (4, None)),
    "never closed at the end": (f'id,t,y\n1,"a\nb",2\n2,b,"{SENTINEL}', (2, csv_blocks._UNCLOSED), (4, None)),
    "in the header": (f'id,"{SENTINEL},y\n1,a,2\n', (1, csv_blocks._UNCLOSED), (1, None)),
    "a pair at the end": (f'id,t,y\n1,a,"{SENTINEL}""', (2, csv_blocks._UNCLOSED), (2, None)),
    "two, lines apart": (
        f'id,t,y\n1,"a,{SENTINEL}\n2,b,3\n3,"c,4\n', (2, csv_blocks._UNCLOSED), (4, csv_blocks._BEHIND)
    ),
    "behind a quoted field": (f'id,t,y\n1,"{SENTINEL}" ,2\n', *[(2, csv_blocks._BEHIND)] * 2),
    "an inch": (f'id,t,y\n1,a,2\n1,12" {SENTINEL},2\n', *[(3, csv_blocks._STRAY)] * 2),
    "before a quoted field": (f'id,t,y\n1, "{SENTINEL}",2\n', *[(2, csv_blocks._STRAY)] * 2),
    "in a name": (f'id,the "{SENTINEL}",y\n1,a,2\n', *[(1, csv_blocks._STRAY)] * 2),
    "in a label": (f'id,t,y\n1,a,2\n1,a,5"{SENTINEL}\n', *[(3, csv_blocks._STRAY)] * 2),
}  # fmt: skip


@pytest.mark.parametrize(("text", "default", "with_lines"), OUT_OF_PLACE.values(), ids=list(OUT_OF_PLACE))
@pytest.mark.parametrize("block", [16, 8 << 20], ids=["small blocks", "one block"])
def test_a_quote_out_of_place_is_named_by_line(tmp_path, text, default, with_lines, block, read_all):
    """Arrow would read what follows as one cell, and release records, with their labels, as a feature."""
    path = csv_file(tmp_path, text)
    for dialect, (line, problem) in ((Dialect(), default), (LINES.dialect, with_lines)):
        with pytest.raises(InputError) as caught:
            read_all(path, Format("csv", {"y": "string"}, dialect=dialect, limits=Limits(block_bytes=block)))
        assert str(caught.value) == f"{path}: " + (f"line {line} {problem}" if problem else unclosed(line, 64))


def unclosed(line: int, megabytes: int) -> str:
    return (
        f'the row that begins on line {line} has more than {megabytes} MB, or a quote (") opens a field in it and none '
        "closes it: close it, or, if it is text, double it and quote the field"
    )


def test_a_row_without_end_is_not_held(tmp_path, monkeypatch, read_all):
    taken: list[int] = []

    class Counting(io.FileIO):
        def read(self, size: Any = -1) -> Any:
            content = super().read(size)
            taken.append(len(content))
            return content

    monkeypatch.setattr(csv_blocks, "open_input", Counting)
    path = csv_file(tmp_path, f'id,t,y\n1,a,2\n2,"{SENTINEL},3\n' + "4,c,5\n" * 1_000_000)
    with pytest.raises(InputError) as caught:
        read_all(path, LINES, label_column="y", limits=Limits(block_bytes=1 << 16, row_bytes=1_000_000))
    assert str(caught.value) == f"{path}: {unclosed(3, 1)}"
    # Type inference comes first, then the records.
    assert sum(taken) < 2 * (2_000_000 + 4 * (1 << 16))


# Nothing depends on how many bytes labels take.


def outcome(path: str, layout: Format = LINES) -> tuple[list[tuple[int, dict[str, str]]], str]:
    """Batches, each with its number of records and its types, and the text of the error."""
    batches, text = [], ""
    try:
        for batch in FileReader(layout, label_column="y").read(FilePart(path, path)):
            batches.append((batch.batch.num_rows, types_of([batch])))
    except InputError as error:
        text = str(error)
    return batches, text


FIELDS = ["1", "2.5", "x", '"a, b"', '"two\nlines"', "", "true", "2020-01-31"]
WIDTHS = ["0", "0.123456789012345"]
BAD_ROWS = ['1,a"b,2', '1,"a"b,2', "", "1,2", "1,2,3,4", "1,text,x", "text,1,2", f"1,2,{'b' * 40}"]


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
    st.booleans(),
)
# Rows whose carriage return ends a block, a blank line between a block and a row that is too long, and a file with both
# kinds of line breaks.
@example([("2.5", "2.5")], [(1, BAD_ROWS[-1])], 0, WIDTHS, 0, "\r", 8, 1, 1, True)
@example([("1", "1"), ("1", '"a, b"'), ("1", "1")], [(3, ""), (4, BAD_ROWS[-1])], 0, WIDTHS, 0, "\n", 48, 6, 1, True)
@example([('"two\nlines"', '"two\nlines"'), ("1", "1")], [(2, BAD_ROWS[-1])], 0, WIDTHS, 0, "\r", 19, 1, 1, True)
def test_one_label_of_another_width_changes_no_batch_no_type_and_no_error(
    file, rows, bad, place, labels, row, newline, block, sample, most, several
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
        limits = Limits(
            batch_rows=7, batch_bytes=most, block_bytes=block, window_bytes=16, row_bytes=30, sample_rows=11,
            sample_bytes=sample,
        )  # fmt: skip
        seen.append(outcome(file(content), Format("csv", dialect=Dialect(newlines=several), limits=limits)))
    assert seen[0] == seen[1]


def test_of_two_bad_rows_the_first_is_named(tmp_path, read_all):
    """Arrow names the first row with too few fields, or else the first error of the first column that has one."""
    path = csv_file(tmp_path, "id,y\n" + "1,2\n" * 10 + "1,text\n" + "1,2\n" * 10 + "x,2\n1\n")
    with pytest.raises(InputError, match="label column 'y' holds text on line 12"):
        read_all(path, Format("csv", {"id": "int64"}), label_column="y", columns=["id", "y"])
