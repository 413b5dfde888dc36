"""Check that record ids are unique, made before any noise is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from ..mechanisms.noise.record_identities import first_repeated
from .batches import LabelledBatch, record_identities
from .errors import InputError, redact_errors

_GROUPS = 256
"""Ids are sorted in this many independent groups; with a billion ids, each group has about four million."""


@dataclass(frozen=True, eq=False)
class _Ids:
    """Ids of one group, as (n, 2) uint64 blocks of `Identities`, with their source and rows."""

    source: str
    rows: np.ndarray
    blocks: np.ndarray


@dataclass
class CountUniqueIds(beam.PTransform):
    """Counts records and fails if two have the same id.

    Takes a PCollection of LabelledBatch with the id column and returns one integer, the number of ids. It shuffles
    arrays of 16-byte identities with their row numbers, never records. The job fails with InputError, naming two rows,
    if an id occurs twice: two records with the same random word would reveal whether their labels agree.

    Attributes:
      id_column: Column of integers or text, one id per record.
    """

    id_column: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[int]:
        return (
            batches
            | "Split" >> beam.ParDo(_Split(self.id_column)).with_output_types(tuple[int, _Ids])
            | "Group" >> beam.GroupByKey()
            | "Check" >> beam.ParDo(_Check(self.id_column)).with_output_types(int)
            | "Count" >> beam.CombineGlobally(sum)
        )


class _Split(beam.DoFn):
    def __init__(self, id_column: str):
        self._id_column = id_column

    @redact_errors("checking ids")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, _Ids]]:
        blocks = record_identities(batch, self._id_column).blocks
        groups = _group(blocks)
        for group in np.unique(groups).tolist():
            mask = groups == group
            yield group, _Ids(batch.source, batch.rows[mask], blocks[mask])


def _group(blocks: np.ndarray) -> np.ndarray:
    """Group of each id: multiplicative hashing of the first 8 bytes, which also spreads consecutive integers."""
    return ((blocks[:, 0] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(56)).astype(np.int64) % _GROUPS


class _Check(beam.DoFn):
    def __init__(self, id_column: str):
        self._id_column = id_column

    @redact_errors("checking ids")
    def process(self, group: tuple[int, Iterable[_Ids]]) -> Iterator[int]:
        parts = list(group[1])
        blocks = np.concatenate([part.blocks for part in parts])
        repeated = first_repeated(blocks)
        if repeated is not None:
            one, two = (_place(parts, index) for index in repeated)
            raise InputError(f"{one} and {two} have the same id in --id_column {self._id_column}: ids must be unique")
        yield len(blocks)


def _place(parts: list[_Ids], index: int) -> str:
    for part in parts:
        if index < len(part.rows):
            return f"{part.source} row {part.rows[index]}"
        index -= len(part.rows)
    raise IndexError(index)
