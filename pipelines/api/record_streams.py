"""Records that are read in blocks as often as a release passes over them: more than fit into memory. Loads no Beam."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...transforms.errors import CHANGED_INPUT, InputError
from . import feature_frames
from .feature_frames import FeatureFrame
from .label_arrays import LabelArray, is_of

if TYPE_CHECKING:
    import polars

STREAMS = "a pyarrow Dataset, a polars LazyFrame, or a function that returns record batches"
Read = Callable[["list[str] | None"], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, eq=False)
class RecordStream:
    """Records of a source that can be read again, in blocks of the same rows each time.

    Attributes:
      schema: Names and types of the columns.
      read: Function of the names of columns, None for all, that reads the records from the first one on.
      seal: Key of the digests that tell whether a column is read as it was before; of this object alone.
    """

    schema: pa.Schema
    read: Read = field(repr=False)
    seal: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Reads the records in blocks of equal size, but the last. Raises InputError if columns are other ones."""
        wanted = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        held: list[pa.RecordBatch] = []
        size, count = feature_frames.BLOCK, 0
        for given in self.read(None if names is None else [*names]):
            if not {*wanted.names} <= {*given.schema.names}:
                raise InputError("the records have other columns than when they were read first")
            batch, start = given.select(wanted.names), 0
            if batch.schema.types != wanted.types:
                raise InputError("the records have other types than when they were read first")
            while count + batch.num_rows - start >= size:
                held.append(batch.slice(start, size - count))
                start += size - count
                yield _joined(held, wanted)
                held, count = [], 0
            held.append(batch.slice(start))
            count += batch.num_rows - start
        if count:
            yield _joined(held, wanted)
        pa.default_memory_pool().release_unused()

    def column(self, name: str) -> pa.ChunkedArray:
        """Reads a column."""
        return pa.chunked_array([block.column(0) for block in self.blocks([name])], self.schema.field(name).type)

    def sealed(self, name: str) -> SealedColumn:
        """Passes over a column, which must stay as it is from now on."""
        lengths, digests = [], []
        for block in self.blocks([name]):
            lengths.append(block.num_rows)
            digests.append(self._digest(block.column(0)))
        return SealedColumn(self, name, sum(lengths), tuple(digests))

    def _digest(self, column: pa.Array) -> bytes:
        data = pa.RecordBatch.from_arrays([column], ["column"]).serialize()
        return hashlib.blake2b(data, key=self.seal, digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class SealedColumn:
    """Column of a stream that is refused where it is read otherwise than it was before.

    Attributes:
      stream: The records.
      name: Name of the column.
      records: Number of records.
      digests: Digest of each block.
    """

    stream: RecordStream
    name: str
    records: int
    digests: tuple[bytes, ...]

    def __len__(self) -> int:
        return self.records

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Reads blocks of these columns. Raises InputError before it returns one with another column of this name."""
        count = 0
        for count, block in enumerate(self.stream.blocks(names), 1):
            if count > len(self.digests) or self.stream._digest(block.column(self.name)) != self.digests[count - 1]:
                raise InputError(CHANGED_INPUT)
            yield block
        if count < len(self.digests):
            raise InputError(CHANGED_INPUT)

    def read(self, read: Callable[[pa.Array], LabelArray]) -> LabelArray:
        """Reads the labels block by block, so that only their values are held."""
        parts = [read(block.column(0)) for block in self.blocks([self.name])] or [
            read(pa.array([], self.stream.schema.field(self.name).type))
        ]
        values, nulls = (np.concatenate(columns) for columns in zip(*((p.values, p.nulls) for p in parts), strict=True))
        ways = [(part.restore, len(part.nulls)) for part in parts]
        return LabelArray(values, nulls, lambda drawn: _restored(ways, drawn))


def _restored(ways: list[tuple[Callable[[np.ndarray], Any], int]], values: np.ndarray) -> pa.ChunkedArray:
    ends = np.cumsum([0, *(length for _, length in ways)]).tolist()
    return pa.chunked_array([
        restore(values[start:stop]) for (restore, _), (start, stop) in zip(ways, itertools.pairwise(ends), strict=True)
    ])  # fmt: skip


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.concat_arrays([part.column(place) for part in parts]) for place in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_stream(source: object) -> RecordStream | None:
    """Recognizes one of `STREAMS`; None for anything else.

    Raises TypeError for what can be read once only, and for a function that returns anything but record batches.
    """
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is not None and isinstance(source, dataset.Dataset):
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        if isinstance(getattr(source, "format", None), dataset.ParquetFileFormat):
            # Otherwise whole files are read ahead.
            parquet = dataset.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
            options["fragment_scan_options"] = parquet
        return RecordStream(source.schema, lambda names: source.to_batches(names, **options))
    if is_of(source, "polars", "LazyFrame"):
        empty = source.head(0).collect().to_arrow()
        return RecordStream(empty.schema, lambda names: _of_polars(source, names))
    if callable(source):
        first = [source()]

        def read(_: list[str] | None) -> Iterator[pa.RecordBatch]:
            given = source()
            if first and first.pop() is given and isinstance(given, Iterator):
                raise _read_once(given)
            return iter(_reader(given))

        return RecordStream(_reader(first[0]).schema, read)
    # Frames and columns have streams, too, and a length.
    if isinstance(source, Iterator) or (hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__len__")):
        raise _read_once(source)
    return None


def _read_once(source: object) -> TypeError:
    return TypeError(
        f"a {type(source).__name__} can be read once, but a release passes over its records several times: give a "
        "function that makes one each time, lambda: dataset.scanner().to_reader()"
    )


def _of_polars(frame: polars.LazyFrame, names: list[str] | None) -> Iterator[pa.RecordBatch]:
    chosen = frame if names is None else frame.select(names)
    for part in chosen.collect_batches(chunk_size=feature_frames.BLOCK, maintain_order=True):
        yield from part.to_arrow().to_batches()


def _reader(stream: Iterable[object]) -> pa.RecordBatchReader:
    if isinstance(stream, pa.RecordBatchReader):
        return stream
    if hasattr(stream, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(stream)
    # Data sets of Hugging Face give tables.
    batches = (batch for part in stream for batch in (part.to_batches() if isinstance(part, pa.Table) else [part]))
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        raise TypeError(f"the function must return Arrow record batches, not {type(first).__name__}")
    return pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


class FeatureStream(FeatureFrame):
    """Features that are read in blocks; `batch` has their names and types, and no record."""

    def __init__(self, stream: RecordStream, names: Sequence[str], records: int, source: str):
        empty = pa.schema([stream.schema.field(name) for name in names]).empty_table()
        batch = feature_frames.read_frame(empty, source).batch
        vars(self).update(batch=batch, source=source, stream=stream, records=records)

    stream: RecordStream
    records: int

    def __len__(self) -> int:
        return self.records

    def _blocks(self) -> Iterator[tuple[int, FeatureFrame]]:
        start = 0
        for block in self.stream.blocks(self.names):
            frame = feature_frames.read_frame(block, self.source)
            if start + len(frame) > self.records:
                raise InputError(CHANGED_INPUT)
            yield start, frame
            start += len(frame)
        if start != self.records:
            raise InputError(CHANGED_INPUT)

    def blocks(self, mask: np.ndarray | None = None) -> Iterator[FeatureFrame]:
        for start, frame in self._blocks():
            yield frame if mask is None else frame.keep(mask[start : start + len(frame)])

    def keep(self, mask: np.ndarray) -> FeatureFrame:
        """Selects records, which must fit into memory."""
        kept = [frame.batch for frame in self.blocks(mask)]
        return FeatureFrame(_joined(kept or [self.batch], self.batch.schema), self.source)

    def select(self, names: Sequence[str]) -> FeatureStream:
        """Leaves out other columns."""
        return FeatureStream(self.stream, names, self.records, self.source)
