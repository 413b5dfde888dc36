"""Files that Arrow reads, Parquet and ORC: opened, and with the columns and types of those that are read together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..arrow_values import holds_numbers, is_list, label_lists, plain_batch, plain_schema
from ..errors import InputError, listed
from ..io.filesystems import is_remote, not_opened, open_input
from ..io.input_format import FilePart
from .column_types import common_type, converted, read_type
from .table_layout import TableLayout


def open_arrow_file(path: str) -> pa.NativeFile:
    """Opens a file; local ones without Python, so that Arrow reads them faster."""
    try:
        return pa.PythonFile(open_input(path), "r") if is_remote(path) else pa.OSFile(path)
    except OSError as error:
        raise not_opened(path, error) from None


def open_part(part: FilePart) -> pa.NativeFile:
    """Opens the file of a part; the error of a file of a table says that its snapshot may have expired."""
    try:
        return open_arrow_file(part.path)
    except InputError as error:
        if not part.name:
            raise
        raise InputError(
            f"{error}. The file belongs to the snapshot that is read: if that expired and its files were deleted, run "
            "again with one that the table still has, and keep snapshots for longer than a job takes"
        ) from None


@dataclass(frozen=True)
class PlainLayout:
    """Columns of a file that are read, None for all, and the schema of the first file, in which they are given."""

    columns: Sequence[str] | None
    leading: pa.Schema

    @classmethod
    def of(
        cls,
        columns: Sequence[str] | None,
        schema: pa.Schema,
        part: FilePart,
        schema_of: Callable[[str], pa.Schema],
        hidden: Sequence[str] = (),
        numbers: Collection[str] = (),
    ) -> PlainLayout:
        """Compares the schema of a file with that of the first one, which `schema_of` reads; neither has `hidden` ones.

        Columns are found by name: their order is that of the first file. Those of `numbers`, which are labels, may hold
        any numbers, and keep their types: released labels are of one type whatever these are.

        Raises InputError if the file has other columns, types that do not hold the same values, or lacks one of
        `columns`.
        """
        own = leading = without_columns(read_schema(schema, part.files), hidden)
        if part.first != part.path:
            first = without_columns(read_schema(schema_of(part.first), part.files), hidden)
            leading = _common_schema(own, first, part, numbers)
        _check_columns(own.names, columns or (), part.path)
        if columns is None and len(own) < len(schema):
            columns = own.names
        return cls(columns, leading)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with types of the first file, whatever those of its own: one schema for all batches."""
        fields = [field for field in self.leading if field.name in batch.schema.names]
        batch = batch.select([field.name for field in fields])
        batch = plain_batch(batch.columns, plain_schema(batch.schema))
        columns = [converted(column, field.type) for column, field in zip(batch.columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def pieces(layout: PlainLayout | TableLayout, batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in its layout, in pieces if it is too large to be converted at once."""
    if batch.nbytes > most_bytes and batch.num_rows > 1:
        half = batch.num_rows // 2
        for piece in (batch.slice(0, half), batch.slice(half)):
            yield from pieces(layout, piece, most_bytes)
        return
    yield layout.batch(batch)


def _check_columns(names: Sequence[str], wanted: Sequence[str], path: str) -> None:
    for name in wanted:
        if name not in names:
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed(names)}")


def read_schema(schema: pa.Schema, files: int) -> pa.Schema:
    """Schema of a file, without metadata, with the types as which its columns are read."""
    return pa.schema([field.with_type(read_type(field.type, files)) for field in plain_schema(schema)])


def without_columns(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema without some columns, if it has them."""
    return pa.schema([field for field in schema if field.name not in names])


def _common_schema(schema: pa.Schema, first: pa.Schema, part: FilePart, numbers: Collection[str]) -> pa.Schema:
    """Schema with which a file is read: that of the first file, with nulls where this file allows them.

    Refuses a file with other columns, or with a type that does not hold the same values.
    """
    if schema.equals(first):
        return first
    for name in schema.names:
        if name not in first.names:
            raise InputError(f"{part.path}: column {name!r} is not in {part.first}: all files need one schema")
    fields = []
    for leading in first:
        if leading.name not in schema.names:
            raise InputError(
                f"{part.path}: column {leading.name!r} of {part.first} is missing: all files need the same columns"
            )
        field = schema.field(leading.name)
        kind = common_type(field.type, leading.type)
        if kind is None and field.name in numbers and _are_labels(field.type, leading.type):
            kind = field.type
        if kind is None:
            raise InputError(
                f"{part.path}: column {field.name!r} holds {field.type}, but {leading.type} in {part.first}: "
                f"all files need one schema{_cast(field, leading)}"
            )
        fields.append(leading.with_type(kind).with_nullable(field.nullable))
    return pa.schema(fields)


def _are_labels(kind: pa.DataType, first: pa.DataType) -> bool:
    """Tells whether labels of both types are released as the same type."""
    if not holds_numbers(kind) or not holds_numbers(first):
        return False
    lists, none = [one for one in (kind, first) if is_list(one)], np.zeros(0)
    return len({str(label_lists(one, none).type) for one in lists}) <= 1 and len(lists) != 1


def _cast(field: pa.Field, first: pa.Field) -> str:
    """Advice to write a column with one type in all files; empty if no type holds the values of both."""
    try:
        both = [pa.schema([pa.field("", one.type)]) for one in (field, first)]
        kind = pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowException, TypeError):
        # Earlier versions of pyarrow do not promote types.
        return ""
    return f". Write it as {kind} in all of them: table.cast or astype in the program that writes the files"
