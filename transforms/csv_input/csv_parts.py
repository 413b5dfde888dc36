"""Splits a large CSV file into parts, which workers read in parallel.

Where a row begins is only known after all quotes before it, so one pass over the bytes finds the rows. It parses no
field, and takes a tenth of the time that the job takes for a row. Where parts begin depends on the number of rows
alone, never on sizes, which depend on labels.
"""

from __future__ import annotations

import codecs
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError, redact_errors, unreadable
from ..io.csv_blocks import row_ends, whole_row_blocks
from ..io.csv_dialect import Dialect
from ..io.filesystems import not_opened
from ..io.input_format import BATCH_ROWS, FilePart
from ..io.row_parts import bounds_of_part, split_by_rows

# Bytes of rows that are parsed together, unless one batch of rows, or one row, has more.
_BLOCK = 8 << 20


@dataclass(frozen=True, eq=False)
class _Index:
    """Places in a CSV file.

    Attributes:
      header: The header line.
      rows: Number of rows.
      batches: Offset of each batch, then that of the end, ascending, (m + 1,), int64.
      cuts: Offsets between rows, some megabytes apart, among them those in `batches`, ascending, int64.
    """

    header: bytes
    rows: int
    batches: np.ndarray
    cuts: np.ndarray


@redact_errors("reading")
def split_csv(file: FilePart, labels: Sequence[str], dialect: Dialect) -> Iterator[FilePart]:
    """Splits a whole CSV file into parts that workers read in parallel, by its number of rows.

    Yields parts in order, at least one; the whole file if a row has no end, which its reader finds in its place.
    """

    def count() -> int:
        try:
            return _index(file.path, labels, dialect).rows
        except InputError:
            return 0

    yield from split_by_rows(file, count, dialect.encoding)


def rows_of_part(part: FilePart, labels: Sequence[str], dialect: Dialect) -> range:
    """Rows of the file that a part by `split_csv` has: whole shards or whole batches.

    Raises InputError if the file cannot be read.
    """
    index = _index(part.path, labels, dialect)
    first, stop = bounds_of_part(part, len(index.batches) - 1)
    return range(first, index.rows if stop is None else min(stop, index.rows))


def part_blocks(part: FilePart, rows: range, labels: Sequence[str], dialect: Dialect) -> Iterator[tuple[bytes, bytes]]:
    """Reads the batches of a CSV file that have some rows, in blocks of whole rows.

    `part` is from `split_csv`, `rows` from `rows_of_part`. Yields (header, block): the header line and rows of some
    megabytes. Raises InputError if the file cannot be read, or becomes shorter meanwhile.
    """
    if not rows:
        return
    index = _index(part.path, labels, dialect)
    at, end = int(index.batches[rows.start // BATCH_ROWS]), int(index.batches[-(-rows.stop // BATCH_ROWS)])
    try:
        with open(part.path, "rb") as file:
            file.seek(at)
            while at < end:
                far, next_cut = np.searchsorted(index.cuts, [at + _BLOCK, at], side="right")
                cut = min(int(index.cuts[max(far - 1, next_cut)]), end)
                block = file.read(cut - at)
                if len(block) < cut - at:
                    raise InputError(f"{part.path}: became shorter while it was read: run again when it is complete")
                yield index.header, block
                at = cut
    except OSError as error:
        raise unreadable(part.path, error, "cannot be read") from None


def _index(path: str, labels: Sequence[str], dialect: Dialect) -> _Index:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise not_opened(path, error) from None
    return _index_of(path, tuple(labels), dialect, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _index_of(path: str, labels: tuple[str, ...], dialect: Dialect, size: int, changed: int) -> _Index:
    """As `_index`, kept for the next part. size, changed: a file that was changed is read again."""
    with open(path, "rb") as file:
        at = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    first, rows, batches, cuts = b"", 0, [], []
    for header, block in whole_row_blocks(path, labels, dialect):
        if not cuts:
            first, at = header, at + (0 if dialect.columns else len(header))
        starts = np.append(0, row_ends(block, dialect)) + at
        # The last one begins in the next block.
        batches.append(starts[:-1][-rows % BATCH_ROWS :: BATCH_ROWS])
        rows, at = rows + len(starts) - 1, at + len(block)
        cuts.append(at)
    found = np.append(np.concatenate(batches), at)
    return _Index(first, rows, found, np.union1d(found, cuts))
