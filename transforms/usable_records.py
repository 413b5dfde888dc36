"""Records of a batch that are released: those with a usable label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import LabelRecords
from .batches import LabelledBatch, center_values, check_bounded, record_identities, usable_labels


@dataclass(frozen=True, eq=False)
class UsableRecords:
    """Records of a batch that are released: those with a usable label in all private columns.

    Attributes:
      batch: The batch with these records alone.
      labels: Their labels, identities and centers.
      unusable: Rows of the other records, shape (m,), int64.
    """

    batch: LabelledBatch
    labels: LabelRecords
    unusable: np.ndarray


def usable_records(batch: LabelledBatch, column: LabelColumn, centered: bool = True) -> UsableRecords:
    """Finds the records of a batch that are released; `centered` is False for labels that are used without a center.

    Raises InputError if the records of units were not bounded, the label, id or center column has the wrong type, or a
    record has no id.
    """
    check_bounded(batch, column.unit)
    values, usable = usable_labels(batch, column)
    kept, unusable = batch.keep(usable), batch.rows[~usable]
    centers, missing = _record_centers(kept, column) if centered else (None, 0)
    identities = record_identities(kept, column.id_column)
    return UsableRecords(
        kept, LabelRecords(column, values[usable], identities, centers, len(unusable), missing), unusable
    )


def _record_centers(batch: LabelledBatch, column: LabelColumn) -> tuple[np.ndarray | None, int]:
    """Centers of records as in `LabelRecords`, and the number of those that are missing or infinite."""
    if column.center is None or not column.around_center:
        return None, 0
    return column.center_indices(center_values(batch, column.center))
