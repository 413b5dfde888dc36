"""Writes batches into a fixed number of shards, with the same bytes however the runner forms its bundles.

A record's shard follows from its row, from the numbers of rows of all files (`ShardRanges`), and with partitions from
the folder of its file. Each bundle writes its records to its own segment files. A shard of one segment is that file,
renamed. Any other is assembled from its segments in the order of source and row, under a temporary name, and renamed.
With a `KeyedOrder`, shard and order follow from the key instead, and every shard is sorted when it is assembled.
An object store cannot rename: there, the store itself joins segments that have the bytes of the shard, and others are
assembled under its name. Only the names of segments are shuffled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ...mechanisms.release.bound_noise import NoiseBinding
from ..batches import Argument, Carried, LabelledBatch, as_argument, check_whole_input
from ..beam_rows import RowsToBatches
from ..errors import InputError, StageError, named_file, redact_errors
from ..io.filesystems import (
    complete_file,
    create,
    exists,
    is_remote,
    join_files,
    make_directory,
    makes_parents,
    move_files,
    open_file,
)
from ..io.hive_partitions import ONE_FOLDER, OutputPartitions
from ..io.limits import LIMITS, Limits
from ..job_metrics import BYTES_WRITTEN, RECORDS_WRITTEN, SEGMENTS, public_bytes
from ..shown_transform import ShownTransform
from ..stores.object_store import is_store
from .keyed_order import KeyedOrder, by_shard, check_size
from .shard_ranges import DivideRows, RowCuts, ShardRanges, SourceRows

COMPRESSIONS = ("none", "gzip")
COPY_BYTES = 1 << 22


class Layout(Protocol):
    """File format of shards."""

    @property
    def suffix(self) -> str:
        """Extension of shard names, without a leading dot."""
        ...

    def open_segment(self, path: str, batch: LabelledBatch, whole: bool) -> SegmentWriter:
        """Opens a new segment file for a first batch.

        `whole` tells that the segment is expected to have all records of a shard: it is worth its format then.
        """
        ...

    def columns(self, batch: LabelledBatch) -> pa.RecordBatch:
        """Records as they are held until their shard is sorted."""
        ...

    def open_unsorted(self, path: str) -> SegmentWriter:
        """Opens a new segment file of such records, each after its words."""
        ...

    def assemble_sorted(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        """Writes one shard from such segments, in the order of the words."""
        ...

    def is_shard(self, segments: list[Segment], schemas: frozenset[bytes]) -> bool:
        """Tells whether the segments of a shard, one after the other, have the bytes that `assemble` would write."""
        ...

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        """Writes one shard from its segments in order.

        `schemas` are the serialized Arrow schemas of all segments of all shards.
        """
        ...


class SegmentWriter:
    """Writes batches to one segment file. A subclass knows their format, and overrides `write`."""

    def __init__(self, path: str):
        """Creates the file."""
        self._file = create(path)

    def takes(self, schema: pa.Schema) -> bool:
        """Tells whether a batch of an Arrow schema can be appended; False if it needs another segment."""
        return True

    def write(self, batch: LabelledBatch) -> None:
        """Appends records."""
        raise NotImplementedError

    def close(self) -> int:
        """Finishes the file. Returns its size in bytes, to detect truncation."""
        try:
            self._finish()
            return self._file.tell()
        finally:
            self._file.close()

    def _finish(self) -> None:
        """Writes what belongs after the last record."""

    def is_final(self) -> bool:
        """True if the file has the format of shards."""
        return False

    def schemas(self) -> frozenset[bytes]:
        """Serialized Arrow schemas of the batches; none where the layout does not need them."""
        return frozenset()


@dataclass(frozen=True)
class ShardFile:
    """Complete shard.

    Attributes:
      path: The file.
      records: Number of records in it.
      mechanisms: Fingerprints of the randomizers that drew its labels, in hexadecimal digits: one for a shard of
        privatized records, none for an empty shard. None is among them if the shard holds labels as read.
      folder: Folder of its partition, below that of all shards; empty if records are not divided.
    """

    path: str
    records: int
    mechanisms: frozenset[str | None] = frozenset()
    folder: str = ""

    @property
    def name(self) -> str:
        """Path below the folder of all shards."""
        name = FileSystems.split(self.path)[1]
        return f"{self.folder}/{name}" if self.folder else name


@dataclass(frozen=True)
class Segment:
    """Complete segment file: consecutive records that go to one shard, of one source or of several neighbors.

    Attributes:
      source: The input file of its first record.
      start: First row of that source that the segment may hold.
      path: The segment file.
      records: Number of records in it.
      size: Of the file, in bytes.
      final: As in `SegmentWriter.is_final`.
      schemas: As in `SegmentWriter.schemas`.
      mechanisms: As in `ShardFile.mechanisms`.
    """

    source: str
    start: int
    path: str
    records: int
    size: int
    final: bool
    schemas: frozenset[bytes]
    mechanisms: frozenset[str | None]


@dataclass
class WriteShards(ShownTransform):
    """Writes shards in one file format, which a subclass chooses.

    Takes a PCollection of LabelledBatch; gives a ShardFile for each shard, also for those without records. The same
    batches give the same bytes on every runner.

    If the rows of the sources are known (`CountRows`), each shard has a range of them, and all bundles together write
    at most one segment for each source, shard and bundle, and fewer where sources of one shard follow each other in a
    bundle. Otherwise rows go to shards in turn, in blocks of `shard_rows`, and every bundle writes a segment for every
    shard, as it does with a keyed order.

    The attributes are those of its subclasses, `WriteTFRecords` and `WriteParquet`.
    """

    directory: str
    temp_directory: str
    num_shards: int
    compression: str = "none"
    partitions: OutputPartitions = ONE_FOLDER
    rows: PCollection[SourceRows] | Carried[ShardRanges] | None = None
    left_out: Sequence[str] = ()
    labels: Collection[str] | None = None
    order: KeyedOrder | None = None
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        """Checks the options. Raises ValueError if there is no shard, or the compression is unknown."""
        if self.num_shards < 1:
            raise ValueError(f"num_shards must be at least 1, not {self.num_shards}")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"unknown compression {self.compression!r}; known: {', '.join(COMPRESSIONS)}")

    def _layout(self) -> Layout:
        """Returns the file format."""
        raise NotImplementedError

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ShardFile]:
        """Raises InputError for windows, an unbounded input, or batches of `RowsToBatches`, which have no order."""
        check_whole_input(batches, self)
        _check_files(batches, type(self).__name__)
        layout = self._layout()
        ranges: PCollection[ShardRanges] | Carried[ShardRanges] | None = None
        if isinstance(self.rows, PCollection):
            ranges = self.rows | "DivideRows" >> DivideRows(self.num_shards, self.partitions)
        else:
            ranges = self.rows
        parents = makes_parents(self.temp_directory)
        written = batches | "WriteSegments" >> beam.ParDo(
            _WriteSegments(
                self.temp_directory,
                self.num_shards,
                layout,
                self.partitions,
                parents,
                tuple(self.left_out),
                None if self.labels is None else frozenset(self.labels),
                self.order if self.order is None else dataclasses.replace(self.order, binding=None),
                self.limits,
            ),
            as_argument(ranges),
            as_argument(None if self.order is None else self.order.binding),
        ).with_output_types(tuple[int, Segment])
        schemas: PCollection[frozenset[bytes]] = (
            written
            | "Schemas" >> beam.Map(lambda element: element[1].schemas)
            | "UniteSchemas" >> beam.CombineGlobally(_united).without_defaults()
        )
        # Shards without records are written as well.
        total = self.num_shards * len(self.partitions.folders)
        every = batches.pipeline | "Shards" >> beam.Create([(shard, None) for shard in range(total)], reshuffle=False)
        return (
            (written, every)
            | "Flatten" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()
            | "Assemble"
            >> beam.ParDo(
                _Assemble(
                    self.directory,
                    self.temp_directory,
                    self.num_shards,
                    layout,
                    self.partitions,
                    parents,
                    self.order is not None,
                ),
                AsSingleton(schemas, default_value=frozenset()),
            ).with_output_types(ShardFile)
        )


def _check_files(batches: PCollection[LabelledBatch], writer: str) -> None:
    """Raises InputError if the batches come from rows: each is numbered from 0, and shards are in the order of rows."""
    seen, ahead = set(), [batches.producer]
    while ahead:
        step = ahead.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        if isinstance(step.transform, RowsToBatches):
            raise InputError(
                f"{writer} writes batches of files, in the order of their rows; those of RowsToBatches have none: turn "
                "them into rows with BatchesToRows, and write these with beam.io"
            )
        ahead += [step.parent, *(source.producer for source in step.inputs)]


def _united(sets: Iterable[frozenset[bytes]]) -> frozenset[bytes]:
    return frozenset().union(*sets)


def shard_of_rows(source: str, rows: np.ndarray, num_shards: int, block: int = LIMITS.shard_rows) -> np.ndarray:
    """Assigns rows to shards: blocks of some rows in turn, beginning at a shard that depends on the source.

    Takes row numbers of shape (n,), int64; returns shards of the same shape and type.
    """
    return (rows // block + zlib.crc32(source.encode())) % num_shards


@dataclass(eq=False)
class _WriteSegments(beam.DoFn):
    """Writes one segment per shard as long as batches follow each other without a gap, in one source or the next."""

    _temp: str
    _num_shards: int
    _layout: Layout
    _partitions: OutputPartitions = ONE_FOLDER
    _parents: bool = True
    _left_out: tuple[str, ...] = ()
    _labels: frozenset[str] | None = None
    _order: KeyedOrder | None = None
    _limits: Limits = LIMITS

    def start_bundle(self) -> None:
        make_directory(self._temp, self._parents)
        self._open: dict[int, _OpenSegment] = {}
        # Source and row after the last record.
        self._next = "", 0
        self._cuts: RowCuts | None = None

    @redact_errors("writing")
    def process(
        self,
        batch: LabelledBatch,
        ranges: Argument[ShardRanges | None] = None,
        binding: Argument[NoiseBinding | None] = None,
    ) -> Iterator[tuple[int, Segment]]:
        try:
            with named_file("writing", self._temp):
                yield from self._write(batch, batch.resolve(ranges), batch.resolve(binding))
        except BaseException:
            self.teardown()
            raise

    def teardown(self) -> None:
        """Closes the segments that a failed bundle leaves open."""
        for segment in getattr(self, "_open", {}).values():
            with contextlib.suppress(Exception):
                segment.close()
        self._open = {}

    def _write(
        self, batch: LabelledBatch, ranges: ShardRanges | None, binding: NoiseBinding | None
    ) -> Iterator[tuple[int, Segment]]:
        after = batch.source, batch.stop
        if not batch.batch.num_rows:
            if self._next == (batch.source, batch.start):
                self._next = after
            return
        folder = self._partitions.place(batch.source)
        if self._order is None and not self._continues(batch, ranges, folder):
            yield from self._close_all()
        self._next = after
        kept = dataclasses.replace(batch, batch=self._partitions.drop(batch.batch)).without(self._left_out)
        self._count(kept)
        if self._cuts is None:
            if self._order is None:
                parts = self._blocks(kept)
            else:
                assert binding is not None
                parts = self._keyed(kept, self._order.words(batch, binding))
            most = self._limits.open_uploads if is_remote(self._temp) else self._limits.open_segments
        else:
            parts = self._ranges(kept, self._cuts)
            # Rows ascend, and so do their shards.
            most = 1
        for shard, records, whole in parts:
            place = folder * self._num_shards + shard
            if place in self._open and not self._open[place].writer.takes(records.batch.schema):
                yield place, self._open.pop(place).close()
            if place not in self._open:
                if len(self._open) >= most:
                    yield from self._close_all()
                path = FileSystems.join(self._temp, f"{place:05d}-{uuid.uuid4().hex}")
                if self._order is None:
                    writer = self._layout.open_segment(path, records, whole)
                else:
                    writer = self._layout.open_unsorted(path)
                SEGMENTS.inc()
                self._open[place] = _OpenSegment(batch.source, batch.start, path, writer)
            self._open[place].write(records)

    def _count(self, batch: LabelledBatch) -> None:
        RECORDS_WRITTEN.inc(len(batch.rows))
        if batch.encoded is not None:
            # Labels in frames have four bytes each.
            BYTES_WRITTEN.inc(batch.encoded.frames.nbytes)
        elif self._labels is not None:
            BYTES_WRITTEN.inc(public_bytes(batch.batch, self._labels))

    def _continues(self, batch: LabelledBatch, ranges: ShardRanges | None, folder: int) -> bool:
        """Tells whether no record is between the last one and this batch, and finds the cuts of another source."""
        source, row = self._next
        if batch.source == source:
            return batch.start == row
        before, self._cuts = self._cuts, None if ranges is None else ranges.of_file(batch.source, folder)
        if before is None or self._cuts is None:
            return False
        # Between folders this may be true wrongly, but there a new shard begins.
        return (row, batch.start) == (before.rows, 0) and self._cuts.follows(before)

    def _blocks(self, batch: LabelledBatch) -> Iterator[tuple[int, LabelledBatch, bool]]:
        """Records for each shard, in blocks of rows in turn, and whether they may be all records of the shard."""
        if self._num_shards == 1:
            yield 0, batch, False
            return
        shards = shard_of_rows(batch.source, batch.rows, self._num_shards, self._limits.shard_rows)
        for shard in np.unique(shards).tolist():
            yield shard, batch.keep(shards == shard), False

    def _keyed(self, batch: LabelledBatch, words: np.ndarray) -> Iterator[tuple[int, LabelledBatch, bool]]:
        """Records for each shard by their words, of which none is known to have all records of the shard."""
        for shard, records in by_shard(self._layout.columns(batch), words, self._num_shards):
            rows = batch.rows[: records.num_rows]
            yield shard, dataclasses.replace(batch, batch=records, rows=rows, encoded=None), False

    def _ranges(self, batch: LabelledBatch, cuts: RowCuts) -> Iterator[tuple[int, LabelledBatch, bool]]:
        """Records for each shard, in ranges of rows, and whether they may be all records of the shard."""
        for shard, start, stop in cuts.parts(batch.rows):
            yield shard, batch.slice(start, stop), shard in cuts.whole

    @redact_errors("writing")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        # Buffers are flushed here, so this is where a small output finds that the disk is full.
        with named_file("writing", self._temp):
            yield from map(GlobalWindows.windowed_value, self._close_all())

    def _close_all(self) -> Iterator[tuple[int, Segment]]:
        closing, self._open = self._open, {}
        for shard, segment in closing.items():
            yield shard, segment.close()


@dataclass(eq=False)
class _OpenSegment:
    source: str
    start: int
    path: str
    writer: SegmentWriter
    records: int = 0
    mechanisms: set[str | None] = field(default_factory=set)

    def write(self, batch: LabelledBatch) -> None:
        self.writer.write(batch)
        self.records += len(batch.rows)
        self.mechanisms.add(batch.mechanism)

    def close(self) -> Segment:
        size = self.writer.close()
        final, schemas, mechanisms = self.writer.is_final(), self.writer.schemas(), frozenset(self.mechanisms)
        return Segment(self.source, self.start, self.path, self.records, size, final, schemas, mechanisms)


@dataclass(eq=False)
class _Assemble(beam.DoFn):
    _directory: str
    _temp: str
    _num_shards: int
    _layout: Layout
    _partitions: OutputPartitions = ONE_FOLDER
    _parents: bool = True
    _sorted: bool = False

    def setup(self) -> None:
        # Without records, no bundle of segments has made the folder.
        make_directory(self._temp, self._parents)

    @redact_errors("writing")
    def process(self, element: tuple[int, Iterable[Segment | None]], schemas: frozenset[bytes]) -> Iterator[ShardFile]:
        shard, found = element
        segments = sorted(
            (segment for segment in found if segment is not None), key=lambda segment: (segment.source, segment.start)
        )
        if len({(segment.source, segment.start) for segment in segments}) < len(segments):
            raise InputError(f"several batches begin at one row of {segments[0].source}, so its rows have no order")
        name = self._partitions.shard_name(shard, self._num_shards, self._layout.suffix)
        final = FileSystems.join(self._directory, name)
        with named_file("writing", final):
            joined = not self._sorted and self._layout.is_shard(segments, schemas)
            if joined and is_store(final):
                # An object appears whole, so that no segment is truncated.
                join_files([(segment.path, segment.size) for segment in segments], final, self._temp)
            elif joined and len(segments) == 1:
                _rename(segments[0], final)
            else:
                assemble = self._layout.assemble
                if self._sorted:
                    check_size(sum(segment.size for segment in segments), name, self._num_shards)
                    assemble = self._layout.assemble_sorted
                with complete_file(final, self._temp) as file:
                    assemble(segments, schemas, file)
        mechanisms = frozenset().union(*(segment.mechanisms for segment in segments))
        records = sum(segment.records for segment in segments)
        yield ShardFile(final, records, mechanisms, name.rpartition("/")[0])


def _rename(segment: Segment, final: str) -> None:
    """Makes the only segment of a shard the shard."""
    if not exists(segment.path) and exists(final):
        # This is a retry of a bundle that has renamed it.
        with open_file(final) as file:
            _check_size(segment, file)
        return
    with open_file(segment.path) as file:
        _check_size(segment, file)
    make_directory(FileSystems.split(final)[0])
    move_files([(segment.path, final)])


@contextlib.contextmanager
def open_segment_file(segment: Segment) -> Iterator[BinaryIO]:
    """Opens a segment file for reading. Raises StageError if the file is truncated."""
    with open_file(segment.path) as file:
        _check_size(segment, file)
        yield file


def _check_size(segment: Segment, file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    if size != segment.size:
        raise StageError("writing failed: a temporary segment file is truncated; is the disk full?")
    file.seek(0)
