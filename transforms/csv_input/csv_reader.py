"""Reads CSV files into record batches, with column types from the first records. Error messages never quote a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ..batches import slice_rows
from ..errors import InputError
from ..io.csv_blocks import first_rows, whole_row_blocks
from ..io.csv_dialect import COMMA, Dialect
from ..io.hive_partitions import check_no_clash
from ..io.input_format import BATCH_ROWS, FilePart
from .csv_header import column_names_of
from .csv_parser import Parser
from .csv_parts import part_blocks, rows_of_part
from .csv_types import ColumnTypes, find_types


class CSVReader:
    """Reads CSV files, one after the other; remembers the column types of the first records."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        labels: Sequence[str],
        declared: Mapping[str, str] | None,
        dialect: Dialect = COMMA,
    ):
        """Prepares for a set of columns; None reads all.

        `labels`, the private columns, are read as float64; `declared` gives the types of columns that cannot be
        inferred from the first rows.
        """
        self._dialect = dialect
        self._columns = columns
        self._labels = labels
        self._declared = declared or {}
        self._types: dict[str, ColumnTypes] = {}

    def first_row(self, part: FilePart) -> int:
        """Row of the file at which a part begins. Raises InputError if the file cannot be read."""
        return 0 if part.parts == 1 else rows_of_part(part, self._labels, self._dialect).start

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file or part by `split_csv`.

        Yields records in order, in pieces of any size; all records before the place of an error come before the error.
        Raises InputError if the file cannot be opened or parsed, has another header than the first file, lacks a
        column, or holds a value that is not of its column's type. The first such row counts.
        """
        if part.first not in self._types:
            self._types[part.first] = find_types(part, self._columns, self._labels, self._declared, self._dialect)
        types = self._types[part.first]
        check_no_clash(part.partitions, list(types.kinds), part.first)
        if part.parts == 1:
            wanted, blocks = None, whole_row_blocks(part.path, self._labels, self._dialect)
        else:
            wanted = rows_of_part(part, self._labels, self._dialect)
            blocks = part_blocks(part, wanted, self._labels, self._dialect)
        # Whole batches are parsed, of which others may have rows, too.
        rows = 0 if wanted is None else wanted.start // BATCH_ROWS * BATCH_ROWS
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
    part: FilePart, labels: Sequence[str], declared: Mapping[str, str] | None, dialect: Dialect = COMMA
) -> pa.Schema:
    """Finds the columns of a CSV file, in the order of the header, and their types.

    These are declared, or inferred from the first rows without the labels. Types of `labels`, the private columns, are
    null. If there are none, or the header lacks one, another column may be private: then all types are null, and no row
    is parsed. Raises InputError if the file cannot be read or has no header line.
    """
    names = column_names_of(part.path, first_rows(part.path, labels, dialect)[0], dialect)
    if not labels or {*labels} - {*names}:
        return pa.schema([(name, pa.null()) for name in names])
    kinds = find_types(part, None, labels, declared or {}, dialect).kinds
    return pa.schema([(name, pa.null() if name in labels else kinds.get(name, pa.string())) for name in names])


def csv_notes(
    part: FilePart, labels: Sequence[str], declared: Mapping[str, str] | None, dialect: Dialect = COMMA
) -> tuple[str, ...]:
    """Describes columns of numbers that became text, as may not be meant.

    The texts name columns, lines and flags, and quote no cell. `labels`, the private columns, take no part; there is at
    least one. Raises InputError if the file cannot be read.
    """
    return find_types(part, None, labels, declared or {}, dialect).notes
