"""Center of features of a request: whether one is made, and of which features. Loads no Beam.

Functions take the fields of a request and raise FieldError if one of them is wrong.
"""

from __future__ import annotations

import pyarrow as pa

from ...mechanisms.center.residuals import check_even
from ...mechanisms.registry import AUTO
from ...mechanisms.release.center_release import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_columns import is_feature
from ...transforms.io.input_format import listed
from ...transforms.progress_log import LOGGER
from ..errors import FieldError, did_you_mean
from .fields import CELL_CENTER, NO_CENTER, Fields, names_of

# Over fewer labels, residuals are not finer than the noise.
_LEAST_LABELS = 5


def check_center(fields: Fields) -> None:
    """Refuses a center that is there and is not."""
    if fields.center == NO_CENTER:
        given = [name for name in ("center_column", "center_features") if getattr(fields, name) is not None]
        if given:
            raise FieldError(f"{{center}} none has no {{{given[0]}}}: leave one of them out")


def new_center(fields: Fields) -> str:
    """Names the column of centers that the job adds."""
    return fields.center_column or f"{fields.label}_center"


def is_asked_for(fields: Fields) -> bool:
    """Tells whether the fields ask for a center of features, which is then no default."""
    return fields.center not in (None, NO_CENTER) or fields.center_features is not None


def may_have_cells(fields: Fields, mechanism: str) -> bool:
    """Tells whether a linear center may get cells: for the mechanism auto by default."""
    return fields.center == CELL_CENTER or (fields.center is None and mechanism == AUTO)


def makes_center(fields: Fields, column: LabelColumn, mechanism: str) -> bool:
    """Decides whether a center is made of features, if there are any: for the mechanism auto by default.

    It is not where no center was asked for, or it is a column of the input; nor, by default, where the label domain is
    not an even grid of at least five labels.
    """
    asked = is_asked_for(fields)
    if fields.center == NO_CENTER or (not asked and (fields.center_column is not None or mechanism != AUTO)):
        return False
    try:
        check_even(column.labels)
    except ValueError as error:
        if asked:
            raise FieldError.at("center", error) from None
        return False
    return asked or len(column.domain) >= _LEAST_LABELS


def choose_features(
    fields: Fields,
    column: LabelColumn,
    mechanism: str,
    schema: pa.Schema,
    source: str,
    seen: str = "",
    where: str | None = None,
) -> CenterFeatures | None:
    """Chooses the features of a center among the columns of a schema.

    Features are those that are named, or all columns of numbers and texts but label, id, unit and `where`, the column
    of the filter; None if there are none by default. `source` is a file, or what stands for it in messages, and `seen`
    says what of it the schema is of, if that is not all.
    """
    chosen = _chosen(fields, column, schema, source, seen, where)
    if chosen:
        return CenterFeatures(chosen, column.id_column, may_have_cells(fields, mechanism))
    if is_asked_for(fields):
        raise FieldError(
            "{center} {kind}: {file} has no column of numbers or texts besides the label",
            kind=fields.center or "linear",
            file=source,
        )
    LOGGER.info("no center: %s has no column of numbers or text besides the label", source)
    return None


def _chosen(
    fields: Fields, column: LabelColumn, schema: pa.Schema, source: str, seen: str, where: str | None
) -> tuple[str, ...]:
    """Names of the features."""
    if fields.center_features is None:
        left_out = {*column.private, column.id_column, column.unit and column.unit.column, where}
        return tuple(field.name for field in schema if is_feature(field.type) and field.name not in left_out)
    named = names_of(fields.center_features)
    for name in named:
        if name in column.private:
            raise FieldError("{center_features} must not name the label: centers are released as they are")
        if name not in schema.names:
            raise FieldError(
                "{center_features}: {file} has no column {name!r}{seen}; it has: {names}{meant}",
                file=source,
                seen=seen,
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
