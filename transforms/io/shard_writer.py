"""Writing batches into a fixed number of shards, byte for byte the same however the runner cut its bundles.

Records go to shards by blocks of their row number. Each bundle writes what it has to segment files of its own; then
every shard is put together from its segments in the order of source and row, under a temporary name, and renamed.
Only the names of segments are shuffled.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from ..batches import LabelledBatch, filter_batch
from ..errors import StageError, redact_errors
from .filesystems import create, make_directory

COMPRESSIONS = ("none", "gzip")


# Records that stay together: small, so that a small log still fills every shard.
_BLOCK_ROWS = 256


_MAX_OPEN_SEGMENTS = 256


COPY_BYTES = 1 << 22


class Layout(Protocol):
    """How records become the bytes of a shard."""

    @property
    def suffix(self) -> str:
        """What shard names end in."""
        ...

    def open_segment(self, path: str) -> SegmentWriter:
        """A writer of a new segment file."""
        ...

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        """Writes one shard from its segments, in order. schemas: of all shards' segments."""
        ...


class SegmentWriter(Protocol):
    """Writes batches to one segment file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends the records."""
        ...

    def close(self) -> None:
        """Finishes the file."""
        ...

    def size(self) -> int:
        """What a reader can check the file against: its bytes, or its records."""
        ...

    def schemas(self) -> frozenset[bytes]:
        """The Arrow schemas of what was written, serialized; none where the layout does not need them."""
        ...


@dataclass(frozen=True)
class ShardFile:
    """A finished shard. path: where. records: how many it holds."""

    path: str
    records: int


@dataclass(frozen=True)
class Segment:
    source: str
    start: int
    path: str
    records: int
    size: int
    schemas: frozenset[bytes]


def check_shards(num_shards: int, compression: str) -> None:
    if num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, not {num_shards}")
    if compression not in COMPRESSIONS:
        raise ValueError(f"unknown compression {compression!r}; known: {', '.join(COMPRESSIONS)}")


def write_shards(
    batches: PCollection[LabelledBatch], directory: str, temp: str, num_shards: int, layout: Layout
) -> PCollection[ShardFile]:
    written = batches | "WriteSegments" >> beam.ParDo(_WriteSegments(temp, num_shards, layout)).with_output_types(
        tuple[int, Segment]
    )
    schemas: Any = (
        written
        | "Schemas" >> beam.Map(lambda element: element[1].schemas)
        | "UniteSchemas" >> beam.CombineGlobally(_united)
    )
    # Shards that no record falls into are written, too.
    every = batches.pipeline | "Shards" >> beam.Create([(shard, None) for shard in range(num_shards)])
    return (
        (written, every)
        | "Flatten" >> beam.Flatten()
        | "Gather" >> beam.GroupByKey()
        | "Assemble"
        >> beam.ParDo(_Assemble(directory, temp, num_shards, layout), AsSingleton(schemas)).with_output_types(ShardFile)
    )


def _united(sets: Iterable[frozenset[bytes]]) -> frozenset[bytes]:
    return frozenset().union(*sets)


def shard_of_rows(source: str, rows: np.ndarray, num_shards: int) -> np.ndarray:
    """The shard of each row of a source: blocks of 256 rows in turn, each source starting at another shard."""
    return (rows // _BLOCK_ROWS + zlib.crc32(source.encode())) % num_shards


class _WriteSegments(beam.DoFn):
    """Appends to one segment per shard while the batches of a source follow each other without a gap."""

    def __init__(self, temp: str, num_shards: int, layout: Layout):
        self._temp = temp
        self._num_shards = num_shards
        self._layout = layout

    def start_bundle(self) -> None:
        make_directory(self._temp)
        self._open: dict[int, _OpenSegment] = {}
        self._next: tuple[str, int] | None = None

    @redact_errors("writing")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, Segment]]:
        try:
            yield from self._write(batch)
        except BaseException:
            self.teardown()
            raise

    def teardown(self) -> None:
        """Closes what a failed bundle leaves open."""
        for segment in getattr(self, "_open", {}).values():
            with contextlib.suppress(Exception):
                segment.close()
        self._open = {}

    def _write(self, batch: LabelledBatch) -> Iterator[tuple[int, Segment]]:
        if self._next != (batch.source, batch.start):
            yield from self._close_all()
        self._next = (batch.source, batch.stop)
        shards = shard_of_rows(batch.source, batch.rows, self._num_shards)
        for shard in np.unique(shards).tolist():
            if shard not in self._open:
                if len(self._open) >= _MAX_OPEN_SEGMENTS:
                    yield from self._close_all()
                path = FileSystems.join(self._temp, f"{shard:05d}-{uuid.uuid4().hex}")
                self._open[shard] = _OpenSegment(batch.source, batch.start, path, self._layout.open_segment(path))
            self._open[shard].write(
                batch.batch if self._num_shards == 1 else filter_batch(batch.batch, np.flatnonzero(shards == shard))
            )

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for element in self._close_all():
            yield WindowedValue(element, MIN_TIMESTAMP, (GlobalWindow(),))

    def _close_all(self) -> Iterator[tuple[int, Segment]]:
        closing, self._open = self._open, {}
        for shard, segment in closing.items():
            yield shard, segment.close()


class _OpenSegment:
    def __init__(self, source: str, start: int, path: str, writer: SegmentWriter):
        self._source = source
        self._start = start
        self._path = path
        self._writer = writer
        self._records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)
        self._records += batch.num_rows

    def close(self) -> Segment:
        self._writer.close()
        size, schemas = self._writer.size(), self._writer.schemas()
        return Segment(self._source, self._start, self._path, self._records, size, schemas)


class _Assemble(beam.DoFn):
    def __init__(self, directory: str, temp: str, num_shards: int, layout: Layout):
        self._directory = directory
        self._temp = temp
        self._num_shards = num_shards
        self._layout = layout

    def setup(self) -> None:
        # No bundle of segments was begun where there is no record.
        make_directory(self._temp)

    @redact_errors("writing")
    def process(self, element: tuple[int, Iterable[Segment | None]], schemas: frozenset[bytes]) -> Iterator[ShardFile]:
        shard, found = element
        segments = sorted(
            (segment for segment in found if segment is not None), key=lambda segment: (segment.source, segment.start)
        )
        name = f"part-{shard:05d}-of-{self._num_shards:05d}.{self._layout.suffix}"
        partial = FileSystems.join(self._temp, f"{name}-{uuid.uuid4().hex}")
        final = FileSystems.join(self._directory, name)
        with create(partial) as file:
            self._layout.assemble(segments, schemas, file)
        make_directory(self._directory)
        FileSystems.rename([partial], [final])
        yield ShardFile(final, sum(segment.records for segment in segments))


def open_segment_file(path: str) -> BinaryIO:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def check_whole(segment: Segment, found: int) -> None:
    if found != segment.size:
        raise StageError("writing failed: a temporary file lost its end; is the disk full?")
