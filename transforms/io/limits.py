"""Sizes of the pieces in which files are read and written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes of the pieces in which files are read and written, in records or bytes.

    Readers take them from `Format.limits`, writers as a parameter. The defaults suit machines; tests take small ones.
    Which records and labels a release has follows from none of them. The bytes of its shards follow from `shard_rows`
    where the numbers of rows are not known, and from `group_rows` and `group_bytes`.

    Attributes:
      batch_rows: Records of a batch; fewer at the end of a file, and where features are large.
      batch_bytes: A batch of Parquet, CSV or ORC ends early at the record with which its features reach this size.
      frames_bytes: The same for a batch of TFRecords.
      block_bytes: Bytes of a CSV file that are read at a time.
      chunk_bytes: Bytes of a TFRecord file that are read at a time. From 4 MiB on, memory comes in large pages, which
        are too large for small files.
      window_bytes: Bytes of a CSV file that are searched for quotes and line breaks at a time: they stay in the cache.
      row_bytes: Longest row of a CSV file, without its label; limits the memory in which the end of a row is searched.
      record_bytes: Longest record of a TFRecord file; larger ones are refused before memory is taken for them.
      sample_rows: Rows whose values determine the types of CSV columns.
      sample_bytes: Fewer rows do where their features, without the label, reach this size.
      part_rows: Least rows of a part of a TFRecord or CSV file.
      part_values: Values in a part of a Parquet file: enough work for a worker.
      parts: Most parts of a file: each adds segments to every shard.
      cast_bytes: Larger batches are converted in pieces: a cast to 32-bit offsets needs less than 2 GiB of text.
      shard_rows: Consecutive rows that go to the same shard where the numbers of rows are not known; few, so that a
        small dataset has records in every shard.
      open_segments: Most segment files that a worker has open.
      open_uploads: The same on an object store, where each holds up to 5 MiB in memory.
      group_rows: Records of each row group of a Parquet shard but the last, and those that end early.
      group_bytes: A row group ends early at the record with which its records reach this size, by `record_bytes`.
      letters: Mean number of dead letters in each of several files: some 30 MB of text, which a worker holds.
      held_letters: Dead letters that a bundle holds before it passes them on.
    """

    batch_rows: int = 1 << 14
    batch_bytes: int = 32 << 20
    frames_bytes: int = 16 << 20
    block_bytes: int = 8 << 20
    chunk_bytes: int = (4 << 20) - (64 << 10)
    window_bytes: int = 1 << 16
    row_bytes: int = 64_000_000
    record_bytes: int = 1 << 28
    sample_rows: int = 1 << 16
    sample_bytes: int = 6 << 20
    part_rows: int = 1 << 17
    part_values: int = 4 << 20
    parts: int = 64
    cast_bytes: int = 1 << 30
    shard_rows: int = 256
    open_segments: int = 256
    open_uploads: int = 32
    group_rows: int = 1 << 16
    group_bytes: int = 1 << 26
    letters: int = 1 << 18
    held_letters: int = 1 << 20


LIMITS = Limits()
