"""Columns of a table, as which each of its files is read, whatever columns the file has.

Files of a table differ: columns were added, dropped, renamed and widened after they were written. A column is found in
a file by its field id (Iceberg) or by its name (Delta, plain files); where a file does not have it, its values are
null, or one value for the whole file, which the table states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ..errors import InputError, listed

FIELD_ID = b"PARQUET:field_id"
"""Key of Arrow's metadata with the field id of a column of a Parquet file."""


@dataclass(frozen=True)
class TableColumn:
    """Column of a table.

    Attributes:
      name: Its name in the table.
      type: Type as which it is read, without metadata.
      field_id: Its field id; None if columns are found by name.
      names: Names that stand for the field id in files without any.
      inner: Names and field ids of the fields within it, of `inner_fields`; None if they are not compared.
    """

    name: str
    type: pa.DataType
    field_id: int | None = None
    names: tuple[str, ...] = ()
    inner: str | None = None


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table, in order, with unique names; by field id if their columns have one."""

    columns: tuple[TableColumn, ...]

    def __post_init__(self) -> None:
        """Checks the names. Raises InputError if one occurs twice."""
        if len(self._by_name) < len(self.columns):
            raise InputError("column names of a table must be unique, and one occurs twice: rename it")

    @cached_property
    def _by_name(self) -> dict[str, TableColumn]:
        return {column.name: column for column in self.columns}

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of all batches of the table; every column may have nulls."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def selected(self, names: Sequence[str] | None, path: str) -> tuple[TableColumn, ...]:
        """The columns of these names, in the order of the table; all for None. `path` is that of a file of the table.

        Raises InputError if there is no such column.
        """
        for name in names or ():
            if name not in self._by_name:
                raise InputError(
                    f"{path}: there is no column {name!r} in any file; there are: {listed([*self._by_name])}"
                )
        return self.columns if names is None else tuple(column for column in self.columns if column.name in names)

    def sources(self, schema: pa.Schema, wanted: Sequence[TableColumn], path: str) -> dict[str, str]:
        """Finds the columns of a file, whose schema has its field ids as metadata, by column of the table.

        Fields within columns are compared for those that are `wanted`.

        Raises InputError if a column cannot be told from others, or fields within it changed since then.
        """
        if all(column.field_id is None for column in self.columns):
            return _sources_by_name([column.name for column in self.columns], schema.names, path)
        ids = _field_ids(schema, path)
        found = self._by_id(ids) if ids else self._by_mapping(schema.names, path)
        for column in wanted:
            if column.name in found and column.inner is not None:
                _check_inner(column, schema.field(found[column.name]).type, bool(ids), path)
        return found

    def _by_id(self, ids: Mapping[int, str]) -> dict[str, str]:
        return {column.name: ids[column.field_id] for column in self.columns if column.field_id in ids}

    def _by_mapping(self, names: Sequence[str], path: str) -> dict[str, str]:
        """The columns of a file without field ids, by the names that the table states for such files."""
        if not any(column.names for column in self.columns):
            raise InputError(
                f"{path}: the file has no field ids, and the table states no names for such files: set the table's "
                "property schema.name-mapping.default, or rewrite its data files"
            )
        found = {}
        for column in self.columns:
            own = [name for name in names if name in column.names]
            if len(own) > 1:
                raise InputError(f"{path}: the columns {listed(own)} both stand for {column.name!r}: rewrite the file")
            if own:
                found[column.name] = own[0]
        return found


def _sources_by_name(wanted: Sequence[str], names: Sequence[str], path: str) -> dict[str, str]:
    found, folded = {name: name for name in wanted if name in names}, {name.casefold(): name for name in names}
    for name in wanted:
        # Tables whose names have no case would take it for the column, and this one would be null.
        if name not in found and name.casefold() in folded:
            raise InputError(
                f"{path}: column {folded[name.casefold()]!r} has other capitals than {name!r} in the other files: "
                "rewrite the file with that name"
            )
    return found


def _field_ids(schema: pa.Schema, path: str) -> dict[int, str]:
    """Names of the columns of a file by field id; none if the file has no ids."""
    found: dict[int, str] = {}
    for field in schema:
        text = (field.metadata or {}).get(FIELD_ID)
        if text is None:
            continue
        if int(text) in found:
            raise InputError(f"{path}: two columns have the field id {int(text)}: rewrite the file")
        found[int(text)] = field.name
    return found


def _check_inner(column: TableColumn, kind: pa.DataType, with_ids: bool, path: str) -> None:
    wanted = column.inner if with_ids else inner_fields(column.type)
    if inner_fields(kind) != wanted:
        raise InputError(
            f"{path}: column {column.name!r} has other fields within it than the table now, and labeldp would have to "
            "guess which is which: rewrite the data files of the table, or leave the column out of the table"
        )


def inner_fields(kind: pa.DataType) -> str:
    """Names and field ids of all fields within a column, as text; empty for a column without any.

    The names of the items of lists and maps are those of Arrow, which files may call otherwise.
    """
    if pa.types.is_struct(kind):
        return f"{{{','.join(_inner_field(field, repr(field.name)) for field in kind)}}}"
    if pa.types.is_map(kind):
        return f"<{_inner_field(kind.key_field, 'key')},{_inner_field(kind.item_field, 'value')}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{_inner_field(kind.value_field, 'item')}]"
    return ""


def _inner_field(field: pa.Field, name: str) -> str:
    number = (field.metadata or {}).get(FIELD_ID, b"").decode("ascii", "replace")
    return f"{name}:{number}{inner_fields(field.type)}"
