"""Reads Parquet files, or row groups of them, into record batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet

from ..errors import InputError, redact_errors
from .filesystems import is_remote, not_opened, open_input
from .input_format import BATCH_ROWS, FilePart, RowGroups, check_unique_columns

# Uncompressed size of a part: enough work for a worker, and at most _MOST_PARTS parts a file, because each part adds
# segments to every shard.
_PART_BYTES = 32 << 20
_MOST_PARTS = 64


class ParquetReader:
    """Reads Parquet files, one after the other."""

    def __init__(self, columns: Sequence[str] | None):
        """Prepares for a set of columns.

        Args:
          columns: Columns to read; None reads all.
        """
        self._columns = columns

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file or part.

        Args:
          part: The file or its row groups.

        Yields:
          Batches of at most `BATCH_ROWS` records, in order.

        Raises:
          InputError: If the file cannot be opened, is not Parquet or damaged, has another schema than the first file,
            or lacks a column.
        """
        with _open_arrow_file(part.path) as file:
            parquet = _open_parquet_file(file, part.path)
            schema = parquet.schema_arrow
            if part.first != part.path:
                with _open_arrow_file(part.first) as first:
                    _check_schema(schema, _open_parquet_file(first, part.first).schema_arrow, part)
            check_unique_columns(schema.names, part.path)
            _check_columns(schema.names, self._columns or (), part.path)
            span = part.groups
            groups = range(parquet.num_row_groups) if span is None else range(span.first, span.stop)
            try:
                yield from parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=self._columns)
            except (pa.ArrowException, OSError):
                raise InputError(f"{part.path}: the Parquet file is corrupt") from None


@redact_errors("reading")
def split_row_groups(file: FilePart) -> Iterator[FilePart]:
    """Splits a Parquet file into parts that workers read in parallel.

    Args:
      file: A whole file.

    Yields:
      Its parts in order; the file itself when it has no row group, so that its schema is still checked.

    Raises:
      InputError: If the file cannot be opened or is not Parquet.
    """
    with _open_arrow_file(file.path) as opened:
        metadata = _open_parquet_file(opened, file.path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    enough = max(_PART_BYTES, sum(group.total_byte_size for group in groups) // _MOST_PARTS)
    first = start = size = row = 0
    for number, group in enumerate(groups, 1):
        row, size = row + group.num_rows, size + group.total_byte_size
        if size >= enough or number == len(groups):
            yield dataclasses.replace(file, groups=RowGroups(first, number, start))
            first, start, size = number, row, 0
    if not groups:
        yield file


def _open_arrow_file(path: str) -> pa.NativeFile:
    """Opens a file; local ones without Python, so that Arrow reads them faster."""
    try:
        return pa.PythonFile(open_input(path), "r") if is_remote(path) else pa.OSFile(path)
    except OSError:
        raise not_opened(path) from None


def _open_parquet_file(file: pa.NativeFile, path: str) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(file)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path}: not a Parquet file, or truncated") from None


def _check_columns(names: Sequence[str], wanted: Sequence[str], path: str) -> None:
    for name in wanted:
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed}")


def _check_schema(schema: pa.Schema, expected: pa.Schema, part: FilePart) -> None:
    """Refuses a schema that is not that of the first file; metadata may differ."""
    if schema.equals(expected, check_metadata=False):
        return
    for field in schema:
        if expected.get_field_index(field.name) < 0:
            raise InputError(f"{part.path}: column {field.name!r} is not in {part.first}: all files need one schema")
        kind = expected.field(field.name).type
        if not kind.equals(field.type):
            raise InputError(
                f"{part.path}: column {field.name!r} holds {field.type}, but {kind} in {part.first}: "
                "all files need one schema"
            )
    raise InputError(
        f"{part.path}: the schema is not that of {part.first}: all files need the same columns in the same order"
    )
