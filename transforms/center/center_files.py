"""Centers in temporary files, so that the last pass need not compute them from features again.

Centers are functions of public features and of released sums, so they may lie in files of the job. The pass that counts
residuals writes them, 2 or 4 bytes a record, and the pass that draws labels reads them by file and row. Both passes may
cut the input into other parts. A bundle that is repeated writes another file with the same centers, and any of them
serves. The digest of each pass has a term for each center: files that hold others end the job.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ...mechanisms.release.label_column import LabelColumn
from ..batches import Carried, LabelledBatch, as_argument, center_values, check_whole_input
from ..errors import CHANGED_INPUT, InputError, StageError, named_file, redact_errors
from ..io.filesystems import create, make_directory, makes_parents, open_file
from .append_center import with_centers

MOST_ROWS = 1 << 20
"""Rows of a file at most, apart from the last batch: a worker holds them in memory."""


class CenterRows(NamedTuple):
    """Consecutive rows of a source, and their place in a file.

    Attributes:
      source: The input file.
      start: Its first row of these.
      stop: The row after the last one.
      path: The file with their centers.
      offset: Place of the first one among all centers of that file.
    """

    source: str
    start: int
    stop: int
    path: str
    offset: int


@dataclass(frozen=True, eq=False)
class CenterFiles:
    """Places of the centers of all records, as a side input: 40 bytes for each part of a source, and the paths.

    Attributes:
      paths: The files.
      keys: Key of the source of each part, ascending, shape (n,), uint64.
      places: Start, stop, number of the file and offset of each part, shape (n, 4), int64; parts of a source are in the
        order of their starts.
    """

    paths: tuple[str, ...]
    keys: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, parts: Iterable[CenterRows]) -> CenterFiles:
        """Sorts the parts, some of which may be there twice."""
        found = sorted((_key(each.source), each) for each in parts)
        numbers = {path: number for number, path in enumerate(dict.fromkeys(each.path for _, each in found))}
        places = [(each.start, each.stop, numbers[each.path], each.offset) for _, each in found]
        keys = np.array([key for key, _ in found], np.uint64)
        return cls(tuple(numbers), keys, np.array(places, np.int64).reshape(-1, 4))

    def parts(self, source: str, start: int, stop: int) -> Iterator[CenterRows]:
        """Finds parts of a source that overlap with rows, in the order of their starts."""
        key = np.uint64(_key(source))
        first, last = np.searchsorted(self.keys, key), np.searchsorted(self.keys, key, side="right")
        places = self.places[first:last]
        for begin, end, number, offset in places[(places[:, 0] < stop) & (places[:, 1] > start)].tolist():
            yield CenterRows(source, begin, end, self.paths[number], offset)


def _key(source: str) -> int:
    """Hashes the name of a source. If two had one key, the digests of the passes would differ, and end the job."""
    return int.from_bytes(hashlib.blake2b(source.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def _kind(column: LabelColumn) -> np.dtype:
    """Type of the indices in files, whose largest value stands for no record."""
    return np.dtype("<u2" if len(column.domain) < 1 << 16 else "<u4")


@dataclass
class WriteCenters(beam.PTransform):
    """Writes the centers of batches with a center column to files; gives exactly one CenterFiles.

    `directory` is a temporary folder, which is deleted when the job has ended; its parent exists.
    """

    directory: str
    column: LabelColumn

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[CenterFiles]:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(batches, self)
        write = _Write(self.directory, self.column, makes_parents(self.directory))
        return (
            batches
            | "Write" >> beam.ParDo(write).with_output_types(CenterRows)
            | "List" >> beam.combiners.ToList()
            | "Sort" >> beam.Map(CenterFiles.of).with_output_types(CenterFiles)
        )


class _Write(beam.DoFn):
    """Writes a file for each bundle, and further ones for many rows."""

    def __init__(self, directory: str, column: LabelColumn, parents: bool):
        self._directory = directory
        self._column = column
        self._parents = parents

    def start_bundle(self) -> None:
        make_directory(self._directory, self._parents)
        self._clear()

    def _clear(self) -> None:
        self._held: list[np.ndarray] = []
        # Source, start, stop and offset of each part.
        self._parts: list[tuple[str, int, int, int]] = []
        self._rows = 0

    @redact_errors("writing centers")
    def process(self, batch: LabelledBatch) -> Iterator[CenterRows]:
        kind, rows = _kind(self._column), batch.stop - batch.start
        indices = np.full(rows, np.iinfo(kind).max, kind)
        assert self._column.center is not None
        # The centers are labels of the domain.
        values = center_values(batch, self._column.center)
        indices[batch.rows - batch.start] = np.searchsorted(self._column.labels, values)
        before = self._parts[-1] if self._parts else ("", 0, 0, 0)
        if before[0] == batch.source and before[2] == batch.start:
            self._parts[-1] = batch.source, before[1], batch.stop, before[3]
        else:
            self._parts.append((batch.source, batch.start, batch.stop, self._rows))
        self._held.append(indices)
        self._rows += rows
        if self._rows >= MOST_ROWS:
            yield from self._written()

    @redact_errors("writing centers")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._written())

    def _written(self) -> Iterator[CenterRows]:
        if not self._rows:
            return
        path = FileSystems.join(self._directory, f"centers-{uuid.uuid4().hex}")
        with named_file("writing", self._directory), create(path) as file:
            file.write(np.concatenate(self._held).tobytes())
        for source, start, stop, offset in self._parts:
            yield CenterRows(source, start, stop, path, offset)
        self._clear()


@dataclass
class AppendWrittenCenters(beam.PTransform):
    """Adds the column of centers to each batch, as `AppendCenter` does, from the files of an earlier pass.

    `files` is what `WriteCenters` found, carried by the batches. The features of the center need not be read.
    """

    files: Carried[CenterFiles]
    column: LabelColumn

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        return batches | "Append" >> beam.ParDo(_Append(self.column), as_argument(self.files)).with_output_types(
            LabelledBatch
        )


class _Append(beam.DoFn):
    def __init__(self, column: LabelColumn):
        self._column = column

    def setup(self) -> None:
        # Of the last part: batches of a source follow each other.
        self._last: tuple[CenterRows | None, np.ndarray] = None, np.zeros(0)

    @redact_errors("reading centers")
    def process(self, batch: LabelledBatch, files: CenterFiles) -> Iterator[LabelledBatch]:
        indices = self._indices(batch, batch.resolve(files))
        if len(indices) and indices.max() >= len(self._column.domain):
            # A record that the earlier pass did not see.
            raise InputError(CHANGED_INPUT)
        yield with_centers(batch, self._column.labels[indices], self._column)

    def _indices(self, batch: LabelledBatch, files: CenterFiles) -> np.ndarray:
        kind = _kind(self._column)
        found = np.full(batch.stop - batch.start, np.iinfo(kind).max, kind)
        for part in files.parts(batch.source, batch.start, batch.stop):
            start, stop = max(part.start, batch.start), min(part.stop, batch.stop)
            own = self._of_part(part)[start - part.start : stop - part.start]
            found[start - batch.start : stop - batch.start] = own
        return found[batch.rows - batch.start]

    def _of_part(self, part: CenterRows) -> np.ndarray:
        if self._last[0] != part:
            kind, rows = _kind(self._column), part.stop - part.start
            with named_file("reading", part.path), open_file(part.path) as file:
                file.seek(part.offset * kind.itemsize)
                content = file.read(rows * kind.itemsize)
            if len(content) != rows * kind.itemsize:
                raise StageError("reading centers failed: a temporary file is truncated; is the disk full?")
            self._last = part, np.frombuffer(content, kind)
        return self._last[1]
