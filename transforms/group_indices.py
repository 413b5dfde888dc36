"""Groups of the records of a batch, from the values of a public column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.center.group_ranges import LabelGroups
from .arrow_values import is_text, single_values
from .batches import LabelledBatch
from .errors import InputError

_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 64)


def is_group_type(kind: pa.DataType) -> bool:
    """Tests whether single values of a type can be declared as groups: text, bytes, integers and booleans."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)


def _group_values(batch: LabelledBatch, column: str) -> tuple[pa.Array, np.ndarray]:
    """Values of the records with exactly one, as int64, uint64 or large_binary; and a mask of these records."""
    found = batch.column(column)
    if found is None:
        return pa.nulls(0, pa.int64()), np.zeros(batch.batch.num_rows, bool)
    values, present = single_values(found)
    kind = values.type
    if not len(values):
        return pa.nulls(0, pa.int64()), present
    if not is_group_type(kind):
        raise InputError(
            f"{batch.source}: group column {column!r} holds {kind}, neither text nor integers nor booleans: name "
            f"another column with --center_groups, or for a CSV file give --csv_types {column}=string"
        )
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if is_text(kind):
        return values.cast(pa.large_binary()), present
    return values.cast(pa.uint64() if kind == pa.uint64() else pa.int64()), present


def group_indices(batch: LabelledBatch, groups: LabelGroups) -> np.ndarray:
    """Group of each record, shape (n,), int64, in [0, groups.size).

    Raises InputError if the column holds neither text nor integers nor booleans.
    """
    values, present = _group_values(batch, groups.column)
    if is_text(values.type):
        known = {value.encode(errors="surrogateescape"): place for place, value in enumerate(groups.values)}
    else:
        allowed = _UINT64 if values.type == pa.uint64() else _INT64
        numbers = {_integer(value): place for place, value in enumerate(groups.values)}
        known = {number: place for number, place in numbers.items() if number is not None and number in allowed}
    found = np.full(batch.batch.num_rows, groups.size - 1)
    places = pc.index_in(values, value_set=pa.array(list(known), values.type))  # type: ignore[attr-defined]
    own = np.array([*known.values(), groups.size - 1])
    found[present] = own[places.fill_null(len(known)).to_numpy(zero_copy_only=False)]
    return found


def _integer(text: str) -> int | None:
    """The integer that the text is in its plain form; None for any other text."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None
