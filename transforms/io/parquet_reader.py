"""Reads Parquet files, or row groups of them, into record batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..arrow_values import plain_batch, plain_schema
from ..batches import slice_rows
from ..errors import InputError, redact_errors, unreadable
from .filesystems import is_remote, not_opened, open_input
from .hive_partitions import check_no_clash
from .input_format import BATCH_ROWS, FilePart, check_unique_columns, listed

# Values in a part: enough work for a worker. At most _MOST_PARTS parts a file, because each part adds segments to every
# shard. The number of parts depends on the numbers of rows and columns alone, never on sizes, which depend on labels.
_PART_VALUES = 4 << 20
_MOST_PARTS = 64
_DAMAGED = "not a Parquet file, or damaged"


class ParquetReader:
    """Reads Parquet files, one after the other."""

    def __init__(self, columns: Sequence[str] | None):
        """Prepares for a set of columns.

        Args:
          columns: Columns to read; None reads all.
        """
        self._columns = columns

    def first_row(self, part: FilePart) -> int:
        """Finds where a part begins.

        Args:
          part: The file or part.

        Returns:
          Row of the file.

        Raises:
          InputError: If the file cannot be opened or is not Parquet.
        """
        if part.number == 0:
            return 0
        with _open_arrow_file(part.path) as opened:
            return _rows_of_part(_group_starts(_open_parquet_file(opened, part.path).metadata), part).start

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads one file or part.

        Args:
          part: The file or part.

        Yields:
          Records in order, in pieces of any size, without metadata.

        Raises:
          InputError: If the file cannot be opened, is not Parquet or damaged, has another schema than the first file,
            or lacks a column.
        """
        with _open_arrow_file(part.path) as file:
            parquet = _open_parquet_file(file, part.path)
            schema = leading = plain_schema(parquet.schema_arrow)
            if part.first != part.path:
                with _open_arrow_file(part.first) as file_of_schema:
                    leading = plain_schema(_open_parquet_file(file_of_schema, part.first).schema_arrow)
                    _check_schema(schema, leading, part)
            check_unique_columns(schema.names, part.path)
            check_no_clash(part.partitions, schema.names, part.path)
            _check_columns(schema.names, self._columns or (), part.path)
            starts = _group_starts(parquet.metadata)
            rows = _rows_of_part(starts, part)
            # A group may begin before the part, or end after it, by less than a batch.
            first, stop = np.searchsorted(starts[1:], rows.start, side="right"), np.searchsorted(starts, rows.stop)
            if not rows:
                return
            try:
                for groups in (range(first, stop - 1), range(stop - 1, stop)):
                    if groups:
                        batches = parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=self._columns)
                        found = _within(batches, starts[groups.start], starts[groups.stop], rows, part.path)
                        yield from (_with_schema(batch, leading) for batch in found)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(part.path, error, "the Parquet file is corrupt") from None


def parquet_schema(path: str) -> tuple[pa.Schema, int]:
    """Reads the schema of a file from its footer, without its metadata. No value is read.

    Args:
      path: The file.

    Returns:
      The schema and the number of records.

    Raises:
      InputError: If the file cannot be opened or is not Parquet.
    """
    with _open_arrow_file(path) as file:
        parquet = _open_parquet_file(file, path)
        return plain_schema(parquet.schema_arrow), parquet.metadata.num_rows


@redact_errors("reading")
def split_parquet(file: FilePart) -> Iterator[FilePart]:
    """Splits a Parquet file into parts that workers read in parallel.

    Args:
      file: A whole file.

    Yields:
      Its parts in order, at least one.

    Raises:
      InputError: If the file cannot be opened or is not Parquet.
    """
    with _open_arrow_file(file.path) as opened:
        metadata = _open_parquet_file(opened, file.path).metadata
    rows = max(_PART_VALUES // max(metadata.num_columns, 1), -(-metadata.num_rows // _MOST_PARTS), BATCH_ROWS)
    parts = max(-(-metadata.num_rows // rows), 1)
    for number in range(parts):
        yield dataclasses.replace(file, number=number, parts=parts)


def _group_starts(metadata: pq.FileMetaData) -> np.ndarray:
    """First row of each of the m row groups, then the number of rows. Shape (m + 1,), int64."""
    return np.cumsum([0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))])


def _rows_of_part(starts: np.ndarray, part: FilePart) -> range:
    """Rows of a part: from one multiple of `BATCH_ROWS` to another, close to where row groups begin.

    So batches are the same whatever the row groups, and each group is read once, except for less than a batch.
    """
    rows = int(starts[-1])
    ideal = [rows * number // part.parts for number in (part.number, part.number + 1)]
    bounds = starts[np.searchsorted(starts, ideal)]
    start, stop = np.minimum(-(-bounds // BATCH_ROWS) * BATCH_ROWS, rows).tolist()
    return range(start, stop)


def _within(batches: Iterator[pa.RecordBatch], row: int, end: int, rows: range, path: str) -> Iterator[pa.RecordBatch]:
    """The wanted rows of batches that have the rows from `row` to `end` of the file."""
    for batch in batches:
        yield slice_rows(batch, row, rows)
        row += batch.num_rows
        if row >= rows.stop:
            return
    # Arrow reads a column with too few values as if there were fewer records.
    if row != end:
        raise InputError(f"{path}: the Parquet file is corrupt")


def _open_arrow_file(path: str) -> pa.NativeFile:
    """Opens a file; local ones without Python, so that Arrow reads them faster."""
    try:
        return pa.PythonFile(open_input(path), "r") if is_remote(path) else pa.OSFile(path)
    except OSError as error:
        raise not_opened(path, error) from None


def _open_parquet_file(file: pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        # Arrow would read all row groups of a part ahead, so memory would grow with the file.
        parquet = pq.ParquetFile(file, pre_buffer=False)
    # A column's name may be no text in a damaged file.
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, error, _DAMAGED) from None
    # A damaged footer may lack row groups, and Arrow would read the others as the whole file.
    starts = _group_starts(parquet.metadata)
    if starts[-1] != parquet.metadata.num_rows or np.any(np.diff(starts) < 0):
        raise InputError(f"{path}: {_DAMAGED}")
    return parquet


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with fields of the first file: one schema for all batches."""
    return plain_batch(batch.columns, pa.schema([schema.field(name) for name in batch.schema.names]))


def _check_columns(names: Sequence[str], wanted: Sequence[str], path: str) -> None:
    for name in wanted:
        if name not in names:
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed(names)}")


def _check_schema(schema: pa.Schema, expected: pa.Schema, part: FilePart) -> None:
    """Refuses a schema that is not that of the first file."""
    if schema.equals(expected):
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
