"""Batches of a file of a table, with the columns and types of the table.

Types widen as Iceberg lets them: integers and floats to 64 bits, decimals to more digits. Timestamps of the deprecated
type INT96 become those of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..arrow_values import plain_batch, plain_schema
from ..errors import InputError
from ..io.input_format import FilePart
from ..io.table_columns import TableColumn, TableColumns
from .column_types import common_type, converted, read_type


@dataclass(frozen=True)
class TableLayout:
    """Place of each wanted column of a table in one file.

    Attributes:
      wanted: The columns, in the order of the table.
      sources: Column of the file by name of the column; none where the file lacks it.
      constants: Value of all records by name, of columns that the file lacks; null for any other.
      columns: Columns of the file that are read, at least one, so that its records are counted.
      path: The file.
    """

    wanted: tuple[TableColumn, ...]
    sources: Mapping[str, str]
    constants: Mapping[str, pa.Scalar]
    columns: tuple[str, ...]
    path: str

    @classmethod
    def of(
        cls, table: TableColumns, names: Sequence[str] | None, schema: pa.Schema, private: Sequence[str], part: FilePart
    ) -> TableLayout:
        """Finds the columns in a file of this schema, which has the metadata of its fields.

        `names` are the wanted columns, None for all; `private` the labels, of which none is read only to count records.
        Raises InputError if a column is not in the table, or cannot be read from the file as that of the table.
        """
        wanted = table.selected(names, part.path)
        found = table.sources(schema, wanted, part.path)
        plain = plain_schema(schema)
        sources = {column.name: found[column.name] for column in wanted if column.name in found}
        for column in wanted:
            if column.name in sources:
                kind = read_type(plain.field(sources[column.name]).type, part.files)
                if not _fits(kind, column.type):
                    raise InputError(
                        f"{part.path}: column {sources[column.name]!r} holds {kind}, but {column.type} in the table: "
                        "rewrite the file"
                    )
        others = [name for name in schema.names if name not in {found.get(label) for label in private}]
        columns = tuple(sources.values()) or tuple(others[:1] or schema.names[:1])
        return cls(wanted, sources, dict(part.constants), columns, part.path)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch of the file, with the columns of the table."""
        columns = [self._column(batch, column) for column in self.wanted]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([pa.field(c.name, c.type) for c in self.wanted]))

    def _column(self, batch: pa.RecordBatch, column: TableColumn) -> pa.Array:
        if column.name in self.sources:
            values = batch.column(batch.schema.get_field_index(self.sources[column.name]))
            (plain,) = plain_batch([values], plain_schema(pa.schema([pa.field("", values.type)]))).columns
            return _widened(plain, column, self.path)
        if column.name in self.constants:
            return pa.repeat(self.constants[column.name], batch.num_rows)
        return pa.nulls(batch.num_rows, column.type)


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Tells whether a column of a file can be read with the type of the table, without another value."""
    return common_type(kind, wanted) is not None or _widens(kind, wanted)


def _widens(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(wanted):
        return kind.bit_width <= wanted.bit_width
    if pa.types.is_floating(kind) and pa.types.is_floating(wanted):
        return kind.bit_width <= wanted.bit_width
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wanted):
        return kind.scale == wanted.scale and kind.precision <= wanted.precision
    # INT96 is read without a time zone, and is in UTC; all time zones are of the same instants.
    times = pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted)
    return times and (wanted.tz is not None or kind.tz is None)


def _widened(values: pa.Array, column: TableColumn, path: str) -> pa.Array:
    if common_type(values.type, column.type) is not None:
        return converted(values, column.type)
    try:
        return values.cast(column.type)
    except pa.ArrowInvalid:
        # Timestamps only: all other types that widen hold every value.
        raise InputError(
            f"{path}: column {column.name!r} holds a time that {column.type} of the table cannot hold: rewrite the file"
        ) from None
