"""Check of the input before any noise is drawn: that the ids of records are unique."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.noise.keyed_words import first_repeated
from ..mechanisms.release.label_column import LabelColumn
from .batches import LabelledBatch, check_whole_input, record_identities
from .errors import InputError, redact_errors
from .shown_transform import ShownTransform

ID_GROUPS = 1 << 12
"""Default number of groups of ids; with ten billion ids, each has about 2.4 million, some 160 MB."""

HELD_IDS = 1 << 19
"""Ids that a bundle holds before it passes them on, so that it passes hundreds at a time to each group."""


def after_unique_ids(batches: PCollection[LabelledBatch], column: LabelColumn, groups: int) -> list[AsSingleton]:
    """Makes a side input that is available only once all ids are known to be unique, so that no noise is drawn before.

    Returns the number of ids as the only side input; empty without an id column. `groups` is the number of groups of
    ids, as of `CountUniqueIds`.
    """
    if column.id_column is None:
        return []
    count: PCollection[int] = batches | "CountUniqueIds" >> CountUniqueIds(column.id_column, groups)
    return [AsSingleton(count)]


@dataclass
class CountUniqueIds(ShownTransform):
    """Counts records and fails if two have the same id.

    Takes a PCollection of LabelledBatch with the id column and returns one integer, the number of ids. It shuffles
    arrays of 16-byte identities with their row numbers, never records. The job fails with InputError, naming two rows,
    if an id occurs twice: two records with the same random word would reveal whether their labels agree.

    Attributes:
      id_column: Column of integers or text, one id per record.
      groups: Number of groups of ids that are sorted independently, at most 2^32; one group must fit into the memory
        of a worker. Each takes some tenths of a millisecond, so few are better for few records.
    """

    id_column: str
    groups: int = ID_GROUPS

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[int]:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(batches, self)
        return (
            batches
            | "Split" >> beam.ParDo(_Split(self.id_column, self.groups)).with_output_types(tuple[int, _Ids])
            | "Group" >> beam.GroupByKey()
            | "Check" >> beam.ParDo(_Check(self.id_column)).with_output_types(int)
            | "Count" >> beam.CombineGlobally(sum)
        )


@dataclass(frozen=True, eq=False)
class _Ids:
    """Ids of one group, as (n, 2) uint64 blocks of `Identities`, with their rows and the sources of runs of them."""

    sources: tuple[tuple[str, int], ...]
    rows: np.ndarray
    blocks: np.ndarray


class _Split(beam.DoFn):
    def __init__(self, id_column: str, groups: int):
        self._id_column = id_column
        self._groups = groups

    def start_bundle(self) -> None:
        self._held: list[tuple[str, np.ndarray, np.ndarray]] = []
        self._count = 0

    @redact_errors("checking ids")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, _Ids]]:
        self._held.append((batch.source, batch.rows, record_identities(batch, self._id_column).blocks))
        self._count += len(batch.rows)
        if self._count >= HELD_IDS:
            yield from self._flush()

    @redact_errors("checking ids")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._flush())

    def _flush(self) -> Iterator[tuple[int, _Ids]]:
        held, self._held, self._count = self._held, [], 0
        if not held:
            return
        rows = np.concatenate([part for _, part, _ in held])
        blocks = np.concatenate([part for _, _, part in held])
        batches = np.repeat(np.arange(len(held)), [len(part) for _, part, _ in held])
        groups = _group(blocks, self._groups)
        order = np.argsort(groups, kind="stable")
        rows, blocks, batches, groups = rows[order], blocks[order], batches[order], groups[order]
        bounds = np.flatnonzero(np.diff(groups, prepend=-1, append=self._groups)).tolist()
        for start, stop in itertools.pairwise(bounds):
            runs = np.flatnonzero(np.diff(batches[start:stop], prepend=-1))
            lengths = np.diff(runs, append=stop - start).tolist()
            sources = tuple((held[batches[start + run]][0], n) for run, n in zip(runs.tolist(), lengths, strict=True))
            # Copies, because a view would keep all that the bundle held.
            yield int(groups[start]), _Ids(sources, rows[start:stop].copy(), blocks[start:stop].copy())


def _group(blocks: np.ndarray, groups: int) -> np.ndarray:
    """Group of each id: multiplicative hashing of the first 8 bytes, which also spreads consecutive integers."""
    high = (blocks[:, 0] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return (high * np.uint64(groups) >> np.uint64(32)).astype(np.int64)


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
            raise InputError(f"{one} and {two} have the same id in `id_column` {self._id_column}: ids must be unique")
        yield len(blocks)


def _place(parts: list[_Ids], index: int) -> str:
    for part in parts:
        if index >= len(part.rows):
            index -= len(part.rows)
            continue
        row = part.rows[index]
        for source, length in part.sources:
            if index < length:
                return f"{source} row {row}"
            index -= length
    raise IndexError(index)
