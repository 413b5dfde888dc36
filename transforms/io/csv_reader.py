"""Reads CSV files into record batches, with column types from the first file. Error messages never quote a cell."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ..errors import InputError
from .csv_blocks import whole_row_blocks
from .input_format import BATCH_ROWS, FilePart, check_unique_columns


class CSVReader:
    """Reads CSV files, one after the other; remembers the column types of the first file."""

    def __init__(self, columns: Sequence[str] | None, label: str | None, declared: Mapping[str, str] | None):
        """Prepares for a set of columns.

        Args:
          columns: Columns to read; None reads all.
          label: Column that is read as float64.
          declared: Column name to type, for columns whose type cannot be inferred from the first block of rows.
        """
        self._columns = columns
        self._label = label
        self._declared = declared or {}
        self._types: dict[str, dict[str, pa.DataType]] = {}

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file.

        Args:
          part: A whole file.

        Yields:
          Batches of at most `BATCH_ROWS` records, in order.

        Raises:
          InputError: If the file cannot be opened or parsed, has another header than the first file, lacks a column,
            or holds a value that is not of its column's type.
        """
        if part.first not in self._types:
            self._types[part.first] = _csv_types(part.first, self._columns, self._label, self._declared)
        types = self._types[part.first]
        rows = 0
        for header, block in whole_row_blocks(part.path):
            if rows == 0 and part.path != part.first and sorted(_column_names(part.path, header)) != sorted(types):
                raise InputError(
                    f"{part.path}: the header is not that of {part.first}: all files need the same columns"
                )
            table = _parse(part.path, header, block, types, self._columns, self._label, rows)
            for batch in table.to_batches(BATCH_ROWS):
                rows += batch.num_rows
                yield batch


def _csv_types(
    path: str, columns: Sequence[str] | None, label: str | None, declared: Mapping[str, str]
) -> dict[str, pa.DataType]:
    """Type of every column: declared, or inferred from the first block of rows."""
    header, block = next(whole_row_blocks(path))
    names = _column_names(path, header)
    for name in columns or ([label] if label else []):
        if name not in names:
            # Names are not listed: a file without a header has its first record there.
            raise InputError(f"{path}: there is no column {name!r} in the header line")
    check_unique_columns(names, path)
    types = {}
    for field in _parse(path, header, block, {}, None, label, 0).schema:
        kind = field.type
        # tf.Example has no type for dates, and an empty first block has no type to infer.
        types[field.name] = pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
    for name, kind in declared.items():
        if name not in types:
            raise InputError(f"--csv_types names {name!r}, which is not in {path}")
        types[name] = pa.type_for_alias(kind)
    if label in types:
        types[label] = pa.float64()
    return types


def _column_names(path: str, header: bytes) -> list[str]:
    """Column names of a header line. Raises InputError when there are none or they are not text."""
    try:
        names = next(csv.reader([header.decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: the header line is not UTF-8 text") from None
    if not names:
        raise InputError(f"{path}: the CSV file is empty: it needs a header line and rows")
    return names


def _parse(
    path: str,
    header: bytes,
    block: bytes,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
    label: str | None,
    rows_before: int,
) -> pa.Table:
    """Records of a block. Types of columns that are not in `types` are inferred."""
    try:
        return pa.csv.read_csv(
            pa.BufferReader(header + block),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(header) + len(block) + 1),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=columns),
        )
    except (pa.ArrowException, OSError) as error:
        names = next(csv.reader([header.decode(errors="replace")]), [])
        raise InputError(f"{path}: {_safe_message(str(error), names, types, label, rows_before)}") from None


def _safe_message(
    message: str, names: Sequence[str], types: Mapping[str, Any], label: str | None, rows_before: int
) -> str:
    """Arrow's message on a bad CSV file, without the text that it quotes from the file."""
    # Only the beginning is certain to be Arrow's own text; the rest may be content of the file that looks like it.
    fields = re.match(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        line = f"line {int(fields[1]) + rows_before} has" if fields[1] else "a line has"
        return f"{line} {fields[3]} fields, where the header has {fields[2]}"
    column = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?", message)
    if column and int(column[1]) < len(names):
        name = names[int(column[1])]
        line = f"line {int(column[2]) + rows_before}" if column[2] else "a line"
        if name == label:
            return (
                f"label column {name!r} holds text on {line}, not a number: correct it, or name another column with "
                "--label"
            )
        return f"column {name!r} on {line} is not a {types[name]}: correct it, or give --csv_types {name}=string"
    return "cannot be parsed as CSV: not a CSV file, or corrupt"
