"""Reads CSV files into record batches, with column types from the first file. Error messages never quote a cell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from ..batches import slice_rows
from ..errors import InputError
from ..io.hive_partitions import check_no_clash
from ..io.input_format import BATCH_ROWS, FilePart, check_unique_columns, listed
from .csv_blocks import column_names, first_rows, row_ends, whole_row_blocks
from .csv_dialect import CANDIDATES, COMMA, Dialect
from .csv_labels import label_numbers
from .csv_parts import part_blocks, rows_of_part

_DECLARED = {"date": pa.date32(), "timestamp": pa.timestamp("ms")}
# A label is a number. A unit before it would not make it one, so a digit may follow a letter.
_NAME = re.compile(r"[^\W\d].*")
_NO_NAMES = {"nan", "inf", "infinity", "null", "none", "na", "true", "false"}
# A field may be a whole line, if the file has another delimiter.
_DIVIDES = re.compile("|".join(map(re.escape, CANDIDATES)))


class CSVReader:
    """Reads CSV files, one after the other; remembers the column types of the first file."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        labels: Sequence[str],
        declared: Mapping[str, str] | None,
        dialect: Dialect = COMMA,
    ):
        """Prepares for a set of columns.

        Args:
          columns: Columns to read; None reads all.
          labels: Private columns, which are read as float64.
          declared: Column name to type, for columns whose type cannot be inferred from the first rows.
          dialect: Dialect of the files.
        """
        self._dialect = dialect
        self._columns = columns
        self._labels = labels
        self._declared = declared or {}
        self._types: dict[str, dict[str, pa.DataType]] = {}

    def first_row(self, part: FilePart) -> int:
        """Finds where a part begins.

        Args:
          part: The file or part.

        Returns:
          Row of the file.

        Raises:
          InputError: If the file cannot be read.
        """
        return 0 if part.parts == 1 else rows_of_part(part, self._labels, self._dialect).start

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file or part.

        Args:
          part: The file, or a part of it by `split_csv`.

        Yields:
          Records in order, in pieces of any size. All records before the place of an error come before the error.

        Raises:
          InputError: If the file cannot be opened or parsed, has another header than the first file, lacks a column,
            or holds a value that is not of its column's type. The first such row counts.
        """
        if part.first not in self._types:
            self._types[part.first] = _csv_types(part.first, self._columns, self._labels, self._declared, self._dialect)
        types = self._types[part.first]
        check_no_clash(part.partitions, list(types), part.first)
        if part.parts == 1:
            wanted, blocks = None, whole_row_blocks(part.path, self._labels, self._dialect)
        else:
            wanted = rows_of_part(part, self._labels, self._dialect)
            blocks = part_blocks(part, wanted, self._labels, self._dialect)
        # Whole batches are parsed, of which others may have rows, too.
        rows = 0 if wanted is None else wanted.start // BATCH_ROWS * BATCH_ROWS
        for header, block in blocks:
            own = _column_names(part.path, header, self._dialect)
            if part.path != part.first and sorted(own) != sorted(types):
                raise InputError(
                    f"{part.path}: the header is not that of {part.first}: all files need the same columns"
                )
            parse = _Parser(part.path, header, types, self._columns, self._labels, self._dialect)
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
    path: str, labels: Sequence[str], declared: Mapping[str, str] | None, dialect: Dialect = COMMA
) -> pa.Schema:
    """Finds the columns of a CSV file and their types, which are inferred from its first rows without the labels.

    Args:
      path: The file.
      labels: Private columns, whose types are null in the result. If there are none, or the header lacks one, another
        column may be private: then all types are null, and no row is parsed.
      declared: Column name to type.
      dialect: Dialect of the file.

    Returns:
      The columns in the order of the header.

    Raises:
      InputError: If the file cannot be read or has no header line.
    """
    names = _column_names(path, first_rows(path, labels, dialect)[0], dialect)
    if not labels or {*labels} - {*names}:
        return pa.schema([(name, pa.null()) for name in names])
    types = _csv_types(path, None, labels, declared or {}, dialect)
    return pa.schema([(name, pa.null() if name in labels else types[name]) for name in names])


def are_names(names: Sequence[str]) -> bool:
    """Tells whether the fields of a header line look like column names, so that a message may show them.

    A file without a header line has its first record there, and a label in it.

    Args:
      names: The fields.

    Returns:
      True if each begins with a letter or an underscore and is not a word for a number, a truth value or nothing; and
      so do its parts, if another delimiter divides it.
    """
    parts = [part for name in names for part in _DIVIDES.split(name)]
    return all(_NAME.fullmatch(part) and part.lower() not in _NO_NAMES for part in parts)


def delimiter_advice(name: str, names: Sequence[str], dialect: Dialect = COMMA) -> str:
    """Advises on a header line without a column, if the file seems to have another delimiter than the declared one.

    Args:
      name: The column.
      names: The fields of the header line.
      dialect: Dialect of the file.

    Returns:
      The end of a sentence about the header line; empty if it has several fields and no other delimiter gives the
      column. It quotes nothing: a file without a header has its first record there.
    """
    header = dialect.delimiter.join(names).encode()
    for mark in CANDIDATES:
        if mark != dialect.delimiter and name in (column_names(header, Dialect(mark)) or []):
            shown = "\\t" if mark == "\t" else mark
            return f", which {shown!r} divides into columns: use --csv_delimiter '{shown}'"
    if len(names) == 1:
        return f", which has only one, because it has no {dialect.delimiter!r}: --csv_delimiter names another delimiter"
    return ""


def missing_column(name: str, names: Sequence[str], dialect: Dialect = COMMA) -> str:
    """Describes that a header line lacks a column.

    Args:
      name: The column.
      names: The fields of the header line.
      dialect: Dialect of the file.

    Returns:
      The text; it names the delimiter that the file seems to have, or lists the columns, unless they may be a record.
    """
    advice = delimiter_advice(name, names, dialect)
    if advice:
        whole = are_names(names) and not _DIVIDES.search("".join(names))
        shown = f"; it has: {listed(names)}" if whole else ""
        return f"there is no column {name!r} in the header line{advice}{shown}"
    if are_names(names):
        return f"there is no column {name!r} in the header line; it has: {listed(names)}"
    return f"there is no column {name!r} in the header line, which does not look like column names: add a header line"


def _csv_types(
    path: str, columns: Sequence[str] | None, labels: Sequence[str], declared: Mapping[str, str], dialect: Dialect
) -> dict[str, pa.DataType]:
    """Type of every column: declared, or inferred from the first rows. Labels take no part in that."""
    header, rows = first_rows(path, labels, dialect)
    names = _column_names(path, header, dialect)
    for name in columns or labels:
        if name not in names:
            raise InputError(f"{path}: {missing_column(name, names, dialect)}")
    check_unique_columns(names, path)
    types = {}
    parse = _Parser(path, header, dict.fromkeys(labels, pa.binary()), None, labels, dialect)
    try:
        schema = parse(rows, 0).schema
    except InputError:
        # The reader of the file finds the error in its place.
        schema = parse.before_error(rows, 0)[0].schema
    for field in schema:
        kind = field.type
        # An empty first block has no type to infer. Text that is not in the encoding is refused where it stands.
        text = pa.types.is_null(kind) or pa.types.is_binary(kind)
        types[field.name] = pa.string() if text else _in_milliseconds(kind)
    for name, kind in declared.items():
        if name not in types:
            raise InputError(f"--csv_types names {name!r}, which is not in {path}")
        types[name] = _DECLARED.get(kind) or pa.type_for_alias(kind)
    types |= dict.fromkeys(types.keys() & {*labels}, pa.float64())
    return types


def _in_milliseconds(kind: pa.DataType) -> pa.DataType:
    """The type with milliseconds for one with seconds, which Parquet has not, and which fractions do not fit."""
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    return pa.time32("ms") if kind == pa.time32("s") else kind


def _column_names(path: str, header: bytes, dialect: Dialect = COMMA) -> list[str]:
    """Column names of a header line. Raises InputError when there are none, or one is not a line of text."""
    names = column_names(header, dialect)
    if names is None:
        raise InputError(
            f"{path}: the header line is not text in {dialect.encoding}: give --csv_encoding, such as latin-1"
        )
    if not names:
        raise InputError(f"{path}: the CSV file is empty: it needs a header line and rows")
    if any("\n" in name or "\r" in name for name in names):
        # Where a quote is not closed, the name holds records, and messages show names.
        raise InputError(
            f'{path}: a quote (") opens a name in the header line that goes on over a line break: close the quote, or '
            "write the name on one line"
        )
    return names


@dataclass(frozen=True)
class _Parser:
    """Parses rows of one file. Types of columns that are not in `types` are inferred."""

    path: str
    header: bytes
    types: Mapping[str, pa.DataType]
    columns: Sequence[str] | None
    labels: Sequence[str]
    dialect: Dialect

    def __call__(self, rows: bytes, before: int) -> pa.Table:
        """Records of some rows. before: number of rows before them. An InputError names the first row."""
        try:
            return self._parsed(rows, self.types)
        except (pa.ArrowException, OSError) as error:
            with contextlib.suppress(pa.ArrowException, OSError):
                return self._with_truth_values(rows)
            names = column_names(self.header, self.dialect) or []
            message = _safe_message(str(error), names, self.types, self.labels, before + 2, self.dialect)
            raise InputError(f"{self.path}: {message}") from None

    def _parsed(self, rows: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        return pa_csv.read_csv(
            pa.BufferReader(self.header + rows),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(self.header) + len(rows) + 1),
            parse_options=pa_csv.ParseOptions(delimiter=self.dialect.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=self.columns),
        )

    def _with_truth_values(self, rows: bytes) -> pa.Table:
        """As `_parsed`, with labels of true and false as numbers."""
        labels = [name for name in self.labels if self.types.get(name) == pa.float64()]
        table = self._parsed(rows, {**self.types, **dict.fromkeys(labels, pa.string())})
        for name in labels:
            if (place := table.schema.get_field_index(name)) >= 0:
                table = table.set_column(place, name, label_numbers(table.column(place)))
        return table

    def before_error(self, rows: bytes, before: int) -> tuple[pa.Table, InputError]:
        """Records before the first row that cannot be parsed, and its error, for rows that cannot be parsed together.

        Arrow itself names the first error of the first column that has one, or the first row with too many fields:
        which one that is depends on the rows that are parsed together.
        """
        ends = np.append(0, row_ends(rows, self.dialect))
        # All rows before `good` can be parsed, but not all before `bad`.
        good, bad = 0, len(ends) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self(rows[ends[good] : ends[middle]], 0)
                good = middle
            except InputError:
                bad = middle
        records = self(rows[: ends[good]], before)
        try:
            self(rows[ends[good] : ends[bad]], before + good)
        except InputError as error:
            return records, error
        return records, InputError(f"{self.path}: cannot be parsed as CSV: not a CSV file, or corrupt")


def _safe_message(
    message: str,
    names: Sequence[str],
    types: Mapping[str, Any],
    labels: Sequence[str],
    line: int,
    dialect: Dialect = COMMA,
) -> str:
    """Arrow's message on a bad row, without the text that it quotes from the file."""
    # Only the beginning is certain to be Arrow's own text; the rest may be content of the file that looks like it.
    fields = re.match(r"CSV parse error: (?:Row #\d+: )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        return f"line {line} has {fields[2]} fields, where the header has {fields[1]}"
    column = re.match(r"In CSV column #(\d+): ", message)
    if column and int(column[1]) < len(names):
        name = names[int(column[1])]
        if name in labels:
            return (
                f"label column {name!r} holds text on line {line}, not a number: correct it, or name another column "
                "with --label"
            )
        if types.get(name) == pa.string():
            return (
                f"column {name!r} on line {line} is not text in {dialect.encoding}: give --csv_encoding, such as "
                "latin-1 or cp1252, or correct it"
            )
        return f"column {name!r} on line {line} is not a {types[name]}: correct it, or give --csv_types {name}=string"
    return "cannot be parsed as CSV: not a CSV file, or corrupt"
