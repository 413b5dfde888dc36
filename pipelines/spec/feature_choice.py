"""Center of features of a request: whether one is made, and of which features. Loads no Beam.

Functions take the fields of a request and raise FieldError if one of them is wrong.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pyarrow as pa

from ...mechanisms.center.class_logit import MOST_CLASSES
from ...mechanisms.center.class_partition import MOST_CLASS_SAMPLE
from ...mechanisms.center.residuals import check_even
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.label_grid import is_even
from ...mechanisms.registry import AUTO
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_columns import is_feature
from ...transforms.errors import listed
from ...transforms.progress_log import LOGGER
from ..errors import FieldError, did_you_mean, field_errors
from .fields import CELL_CENTER, LINEAR_CENTER, MODELS_OF_LOG, NO_CENTER, Fields, names_of
from .label import Label

# Largest epsilons at which a center of classes is better than randomized response in most of docs/results: of more than
# two classes, and of two, where one is often rare.
CLASS_CENTER_EPSILON, TWO_CLASSES_EPSILON = 2.0, 4.0
# Over fewer labels, residuals are not finer than the noise.
_LEAST_LABELS = 5


class FeatureTable(NamedTuple):
    """Columns that features are chosen from.

    Attributes:
      schema: Their names and types.
      source: File that they are of, or what stands for it in messages.
      field: Field that names the source, in braces; None for an argument, which the source is.
      seen: What of the source the schema is of, if that is not all.
      where: Column of the filter.
    """

    schema: pa.Schema
    source: str
    field: str | None = None
    seen: str = ""
    where: str | None = None


def check_center(fields: Fields) -> None:
    """Refuses a center that is there and is not."""
    if fields.center == NO_CENTER:
        given = [name for name in ("center_column", "center_features") if getattr(fields, name) is not None]
        if given:
            raise FieldError(f"{{center}} none has no {{{given[0]}}}: leave one of them out")


def is_asked_for(fields: Fields) -> bool:
    """Tells whether the fields ask for a center of features, which is then no default."""
    return fields.center not in (None, NO_CENTER) or fields.center_features is not None


def center_kind(fields: Fields) -> str:
    """Kind of the center, where one is made: linear by default, which leaves labels most of epsilon.

    With cells, labels say what the features of the log say and nothing else: that is for recipients who have no others.
    """
    return fields.center or (CELL_CENTER if fields.for_ == MODELS_OF_LOG else LINEAR_CENTER)


def _class_center_is_asked_for(fields: Fields) -> bool:
    """Tells whether a center of classes is made whatever their histogram says."""
    return is_asked_for(fields) or fields.center_column is not None


def _makes_class_center(fields: Fields, classes: LabelClasses) -> bool:
    """Decides whether classes may be drawn from a center of features, if there are any: for models by default.

    Not where no center was asked for, or a mechanism; nor, by default, at an epsilon at which randomized response is
    better (docs/mechanisms/center.md), or for more classes than centers support. The released histogram decides
    whether one that was not asked for is made (`ClassSums`).
    """
    asked = _class_center_is_asked_for(fields)
    if fields.center == NO_CENTER:
        return False
    if fields.center == "linear":
        raise FieldError("{center} linear is for labels that are numbers; that of classes is {center} cells")
    if fields.mechanism_name not in (None, AUTO) or fields.for_ == "labels":
        if asked:
            raise FieldError("{center} draws classes by itself: leave out {mechanism} and {for}")
        return False
    if len(classes) > MOST_CLASSES:
        if asked:
            raise FieldError(
                "{center}: at most {most} classes can have one, not {count}", most=MOST_CLASSES, count=len(classes)
            )
        return False
    if fields.delta is not None:
        if asked:
            raise FieldError("{center} of classes is pure DP: leave out {delta}")
        return False
    return (
        asked
        or fields.for_ == MODELS_OF_LOG
        or (fields.epsilon or 0.0) <= (CLASS_CENTER_EPSILON if len(classes) > 2 else TWO_CLASSES_EPSILON)
    )


def with_new_center(fields: Fields, label: Label, table: FeatureTable) -> Label:
    """Adds a center of features to a label, if one is made: its features, and the name of the new column."""
    column, classes = label.column, label.column.classes is not None
    features = _choose_features(fields, column, table) if makes_center(fields, label) else None
    if features is None:
        return label
    what = "probabilities" if classes else "centers"
    name = fields.center_column or f"{label.name}_{'probabilities' if classes else 'center'}"
    if name in (*table.schema.names, label.name):
        kind = "" if classes else " and {center} {kind}"
        raise FieldError(
            f"{table.field or '{source}'} has a column {{name!r}}: name the new column of {what} with "
            f"{{center_column}}{kind}, or leave that column out",
            source=table.source,
            name=name,
            kind=center_kind(fields),
        )
    return dataclasses.replace(label, column=dataclasses.replace(column, center=name), features=features)


def makes_center(fields: Fields, label: Label) -> bool:
    """Decides whether a center is made of features, if there are any: for numbers with the mechanism auto by default.

    It is not where no center was asked for, or it is a column of the input; nor, by default, where the label domain is
    not an even grid of at least five labels.
    """
    column, mechanism = label.column, label.mechanism.name
    if column.classes is not None:
        return _makes_class_center(fields, column.classes)
    asked = is_asked_for(fields)
    if fields.center == NO_CENTER or (not asked and (fields.center_column is not None or mechanism != AUTO)):
        return False
    if asked:
        with field_errors("{center}: {problem}"):
            check_even(column.labels)
        return True
    return len(column.domain) >= _LEAST_LABELS and is_even(column.labels)


def _choose_features(fields: Fields, column: LabelColumn, table: FeatureTable) -> CenterFeatures | None:
    """Chooses the features of a center.

    They are those that are named, or all columns of numbers and texts but label, id, unit, that of the filter and, once
    their values are seen, those that identify records; None if there are none by default.
    """
    names = _feature_names(fields, column, table)
    if names:
        unnamed = fields.center_features is None
        if column.classes is not None:
            asked = _class_center_is_asked_for(fields)
            return CenterFeatures(names, column.id_column, asked, MOST_CLASS_SAMPLE, unnamed)
        return CenterFeatures(names, column.id_column, center_kind(fields) == CELL_CENTER, all_columns=unnamed)
    if is_asked_for(fields):
        raise FieldError(
            "{center} {kind}: {file} has no column of numbers or texts besides the label",
            kind=center_kind(fields),
            file=table.source,
        )
    LOGGER.info("no center: %s has no column of numbers or text besides the label", table.source)
    return None


def _feature_names(fields: Fields, column: LabelColumn, table: FeatureTable) -> tuple[str, ...]:
    schema = table.schema
    if fields.center_features is None:
        left_out = {*column.private, column.id_column, column.unit and column.unit.column, table.where}
        left_out |= {*names_of(fields.leave_out)}
        return tuple(field.name for field in schema if is_feature(field.type) and field.name not in left_out)
    named = names_of(fields.center_features)
    for name in named:
        if name in column.private:
            raise FieldError("{center_features} must not name the label: centers are released as they are")
        if name in names_of(fields.leave_out):
            raise FieldError(
                "{center_features} and {leave_out} name {name!r}: centers are released, and say what they are made of",
                name=name,
            )
        if name not in schema.names:
            raise FieldError(
                "{center_features}: {file} has no column {name!r}{seen}; it has: {names}{meant}",
                file=table.source,
                seen=table.seen,
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
