"""Writing batches into a fixed number of shards, byte for byte the same however the runner cut its bundles.

Records go to shards by blocks of their row number. Each bundle writes what it has to segment files of its own; then
every shard is put together from its segments in the order of source and row, under a temporary name, and renamed.
Only the names of segments are shuffled.
"""

from __future__ import annotations

import contextlib
import gzip
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from .batches import LabelledBatch, filter_batch
from .encoded import framed_records, is_encoded
from .errors import InputError, StageError, guarded
from .noise_key import is_remote
from .tf_example_encoder import encode_frames

COMPRESSIONS = ("none", "gzip")
# Records that stay together: small, so that a small log still fills every shard.
_BLOCK_ROWS = 256
_MAX_OPEN_SEGMENTS = 256
_ROW_GROUP = 1 << 16
_COPY_BYTES = 1 << 22
_GZIP_LEVEL = 6


class Layout(Protocol):
    """How records become the bytes of a shard."""

    @property
    def suffix(self) -> str:
        """What shard names end in."""
        ...

    def open_segment(self, path: str) -> SegmentWriter:
        """A writer of a new segment file."""
        ...

    def assemble(self, segments: list[_Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
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
class _Segment:
    source: str
    start: int
    path: str
    records: int
    size: int
    schemas: frozenset[bytes]


@dataclass
class WriteTFRecords(beam.PTransform):
    """Takes a PCollection of LabelledBatch, writes TFRecord shards of tf.Example; gives a ShardFile for each.

    directory: part-00000-of-00004.tfrecord and so on appear in it when they are complete. temp_directory: on the
    same filesystem, holds unfinished files of privatized records; delete it when the job has ended. num_shards:
    >= 1, all of them are written. compression: none or gzip. The same batches give the same bytes on every runner.
    """

    directory: str
    temp_directory: str
    num_shards: int
    compression: str = "none"

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown compression or fewer than one shard."""
        super().__init__()
        _check(self.num_shards, self.compression)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ShardFile]:
        return _write(batches, self.directory, self.temp_directory, self.num_shards, _TFRecordLayout(self.compression))


@dataclass
class WriteParquet(beam.PTransform):
    """Takes a PCollection of LabelledBatch, writes Parquet shards; gives a ShardFile for each.

    As `WriteTFRecords`, with row groups of 65,536 records. compression: none or gzip.
    """

    directory: str
    temp_directory: str
    num_shards: int
    compression: str = "none"

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown compression or fewer than one shard."""
        super().__init__()
        _check(self.num_shards, self.compression)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ShardFile]:
        return _write(batches, self.directory, self.temp_directory, self.num_shards, _ParquetLayout(self.compression))


def _check(num_shards: int, compression: str) -> None:
    if num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, not {num_shards}")
    if compression not in COMPRESSIONS:
        raise ValueError(f"unknown compression {compression!r}; known: {', '.join(COMPRESSIONS)}")


def _write(
    batches: PCollection[LabelledBatch], directory: str, temp: str, num_shards: int, layout: Layout
) -> PCollection[ShardFile]:
    written = batches | "WriteSegments" >> beam.ParDo(_WriteSegments(temp, num_shards, layout)).with_output_types(
        tuple[int, _Segment]
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

    @guarded("writing")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, _Segment]]:
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

    def _write(self, batch: LabelledBatch) -> Iterator[tuple[int, _Segment]]:
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

    def _close_all(self) -> Iterator[tuple[int, _Segment]]:
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

    def close(self) -> _Segment:
        self._writer.close()
        size, schemas = self._writer.size(), self._writer.schemas()
        return _Segment(self._source, self._start, self._path, self._records, size, schemas)


class _Assemble(beam.DoFn):
    def __init__(self, directory: str, temp: str, num_shards: int, layout: Layout):
        self._directory = directory
        self._temp = temp
        self._num_shards = num_shards
        self._layout = layout

    def setup(self) -> None:
        # No bundle of segments was begun where there is no record.
        make_directory(self._temp)

    @guarded("writing")
    def process(self, element: tuple[int, Iterable[_Segment | None]], schemas: frozenset[bytes]) -> Iterator[ShardFile]:
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


def make_directory(path: str) -> None:
    """Makes a folder, and those above it, unless it is there."""
    if not FileSystems.exists(path):
        # Another worker may make it first.
        with contextlib.suppress(OSError):
            FileSystems.mkdirs(path)


def create(path: str) -> BinaryIO:
    """A new file of exactly the bytes that are written to it, whatever its name ends in.

    Local folders are not made: a worker that outlives its job does not bring back what the job's end has removed.
    """
    if not is_remote(path):
        return open(path, "wb")
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _open(path: str) -> BinaryIO:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


@dataclass(frozen=True)
class _TFRecordLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "tfrecord.gz" if self.compression == "gzip" else "tfrecord"

    def open_segment(self, path: str) -> SegmentWriter:
        return _TFRecordSegment(path)

    def assemble(self, segments: list[_Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        if self.compression == "gzip":
            # No name and no time in the header: the same records give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed:
                self._copy(segments, compressed)
        else:
            self._copy(segments, file)

    @staticmethod
    def _copy(segments: list[_Segment], file: Any) -> None:
        for segment in segments:
            copied = 0
            with _open(segment.path) as source:
                while chunk := source.read(_COPY_BYTES):
                    file.write(chunk)
                    copied += len(chunk)
            _check_whole(segment, copied)


def _check_whole(segment: _Segment, found: int) -> None:
    if found != segment.size:
        raise StageError("writing failed: a temporary file lost its end; is the disk full?")


class _TFRecordSegment:
    def __init__(self, path: str):
        self._file = create(path)
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        framed = framed_records(batch) if is_encoded(batch.schema) else encode_frames(batch)
        self._file.write(framed)
        self._size += len(framed)

    def close(self) -> None:
        self._file.close()

    def size(self) -> int:
        return self._size

    def schemas(self) -> frozenset[bytes]:
        return frozenset()


@dataclass(frozen=True)
class _ParquetLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "parquet"

    def open_segment(self, path: str) -> SegmentWriter:
        return _ArrowSegment(path)

    def assemble(self, segments: list[_Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        # Every shard has the schema of all, also one without records: readers take it from any file.
        schema = _common_schema(schemas)
        with pa.parquet.ParquetWriter(pa.PythonFile(file, "w"), schema, compression=self.compression) as writer:
            for group in _row_groups(_conformed(segments, schema)):
                writer.write_table(group, row_group_size=_ROW_GROUP)


class _ArrowSegment:
    """Arrow streams one after the other; a new one begins where the schema changes. Its size is in records."""

    def __init__(self, path: str):
        self._file = create(path)
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None
        self._schemas: set[bytes] = set()
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if is_encoded(batch.schema):
            raise ValueError("encoded records become TFRecords only")
        if self._writer is None or not batch.schema.equals(self._schema):
            if self._writer is not None:
                self._writer.close()
            self._schema = batch.schema
            self._schemas.add(batch.schema.serialize().to_pybytes())
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)
        self._size += batch.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()

    def size(self) -> int:
        return self._size

    def schemas(self) -> frozenset[bytes]:
        return frozenset(self._schemas)


def _streams(path: str) -> Iterator[pa.ipc.RecordBatchStreamReader]:
    with _open(path) as file:
        source = pa.PythonFile(file, "r")
        while True:
            try:
                reader = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                # Arrow's way to say that the file ends where a stream should begin; records are counted besides.
                return
            yield reader


def _common_schema(schemas: frozenset[bytes]) -> pa.Schema:
    # Sorted: fields must not depend on which worker spoke first.
    found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in sorted(schemas)]
    try:
        return pa.unify_schemas(found) if found else pa.schema([])
    except pa.ArrowException:
        raise InputError("a column changes its type between files: Parquet output needs one type a column") from None


def _conformed(segments: list[_Segment], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for segment in segments:
        found = 0
        for reader in _streams(segment.path):
            for batch in reader:
                columns = [
                    pa.nulls(batch.num_rows, field.type)
                    if (place := batch.schema.get_field_index(field.name)) < 0
                    else batch.column(place).cast(field.type)
                    for field in schema
                ]
                found += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        _check_whole(segment, found)


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of exactly 65,536 rows, the last one shorter, whatever the batches."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        while rows >= _ROW_GROUP:
            table = pa.Table.from_batches(pending)
            yield table.slice(0, _ROW_GROUP).combine_chunks()
            pending = table.slice(_ROW_GROUP).to_batches()
            rows -= _ROW_GROUP
    if rows:
        yield pa.Table.from_batches(pending).combine_chunks()
