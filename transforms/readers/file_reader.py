"""Reading of files into batches, whatever the format: TFRecord of tf.Example, Parquet, CSV and ORC.

`ReadRecordBatches` finds the files and spreads them, and parts of large ones, over the workers. A `FileReader` reads
one file or part after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from ..arrow_values import record_bytes, single_values
from ..batches import Carried, LabelledBatch, carried_inputs
from ..class_values import coded_classes
from ..csv_input.csv_reader import CSVReader, csv_notes, csv_schema, split_csv
from ..errors import InputError, redact_errors
from ..io.filesystems import absolute, match
from ..io.hive_partitions import Partition, check_no_clash
from ..io.input_format import ENOUGH_FILES, Equals, FilePart, Format, file_parts
from ..io.limits import Limits
from ..job_metrics import RECORDS_READ
from ..missing_labels import filled, with_columns, with_fields
from ..shown_transform import ShownTransform
from ..tfrecord.encoded_batches import EncodedRecords
from .arrow_files import without_columns
from .orc_reader import ORCReader, orc_schema
from .parquet_reader import ParquetReader, parquet_schema, split_parquet
from .table_snapshot import TableSnapshot
from .tfrecord_reader import TFRecordReader, split_tfrecord, tfrecord_schema

Reader = TFRecordReader | ParquetReader | CSVReader | ORCReader

_Run = tuple[FilePart, ...]
"""Files, or one part of a file, that one worker reads one after the other."""


@dataclass
class ReadRecordBatches(ShownTransform):
    """Reads files into a PCollection of LabelledBatch.

    Takes a pipeline, or exactly one element, until which no file is looked at. Gives batches of 16,384 records, fewer
    where features are large, each with its file and row numbers. The rows of one file come in order, those of a large
    file within each of its parts; files and parts come in any order. The first file that matches sets the schema that
    all others must have. Folders named KEY=VALUE in the path of a file give its records further columns, at the end.

    Attributes:
      pattern: A path or glob, matched when the job runs; or a `TableSnapshot`, whose files are fixed. Compressed files
        are recognized by extension, such as .gz.
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
      undecoded: Further columns, of which a later stage needs those of some records only. TFRecords are carried along
        for it undecoded, and must not be written; from other formats, the columns are read with the rest. Needs
        `columns`, which may be empty.
      shards: One of `carried`: the `ShardRanges` of the records, if all shards are in one folder. Parts of a TFRecord
        or CSV file with rows of at least eight shards are whole shards then, so that each shard is one segment. None if
        rows of a shard may be in two parts.
    """

    pattern: str | TableSnapshot
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
    undecoded: Sequence[str] = ()
    shards: Carried | None = None

    def __post_init__(self) -> None:
        """Checks the options.

        Raises ValueError if encoded batches are asked for without what they need, the filter reads the label or has no
        `label_column` to exclude, or no file is read at a time.
        """
        if self.together < 1:
            raise ValueError(f"together must be at least 1, not {self.together}")
        if isinstance(self.pattern, str):
            self.pattern = absolute(self.pattern)
        self._reader = FileReader(
            self.format, self.columns, self.where, self.label_column, self.encoded, self.folders, self.other_labels,
            self.undecoded,
        )  # fmt: skip

    def expand(self, pbegin: PBegin | PCollection[Any]) -> PCollection[LabelledBatch]:
        apart, parquet = self.together == 1, self.format.name == "parquet"
        splits = self._reader if apart and self.split and not parquet else None
        pattern: PCollection[str | TableSnapshot] = pbegin.pipeline | "Pattern" >> beam.Create([self.pattern])
        if isinstance(pbegin, PCollection):
            pattern |= "After" >> beam.Map(lambda pattern, _: pattern, AsSingleton(pbegin))
        runs: PCollection[_Run] = (
            pattern
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


def _matching_files(
    pattern: str | TableSnapshot, format: Format, together: int, splits: FileReader | None
) -> list[_Run]:
    files = file_parts(list(match(pattern)), format) if isinstance(pattern, str) else pattern.parts()
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
                RECORDS_READ.inc(batch.batch.num_rows)
                yield batch.carry(self._carried, values)

    def _cut(self, part: FilePart, values: Sequence[Any]) -> FilePart:
        if self._shards is None or part.parts == 1:
            return part
        ranges = values[self._carried.index(self._shards)]
        return dataclasses.replace(part, cuts=tuple(ranges.of_file(part.source, 0).cuts.tolist()))


@dataclass
class FileReader:
    """Reads files with one set of options, which are those of `ReadRecordBatches`.

    A worker reuses record templates and CSV column types for the next file.
    """

    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None
    encoded: bool = False
    folders: Sequence[str] = ()
    other_labels: Sequence[str] = ()
    undecoded: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Checks the options.

        Raises ValueError if encoded or undecoded batches are asked for without what they need, or the filter reads the
        label or has no `label_column` to exclude.
        """
        if self.undecoded and (self.columns is None or self.encoded):
            raise ValueError("undecoded needs columns, and records that are not encoded for output")
        if self.encoded and self.format.missing:
            raise ValueError("encoded records cannot get a label that they lack")
        if self.encoded and (self.format.name != "tfrecord" or not self.columns or self.label_column is None):
            raise ValueError("encoded needs the format tfrecord, columns and a label_column")
        if self.where is not None and self.label_column is None:
            raise ValueError("where needs a label_column, which no filter may look at")
        self._labels = () if self.label_column is None else (self.label_column, *self.other_labels)
        if self.where is not None and self.where.column in self._labels:
            raise ValueError("where must not look at the label: which records are released would depend on it")
        # By the names of partition columns, which are not read from the files.
        self._readers: dict[tuple[str, ...], Reader] = {}

    def _reader(self, partitions: Sequence[Partition]) -> Reader:
        """Reader of the files that have these partition columns."""
        names = tuple(partition.name for partition in partitions)
        for label in self._labels:
            if label in names:
                raise InputError(
                    f"the label {label!r} is the name of a folder, {label}=...: folder names are public, and records "
                    "of one folder stay together; name a column in the files"
                )
        if names not in self._readers:
            self._readers[names] = self._format_reader(names)
        return self._readers[names]

    def _format_reader(self, partitions: tuple[str, ...]) -> Reader:
        tfrecord, where = self.format.name == "tfrecord", self._own_filter(partitions)
        limits = self.format.limits
        names = self.columns if tfrecord else self._all_columns
        columns = None if names is None else [name for name in names if name not in partitions]
        if tfrecord:
            if columns is not None:
                # A record that has a feature of this name already would have it twice.
                columns += partitions
            undecoded = not {*self.undecoded} <= {*partitions}
            matches = None if where is None else partial(_matches, where=where)
            of_filter = None if where is None else where.column
            return TFRecordReader(columns, self._labels, self.encoded, of_filter, matches, undecoded, limits)
        if columns is not None and where is not None and where.column not in columns:
            columns.append(where.column)
        numbers = [label for label in self._labels if label not in (self.format.classes or {})]
        if self.format.name == "parquet":
            return ParquetReader(columns or None, self.format.table, self._labels, self.format.hidden, numbers, limits)
        if self.format.name == "orc":
            return ORCReader(columns or None, self.format.hidden, numbers, limits)
        types, classes = self.format.csv_types, self.format.classes
        return CSVReader(columns or None, self._labels, types, self.format.dialect, classes, limits)

    @property
    def _all_columns(self) -> Sequence[str] | None:
        return None if self.columns is None else [*self.columns, *self.undecoded]

    def _own_filter(self, partitions: Sequence[str]) -> Equals | None:
        """The filter, unless it is on a partition column, whose value all records of a file share."""
        return None if self.where is None or self.where.column in partitions else self.where

    def schema(self, part: FilePart) -> pa.Schema:
        """Finds the columns of a file without reading a label.

        They are those of the footer for Parquet and ORC, those of the header line with types of the first rows for CSV,
        and those of the first 1,024 records for TFRecord. Of CSV and TFRecord, the label has the type null; of
        TFRecord, one with a value in place of missing ones is there even if none of these records has it. The columns
        of the file's folders come last; a file without columns has none of these either. Raises InputError if the file
        cannot be read, or has a column of the name of a folder.
        """
        schema = self._own_schema(part)
        if not schema.names:
            return schema
        if self.format.name == "tfrecord" and self.format.missing:
            schema = with_fields(schema, self.format.missing)
        check_no_clash(part.partitions, schema.names, part.path)
        for partition in part.partitions:
            schema = schema.append(pa.field(partition.name, partition.type))
        return schema

    def _own_schema(self, part: FilePart) -> pa.Schema:
        if self.format.table is not None:
            return self.format.table.schema
        if self.format.name == "parquet":
            return without_columns(parquet_schema(part.path)[0], self.format.hidden)
        if self.format.name == "orc":
            return without_columns(orc_schema(part.path)[0], self.format.hidden)
        if self.format.name == "csv":
            return csv_schema(part, self._labels, self.format.csv_types, self.format.dialect, self.format.limits)
        return tfrecord_schema(part.path, self._labels)

    def notes(self, part: FilePart) -> tuple[str, ...]:
        """Describes columns of numbers that CSV files have as text, as may not be meant.

        The texts name columns, lines and flags; there are none for other formats. Raises InputError if the file cannot
        be read.
        """
        if self.format.name != "csv" or not self._labels:
            return ()
        return csv_notes(part, self._labels, self.format.csv_types, self.format.dialect, self.format.limits)

    def split(self, file: FilePart) -> Iterator[FilePart]:
        """Splits a large file into parts that workers read in parallel, in order, at least one.

        Raises InputError if the file cannot be read.
        """
        if self.format.name == "orc":
            # Where its stripes begin depends on the bytes of labels.
            return iter([file])
        if self.format.name == "csv":
            return split_csv(file, self._labels, self.format.dialect, self.format.limits)
        split = split_parquet if self.format.name == "parquet" else split_tfrecord
        return split(file, self.format.limits)

    def read(self, part: FilePart) -> Iterator[LabelledBatch]:
        """Reads the batches of one file or part in order; none of a file whose partition the filter leaves out.

        Raises InputError if the file is missing, damaged, of another schema than the first one, or lacks a column that
        is asked for; or if no value of the filter's column can equal its value.
        """
        reader = self._reader(part.partitions)
        where = self._own_filter([partition.name for partition in part.partitions])
        if self.where is not where and self.where is not None and not _partition_matches(part.partitions, self.where):
            return
        # Encoded records are written as they stand, with all of their features.
        wanted = None if self.encoded else self._all_columns
        only = [partition for partition in part.partitions if wanted is None or partition.name in wanted]
        # Columns that are all partitions need no column of the file, but its rows: others are read then, and dropped.
        dropped = bool(only) and {p.name for p in only} == {*(self._all_columns or ())}
        start = reader.first_row(part)
        if isinstance(reader, TFRecordReader):
            for found in reader.read(part):
                stop = start + found.total
                check_no_clash(part.partitions, found.batch.schema.names, part.path)
                whole = with_partitions(self._with_labels(found.batch), only)
                whole = whole.select([partition.name for partition in only]) if dropped else whole
                encoded = found.encoded
                if encoded is not None and self.encoded:
                    encoded = _with_features(encoded, only, self.folders)
                coded = self._coded(whole, part.path)
                yield LabelledBatch(part.source, start, stop, start + found.rows, coded, encoded=encoded)
                start = stop
            return
        # Places of classes are short, however long the texts of the file are.
        pieces = (self._coded(piece, part.path) for piece in reader.read(part))
        for batch in _regular(pieces, self._labels, self.format.limits):
            whole = with_partitions(batch, only)
            if dropped:
                whole = whole.select([partition.name for partition in only])
            labelled = LabelledBatch.whole(part.source, start, whole)
            start = labelled.stop
            yield labelled if where is None else labelled.keep(_matches(batch, where))

    def _with_labels(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch of tf.Examples, which have no columns that no record has, with those labels that may be missing."""
        wanted = [label for label in self.format.missing or {} if self.columns is None or label in self.columns]
        return with_columns(batch, wanted) if wanted else batch

    def _coded(self, batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
        """The batch with its columns of classes coded, and labels in place of missing ones."""
        missing, classes = self.format.missing or {}, self.format.classes or {}
        if any(name not in classes for name in missing):
            batch = filled(batch, {name: value for name, value in missing.items() if name not in classes})
        coded = {
            name: coded_classes(batch.column(name), listed, name, source, missing.get(name))
            for name, listed in classes.items()
            if name in batch.schema.names
        }
        if not coded:
            return batch
        columns = [coded.get(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def with_partitions(batch: pa.RecordBatch, partitions: Sequence[Partition]) -> pa.RecordBatch:
    """Adds a column for each partition of the file of a batch, at the end."""
    if not partitions:
        return batch
    columns = [partition.column(batch.num_rows) for partition in partitions]
    fields = [pa.field(partition.name, partition.type) for partition in partitions]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *fields]))


def _with_features(records: EncodedRecords, partitions: Sequence[Partition], folders: Sequence[str]) -> EncodedRecords:
    """The records with their partitions as features, except those without a value and those of `FileReader.folders`."""
    known = [each for each in partitions if each.value is not None and each.name not in folders]
    if not known:
        return records
    from ..tfrecord.example_encoder import encode_examples

    single = pa.RecordBatch.from_pydict({partition.name: partition.column(1) for partition in known})
    return records.with_constants(encode_examples(single)[0])


def _partition_matches(partitions: Sequence[Partition], where: Equals) -> bool:
    columns = {partition.name: partition.column(1) for partition in partitions}
    return bool(_matches(pa.RecordBatch.from_pydict(columns), where)[0])


def _regular(pieces: Iterator[pa.RecordBatch], labels: Sequence[str], limits: Limits) -> Iterator[pa.RecordBatch]:
    """Batches that end after every `batch_rows` records, and early where features are large, however pieces are cut.

    When the pieces end in an error, complete batches come before it, and the records after them are dropped.
    """
    held, row, size, most_rows, most_bytes = [], 0, 0, limits.batch_rows, limits.batch_bytes
    for piece in pieces:
        rest = piece
        while rest.num_rows:
            taken = rest.slice(0, most_rows - row % most_rows)
            sizes = size + np.cumsum(record_bytes(taken, labels))
            taken = taken.slice(0, int(np.searchsorted(sizes, most_bytes)) + 1)
            rest = rest.slice(taken.num_rows)
            held.append(taken)
            row, size = row + taken.num_rows, int(sizes[taken.num_rows - 1])
            if row % most_rows == 0 or size >= most_bytes:
                yield from _joined(held)
                held, size = [], 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch of all, unless a column is too large for it."""
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _matches(batch: pa.RecordBatch, where: Equals) -> np.ndarray:
    """Records that the filter keeps, (n,) bool."""
    mask, place = np.zeros(batch.num_rows, bool), batch.schema.get_field_index(where.column)
    if place < 0:
        return mask
    values, present = single_values(batch.column(place))
    text = where.value
    if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        values, text = pa.array([str(value).lower() for value in values.to_pylist()], pa.string()), text.lower()
    try:
        wanted = pa.scalar(text).cast(values.type if not pa.types.is_binary(values.type) else pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"`where` {where.column}={where.value}: the column holds {values.type}, give a value of that type"
        ) from None
    mask[present] = np.asarray(pc.equal(values, wanted))  # type: ignore[attr-defined]
    return mask
