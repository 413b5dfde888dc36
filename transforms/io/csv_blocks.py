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
from .csv_dialect import CANDIDATES, COMMA, Dialect
from .filesystems import GZIP_MAGIC, GZIP_WITHOUT_NAME, archive_problem, open_input
from .limits import LIMITS, Limits

# To find the first row.
_FIRST_BLOCK = Limits(block_bytes=1 << 16)
_QUOTE = ord('"')

_PARQUET_MAGIC, _ORC_MAGIC = b"PAR1", b"ORC"
# First bytes of files of other formats, and of text in other encodings; the longer ones come first.
_OTHER_FORMATS = {
    GZIP_MAGIC: GZIP_WITHOUT_NAME,
    _PARQUET_MAGIC: "is a Parquet file: give `input_format` parquet",
    _ORC_MAGIC: "is an ORC file: give `input_format` orc",
    b"PK\x03\x04": "is a ZIP archive, such as an Excel workbook: extract the CSV file, or save the sheet as CSV",
}
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@functools.cache
def _borders(mark: bytes) -> np.ndarray:
    """By byte: whether it may be beside a quote that opens or closes a field, or one of a pair. Shape (256,), bool."""
    return np.isin(np.arange(256), list(mark + b'\r\n"'))


_STRAY = 'has a quote (") inside a field that does not begin with one: quote the field, and double the quotes inside it'
_BEHIND = (
    'has text behind the quote (") that closes a field: close each field where it ends, and double the quotes inside it'
)
_UNCLOSED = (
    'has a quote (") that opens a field, and none closes it before the line break: close it, or give '
    "`csv_dialect` newlines=true if line breaks in quoted fields are meant"
)
# A line above the header line that names the delimiter, for spreadsheets.
_SEPARATOR_LINE = re.compile(rb'"?sep=[^\r\n]"?(?=[\r\n]|$)', re.IGNORECASE)
# The first row of a text whose quotes are in step.
_FIRST_ROW = re.compile(rb'(?:[^"\r\n]+|"[^"]*")*(?:\r\n?|\n)?')


def whole_row_blocks(
    path: str, labels: Sequence[str], dialect: Dialect = COMMA, limits: Limits = LIMITS
) -> Iterator[tuple[bytes, bytes]]:
    """Reads a CSV file in blocks of whole rows.

    Yields (header, block): the header line, or that of the dialect, and rows of some megabytes, in UTF-8; at least one
    block, which may be empty. Blank lines above the header line are passed over, as those between rows. `labels`, the
    private columns, do not count for the length of a row. Raises InputError if the file cannot be read, the first line
    names the delimiter, a quote is out of place, or a row is longer than `row_bytes`. All rows before the place of an
    error come before the error.
    """
    with open_input(path) as file:
        header, line, at_top = dialect.header or None, 1, True
        chunks = _without_mark(dialect.utf8(_chunks(file, path, dialect, limits.block_bytes)))
        for text, whole in _cut_rows(_with_whole_breaks(chunks), dialect.newlines, limits):
            blank = len(text) - len(text.lstrip(b"\r\n")) if at_top else 0
            if at_top and blank < len(text):
                at_top = False
                _check_top_line(path, text[blank:], dialect)
            place, problem = _fault(text, dialect, limits.window_bytes) if b'"' in text else (len(text), "")
            rows = text
            if problem:
                rows = text[: _last_row_end(text[:place], dialect.newlines, False, limits.window_bytes)]
            elif not whole:
                rows = b""
            start = 0
            if header is None and (rows[blank:] or not text):
                start = blank + _first_row_end(rows[blank:])
                header, rows = rows[blank:start], rows[start:]
            if header is not None:
                short = _before_long_row(rows, header, labels, dialect, limits.row_bytes)
                if short or not rows:
                    yield header, rows[:short]
                if short < len(rows):
                    raise _endless(path, line + _breaks_before_row(text, start + short), dialect, limits.row_bytes)
            if problem:
                raise InputError(f"{path}: line {line + _line_breaks(text[:place])} {problem}")
            if not whole:
                raise _endless(path, line, dialect, limits.row_bytes)
            line += _line_breaks(text)


def _check_top_line(path: str, text: bytes, dialect: Dialect) -> None:
    """Refuses a first line that names the delimiter, or is a header line with quotes around other delimiters.

    Raises InputError. It shows delimiters alone: the line may be a record.
    """
    separator = _SEPARATOR_LINE.match(text)
    if separator:
        shown = separator[0].decode(errors="replace").strip('"')
        raise InputError(f"{path}: the first line, {shown!r}, is not a header line: remove it")
    closing = re.match(rb'"[^"\r\n]*"(.)', text)
    mark = closing[1].decode("latin-1") if closing else ""
    if mark in CANDIDATES and mark != dialect.delimiter:
        shown = "\\t" if mark == "\t" else mark
        raise InputError(
            f"{path}: line 1 has {shown!r} behind a quoted field: if it is the delimiter, give `csv_dialect` "
            f"delimiter='{shown}'"
        )


def _with_whole_breaks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same text in chunks of which none ends within a line break of two bytes."""
    held = b""
    for chunk in chunks:
        text = held + chunk
        held = text[-1:] if text.endswith(b"\r") else b""
        yield text[: len(text) - len(held)]
    if held:
        yield held


def _cut_rows(chunks: Iterator[bytes], newlines: bool, limits: Limits) -> Iterator[tuple[bytes, bool]]:
    """Cuts a text into whole rows, as long as its quotes are in step.

    Yields (rows, whole), at least once: rows, the last of which may lack its line break at the end of the text; False
    with the rest of it if that has no end, or with its beginning if it is too long for a row, whatever is a label.
    """
    held: list[bytes] = []
    inside = False
    for chunk in chunks:
        end = _last_row_end(chunk, newlines, inside, limits.window_bytes)
        inside ^= bool(chunk.count(b'"') & 1)
        if end:
            yield b"".join([*held, chunk[:end]]), True
            held = []
        held.append(chunk[end:])
        if sum(map(len, held)) > 2 * limits.row_bytes:
            yield b"".join(held), False
            return
    yield b"".join(held), not (newlines and inside)


def _last_row_end(text: bytes, newlines: bool, inside: bool, window: int) -> int:
    """End of the last row in a text, 0 if none ends. inside: whether the text begins within quotes.

    Where quoted fields have line breaks, the last bytes of the text, a window, are searched first.
    """
    if not newlines:
        return max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    odd = inside ^ bool(text.count(b'"') & 1)
    for start in (max(len(text) - window, 0), 0):
        breaks, quotes = _places(text[start:], b"\r\n"), _places(text[start:], b'"')
        after = len(quotes) - np.searchsorted(quotes, breaks)
        found = breaks[(after + odd) & 1 == 0]
        if len(found):
            return start + int(found[-1]) + 1
    return 0


def _pieces(text: bytes, wanted: bytes, window: int = LIMITS.window_bytes) -> Iterator[np.ndarray]:
    """Places of some bytes, ascending, int64, piece by piece: few bytes at a time stay in the processor's cache."""
    there = [code for code in wanted if code in text]
    for start in range(0, len(text) if there else 0, window):
        codes = np.frombuffer(text, np.uint8, min(window, len(text) - start), start)
        found = codes == there[0]
        for code in there[1:]:
            found |= codes == code
        yield np.flatnonzero(found) + start


def _places(text: bytes, wanted: bytes) -> np.ndarray:
    """Places of some bytes, ascending, int64."""
    return np.concatenate([np.zeros(0, np.int64), *_pieces(text, wanted)])


def _fault(text: bytes, dialect: Dialect, window: int) -> tuple[int, str]:
    """(place, problem) of the first quote that is out of place, in whole rows; (length, "") for none.

    A quoted part begins with a field and ends with it, and a quote inside is doubled. So, while quotes are in step,
    those with an even number open a field or follow a quote, those with an odd number close one or precede a quote.
    """
    codes, borders, seen = np.frombuffer(text, np.uint8), _borders(dialect.mark), 0
    for places in _pieces(text, b'"' if dialect.newlines else b'"\r\n', window):
        is_quote = codes[places] == _QUOTE
        quotes, breaks = places[is_quote], np.flatnonzero(~is_quote)
        opening, closing = quotes[seen & 1 :: 2], quotes[1 - (seen & 1) :: 2]
        before, after = borders[codes[opening - 1]], borders[codes.take(closing + 1, mode="clip")]
        # The first and the last byte have no neighbor.
        before[:1] |= opening[:1] == 0
        after[-1:] |= closing[-1:] == len(text) - 1
        inside = places[breaks[(breaks - np.arange(len(breaks)) + seen) & 1 == 1]]
        found = [(int(wrong[0]), problem) for wrong, problem in (
            (opening[~before], _STRAY), (closing[~after], _BEHIND), (inside, _UNCLOSED)
        ) if len(wrong)]  # fmt: skip
        if found:
            return min(found)
        seen += len(quotes)
    return (len(text), _UNCLOSED if seen & 1 and not dialect.newlines else "")


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
                raise InputError(
                    f"{path}: begins with the byte order mark of {name}: give `csv_dialect` encoding={name}"
                )
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


def first_rows(
    path: str, labels: Sequence[str], dialect: Dialect = COMMA, limits: Limits = LIMITS
) -> tuple[bytes, bytes]:
    """Reads (header, rows) that determine the types of columns.

    These are the first `sample_rows` rows, fewer where rows are long; their number does not depend on a label. Raises
    InputError as `whole_row_blocks` does.
    """
    header, text, ends = b"", b"", np.zeros(0, np.int64)
    try:
        for header, block in whole_row_blocks(path, labels, dialect, limits):
            ends = np.append(ends, row_ends(block) + len(text))
            text += block
            rows = min(len(ends), limits.sample_rows)
            enough = rows == limits.sample_rows
            if rows and ends[rows - 1] >= limits.sample_bytes:
                sizes = np.cumsum(_feature_sizes(text[: ends[rows - 1]], ends[:rows], header, labels, dialect))
                enough |= bool(sizes[-1] >= limits.sample_bytes)
                rows = min(rows, int(np.searchsorted(sizes, limits.sample_bytes)) + 1)
            if enough:
                return header, text[: ends[rows - 1]]
    except InputError:
        # The reader of the file finds the error in its place, behind all rows before it.
        if not header:
            raise
    return header, text


def row_ends(text: bytes) -> np.ndarray:
    """Offset after each row, ascending, shape (n,), int64.

    Rows end at line breaks outside quotes, except blank lines. `text` consists of whole rows whose quotes are in step;
    the last one may lack its line break.
    """
    breaks = _unquoted(text, b"\r\n")
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
    commas = np.append(_unquoted(text, dialect.mark), [len(text)] * (max(places) + 1))
    first = np.searchsorted(commas, starts)
    for place in places:
        begins = np.minimum(commas[first + place - 1] + 1, ends) if place else starts
        sizes = sizes - (np.minimum(commas[first + place], ends) - begins)
    return sizes


def _unquoted(text: bytes, wanted: bytes) -> np.ndarray:
    """Places of some bytes outside quotes, ascending, in whole rows whose quotes are in step."""
    if b'"' not in text:
        return _places(text, wanted)
    places = _places(text, wanted + b'"')
    found = np.flatnonzero(np.frombuffer(text, np.uint8)[places] != _QUOTE)
    # The number of quotes before each is even outside quotes.
    return places[found[(found - np.arange(len(found))) & 1 == 0]]


def _before_long_row(text: bytes, header: bytes, labels: Sequence[str], dialect: Dialect, most: int) -> int:
    """Bytes of the whole rows before the first one that is too long without its labels."""
    if len(text) <= most:
        return len(text)
    ends = row_ends(text)
    long = np.flatnonzero(_feature_sizes(text, ends, header, labels, dialect) > most)
    if not len(long):
        return len(text)
    return int(ends[long[0] - 1]) if long[0] else 0


def _endless(path: str, line: int, dialect: Dialect, most: int) -> InputError:
    """Error for a row without an end. One text for both reasons: which one is seen first may depend on labels."""
    unclosed = ', or a quote (") opens a field in it and none closes it: close it, or, if it is text, double it and '
    return InputError(
        f"{path}: the row that begins on line {line} has more than {most / 1e6:,.0f} MB"
        + (f"{unclosed}quote the field" if dialect.newlines else "")
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


def _first_row_end(text: bytes) -> int:
    """End of the first row, after its line break, in whole rows whose quotes are in step."""
    found = _FIRST_ROW.match(text)
    return found.end() if found else 0
