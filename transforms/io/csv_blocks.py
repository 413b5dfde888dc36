"""Cuts a CSV file into blocks of whole rows.

Arrow's own streaming reader would call back into Python from its own threads, which can deadlock. So blocks are read
here, and each is parsed as a file of its own. Blocks are cut by bytes, so their ends depend on how many bytes labels
take: their reader must not let it show where one ends.
"""

from __future__ import annotations

import codecs
import csv
import functools
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from ..errors import InputError, unreadable
from .csv_dialect import COMMA, Dialect
from .filesystems import GZIP_MAGIC, GZIP_WITHOUT_NAME, archive_problem, open_input

# Bytes read at a time.
_CSV_BLOCK = 8 << 20
# Bytes read at a time to find the first row.
_FIRST_BLOCK = 1 << 16
# Longest row in bytes, without its label. It limits the memory that is held while the end of a row is searched for.
_CSV_ROW = 64_000_000
# Bytes before the last quote of a chunk in which the end of a row is searched for first.
_CSV_WINDOW = 1 << 16

# Rows whose values determine the types of columns; fewer where their features, without the label, reach this size.
_SAMPLE_ROWS = 1 << 16
_SAMPLE_BYTES = 6 << 20

_PARQUET_MAGIC, _ORC_MAGIC = b"PAR1", b"ORC"
# First bytes of files of other formats, and of text in other encodings; the longer ones come first.
_OTHER_FORMATS = {
    GZIP_MAGIC: GZIP_WITHOUT_NAME,
    _PARQUET_MAGIC: "is a Parquet file: give --input_format parquet",
    _ORC_MAGIC: "is an ORC file: give --input_format orc",
    b"PK\x03\x04": "is a ZIP archive, such as an Excel workbook: extract the CSV file, or save the sheet as CSV",
}
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@functools.cache
def _ends_field(mark: bytes) -> np.ndarray:
    """By byte: whether a field ends before it. Shape (256,), bool."""
    return np.isin(np.arange(256), list(mark + b"\r\n"))


@functools.cache
def _row_pattern(mark: bytes) -> re.Pattern[bytes]:
    mark = re.escape(mark)
    field = rb'(?:"[^"]*(?:""[^"]*)*")?[^%b\r\n]*' % mark
    return re.compile(rb"%b(?:%b%b)*(?:\r\n?|\n)?" % (field, mark, field))


def whole_row_blocks(
    path: str, labels: Sequence[str], dialect: Dialect = COMMA, size: int | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Reads a CSV file in blocks of whole rows.

    Yields (header, block): the header line, or that of the dialect, and rows of some megabytes, in UTF-8; at least one
    block, which may be empty. `labels`, the private columns, do not count for the length of a row; `size` is the number
    of bytes read at a time, None for some megabytes. Raises InputError if the file cannot be read, a quote is never
    closed, or a row has more than 64 MB. All rows before the place of an error come before the error.
    """
    with open_input(path) as file:
        row_ends, header, held, line = _RowEnds(dialect.mark), dialect.header or None, [], 1
        for chunk in _without_mark(dialect.utf8(_chunks(file, path, dialect, size or _CSV_BLOCK))):
            end = row_ends.last(chunk)
            if end is not None:
                whole, held = b"".join([*held, chunk[:end]]), []
                if header is None:
                    start = _header_end(whole, dialect.mark)
                    header, whole = whole[:start], whole[start:]
                    line += _line_breaks(header)
                short = _before_long_row(whole, header, labels, dialect)
                if short:
                    yield header, whole[:short]
                if short < len(whole):
                    raise _endless(path, line + _breaks_before_row(whole, short))
                line += _line_breaks(whole)
            held.append(chunk[end or 0 :])
            # Such a row is too long however much of it is a label.
            if sum(map(len, held)) > 2 * _CSV_ROW:
                raise _endless(path, line)
        # The last line may lack its newline. Arrow would read all that follows an open quote as one cell.
        if row_ends.last(b"\n") != 1:
            raise _endless(path, line)
        rest = b"".join(held)
        if header is None:
            start = _header_end(rest, dialect.mark)
            header, rest = rest[:start], rest[start:]
            line += _line_breaks(header)
        short = _before_long_row(rest, header, labels, dialect)
        yield header, rest[:short]
        if short < len(rest):
            raise _endless(path, line + _breaks_before_row(rest, short))


def _chunks(file: BinaryIO, path: str, dialect: Dialect, size: int) -> Iterator[bytes]:
    """Parts of a file, of some bytes each."""
    chunk = _read_some(file, path, size)
    for magic, problem in _OTHER_FORMATS.items():
        # A column may be named PAR1 or ORC, but no text has a zero byte.
        if chunk.startswith(magic) and (magic not in (_PARQUET_MAGIC, _ORC_MAGIC) or 0 in chunk):
            raise InputError(
                f"{path}: {archive_problem(chunk) or problem}" if magic == GZIP_MAGIC else f"{path}: {problem}"
            )
    problem = archive_problem(chunk)
    if problem is not None:
        raise InputError(f"{path}: {problem}")
    if dialect.encoding == "utf-8":
        for mark, name in _OTHER_MARKS.items():
            if chunk.startswith(mark):
                raise InputError(f"{path}: begins with the byte order mark of {name}: give --csv_encoding {name}")
    while chunk:
        yield chunk
        chunk = _read_some(file, path, size)


def has_rows(path: str, dialect: Dialect = COMMA) -> bool:
    """Tells whether a file has more than a header line.

    True also for a file that cannot be read: its reader finds that.
    """
    try:
        blocks = whole_row_blocks(path, (), dialect, _FIRST_BLOCK)
        return any(block.strip(b"\r\n") or not header.strip(b"\r\n") for header, block in blocks)
    except InputError:
        return True


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without a byte order mark before the first one."""
    for number, chunk in enumerate(chunks):
        yield chunk if number else chunk.removeprefix(codecs.BOM_UTF8)


def column_names(header: bytes, dialect: Dialect = COMMA) -> list[str] | None:
    """Column names of a header line in UTF-8; none for a blank line. None if they are not UTF-8 text."""
    try:
        return next(csv.reader([header.decode("utf-8-sig")], delimiter=dialect.delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return None


def first_rows(path: str, labels: Sequence[str], dialect: Dialect = COMMA) -> tuple[bytes, bytes]:
    """Reads (header, rows) that determine the types of columns.

    These are the first 65,536 rows, fewer where rows are long; their number does not depend on a label. Raises
    InputError as `whole_row_blocks` does.
    """
    header, text, ends = b"", b"", np.zeros(0, np.int64)
    try:
        for header, block in whole_row_blocks(path, labels, dialect):
            ends = np.append(ends, row_ends(block, dialect) + len(text))
            text += block
            rows = min(len(ends), _SAMPLE_ROWS)
            enough = rows == _SAMPLE_ROWS
            if rows and ends[rows - 1] >= _SAMPLE_BYTES:
                sizes = np.cumsum(_feature_sizes(text[: ends[rows - 1]], ends[:rows], header, labels, dialect))
                enough |= bool(sizes[-1] >= _SAMPLE_BYTES)
                rows = min(rows, int(np.searchsorted(sizes, _SAMPLE_BYTES)) + 1)
            if enough:
                return header, text[: ends[rows - 1]]
    except InputError:
        # The reader of the file finds the error in its place, behind all rows before it.
        if not header:
            raise
    return header, text


def row_ends(text: bytes, dialect: Dialect = COMMA) -> np.ndarray:
    """Offset after each row, ascending, shape (n,), int64.

    Rows end by the rules of Arrow's parser, at line breaks outside quotes, except blank lines. `text` consists of whole
    rows; the last one may lack its line break.
    """
    breaks = _unquoted(text, b"\r\n", dialect.mark)
    codes = np.frombuffer(text + b" ", np.uint8)
    # A carriage return before a newline is part of the same line break.
    ends = breaks[(codes[breaks] == ord("\n")) | (codes[breaks + 1] != ord("\n"))] + 1
    if text and not (len(ends) and ends[-1] == len(text)):
        ends = np.append(ends, len(text))
    firsts = codes[np.append(0, ends[:-1])] if len(ends) else codes[:0]
    return ends[(firsts != ord("\n")) & (firsts != ord("\r"))]


def _feature_sizes(text: bytes, ends: np.ndarray, header: bytes, labels: Sequence[str], dialect: Dialect) -> np.ndarray:
    """Bytes of each row apart from its labels. ends: end of each of the n rows in the text, (n,)."""
    starts = np.append(0, ends[:-1])
    names, sizes = column_names(header, dialect) or [], ends - starts
    places = [names.index(label) for label in labels if label in names]
    if not places:
        return sizes
    # Rows with too few fields may lack a label.
    commas = np.append(_unquoted(text, dialect.mark, dialect.mark), [len(text)] * (max(places) + 1))
    first = np.searchsorted(commas, starts)
    for place in places:
        begins = np.minimum(commas[first + place - 1] + 1, ends) if place else starts
        sizes = sizes - (np.minimum(commas[first + place], ends) - begins)
    return sizes


def _unquoted(text: bytes, wanted: bytes, mark: bytes) -> np.ndarray:
    """Places of some bytes outside quotes, ascending, in a text that begins and ends outside."""
    codes = np.frombuffer(text, np.uint8)
    is_wanted = functools.reduce(np.logical_or, [codes == code for code in wanted if code in text], np.False_)
    is_quote = codes == ord('"')
    places = np.flatnonzero(is_wanted | is_quote)
    quotes = is_quote[places]
    opening = places[quotes][::2]
    # If every other quote begins a field or follows a quote, none is text, and the text after it is inside quotes.
    led = codes[opening - 1]
    if text.startswith(b'"'):
        led[0] = ord("\n")
    if (_ends_field(mark)[led] | (led == ord('"'))).all():
        found = np.flatnonzero(~quotes)
        return places[found[(found - np.arange(len(found))) & 1 == 0]]
    framed = b"\n" + text + b"\n"
    found = places[~quotes] + 1
    places, states = _quoting(framed, 0, framed.rfind(b'"') + 1, False, mark)
    return found[~states[np.searchsorted(places, found, side="right") - 1]] - 1


def _before_long_row(text: bytes, header: bytes, labels: Sequence[str], dialect: Dialect) -> int:
    """Bytes of the whole rows before the first one that is too long without its labels."""
    if len(text) <= _CSV_ROW:
        return len(text)
    ends = row_ends(text, dialect)
    long = np.flatnonzero(_feature_sizes(text, ends, header, labels, dialect) > _CSV_ROW)
    if not len(long):
        return len(text)
    return int(ends[long[0] - 1]) if long[0] else 0


def _endless(path: str, line: int) -> InputError:
    """Error for a row without an end. One text for both reasons: which one is seen first may depend on labels."""
    return InputError(
        f'{path}: the row that begins on line {line} has more than {_CSV_ROW / 1e6:,.0f} MB, or a quote (") opens a '
        "field in it and none closes it: close it, or, if it is text, double it and quote the field"
    )


def _breaks_before_row(text: bytes, start: int) -> int:
    """Line breaks before the first row from a start on. Blank lines there may belong to this text or the one before."""
    return _line_breaks(text[: len(text) - len(text[start:].lstrip(b"\r\n"))])


def _line_breaks(text: bytes) -> int:
    """Line breaks, of one byte or two. Their numbers in blocks add up: none ends within one."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _read_some(file: BinaryIO, path: str, size: int) -> bytes:
    try:
        return file.read(size)
    except Exception as error:
        raise unreadable(path, error, "cannot be read or decompressed") from None


class _RowEnds:
    """Finds the ends of rows, chunk by chunk: line breaks outside quotes, by the rules of Arrow's parser.

    In these rules a quote opens a quoted part only at the beginning of a field. Inside, two quotes are an escaped quote
    and a single one closes the quoted part; after that, quotes are text until the next field. A run of quotes therefore
    has one of three effects:
    - even length: none; the text after it is inside quotes if the text before it is;
    - odd length, after a delimiter or line break: opens from outside, closes from inside;
    - odd length, after another byte: closes from inside, is text outside. In both cases, outside follows.
    A run of the third kind determines the state without knowledge of what came before. Therefore it mostly suffices to
    look at the end of a chunk.
    """

    def __init__(self, mark: bytes = b",") -> None:
        """mark: the delimiter."""
        self._mark = mark
        # State after the text so far: whether it ends inside quotes, and its last byte with the run of quotes after
        # it, which the next chunk may continue. A file begins like a line.
        self._inside = False
        self._before = b"\n"

    def last(self, chunk: bytes) -> int | None:
        """Finds the end of the last row that is known to end with this chunk.

        Chunks come in order. Returns the offset in the chunk after the line break; None if no row ends. It is 0 where
        the chunk before ended with a carriage return, which this one shows not to be the first byte of a line break of
        two.
        """
        text = self._before + chunk
        settled = text.rstrip(b'"')
        end, inside = _last_row_end(settled, self._inside, self._mark)
        run = len(text) - len(settled)
        if run and not inside and settled.endswith(b"\r") and len(settled) >= len(self._before):
            end = len(settled)
        elif not end and not self._inside and self._before == b"\r" and chunk[:1] not in (b"", b"\n"):
            end = 1
        found = end - len(self._before) if end else None
        self._inside = inside
        # Only the parity of the run matters.
        self._before = settled[-1:] + b'"' * (run and 2 - run % 2)
        return found


def _last_row_end(text: bytes, inside: bool, mark: bytes) -> tuple[int, bool]:
    """End of the last row in a text, 0 if none ends; and whether the text ends inside quotes.

    text: its first byte is the one before it; neither that nor the last byte is a quote. inside: whether it begins
    inside quotes. Cost O(length), wherever the quotes are.
    """
    stop = text.rfind(b'"') + 1
    start = max(stop - _CSV_WINDOW, 0)
    while True:
        places, states = _quoting(text, start, stop, inside, mark)
        borders = np.append(places, len(text))
        for place in np.flatnonzero(~states)[::-1]:
            newline = text.rfind(b"\n", borders[place], borders[place + 1])
            # The last byte may be the first of a line break of two bytes.
            end = max(newline, text.rfind(b"\r", borders[place], min(borders[place + 1], len(text) - 1))) + 1
            if end:
                return end, bool(states[-1])
        if start == 0:
            return 0, bool(states[-1])
        start = 0


def _quoting(text: bytes, start: int, stop: int, inside: bool, mark: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(places, states): whether the text from each place to the next, or to its end, is inside quotes.

    The first place is 1 if start is 0, else the first one after start at which the state is known; there may be none.
    stop: offset after the last quote. Other arguments as for `_last_row_end`.
    """
    codes = np.frombuffer(text, np.uint8)
    quotes = codes[start : stop + 1] == ord('"')
    quotes[0] = False
    edges = np.flatnonzero(quotes[1:] != quotes[:-1]) + start + 1
    begins, ends = edges[::2], edges[1::2]
    if start:
        # The first run may have begun before.
        begins, ends = begins[1:], ends[1:]
    places = begins[(ends - begins) & 1 == 1]
    opens = _ends_field(mark)[codes[places - 1]]
    if start == 0:
        # The state at the beginning is represented by virtual quotes at place 1: one that is text, which leaves the
        # state outside, then, if the text begins inside quotes, one that opens.
        led = [False, True] if inside else [False]
        places, opens = np.append([1] * len(led), places), np.append(led, opens)
    known = np.append(np.flatnonzero(~opens), len(opens))[0]
    places, opens = places[known:], opens[known:]
    flips = np.cumsum(opens)
    since = flips - np.maximum.accumulate(np.where(opens, 0, flips))
    return places, since & 1 == 1


def _header_end(text: bytes, mark: bytes) -> int:
    """End of the first row, after its line break, in a text whose quotes are closed."""
    return next(_row_pattern(mark).finditer(text)).end()
