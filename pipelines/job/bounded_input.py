"""Input of a job, without the records beyond the bounds of their units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ...mechanisms.release.label_column import LabelColumn
from ...transforms.batches import Carried, LabelledBatch
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.readers.read_files import ReadRecordBatches
from ...transforms.units.bound_units import BoundedUnits, BoundUnits
from ...transforms.units.leave_out import LeaveOut
from ..spec.job_request import InputSpec

# Units are sorted in groups, one for so many bytes of input, so that a group fits into memory.
_BYTES_A_GROUP = 1 << 26


def bound_units(
    pipeline: beam.Pipeline, input: InputSpec, column: LabelColumn, key: NoiseKeyFile
) -> BoundedUnits | None:
    """Finds the records that are left out, by a pass over ids, so that no unit has too many; None without units."""
    if column.unit is None:
        return None
    columns = [name for name in (*column.private, column.id_column, column.unit.column) if name is not None]
    batches = pipeline | "ReadUnits" >> ReadRecordBatches(
        input.pattern, input.format, list(dict.fromkeys(columns)), input.where, column.name, other_labels=column.others
    )
    return batches | "BoundUnits" >> BoundUnits(column, key, input.groups(_BYTES_A_GROUP))


def without_excess(
    batches: Any,
    name: str,
    units: BoundedUnits | None,
    column: LabelColumn,
    carried: Sequence[Carried] = (),
) -> PCollection[LabelledBatch]:
    """Leaves out the records beyond the bounds of their units; batches are unchanged without units.

    `name` is that of the stage, and `units` is what is left out, of `bound_units`. `carried` are side inputs that
    batches carry to later stages.
    """
    if units is None or column.unit is None:
        return batches
    return batches | name >> LeaveOut(units.exclusions, column.unit, carried)
