"""Units of the records of a batch, from the values of a public column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...mechanisms.noise.keyed_words import Identities
from ..arrow_values import named_units, value_type
from ..batches import LabelledBatch, label_values
from ..errors import InputError


def unit_identities(batch: LabelledBatch, column: str) -> tuple[Identities, np.ndarray]:
    """Units of the m records that have exactly one, and a mask of these records, shape (n,), bool.

    Empty text names no unit. Raises InputError if there is no such column, or it holds neither integers nor text.
    """
    found = batch.column(column)
    if found is None:
        if batch.batch.num_rows:
            raise InputError(f"{batch.source}: there is no column {column!r}: name another column with --unit_column")
        found = pa.nulls(0, pa.int64())
    units = named_units(found, column)
    if units is None:
        kind = value_type(found.type)
        raise InputError(
            f"{batch.source}: unit column {column!r} holds {kind}, not integers or text: name another column "
            f"with --unit_column, or for a CSV file give --csv_types {column}=string"
        )
    return units


def units_of_records(
    batch: LabelledBatch, labels: Sequence[str], column: str
) -> tuple[LabelledBatch, Identities, np.ndarray]:
    """Selects the records of a batch that have a usable label and a unit.

    Whether a record has a label is public. `labels` are the private columns; a label in each of them must be usable.
    Returns these records, their units, and the rows of the records with a usable label but without a unit. Raises
    InputError if a label or the unit column has the wrong type.
    """
    usable = batch.keep(np.logical_and.reduce([np.isfinite(label_values(batch, label)) for label in labels]))
    units, present = unit_identities(usable, column)
    return usable.keep(present), units, usable.rows[~present]
