"""Beam transform that reads files: TFRecord of tf.Example, Parquet and CSV, on any Beam filesystem.

Files are read in parallel, and so are parts of a large one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection

from ..batches import Carried, LabelledBatch, carried_inputs
from ..errors import redact_errors
from ..io.filesystems import absolute, match
from ..io.input_format import Equals, FilePart, Format, file_parts
from ..io.row_parts import ENOUGH_FILES
from .file_reader import FileReader

_Run = tuple[FilePart, ...]
"""Files, or one part of a file, that one worker reads one after the other."""


@dataclass
class ReadRecordBatches(beam.PTransform):
    """Reads files into a PCollection of LabelledBatch.

    Takes a pipeline. Gives batches of 16,384 records, fewer where features are large, each with its file and row
    numbers. The rows of one file come in order, those of a large file within each of its parts; files and parts come in
    any order. The first file that matches sets the schema that all others must have. Folders named KEY=VALUE in
    the path of a file give its records further columns, at the end.

    Attributes:
      pattern: A path or glob, matched when the job runs. Compressed files are recognized by extension, such as .gz.
      format: Format of the files.
      columns: Columns to read; None reads all.
      where: Filter on a public feature; needs `label_column`.
      label_column: The label's column, read as float64 from CSV. Give it for every raw log: without it, the label is
        read like a feature, and its values can decide on CSV types and on the ends of batches.
      encoded: Whether batches carry each record as it stands in the file, besides `columns` with at most one value a
        record. For TFRecord input that becomes TFRecord output: `WriteTFRecords` writes these records once their labels
        are replaced. Needs `columns` and `label_column`.
      folders: Partition columns that encoded records do not get as features: those of the `OutputPartitions` of their
        shards.
      other_labels: Further private columns, treated like the label; need `label_column`.
      split: Whether workers read large TFRecord and CSV files in parts, as they read those of Parquet. A file that
        becomes one shard is better read as a whole: the shard then has one segment.
      together: Number of neighboring files that one worker reads one after the other, >= 1. Larger than 1 for many
        small files: neighbors share the segments of their shards. Files that are read together are not split.
      carried: Side inputs that batches carry to later stages. No file is read before all of them are available.
      shards: One of `carried`: the `ShardRanges` of the records, if all shards are in one folder. Parts of a TFRecord
        or CSV file with rows of at least eight shards are whole shards then, so that each shard is one segment. None if
        rows of a shard may be in two parts.
    """

    pattern: str
    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None
    encoded: bool = False
    folders: Sequence[str] = ()
    other_labels: Sequence[str] = ()
    split: bool = True
    together: int = 1
    carried: Sequence[Carried] = ()
    shards: Carried | None = None

    def __post_init__(self) -> None:
        """Checks the options.

        Raises ValueError if encoded batches are asked for without what they need, the filter reads the label or has no
        `label_column` to exclude, or no file is read at a time.
        """
        super().__init__()
        if self.together < 1:
            raise ValueError(f"together must be at least 1, not {self.together}")
        self.pattern = absolute(self.pattern)
        self._reader = FileReader(
            self.format, self.columns, self.where, self.label_column, self.encoded, self.folders, self.other_labels
        )

    def expand(self, pbegin: PBegin) -> PCollection[LabelledBatch]:
        apart, parquet = self.together == 1, self.format.name == "parquet"
        splits = self._reader if apart and self.split and not parquet else None
        runs: Any = (
            pbegin
            | "Pattern" >> beam.Create([self.pattern])
            | "Match" >> beam.FlatMap(_matching_files, self.format, self.together, splits).with_output_types(_Run)
            # Spreads the files over the workers, and breaks fusion, so that files are read only when they are needed.
            | "Spread" >> beam.Reshuffle()
        )
        # All files of Parquet are split, which takes longer than to match them.
        if apart and parquet:
            split = beam.FlatMap(_parts_of_file, self._reader).with_output_types(_Run)
            runs = runs | "Split" >> split | "SpreadParts" >> beam.Reshuffle()
        names, values = carried_inputs(self.carried)
        return runs | "Read" >> beam.ParDo(
            _ReadFiles(self._reader, names, None if self.shards is None else self.shards.name), *values
        ).with_output_types(LabelledBatch)


def _matching_files(pattern: str, format: Format, together: int, splits: FileReader | None) -> list[_Run]:
    files = file_parts(list(match(pattern)), format)
    runs: list[_Run] = [tuple(files[start : start + together]) for start in range(0, len(files), together)]
    if splits is None or len(files) >= ENOUGH_FILES:
        return runs
    # To find its parts, each is read: at the same time, as far as the interpreter's lock allows.
    with ThreadPoolExecutor(len(files)) as threads:
        return [part for parts in threads.map(lambda run: _parts_of_file(run, splits), runs) for part in parts]


def _parts_of_file(run: _Run, reader: FileReader) -> list[_Run]:
    (file,) = run
    return [(part,) for part in reader.split(file)]


class _ReadFiles(beam.DoFn):
    def __init__(self, reader: FileReader, carried: Sequence[str], shards: str | None):
        self._reader = reader
        self._carried = carried
        self._shards = shards

    # Beam takes an annotation of `values` for the type of their tuple.
    @redact_errors("reading")
    def process(self, run: _Run, *values) -> Iterator[LabelledBatch]:
        for part in run:
            for batch in self._reader.read(self._cut(part, values)):
                yield batch.carry(self._carried, values)

    def _cut(self, part: FilePart, values: Sequence[Any]) -> FilePart:
        if self._shards is None or part.parts == 1:
            return part
        ranges = values[self._carried.index(self._shards)]
        return dataclasses.replace(part, cuts=tuple(ranges.of_file(part.path, 0).cuts.tolist()))
