"""Parquet files to record batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet

from ..errors import InputError
from .filesystems import is_remote
from .input_format import BATCH_ROWS
from .open_input import check_columns, check_unique_columns, not_opened, open_input


@dataclass(frozen=True)
class RowGroups:
    """A part of a Parquet file. first, stop: its row groups. start: the row that it begins with."""

    first: int
    stop: int
    start: int


def read_parquet(path: str, first: str, wanted: list[str] | None, part: RowGroups | None) -> Iterator[pa.RecordBatch]:
    with open_arrow_file(path) as file:
        parquet = open_parquet_file(file, path)
        if first != path:
            with open_arrow_file(first) as sibling:
                _same_schema(parquet.schema_arrow, open_parquet_file(sibling, first).schema_arrow, path, first)
        check_unique_columns(parquet.schema_arrow.names, path)
        check_columns(parquet.schema_arrow.names, wanted, path)
        groups = range(parquet.num_row_groups) if part is None else range(part.first, part.stop)
        try:
            yield from parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=wanted)
        except (pa.ArrowException, OSError):
            raise InputError(f"{path}: the Parquet file is damaged") from None


def open_arrow_file(path: str) -> pa.NativeFile:
    """A file that Arrow reads without Python where it can."""
    try:
        return pa.PythonFile(open_input(path), "r") if is_remote(path) else pa.OSFile(path)
    except OSError:
        raise not_opened(path) from None


def open_parquet_file(file: pa.NativeFile, path: str) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(file)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path}: not a Parquet file, or truncated") from None


def _same_schema(schema: pa.Schema, other: pa.Schema, path: str, first: str) -> None:
    if schema.equals(other, check_metadata=False):
        return
    for field in schema:
        if other.get_field_index(field.name) < 0:
            raise InputError(f"{path}: column {field.name!r} is not in {first}: all files need one schema")
        if not other.field(field.name).type.equals(field.type):
            raise InputError(
                f"{path}: column {field.name!r} holds {field.type}, but {other.field(field.name).type} in {first}: "
                "all files need one schema"
            )
    raise InputError(f"{path}: another schema than {first}: all files need the same columns in the same order")
