"""Reads CSV files, or parts of large ones, into record batches. Error messages never quote a cell.

Where a row begins is only known after all quotes before it, so one pass over the bytes finds the rows of a file that
workers read in parts. It parses no field, and takes a tenth of the time that the job takes for a row. Where parts begin
depends on the number of rows alone, never on sizes, which depend on labels.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ..batches import slice_rows
from ..class_values import CSV_TYPES
from ..errors import InputError, redact_errors, unreadable
from ..io.csv_blocks import first_rows, row_ends, whole_row_blocks
from ..io.csv_dialect import COMMA, Dialect
from ..io.filesystems import not_opened
from ..io.hive_partitions import check_no_clash
from ..io.input_format import FilePart, bounds_of_part, split_by_rows
from ..io.limits import LIMITS, Limits
from .csv_columns import column_names_of, find_types
from .csv_parser import ColumnTypes, Parser


class CSVReader:
    """Reads CSV files, one after the other; remembers the column types of the first records."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        labels: Sequence[str],
        declared: Mapping[str, str] | None,
        dialect: Dialect = COMMA,
        classes: Mapping[str, LabelClasses] | None = None,
        limits: Limits = LIMITS,
    ):
        """Prepares for a set of columns; None reads all.

        `labels`, the private columns, are read as float64, those of `classes` as classes; `declared` gives the types of
        columns that cannot be inferred from the first rows.
        """
        self._classes = classes or {}
        self._dialect, self._limits = dialect, limits
        self._columns = columns
        self._labels = labels
        self._declared = declared or {}
        self._types: dict[str, ColumnTypes] = {}

    def first_row(self, part: FilePart) -> int:
        """Row of the file at which a part begins. Raises InputError if the file cannot be read."""
        return 0 if part.parts == 1 else rows_of_part(part, self._labels, self._dialect, self._limits).start

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file or part by `split_csv`.

        Yields records in order, in pieces of any size; all records before the place of an error come before the error.
        Raises InputError if the file cannot be opened or parsed, has another header than the first file, lacks a
        column, or holds a value that is not of its column's type. The first such row counts.
        """
        if part.first not in self._types:
            types = find_types(part, self._columns, self._labels, self._declared, self._dialect, self._limits)
            classes = {name: each for name, each in self._classes.items() if name in types.kinds}
            kinds = {**types.kinds, **{name: CSV_TYPES[each.kind] for name, each in classes.items()}}
            self._types[part.first] = dataclasses.replace(types, kinds=kinds, classes=classes)
        types = self._types[part.first]
        check_no_clash(part.partitions, list(types.kinds), part.first)
        if part.parts == 1:
            wanted, blocks = None, whole_row_blocks(part.path, self._labels, self._dialect, self._limits)
        else:
            wanted = rows_of_part(part, self._labels, self._dialect, self._limits)
            blocks = _part_blocks(part, wanted, self._labels, self._dialect, self._limits)
        # Whole batches are parsed, of which others may have rows, too.
        batch_rows = self._limits.batch_rows
        rows = 0 if wanted is None else wanted.start // batch_rows * batch_rows
        for header, block in blocks:
            own = column_names_of(part.path, header, self._dialect)
            if part.path != part.first and sorted(own) != sorted(types.kinds):
                raise InputError(
                    f"{part.path}: the header is not that of {part.first}: all files need the same columns"
                )
            parse = Parser(part.path, header, types, self._columns, self._labels, self._dialect)
            try:
                table = parse(block, rows)
            except InputError:
                table, error = parse.before_error(block, rows)
                yield from _within(table, rows, wanted)
                raise error from None
            yield from _within(table, rows, wanted)
            rows += table.num_rows


def _within(table: pa.Table, first: int, wanted: range | None) -> list[pa.RecordBatch]:
    """Those of some rows, of which the first has the number `first`, that are wanted."""
    return (table if wanted is None else slice_rows(table, first, wanted)).to_batches()


def csv_schema(
    part: FilePart,
    labels: Sequence[str],
    declared: Mapping[str, str] | None,
    dialect: Dialect = COMMA,
    limits: Limits = LIMITS,
) -> pa.Schema:
    """Finds the columns of a CSV file, in the order of the header, and their types.

    These are declared, or inferred from the first rows without the labels. Types of `labels`, the private columns, are
    null. If there are none, or the header lacks one, another column may be private: then all types are null, and no row
    is parsed. Raises InputError if the file cannot be read or has no header line.
    """
    names = column_names_of(part.path, first_rows(part.path, labels, dialect, limits)[0], dialect)
    if not labels or {*labels} - {*names}:
        return pa.schema([(name, pa.null()) for name in names])
    kinds = find_types(part, None, labels, declared or {}, dialect, limits).kinds
    return pa.schema([(name, pa.null() if name in labels else kinds.get(name, pa.string())) for name in names])


def csv_notes(
    part: FilePart,
    labels: Sequence[str],
    declared: Mapping[str, str] | None,
    dialect: Dialect = COMMA,
    limits: Limits = LIMITS,
) -> tuple[str, ...]:
    """Describes columns of numbers that became text, as may not be meant.

    The texts name columns, lines and flags, and quote no cell. `labels`, the private columns, take no part; there is at
    least one. Raises InputError if the file cannot be read.
    """
    return find_types(part, None, labels, declared or {}, dialect, limits).notes


@redact_errors("reading")
def split_csv(file: FilePart, labels: Sequence[str], dialect: Dialect, limits: Limits = LIMITS) -> Iterator[FilePart]:
    """Splits a whole CSV file into parts that workers read in parallel, by its number of rows.

    Yields parts in order, at least one; the whole file if a row has no end, which its reader finds in its place.
    """

    def count() -> int:
        try:
            return _index(file.path, labels, dialect, limits).rows
        except InputError:
            return 0

    yield from split_by_rows(file, count, limits, dialect.encoding)


def rows_of_part(part: FilePart, labels: Sequence[str], dialect: Dialect, limits: Limits) -> range:
    """Rows of the file that a part by `split_csv` has: whole shards or whole batches.

    Raises InputError if the file cannot be read.
    """
    index = _index(part.path, labels, dialect, limits)
    first, stop = bounds_of_part(part, len(index.batches) - 1, limits.batch_rows)
    return range(first, index.rows if stop is None else min(stop, index.rows))


def _part_blocks(
    part: FilePart, rows: range, labels: Sequence[str], dialect: Dialect, limits: Limits
) -> Iterator[tuple[bytes, bytes]]:
    """Reads the batches of a CSV file that have some rows, in blocks of whole rows.

    `part` is from `split_csv`, `rows` from `rows_of_part`. Yields (header, block): the header line and rows of some
    megabytes. Raises InputError if the file cannot be read, or becomes shorter meanwhile.
    """
    if not rows:
        return
    index = _index(part.path, labels, dialect, limits)
    at, end = (
        int(index.batches[rows.start // limits.batch_rows]),
        int(index.batches[-(-rows.stop // limits.batch_rows)]),
    )
    try:
        with open(part.path, "rb") as file:
            file.seek(at)
            while at < end:
                far, next_cut = np.searchsorted(index.cuts, [at + limits.block_bytes, at], side="right")
                cut = min(int(index.cuts[max(far - 1, next_cut)]), end)
                block = file.read(cut - at)
                if len(block) < cut - at:
                    raise InputError(f"{part.path}: became shorter while it was read: run again when it is complete")
                yield index.header, block
                at = cut
    except OSError as error:
        raise unreadable(part.path, error, "cannot be read") from None


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


def _index(path: str, labels: Sequence[str], dialect: Dialect, limits: Limits) -> _Index:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise not_opened(path, error) from None
    return _index_of(path, tuple(labels), dialect, limits, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _index_of(path: str, labels: tuple[str, ...], dialect: Dialect, limits: Limits, size: int, changed: int) -> _Index:
    """As `_index`, kept for the next part. size, changed: a file that was changed is read again."""
    with open(path, "rb") as file:
        at = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    first, rows, batches, cuts, batch_rows = b"", 0, [], [], limits.batch_rows
    for header, block in whole_row_blocks(path, labels, dialect, limits):
        if not cuts:
            first, at = header, at + (0 if dialect.columns else len(header))
        starts = np.append(0, row_ends(block)) + at
        # The last one begins in the next block.
        batches.append(starts[:-1][-rows % batch_rows :: batch_rows])
        rows, at = rows + len(starts) - 1, at + len(block)
        cuts.append(at)
    found = np.append(np.concatenate(batches), at)
    return _Index(first, rows, found, np.union1d(found, cuts))
