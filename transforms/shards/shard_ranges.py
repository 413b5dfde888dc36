"""Assignment of rows to shards, in ranges that follow from the numbers of rows of the files.

The numbers are public, and known once the files have been read for the first time. Each shard has the rows of one file,
or consecutive rows of neighboring files, so that a file goes to few shards however the runner forms its bundles.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, PCollection

from ..batches import LabelledBatch, check_whole_input
from ..errors import InputError, redact_errors
from ..io.hive_partitions import ONE_FOLDER, OutputPartitions
from ..shown_transform import ShownTransform

# Shards that hold rows of one file each may be so many times larger than the mean.
_MOST_UNEVEN = 4


class SourceRows(NamedTuple):
    """Rows of one source.

    Attributes:
      source: The file.
      rows: Number of its rows, also of those without a record.
      records: Number of its records: rows that no filter leaves out.
    """

    source: str
    rows: int
    records: int


class CountRows(ShownTransform):
    """Counts the rows of each source, which `WriteTFRecords` and `WriteParquet` divide among their shards.

    Takes a PCollection of LabelledBatch, of a first pass over the input; gives a SourceRows for each source. Whether a
    record exists does not depend on its label.
    """

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[SourceRows]:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(batches, self)
        return (
            batches
            | "Rows"
            >> beam.Map(lambda batch: (batch.source, (batch.stop, batch.batch.num_rows))).with_output_types(
                tuple[str, tuple[int, int]]
            )
            | "Add" >> beam.CombinePerKey(_add)
            | "Name" >> beam.MapTuple(lambda source, counts: SourceRows(source, *counts)).with_output_types(SourceRows)
        )


def _add(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    rows = records = 0
    for stop, found in counts:
        rows, records = max(rows, stop), records + found
    return rows, records


class _FileRange(NamedTuple):
    """Place of a file's rows among the shards of its folder, which are numbered from 0: from `start` to `stop`."""

    source: str
    rows: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class ShardRanges:
    """Ranges of rows of all shards, as a small side input: 32 bytes a file.

    Row r of a file with R rows is in shard `(start + (stop - start) * r / R) / scale` of its folder, rounded down.

    Attributes:
      salt: Number that makes the keys of all sources different.
      keys: Key of each source, ascending. Shape (n,), uint64.
      files: Rows, start and stop of each source. Shape (n, 3), int64.
      scales: Scale of each folder.
    """

    salt: int
    keys: np.ndarray
    files: np.ndarray
    scales: tuple[int, ...]

    def of_file(self, source: str, folder: int) -> RowCuts:
        """Rows at which a file is cut; `folder` is the index of its folder among those of the output.

        Raises InputError if the file had no rows in the first pass.
        """
        key = np.uint64(_key(source, self.salt))
        # A Python integer would turn all keys into floats, each time.
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or self.keys[place] != key:
            raise InputError(
                f"{source} was added to the input while the job ran: run again when the files are complete"
            )
        rows, start, stop = self.files[place].tolist()
        scale = self.scales[folder]
        first, last = start // scale, (stop - 1) // scale
        cuts = [-((start - shard * scale) * rows // (stop - start)) for shard in range(first + 1, last + 1)]
        whole = range(-(-start // scale), stop // scale)
        return RowCuts(first, np.array(cuts, np.int64), whole, rows, (start, stop))


@dataclass(frozen=True, eq=False)
class RowCuts:
    """Rows at which a file is cut into parts for consecutive shards.

    Attributes:
      first: Shard of its first row, among those of its folder.
      cuts: First row of each further shard, ascending.
      whole: Shards that have rows of no other file.
      rows: Number of its rows.
      place: Where it begins and ends among the files of its folder, in `scale` units a shard.
    """

    first: int
    cuts: np.ndarray
    whole: range
    rows: int
    place: tuple[int, int]

    def follows(self, other: RowCuts) -> bool:
        """Tells whether the first row of this file comes right after the last row of another.

        No row of a third file is between them then. Both files belong to the same folder.
        """
        return self.place[0] == other.place[1]

    def parts(self, rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """Divides records among shards, by their rows, shape (n,), ascending.

        Yields shard, first record and end of records, exclusive, for each shard that gets any.
        """
        if not len(rows):
            return
        low, high = np.searchsorted(self.cuts, [rows[0], rows[-1]], side="right").tolist()
        start = 0
        for shard, end in enumerate(
            [*np.searchsorted(rows, self.cuts[low:high]).tolist(), len(rows)], self.first + low
        ):
            if end > start:
                yield shard, start, end
            start = end


def divide_rows(found: Iterable[SourceRows], num_shards: int, partitions: OutputPartitions = ONE_FOLDER) -> ShardRanges:
    """Divides the rows of all files among shards, `num_shards` >= 1 of each folder.

    If there are at least as many shards as files, each shard has rows of one file, unless one would have more than four
    times the mean number of records. Otherwise each shard has the same number of records, those of its files in their
    order, as far as the records of a file are spread evenly over its rows. A file goes to `num_shards` + n parts of
    shards at most, all n files together.
    """
    folders: list[list[SourceRows]] = [[] for _ in partitions.folders]
    for source in sorted(found):
        if source.rows:
            folders[partitions.place(source.source)].append(source)
    ranges, scales = [], []
    for files in folders:
        placed, scale = _placed(files, num_shards)
        ranges += placed
        scales.append(scale)
    salt = 0
    while len(set(keys := [_key(each.source, salt) for each in ranges])) < len(ranges):
        salt += 1
    order = np.argsort(np.array(keys, np.uint64))
    numbers = np.array([(each.rows, each.start, each.stop) for each in ranges], np.int64).reshape(-1, 3)
    return ShardRanges(salt, np.array(keys, np.uint64)[order], numbers[order], tuple(scales))


def _placed(files: Sequence[SourceRows], num_shards: int) -> tuple[list[_FileRange], int]:
    """Ranges of the files of one folder, and their scale."""
    # A file whose records are all left out has a place, too: the other pass may keep some.
    weights = [max(file.records, 1) for file in files]
    total = sum(weights)
    counts = _shards_of_files(weights, num_shards)
    scale = 1
    if counts is None or any(
        weight * num_shards > _MOST_UNEVEN * total * count for weight, count in zip(weights, counts, strict=True)
    ):
        counts, scale = [weight * num_shards for weight in weights], total
    ranges, start = [], 0
    for file, count in zip(files, counts, strict=True):
        ranges.append(_FileRange(file.source, file.rows, start, start + count))
        start += count
    return ranges, scale


def _shards_of_files(weights: Sequence[int], num_shards: int) -> list[int] | None:
    """Number of shards of each file, for which the largest shard is smallest; None if there are more files."""
    if len(weights) > num_shards:
        return None
    counts = [1] * len(weights)
    largest = [(-float(weight), place) for place, weight in enumerate(weights)]
    heapq.heapify(largest)
    for _ in range(num_shards - len(weights) if weights else 0):
        _, place = largest[0]
        counts[place] += 1
        heapq.heapreplace(largest, (-weights[place] / counts[place], place))
    return counts


def _key(source: str, salt: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{salt} {source}".encode(), digest_size=8).digest(), "little")


@dataclass
class DivideRows(ShownTransform):
    """Divides rows among shards: a PCollection of SourceRows to exactly one ShardRanges.

    Attributes:
      num_shards: Number of shards of each folder.
      partitions: Folders of the shards.
    """

    num_shards: int
    partitions: OutputPartitions = ONE_FOLDER

    def expand(self, rows: PCollection[SourceRows]) -> PCollection[ShardRanges]:
        once: PCollection[None] = rows.pipeline | "Once" >> beam.Create([None])
        return once | "Divide" >> beam.ParDo(_Divide(self.num_shards, self.partitions), AsList(rows)).with_output_types(
            ShardRanges
        )


class _Divide(beam.DoFn):
    def __init__(self, num_shards: int, partitions: OutputPartitions):
        self._num_shards = num_shards
        self._partitions = partitions

    @redact_errors("dividing rows among shards")
    def process(self, _: None, found: Sequence[SourceRows]) -> Iterator[ShardRanges]:
        yield divide_rows(found, self._num_shards, self._partitions)
