"""Writes shards of TFRecords."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..batches import LabelledBatch
from ..tfrecord.example_encoder import encode_frames
from .shard_writer import (
    COPY_BYTES,
    Layout,
    Segment,
    SegmentWriter,
    WriteShards,
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
      rows: Rows of the sources, from `CountRows` over an earlier pass that read the same records, or what `DivideRows`
        makes of them for these shards, carried by the batches; None if unknown.
    """

    def _layout(self) -> Layout:
        return _TFRecordLayout(self.compression)


@dataclass(frozen=True)
class _TFRecordLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "tfrecord.gz" if self.compression == "gzip" else "tfrecord"

    def open_segment(self, path: str, batch: LabelledBatch, whole: bool) -> SegmentWriter:
        return _TFRecordSegment(path, whole and self.compression == "gzip")

    def is_shard(self, segments: list[Segment], schemas: frozenset[bytes]) -> bool:
        # gzip of several pieces has other bytes than that of the whole.
        return self.compression == "none" or (len(segments) == 1 and segments[0].final)

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        if self.compression == "gzip":
            with _compressed(file) as compressed:
                self._copy(segments, compressed)
        else:
            self._copy(segments, file)

    @staticmethod
    def _copy(segments: list[Segment], file: Any) -> None:
        for segment in segments:
            with open_segment_file(segment) as source:
                records = gzip.GzipFile(fileobj=source) if segment.final else source
                while chunk := records.read(COPY_BYTES):
                    file.write(chunk)


def _compressed(file: BinaryIO) -> gzip.GzipFile:
    # No file name and no time in the header, so that the same records give the same bytes.
    return gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0)


class _TFRecordSegment(SegmentWriter):
    """Records as they stand in a shard; compressed ones if the shard probably has no other segment."""

    def __init__(self, path: str, compressed: bool):
        super().__init__(path)
        self._compressed = _compressed(self._file) if compressed else None

    def write(self, batch: LabelledBatch) -> None:
        framed = encode_frames(batch.batch) if batch.encoded is None else batch.encoded.framed()
        (self._compressed or self._file).write(framed)

    def _finish(self) -> None:
        if self._compressed is not None:
            self._compressed.close()

    def is_final(self) -> bool:
        return self._compressed is not None
