"""Writes shards of TFRecords."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from ..tfrecord.encoded_batches import framed_records, is_encoded
from ..tfrecord.example_encoder import encode_frames
from .filesystems import create
from .shard_writer import (
    COPY_BYTES,
    Layout,
    Segment,
    SegmentWriter,
    WriteShards,
    check_complete,
    open_segment_file,
)

_GZIP_LEVEL = 6


class WriteTFRecords(WriteShards):
    """Writes TFRecord shards of tf.Example.

    Takes a PCollection of LabelledBatch; gives a ShardFile for each shard. The same batches give the same bytes on
    every runner.

    Attributes:
      directory: Folder in which complete shards appear: part-00000-of-00004.tfrecord and so on.
      temp_directory: Folder for unfinished files of privatized records, on the same filesystem. Delete it when the job
        has ended.
      num_shards: Number of shards, of each folder if there are several, >= 1; all of them are written.
      compression: none or gzip.
      partitions: Folders that records go to by the partition columns of their files. The columns are left out of the
        shards. By default all shards are in `directory` itself.
    """

    def _layout(self) -> Layout:
        return _TFRecordLayout(self.compression)


@dataclass(frozen=True)
class _TFRecordLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "tfrecord.gz" if self.compression == "gzip" else "tfrecord"

    def open_segment(self, path: str) -> SegmentWriter:
        return _TFRecordSegment(path)

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        if self.compression == "gzip":
            # No file name and no time in the header, so that the same records give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed:
                self._copy(segments, compressed)
        else:
            self._copy(segments, file)

    @staticmethod
    def _copy(segments: list[Segment], file: Any) -> None:
        for segment in segments:
            copied = 0
            with open_segment_file(segment.path) as source:
                while chunk := source.read(COPY_BYTES):
                    file.write(chunk)
                    copied += len(chunk)
            check_complete(segment, copied)


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
