"""Reads Parquet files, or row groups of them, into record batches.

A column of several files has one type, where their types hold the same values in different layouts (`column_types`).
The first file decides on the layout, so that it follows from the list of files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..arrow_values import index_levels, is_text, plain_values
from ..batches import slice_rows
from ..errors import InputError, listed, redact_errors, unreadable
from ..io.filesystems import archive_in
from ..io.hive_partitions import check_no_clash
from ..io.input_format import BATCH_ROWS, FilePart, check_unique_columns
from ..io.limits import LIMITS, Limits
from ..io.table_columns import TableColumns
from .arrow_files import PlainLayout, open_arrow_file, open_part, pieces, read_schema
from .column_types import has_inner_categories
from .table_layout import TableLayout

_DAMAGED = "not a Parquet file, or damaged"
_CORRUPT = "the Parquet file is corrupt"
_NOT_KNOWN = "it has a type, an encoding or a compression that pyarrow does not read: write the file anew without it"
_ENCRYPTED = "the Parquet file is encrypted, and labeldp takes no keys of columns: decrypt it first"
# Arrow's own words, which are not shown.
_NO_KEYS = ("Could not read encrypted metadata", "Cannot decrypt ColumnMetadata")
# Nanoseconds reach from 1677 to 2262, and Arrow lets other years overflow.
_INT96_UNIT = "us"
# Bytes that are expanded at once, about, and those that one record may have.
_READ_BYTES, _LARGEST_ROW = 64 << 20, 1 << 30
# Records of a row group that show how long texts are which have no dictionary, and bytes that are read at a time.
_SHOWN_ROWS, _PAGE_BYTES = 64, 1 << 16


class ParquetReader:
    """Reads Parquet files, one after the other."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        table: TableColumns | None = None,
        private: Sequence[str] = (),
        hidden: Sequence[str] = (),
        numbers: Sequence[str] = (),
        limits: Limits = LIMITS,
    ):
        """Prepares for a set of columns; None reads all but those that are hidden.

        `table` has the columns of the files, if these may have others; `private` are the labels, and `numbers` those of
        them that are no classes.
        """
        self._columns, self._table, self._private, self._hidden = columns, table, private, hidden
        self._numbers, self._limits = numbers, limits

    def first_row(self, part: FilePart) -> int:
        """Row of the file at which a part begins. Raises InputError if the file cannot be opened or is not Parquet."""
        if part.number == 0:
            return 0
        with open_part(part) as opened:
            starts = _group_starts(_open_parquet_file(opened, part.path).metadata)
        return _rows_of_part(starts, part, self._limits.batch_rows).start

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads the records of one file or part in order, in pieces of any size, without metadata.

        Raises InputError if the file cannot be opened, is not Parquet or damaged, has another schema than the first
        file or the table, or lacks a column.
        """
        with open_part(part) as file:
            parquet = _open_parquet_file(file, part.path)
            check_unique_columns(parquet.schema_arrow.names, part.path)
            layout = self._layout(parquet.schema_arrow, part)
            check_no_clash(part.partitions, parquet.schema_arrow.names, part.path)
            starts = _group_starts(parquet.metadata)
            rows = _rows_of_part(starts, part, self._limits.batch_rows)
            # A group may begin before the part, or end after it, by less than a batch.
            first, stop = np.searchsorted(starts[1:], rows.start, side="right"), np.searchsorted(starts, rows.stop)
            if not rows:
                return
            parquet = _with_wide_indices(parquet, file)
            columns = None if layout.columns is None else list(layout.columns)
            times = [name for name in _int96_columns(parquet.metadata) if columns is None or name in columns]
            runs = [range(first, stop - 1), range(stop - 1, stop)]
            wanted = [field for field in parquet.schema_arrow if columns is None or field.name in columns]
            if any(has_inner_categories(field.type) for field in wanted):
                # Arrow joins these over no row groups.
                runs = [range(group, group + 1) for group in range(first, stop)]
            try:
                for groups in runs:
                    if groups:
                        if times:
                            _check_int96(file, parquet.metadata, groups, times, part.path)
                        size = _rows_at_once(file, parquet.metadata, groups, columns, part.path)
                        batches = parquet.iter_batches(size, row_groups=groups, columns=columns)
                        found = _within(batches, starts[groups.start], starts[groups.stop], rows, part.path)
                        for batch in found:
                            yield from pieces(layout, batch, self._limits.cast_bytes)
            except (pa.ArrowException, OSError) as error:
                reason = _reason(error, _CORRUPT)
                if reason == _NOT_KNOWN:
                    reason = _unread_column(parquet, [field.name for field in wanted]) or reason
                raise unreadable(part.path, error, reason) from None

    def _layout(self, schema: pa.Schema, part: FilePart) -> PlainLayout | TableLayout:
        if self._table is not None:
            return TableLayout.of(self._table, self._columns, schema, self._private, part)
        return PlainLayout.of(self._columns, schema, part, _arrow_schema, self._hidden, self._numbers)


def _arrow_schema(path: str) -> pa.Schema:
    with open_arrow_file(path) as file:
        return _open_parquet_file(file, path).schema_arrow


def parquet_schema(path: str) -> tuple[pa.Schema, int]:
    """Reads the schema of a file from its footer, without its metadata, and its number of records.

    No value is read. The types are those that the columns are read with. Raises InputError if the file cannot be opened
    or is not Parquet.
    """
    with open_arrow_file(path) as file:
        parquet = _open_parquet_file(file, path)
        return read_schema(parquet.schema_arrow, 1), parquet.metadata.num_rows


def parquet_index_levels(path: str) -> dict[str, str]:
    """Finds the columns of a file that are levels of a pandas index (`index_levels`).

    Raises InputError if the file cannot be opened or is not Parquet.
    """
    return index_levels(_arrow_schema(path))


def int96_columns(path: str) -> list[str]:
    """Finds the columns, also nested ones, with timestamps of the deprecated type INT96.

    No other type can hold some of these. Raises InputError if the file cannot be opened or is not Parquet.
    """
    with open_arrow_file(path) as file:
        return _int96_columns(_open_parquet_file(file, path).metadata)


def _int96_columns(metadata: pq.FileMetaData) -> list[str]:
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    names = metadata.schema.to_arrow_schema().names if paths else []
    return [name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)]


@redact_errors("reading")
def split_parquet(file: FilePart, limits: Limits = LIMITS) -> Iterator[FilePart]:
    """Splits a whole Parquet file into parts that workers read in parallel, in order, at least one.

    Their number follows from those of rows and columns alone, never from sizes, which depend on labels. Raises
    InputError if the file cannot be opened or is not Parquet.
    """
    with open_part(file) as opened:
        metadata = _open_parquet_file(opened, file.path).metadata
    columns, least = max(metadata.num_columns, 1), -(-metadata.num_rows // limits.parts)
    rows = max(limits.part_values // columns, least, limits.batch_rows)
    parts = max(-(-metadata.num_rows // rows), 1)
    for number in range(parts):
        yield dataclasses.replace(file, number=number, parts=parts)


def _group_starts(metadata: pq.FileMetaData) -> np.ndarray:
    """First row of each of the m row groups, then the number of rows. Shape (m + 1,), int64."""
    return np.cumsum([0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))])


def _rows_of_part(starts: np.ndarray, part: FilePart, batch_rows: int) -> range:
    """Rows of a part: from one multiple of `batch_rows` to another, close to where row groups begin.

    So batches are the same whatever the row groups, and each group is read once, except for less than a batch.
    """
    rows = int(starts[-1])
    ideal = [rows * number // part.parts for number in (part.number, part.number + 1)]
    bounds = starts[np.searchsorted(starts, ideal)]
    start, stop = np.minimum(-(-bounds // batch_rows) * batch_rows, rows).tolist()
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
        raise InputError(f"{path}: {_CORRUPT}")


def _open_parquet_file(file: pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        parquet = _parquet_file(file)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"{path}: {_reason(error, _unread_type(file, error))}") from None
    # A column's name may be no text in a damaged file.
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, error, _reason(error, archive_in(file) or _DAMAGED)) from None
    # A damaged footer may lack row groups, and Arrow would read the others as the whole file.
    starts = _group_starts(parquet.metadata)
    if starts[-1] != parquet.metadata.num_rows or np.any(np.diff(starts) < 0):
        raise InputError(f"{path}: {_DAMAGED}")
    return parquet


def _parquet_file(file: pa.NativeFile, unit: str = _INT96_UNIT, **options: Any) -> pq.ParquetFile:
    # Arrow would read all row groups of a part ahead, so memory would grow with the file.
    return pq.ParquetFile(
        file, pre_buffer=False, coerce_int96_timestamp_unit=unit, page_checksum_verification=True, **options
    )


def _unread_type(file: pa.NativeFile, error: Exception) -> str:
    """Names the columns of a file whose types, as Arrow's own schema in it says, pyarrow does not know.

    Parquet has these as bytes of a fixed length, which mean nothing without that schema. No value is read.
    """
    size = file.size()
    file.seek(max(size - 8, 0))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(size - 8 - length, 0))
    footer = file.read(length + 8).replace(b"ARROW:schema", b"without_that")
    try:
        schema = pq.read_schema(pa.BufferReader(b"PAR1" + footer))
    except (pa.ArrowException, UnicodeDecodeError, OSError):
        return _NOT_KNOWN
    fixed = [field for field in schema if pa.types.is_fixed_size_binary(field.type)]
    if "more than 64 bits" in str(error):
        fixed = [field for field in fixed if field.type.byte_width == 16]
    found = [f"{field.name!r} ({field.type})" for field in fixed]
    if not found:
        return _NOT_KNOWN
    return (
        f"a type of these columns cannot be read: {listed(found)}. pyarrow says: {error}. Write integers "
        "of 128 bits, such as Int128 of polars, as Int64, as a decimal or as text"
    )


def _unread_column(parquet: pq.ParquetFile, names: Sequence[str]) -> str | None:
    """Names the first column that cannot be read in batches, with what to do; None if all can. No value is kept."""
    for name in names:
        try:
            for _ in parquet.iter_batches(BATCH_ROWS, columns=[name]):
                pass
        except (pa.ArrowException, OSError):
            kind = parquet.schema_arrow.field(name).type
            return f"column {name!r} ({kind}) cannot be read in batches: write it anew, with plain types such as text"
    return None


def _with_wide_indices(parquet: pq.ParquetFile, file: pa.NativeFile) -> pq.ParquetFile:
    """The file, read with categories whose indices are not too short for all categories of a row group."""
    kinds = {field.name: field.type for field in parquet.schema_arrow}
    short = [name for name, kind in kinds.items() if pa.types.is_dictionary(kind) and kind.index_type != pa.int32()]
    if not short:
        return parquet
    return _parquet_file(file, metadata=parquet.metadata, read_dictionary=short)


def _rows_at_once(
    file: pa.NativeFile, metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str] | None, path: str
) -> int:
    """Number of records that are read at once: fewer where they have long texts or lists, which a file may repeat.

    The sizes that a footer states are those of a dictionary and of indices into it, so texts are bounded by the longest
    one of each dictionary.
    """
    leaves = [(number, metadata.schema.column(number)) for number in range(metadata.num_columns)]
    leaves = [
        (number, leaf)
        for number, leaf in leaves
        if (leaf.max_repetition_level or leaf.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"))
        and (columns is None or any(leaf.path == name or leaf.path.startswith(f"{name}.") for name in columns))
    ]
    most = 0
    for group in groups if leaves else ():
        described, size = metadata.row_group(group), 0
        for number, leaf in leaves:
            chunk = described.column(number)
            values = -(-chunk.num_values // max(described.num_rows, 1))
            stated = chunk.total_uncompressed_size
            width = max(leaf.length, 8)
            if leaf.physical_type == "BYTE_ARRAY":
                width = max(-(-stated // max(chunk.num_values, 1)), 1)
                if min(described.num_rows, BATCH_ROWS) * values * stated > _READ_BYTES:
                    width = max(width, _longest_text(file, metadata, group, number, leaf.path))
            size += values * width
        most = max(most, size)
    if most > _LARGEST_ROW:
        raise InputError(
            f"{path}: a record may have {most:,} bytes when it is read, more than {_LARGEST_ROW:,}: write the file "
            "with shorter texts and lists, or without the column"
        )
    return max(min(BATCH_ROWS, _READ_BYTES // max(most, 1)), 1)


def _longest_text(file: pa.NativeFile, metadata: pq.FileMetaData, group: int, number: int, path: str) -> int:
    """Bytes of the longest text of a dictionary, or where there is none, of the first values of a row group."""
    # In pages, without the rest of the column.
    parquet = _parquet_file(file, metadata=metadata, read_dictionary=[path], buffer_size=_PAGE_BYTES)
    rows = iter(parquet.iter_batches(_SHOWN_ROWS, row_groups=[group], columns=[path]))
    return max((_text_bytes(column) for column in next(rows).columns), default=0)


def _text_bytes(column: pa.Array) -> int:
    """Bytes of the longest text of a column, or within it."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if is_text(column.type):
        longest: Any = pc.max(pc.binary_length(plain_values(column)))  # type: ignore[attr-defined]
        return longest.as_py() or 0
    if pa.types.is_struct(column.type):
        return max((_text_bytes(part) for part in column.flatten()), default=0)
    if pa.types.is_map(column.type):
        return max(_text_bytes(column.keys), _text_bytes(column.items))
    return _text_bytes(column.values) if hasattr(column, "values") else 0


def _check_int96(
    file: pa.NativeFile, metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str], path: str
) -> None:
    """Refuses times that microseconds cannot hold. INT96 has nanoseconds, and years that no other type reaches."""
    units = [
        _parquet_file(file, unit, metadata=metadata).iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)
        for unit in (_INT96_UNIT, "ns", "s")
    ]
    for batches in zip(*units, strict=True):
        for name in columns:
            if not _are_exact(*(batch.column(name) for batch in batches)):
                raise InputError(
                    f"{path}: column {name!r} holds a time that microseconds cannot hold, as its type INT96 is read: "
                    "it has nanoseconds, or lies beyond the year 294,246. Write the column as a TIMESTAMP, or as text"
                )


def _are_exact(micros: pa.Array, nanos: pa.Array, seconds: pa.Array) -> bool:
    """Tells whether times were read exactly in microseconds. Those that overflowed in nanoseconds count modulo 2^64."""
    kind = micros.type
    if kind == nanos.type:
        return True
    if pa.types.is_timestamp(kind):
        times = (each.drop_null().cast(pa.int64()).to_numpy() for each in (micros, nanos, seconds))
        in_micros, in_nanos, in_seconds = times
        in_range = np.abs(in_seconds) < (1 << 63) // 1_000_000
        return bool(np.all(in_range) and np.array_equal(in_micros * 1000, in_nanos))
    if pa.types.is_struct(kind):
        return all(_are_exact(*(each.field(place) for each in (micros, nanos, seconds))) for place in range(len(kind)))
    if pa.types.is_map(kind):
        keys, items = ([getattr(each, part) for each in (micros, nanos, seconds)] for part in ("keys", "items"))
        return _are_exact(*keys) and _are_exact(*items)
    return _are_exact(micros.values, nanos.values, seconds.values)


def _reason(error: BaseException, otherwise: str) -> str:
    if str(error).startswith(_NO_KEYS):
        return _ENCRYPTED
    return _NOT_KNOWN if isinstance(error, pa.ArrowNotImplementedError) and otherwise == _CORRUPT else otherwise
