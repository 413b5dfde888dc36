"""Center of a request: features of a linear one, found in the first records if they are not named, and groups.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records cannot be
read.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from ...mechanisms.center.group_ranges import LabelGroups
from ...mechanisms.center.residuals import check_even
from ...mechanisms.registry import AUTO
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.center.center_features import CenterFeatures, is_feature
from ...transforms.io.input_format import listed
from ...transforms.label_summary import is_group_type
from ...transforms.progress_log import LOGGER
from ..errors import FieldError, did_you_mean
from .fields import NO_CENTER, Fields, names_of
from .input_spec import first_schema
from .release import InputSpec

# Over fewer labels, residuals are not finer than the noise.
_LEAST_LABELS = 5
_BOOLEANS = {"true": "1", "false": "0", "1": "1", "0": "0"}


def center_features(
    fields: Fields, input: InputSpec, column: LabelColumn, mechanism: str, schema: pa.Schema | None = None
) -> CenterFeatures | None:
    """Decides whether the job makes a linear center, and finds its features.

    Without a schema, the first records of the first input file are read for theirs. The mechanism auto has a center by
    default.

    Features are those that are named, or all columns of numbers and texts but label, id and the filter's column. None
    where no center was asked for, or it is a column of the input; and, by default, where there are no features or the
    label domain is not an even grid of at least five labels. Features must be in the input, and the new column must
    not.
    """
    check_center(fields)
    asked = fields.center == "linear" or fields.center_features is not None
    if fields.center == NO_CENTER or (not asked and (fields.center_column is not None or mechanism != AUTO)):
        return None
    try:
        check_even(column.labels)
    except ValueError as error:
        if asked:
            raise FieldError.at("center", error) from None
        return None
    if not asked and len(column.domain) < _LEAST_LABELS:
        return None
    found = first_schema(input, column) if schema is None else schema
    name = new_center(fields)
    chosen = _chosen(fields, input, column, found)
    if not chosen and not asked:
        LOGGER.info("no center: %s has no column of numbers or text besides the label", input.paths[0])
        return None
    if not chosen:
        raise FieldError(
            "{center} linear: {file} has no column of numbers or texts besides the label", file=input.paths[0]
        )
    if name in found.names:
        raise FieldError(
            "{input} has a column {name!r}: name the new column of centers with {center} linear {center_column} NAME, "
            "or use that column as the center with {center_column} {name}",
            name=name,
        )
    return CenterFeatures(chosen, column.id_column)


def check_center(fields: Fields) -> None:
    """Refuses a center that is there and is not."""
    if fields.center == NO_CENTER:
        given = [name for name in ("center_column", "center_features") if getattr(fields, name) is not None]
        if given:
            raise FieldError(f"{{center}} none has no {{{given[0]}}}: leave one of them out")


def new_center(fields: Fields) -> str:
    """Names the column of centers that the job adds."""
    return fields.center_column or f"{fields.label}_center"


def _chosen(fields: Fields, input: InputSpec, column: LabelColumn, schema: pa.Schema) -> tuple[str, ...]:
    """Names of the features."""
    if fields.center_features is None:
        unit, where = column.unit and column.unit.column, input.where and input.where.column
        left_out = {*column.private, column.id_column, unit, where}
        return tuple(field.name for field in schema if is_feature(field.type) and field.name not in left_out)
    named = names_of(fields.center_features)
    for name in named:
        if name in column.private:
            raise FieldError("{center_features} must not name the label: centers are released as they are")
        if name not in schema.names:
            raise FieldError(
                "{center_features}: {file} has no column {name!r} in its first records; it has: {names}{meant}",
                file=input.paths[0],
                name=name,
                names=listed(schema.names),
                meant=did_you_mean(name, schema.names),
            )
        kind = schema.field(name).type
        if not is_feature(kind):
            raise FieldError(
                "{center_features}: {name!r} holds {kind}, neither numbers nor text: leave it out", name=name, kind=kind
            )
    return tuple(dict.fromkeys(named))


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
        raise FieldError("{center_groups} needs a center: give {center} linear or {center_column}")
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
