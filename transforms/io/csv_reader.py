"""CSV files to record batches."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ..errors import InputError
from .csv_blocks import whole_row_blocks
from .input_format import BATCH_ROWS, Format
from .open_input import check_unique_columns


def read_csv(
    path: str,
    first: str,
    format: Format,
    wanted: list[str] | None,
    label: str | None,
    known: dict[str, dict[str, pa.DataType]],
) -> Iterator[pa.RecordBatch]:
    if first not in known:
        known[first] = _csv_types(first, format, wanted, label)
    types = known[first]
    rows = 0
    for header, block in whole_row_blocks(path):
        if rows == 0 and path != first:
            names = _csv_header(path, header)
            if sorted(names) != sorted(types):
                raise InputError(f"{path}: another header than {first}: all files need the same columns")
        for batch in _parse_csv(path, header, block, types, wanted, label, rows).to_batches(BATCH_ROWS):
            rows += batch.num_rows
            yield batch


def _csv_header(path: str, header: bytes) -> list[str]:
    """The column names. Raises InputError when there are none or they are no text."""
    try:
        names = next(csv.reader([header.decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: the header line is not UTF-8 text") from None
    if not names:
        raise InputError(f"{path}: the CSV file is empty: it needs a header line and rows")
    return names


def _parse_csv(
    path: str,
    header: bytes,
    block: bytes,
    types: Mapping[str, pa.DataType],
    wanted: list[str] | None,
    label: str | None,
    rows_before: int,
) -> pa.Table:
    """The records of a block. types: of the columns; those it lacks are inferred."""
    try:
        return pa.csv.read_csv(
            pa.BufferReader(header + block),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(header) + len(block) + 1),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=wanted),
        )
    except (pa.ArrowException, OSError) as error:
        names = next(csv.reader([header.decode(errors="replace")]), [])
        raise InputError(f"{path}: {_safe_csv_message(str(error), names, types, label, rows_before)}") from None


def _csv_types(first: str, format: Format, wanted: list[str] | None, label: str | None) -> dict[str, pa.DataType]:
    """The type of every column, from the first block of the first file."""
    header, block = next(whole_row_blocks(first))
    names = _csv_header(first, header)
    for name in wanted or ([label] if label else []):
        if name not in names:
            # Names are not listed: a file without a header has its first record there.
            raise InputError(f"{first}: there is no column {name!r} in the header line")
    check_unique_columns(names, first)
    types = {}
    for field in _parse_csv(first, header, block, {}, None, label, 0).schema:
        kind = field.type
        # Dates have no place in tf.Example, and an empty first block says nothing.
        types[field.name] = pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
    for name, kind in (format.csv_types or {}).items():
        if name not in types:
            raise InputError(f"--csv_types names {name!r}, which is not in {first}")
        types[name] = pa.type_for_alias(kind)
    if label in types:
        types[label] = pa.float64()
    return types


def _safe_csv_message(
    message: str, names: Sequence[str], types: Mapping[str, Any], label: str | None, rows_before: int
) -> str:
    """What Arrow says of a bad CSV file, less the text that it quotes from the file."""
    # Only the beginning is Arrow's own; the rest may be text of the file that looks like it.
    fields = re.match(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        line = f"line {int(fields[1]) + rows_before} has" if fields[1] else "a line has"
        return f"{line} {fields[3]} fields, where the header has {fields[2]}"
    column = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?", message)
    if column and int(column[1]) < len(names):
        name = names[int(column[1])]
        line = f"line {int(column[2]) + rows_before}" if column[2] else "a line"
        if name == label:
            return f"label column {name!r} holds text on {line}, not a number: name another with --label, or mend it"
        return f"column {name!r} on {line} is not a {types[name]}: mend it, or give --csv_types {name}=string"
    return "not a CSV file that can be read, or damaged"
