"""Blocks of whole rows of a CSV file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ..errors import InputError
from .open_input import open_input

_CSV_BLOCK = 8 << 20


# What is held of a row whose end is not found, in bytes.
_CSV_ROW = 64_000_000


# How far before a chunk's last quote the search for a row's end begins, in bytes.
_CSV_WINDOW = 1 << 16


def whole_row_blocks(path: str) -> Iterator[tuple[bytes, bytes]]:
    """The header line and blocks of whole rows, some megabytes each; at least one, which may be empty.

    Raises InputError for a quote that is never closed and for a row of more than `_CSV_ROW` bytes: that much is held.

    Arrow's own streaming reader would call back into Python from threads of its own, and can deadlock there.
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
        # The last line may lack its newline. Of a quote left open, Arrow makes a cell of all that follows.
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
    """Finds where the rows of a CSV file end, chunk by chunk: at newlines outside quotes, as Arrow's parser sees them.

    To Arrow a quote opens a field only where the field begins. Inside, two quotes are an escaped one, and a single one
    closes; up to the next field, quotes are text again. So of a run of quotes this is all that matters:
    - of even length: whoever was inside quotes still is, whoever was outside still is;
    - of odd length, after a comma or line break: it opens from outside, and closes from inside;
    - of odd length, after anything else: it closes from inside, and is text outside. Either way, outside follows.
    The third kind says where one is without knowing what came before. Therefore mostly a chunk's end is all that is
    looked at.
    """

    def __init__(self) -> None:
        # Of what came before: whether it ends inside quotes, and its last byte with the run of quotes that follows it,
        # which the next chunk may prolong. A file begins as a line does.
        self._inside = False
        self._before = b"\n"

    def last(self, chunk: bytes) -> int:
        """Where the last row that ends in this chunk ends, after its newline; 0 if none does. Chunks come in order."""
        text = self._before + chunk
        settled = text.rstrip(b'"')
        end, self._inside = _last_row_end(settled, self._inside)
        end -= len(self._before)
        run = len(text) - len(settled)
        # Only the run's parity counts.
        self._before = settled[-1:] + b'"' * (run and 2 - run % 2)
        return max(end, 0)


def _last_row_end(text: bytes, inside: bool) -> tuple[int, bool]:
    """Where the last row ends, 0 if none does; whether the text ends inside quotes.

    text: the first byte is none of it, it tells what follows; neither that nor the last byte is a quote. inside:
    whether it begins inside quotes. Cost O(length), however the quotes lie.
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


_ENDS_FIELD = np.isin(np.arange(256), list(b",\r\n"))


def _quoting(text: bytes, start: int, stop: int, inside: bool) -> tuple[np.ndarray, np.ndarray]:
    """(places, states): from each place to the next, the last one to the text's end, whether text is inside quotes.

    The first place is 1 if start is 0, else the first after start where that can be told; there may be none.
    stop: after the last quote. The rest is as for `_last_row_end`.
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
        # As if quotes had led there: text, and one that opens.
        led = [False, True] if inside else [False]
        places, opens = np.append([1] * len(led), places), np.append(led, opens)
    known = np.append(np.flatnonzero(~opens), len(opens))[0]
    places, opens = places[known:], opens[known:]
    flips = np.cumsum(opens)
    since = flips - np.maximum.accumulate(np.where(opens, 0, flips))
    return places, since & 1 == 1


_FIELD = rb'(?:"[^"]*(?:""[^"]*)*")?[^,\r\n]*'


_ROW = re.compile(rb"%b(?:,%b)*(?:\r\n?|\n)?" % (_FIELD, _FIELD))


def _header_end(text: bytes) -> int:
    """Where the first row ends, after its line break, in text whose quotes are closed."""
    return next(_ROW.finditer(text)).end()
