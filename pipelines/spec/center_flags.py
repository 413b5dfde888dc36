"""Flags of the center: features of a linear one, found in the first records if they are not named, and groups.

Functions raise UsageError, which names the flag, if a flag is wrong, and InputError, which names the file, if the first
records cannot be read.
"""

from __future__ import annotations

import argparse
import dataclasses

import pyarrow as pa

from ...mechanisms.center.group_ranges import LabelGroups
from ...mechanisms.center.residuals import check_even
from ...mechanisms.registry import AUTO
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.center.feature_columns import is_feature
from ...transforms.center.feature_sample import CenterFeatures
from ...transforms.group_indices import is_group_type
from ...transforms.io.input_format import listed
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import FileReader
from ..errors import UsageError
from ..flags.suggestions import did_you_mean
from .job_request import InputSpec

# Over fewer labels, residuals are not finer than the noise.
_LEAST_LABELS = 5
_BOOLEANS = {"true": "1", "false": "0", "1": "1", "0": "0"}


def center_features(
    args: argparse.Namespace, input: InputSpec, column: LabelColumn, mechanism: str, schema: pa.Schema | None = None
) -> CenterFeatures | None:
    """Decides whether the job makes a linear center, and finds its features.

    Without a schema, the first records of the first input file are read for theirs. The mechanism auto has a center by
    default.

    Features are those that are named, or all columns of numbers and texts but label, id and the filter's column. None
    where no center was asked for, or it is a column of the input; and, by default, where there are no features or the
    label domain is not an even grid of at least five labels. UsageError is also raised if a feature is not in the
    input, or the new column is.
    """
    asked = args.center == "linear" or args.center_features is not None
    if args.center == "none" or (not asked and (args.center_column is not None or mechanism != AUTO)):
        return None
    try:
        check_even(column.labels)
    except ValueError as error:
        if asked:
            raise UsageError(f"--center: {error}") from None
        return None
    if not asked and len(column.domain) < _LEAST_LABELS:
        return None
    found = first_schema(input, column) if schema is None else schema
    name = new_center(args)
    chosen = _chosen(args, input, column, found)
    if not chosen and not asked:
        LOGGER.info("no center: %s has no column of numbers or text besides the label", input.paths[0])
        return None
    if not chosen:
        raise UsageError(f"--center linear: {input.paths[0]} has no column of numbers or texts besides the label")
    if name in found.names:
        raise UsageError(
            f"--input has a column {name!r}: name the new column of centers with --center linear --center_column NAME, "
            f"or use that column as the center with --center_column {name}"
        )
    return CenterFeatures(chosen, column.id_column)


def new_center(args: argparse.Namespace) -> str:
    """Names the column of centers that the job adds."""
    return args.center_column or f"{args.label}_center"


def _chosen(args: argparse.Namespace, input: InputSpec, column: LabelColumn, schema: pa.Schema) -> tuple[str, ...]:
    """Names of the features."""
    if args.center_features is None:
        unit, where = column.unit and column.unit.column, input.where and input.where.column
        left_out = {*column.private, column.id_column, unit, where}
        return tuple(field.name for field in schema if is_feature(field.type) and field.name not in left_out)
    named = args.center_features.split(",")
    for name in named:
        if name in column.private:
            raise UsageError("--center_features must not name the label: centers are released as they are")
        if name not in schema.names:
            raise UsageError(
                f"--center_features: {input.paths[0]} has no column {name!r} in its first records; it has: "
                f"{listed(schema.names)}{did_you_mean(name, schema.names)}"
            )
        kind = schema.field(name).type
        if not is_feature(kind):
            raise UsageError(f"--center_features: {name!r} holds {kind}, neither numbers nor text: leave it out")
    return tuple(dict.fromkeys(named))


def unused_columns(
    args: argparse.Namespace, column: LabelColumn, features: CenterFeatures | None, schema: pa.Schema
) -> dict[str, str]:
    """Columns that the default features of a linear center leave out, with the reasons.

    Columns that another flag names are not included; there are none where the features are named, or the job makes no
    linear center.
    """
    if features is None or args.center_features is not None:
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


def first_schema(input: InputSpec, column: LabelColumn) -> pa.Schema:
    """Reads the schema of the first records. Files without any, as some writers make them, are passed over.

    The schema is empty if no file has a record.
    """
    reader = FileReader(input.format, None, input.where, column.name, other_labels=column.others)
    for part in input.parts:
        for batch in reader.read(part):
            return batch.batch.schema
    return pa.schema([])


def with_groups(args: argparse.Namespace, input: InputSpec, column: LabelColumn) -> LabelColumn:
    """Reads `--center_groups` into the label column, which has its center; the column itself without the flag.

    The first records of the first input file are read for their schema. UsageError is also raised if there is no
    center, or the column cannot be grouped by.
    """
    if args.center_groups is None:
        return column
    name, _, text = args.center_groups.partition("=")
    if not name or not text:
        raise UsageError(f"--center_groups takes NAME=V1,V2,..., not {args.center_groups!r}")
    if column.center is None:
        raise UsageError("--center_groups needs a center: give --center linear or --center_column")
    if name in (column.name, column.id_column):
        flag = "--label" if name == column.name else "--id_column"
        raise UsageError(f"--center_groups must be another column than {flag}")
    schema = first_schema(input, column)
    if name not in schema.names:
        raise UsageError(f"--center_groups: {input.paths[0]} has no column {name!r} in its first records")
    kind = value_type(schema.field(name).type)
    if not (is_group_type(kind) or pa.types.is_null(kind)):
        raise UsageError(
            f"--center_groups: {name!r} holds {kind}, neither text nor integers nor booleans: name another column, or "
            f"for a CSV file give --csv_types {name}=string"
        )
    try:
        values = tuple(_canonical(value, kind) for value in text.split(","))
        return dataclasses.replace(column, groups=LabelGroups(name, values))
    except ValueError as error:
        raise UsageError(f"--center_groups: {error}") from None


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
