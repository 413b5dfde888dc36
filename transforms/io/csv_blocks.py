"""Cuts a CSV file into blocks of whole rows.

Arrow's own streaming reader would call back into Python from its own threads, which can deadlock. So blocks are read
here, and each is parsed as a file of its own.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ..errors import InputError
from .filesystems import open_input

# Bytes read at a time.
_CSV_BLOCK = 8 << 20
# Longest row in bytes. It limits the memory that is held while the end of a row is searched for.
_CSV_ROW = 64_000_000
# Bytes before the last quote of a chunk in which the end of a row is searched for first.
_CSV_WINDOW = 1 << 16

_ENDS_FIELD = np.isin(np.arange(256), list(b",\r\n"))
_FIELD = rb'(?:"[^"]*(?:""[^"]*)*")?[^,\r\n]*'
_ROW = re.compile(rb"%b(?:,%b)*(?:\r\n?|\n)?" % (_FIELD, _FIELD))


def whole_row_blocks(path: str) -> Iterator[tuple[bytes, bytes]]:
    """Reads a CSV file in blocks of whole rows.

    Args:
      path: The file.

    Yields:
      (header, block): the header line and rows of some megabytes. At least one block, which may be empty.

    Raises:
      InputError: If the file cannot be read, a quote is never closed, or a row has more than 64 MB.
    """
    with open_input(path) as file:
        row_ends, header, held, lines = _RowEnds(), None, [], 0
        chunk = _read_some(file, path).removeprefix(codecs.BOM_UTF8)
        while chunk:
            end = row_ends.last(chunk)
            if end:
                whole, held = b"".join([*held, chunk[:end]]), []
                lines += np.count_nonzero(np.frombuffer(whole, np.uint8) == ord("\n"))
                if header is None:
                    start = _header_end(whole)
                    header, whole = whole[:start], whole[start:]
                if whole:
                    yield header, whole
            held.append(chunk[end:])
            if sum(map(len, held)) > _CSV_ROW:
                raise InputError(
                    f"{path}: line {lines + 1} begins a row of more than {_CSV_ROW / 1e6:,.0f} MB: most likely a quote "
                    '(") opens a field on that line and none closes it'
                )
            chunk = _read_some(file, path)
        # The last line may lack its newline. Arrow would read all that follows an open quote as one cell.
        if not row_ends.last(b"\n"):
            raise InputError(
                f'{path}: a quote (") opens a field in the row that begins on line {lines + 1} and none closes it: '
                "close it, or, if it is text, double it and quote the field"
            )
        rest = b"".join(held)
        if header is None:
            start = _header_end(rest)
            header, rest = rest[:start], rest[start:]
        yield header, rest


def _read_some(file: BinaryIO, path: str) -> bytes:
    try:
        return file.read(_CSV_BLOCK)
    except Exception:
        raise InputError(f"{path}: cannot be read or decompressed") from None


class _RowEnds:
    """Finds the ends of rows, chunk by chunk: newlines outside quotes, by the rules of Arrow's parser.

    In these rules a quote opens a quoted part only at the beginning of a field. Inside, two quotes are an escaped quote
    and a single one closes the quoted part; after that, quotes are text until the next field. A run of quotes therefore
    has one of three effects:
    - even length: none; the text after it is inside quotes if the text before it is;
    - odd length, after a comma or line break: opens from outside, closes from inside;
    - odd length, after another byte: closes from inside, is text outside. In both cases, outside follows.
    A run of the third kind determines the state without knowledge of what came before. Therefore it mostly suffices to
    look at the end of a chunk.
    """

    def __init__(self) -> None:
        # State after the text so far: whether it ends inside quotes, and its last byte with the run of quotes after
        # it, which the next chunk may continue. A file begins like a line.
        self._inside = False
        self._before = b"\n"

    def last(self, chunk: bytes) -> int:
        """End of the last row that ends in this chunk, after its newline; 0 if none does. Chunks come in order."""
        text = self._before + chunk
        settled = text.rstrip(b'"')
        end, self._inside = _last_row_end(settled, self._inside)
        end -= len(self._before)
        run = len(text) - len(settled)
        # Only the parity of the run matters.
        self._before = settled[-1:] + b'"' * (run and 2 - run % 2)
        return max(end, 0)


def _last_row_end(text: bytes, inside: bool) -> tuple[int, bool]:
    """End of the last row in a text, 0 if none ends; and whether the text ends inside quotes.

    text: its first byte is the one before it; neither that nor the last byte is a quote. inside: whether it begins
    inside quotes. Cost O(length), wherever the quotes are.
    """
    stop = text.rfind(b'"') + 1
    start = max(stop - _CSV_WINDOW, 0)
    while True:
        places, states = _quoting(text, start, stop, inside)
        borders = np.append(places, len(text))
        for place in np.flatnonzero(~states)[::-1]:
            end = text.rfind(b"\n", borders[place], borders[place + 1]) + 1
            if end:
                return end, bool(states[-1])
        if start == 0:
            return 0, bool(states[-1])
        start = 0


def _quoting(text: bytes, start: int, stop: int, inside: bool) -> tuple[np.ndarray, np.ndarray]:
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
    opens = _ENDS_FIELD[codes[places - 1]]
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


def _header_end(text: bytes) -> int:
    """End of the first row, after its line break, in a text whose quotes are closed."""
    return next(_ROW.finditer(text)).end()
