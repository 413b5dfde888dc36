"""Stage that leaves out the records beyond the bounds of their units."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsMultiMap, PCollection

from ...mechanisms.release.unit_bound import UnitBound
from ..batches import Carried, LabelledBatch, carried_inputs
from ..errors import redact_errors
from .bound_units import BLOCK_ROWS, BlockKey

# Blocks whose exclusions a worker keeps, one byte a row each.
_MOST_BLOCKS = 4


@dataclass
class LeaveOut(beam.PTransform):
    """Leaves out records of batches that were read from files.

    Takes a PCollection of LabelledBatch and returns the same batches with the same row numbers.

    Attributes:
      exclusions: The rows, of `BoundUnits`. A worker loads those of the blocks that it reads.
      unit: The privacy unit.
      carried: Side inputs that batches carry to later stages.
    """

    exclusions: PCollection[tuple[BlockKey, np.ndarray]]
    unit: UnitBound
    carried: Sequence[Carried] = ()

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        names, values = carried_inputs(self.carried)
        return batches | "LeaveOut" >> beam.ParDo(
            _LeaveOut(self.unit, names), AsMultiMap(self.exclusions), *values
        ).with_output_types(LabelledBatch)


class _LeaveOut(beam.DoFn):
    def __init__(self, unit: UnitBound, carried: Sequence[str]):
        self._unit = unit
        self._carried = carried

    def start_bundle(self) -> None:
        # Kept for a bundle only: the side input of another one may be that of another run of this worker's code.
        self._excluded: dict[BlockKey, np.ndarray] = {}

    # Beam takes an annotation of `values` for the type of their tuple.
    @redact_errors("leaving out records")
    def process(
        self, batch: LabelledBatch, exclusions: Mapping[BlockKey, Iterable[np.ndarray]], *values
    ) -> Iterator[LabelledBatch]:
        excluded = np.zeros(len(batch.rows), bool)
        blocks = batch.rows // BLOCK_ROWS
        for number in np.unique(blocks).tolist():
            here = blocks == number
            excluded[here] = self._of_block((batch.source, number), exclusions)[batch.rows[here] - number * BLOCK_ROWS]
        batch = dataclasses.replace(batch.carry(self._carried, values), unit=self._unit.request)
        if excluded.any():
            batch = dataclasses.replace(batch.keep(~excluded), left_out=int(excluded.sum()))
        yield batch

    def _of_block(self, block: BlockKey, exclusions: Mapping[BlockKey, Iterable[np.ndarray]]) -> np.ndarray:
        """The excluded rows of a block, shape (BLOCK_ROWS,), bool."""
        if block not in self._excluded:
            if len(self._excluded) >= _MOST_BLOCKS:
                self._excluded.clear()
            found = np.zeros(BLOCK_ROWS, bool)
            for rows in exclusions[block]:
                found[rows] = True
            self._excluded[block] = found
        return self._excluded[block]
