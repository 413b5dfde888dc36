"""Center of a request for files: features of a linear one, found in the first records if not named.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records cannot be
read.
"""

from __future__ import annotations

import pyarrow as pa

from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_columns import is_feature
from ..errors import FieldError
from .feature_choice import center_kind, check_center, choose_features, makes_center, new_center
from .fields import Fields
from .input_spec import first_schema
from .release import InputSpec


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
