"""Center of a request for files: features of a linear one, found in the first records if not named, and groups.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records cannot be
read.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from ...mechanisms.center.group_ranges import LabelGroups
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.center.feature_columns import is_feature
from ...transforms.label_summary import is_group_type
from ..errors import FieldError
from .feature_choice import center_kind, check_center, choose_features, makes_center, new_center
from .fields import Fields
from .input_spec import first_schema
from .release import InputSpec

_BOOLEANS = {"true": "1", "false": "0", "1": "1", "0": "0"}


def center_features(
    fields: Fields, input: InputSpec, column: LabelColumn, mechanism: str, schema: pa.Schema | None = None
) -> CenterFeatures | None:
    """Decides whether the job makes a center of features (`makes_center`), and finds its features (`choose_features`).

    Without a schema, the first records of the first input file are read for theirs. The new column must not be in the
    input.
    """
    check_center(fields)
    if not makes_center(fields, column, mechanism):
        return None
    found = first_schema(input, column) if schema is None else schema
    where = None if input.where is None else input.where.column
    features = choose_features(fields, column, found, input.paths[0], " in its first records", where)
    name = new_center(fields)
    if features is not None and name in found.names:
        raise FieldError(
            "{input} has a column {name!r}: name the new column of centers with {center} {kind} {center_column} NAME, "
            "or use that column as the center with {center_column} {name}",
            name=name,
            kind=center_kind(fields),
        )
    return features


def unused_columns(
    fields: Fields, column: LabelColumn, features: CenterFeatures | None, schema: pa.Schema
) -> dict[str, str]:
    """Columns that the default features of a linear center leave out, with the reasons.

    Columns that another flag names are not included; there are none where the features are named, or the job makes no
    linear center.
    """
    if features is None or fields.center_features is not None:
        return {}
    return {
        field.name: _unused(field.type)
        for field in schema
        if field.name not in (*features.names, *column.columns) and not is_feature(field.type)
    }


def _unused(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "no value in the first records"
    return f"{kind}, neither numbers nor text"


def read_groups(fields: Fields) -> LabelGroups | None:
    """Reads `center_groups`, NAME=V1,V2,...: the groups with their values as they are given; None without it."""
    if fields.center_groups is None:
        return None
    name, _, text = fields.center_groups.partition("=")
    if not name or not text:
        raise FieldError("{center_groups} takes NAME=V1,V2,..., not {given!r}", given=fields.center_groups)
    try:
        return LabelGroups(name, tuple(text.split(",")))
    except ValueError as error:
        raise FieldError.at("center_groups", error) from None


def with_groups(fields: Fields, input: InputSpec, column: LabelColumn) -> LabelColumn:
    """Adds the groups to the label column, which has its center; the column itself without groups.

    The first records of the first input file are read for their schema. There must be a center, and the column must be
    one that can be grouped by.
    """
    groups = read_groups(fields)
    if groups is None:
        return column
    name = groups.column
    if column.center is None:
        raise FieldError("{center_groups} needs a center: give {center} cells or {center_column}")
    if name in (column.name, column.id_column):
        field = "label" if name == column.name else "id_column"
        raise FieldError(f"{{center_groups}} must be another column than {{{field}}}")
    schema = first_schema(input, column)
    if name not in schema.names:
        raise FieldError(
            "{center_groups}: {file} has no column {name!r} in its first records", file=input.paths[0], name=name
        )
    kind = value_type(schema.field(name).type)
    if not (is_group_type(kind) or pa.types.is_null(kind)):
        raise FieldError(
            "{center_groups}: {name!r} holds {kind}, neither text nor integers nor booleans: name another column, or "
            "for a CSV file give {csv_types} {name}=string",
            name=name,
            kind=kind,
        )
    try:
        values = tuple(_canonical(value, kind) for value in groups.values)
        return dataclasses.replace(column, groups=LabelGroups(name, values))
    except ValueError as error:
        raise FieldError.at("center_groups", error) from None


def _canonical(value: str, kind: pa.DataType) -> str:
    """The value as records of that type have it."""
    if pa.types.is_boolean(kind):
        if value.lower() not in _BOOLEANS:
            raise ValueError(f"{value!r} is neither true nor false")
        return _BOOLEANS[value.lower()]
    if pa.types.is_integer(kind):
        try:
            return str(int(value))
        except ValueError:
            raise ValueError(f"the column holds integers, and {value!r} is none") from None
    return value
