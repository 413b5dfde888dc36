"""Center of a request for files: features of a new one, found in the first records if not named, or a fitted one.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records cannot be
read.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from ...transforms.center.feature_columns import is_feature
from ..errors import FieldError
from .feature_choice import FeatureTable, makes_center, with_new_center
from .fields import Fields
from .input_spec import first_schema
from .label import Label
from .release import InputSpec


def with_center(fields: Fields, label: Label, input: InputSpec, schema: pa.Schema) -> Label:
    """Adds a center of features to a label, if the job makes one; `schema` is that of the input, found without records.

    The first records of the first input file are read for their features, which a TFRecord file does not tell
    otherwise; but not in a dry run, which reads no label. The new column must not be in the input.
    """
    if label.mechanism.fitted is not None or not makes_center(fields, label):
        return label
    found = schema if fields.dry_run else first_schema(input, label.column)
    where = None if input.where is None else input.where.column
    table = FeatureTable(found, input.paths[0], "{input}", " in its first records", where)
    label = with_new_center(fields, label, table)
    if label.features is None or fields.center_features is not None:
        return label
    used = (*label.features.names, *label.column.columns)
    unused = {
        field.name: _reason(field.type) for field in schema if field.name not in used and not is_feature(field.type)
    }
    return dataclasses.replace(label, unused=unused)


def _reason(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "no value in the first records"
    return f"{kind}, neither numbers nor text"


def check_fitted_center(label: Label) -> None:
    """Checks that the center of the mechanism file of `apply`, if it has one, is no function of the label."""
    fitted = label.mechanism.fitted
    made = None if fitted is None else fitted.made_center
    if made is not None and label.name in made.map.columns:
        # It would be released without noise.
        raise FieldError(
            "{label} {name} is a feature of the center of {mechanism_file}, which is released as it is: name the label "
            "that the file was fitted for",
            name=label.name,
        )
