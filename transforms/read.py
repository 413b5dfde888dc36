"""Reading files into labelled batches: TFRecord of tf.Example, Parquet and CSV, on any Beam filesystem.

A file is read by one worker, from its first row on, so that row numbers are true; many files read in parallel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection

from .batches import LabelledBatch, only_values
from .errors import InputError, guarded
from .noise_key import is_remote
from .tfrecord import read_records

FORMATS = ("tfrecord", "parquet", "csv")
BATCH_ROWS = 1 << 14
_CSV_BLOCK = 8 << 20


@dataclass(frozen=True)
class Equals:
    """Keeps the records whose feature has this value, compared as text. The feature must not depend on the label."""

    column: str
    value: str


@dataclass(frozen=True)
class Format:
    """How files are laid out.

    name: one of tfrecord, parquet, csv. csv_types: column name to int64, float64 or string, for CSV columns whose
    first block of rows misleads; other columns' types are inferred.
    """

    name: str
    csv_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown format."""
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}; known: {', '.join(FORMATS)}")


@dataclass
class ReadRecordBatches(beam.PTransform):
    """Files to a PCollection of LabelledBatch.

    Takes a pipeline; gives batches of at most some ten thousand records, each with its file and row numbers. Rows
    of one file come in order; files in any order. The first file that matches sets the schema that all others must
    have.

    pattern: a path or glob; it is matched when the job runs. format: tfrecord, parquet or csv; .gz is seen through.
    columns: what to read; None reads all. where: a filter on a public feature. label_column: read as float64 from CSV.
    """

    pattern: str
    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.pattern = absolute(self.pattern)

    def expand(self, pbegin: PBegin) -> PCollection[LabelledBatch]:
        return (
            pbegin
            | "Pattern" >> beam.Create([self.pattern])
            | "Match" >> beam.FlatMap(_sources).with_output_types(_Source)
            # Files spread over the workers here, and nothing that follows is read before it is needed.
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadFile(self.format, self.columns, self.where, self.label_column))
        )


@dataclass(frozen=True)
class _Source:
    path: str
    first: str


def absolute(pattern: str) -> str:
    """Local patterns from the root, so that a record's identity does not depend on where the job was started."""
    return pattern if is_remote(pattern) else os.path.abspath(pattern)


def match(pattern: str) -> list[str]:
    """The files that match, in order. Raises InputError when there are none."""
    try:
        found = sorted({metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list})
    except Exception:
        found = []
    if not found:
        raise InputError(f"--input {pattern} matches no file: check the path and quote the glob")
    return found


def _sources(pattern: str) -> list[_Source]:
    paths = match(pattern)
    return [_Source(path, paths[0]) for path in paths]


class _ReadFile(beam.DoFn):
    def __init__(self, format: Format, columns: Sequence[str] | None, where: Equals | None, label: str | None):
        self._format = format
        self._columns = columns
        self._where = where
        self._label = label

    @guarded("reading")
    def process(self, source: _Source) -> Iterator[LabelledBatch]:
        yield from read_file(source.path, source.first, self._format, self._columns, self._where, self._label)


def read_file(
    path: str,
    first: str,
    format: Format,
    columns: Sequence[str] | None = None,
    where: Equals | None = None,
    label: str | None = None,
) -> Iterator[LabelledBatch]:
    """The batches of one file, in order. first: the file whose schema this one must have; the rest as for
    `ReadRecordBatches`.

    Raises InputError when the file is missing, damaged, of another schema, or lacks a column that is asked for.
    """
    wanted = None if columns is None else list(columns)
    if wanted is not None and where is not None and where.column not in wanted:
        wanted.append(where.column)
    reader = {"tfrecord": _read_tfrecord, "parquet": _read_parquet, "csv": _read_csv}[format.name]
    start = 0
    for batch in reader(path, first, format, wanted, label):
        labelled = LabelledBatch.whole(path, start, batch)
        start = labelled.stop
        yield labelled if where is None else labelled.keep(_matches(labelled, where))


def _matches(batch: LabelledBatch, where: Equals) -> np.ndarray:
    column = batch.column(where.column)
    if column is None:
        return np.zeros(batch.batch.num_rows, bool)
    values, present = only_values(column)
    if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        values = pa.array([str(value).lower() for value in values.to_pylist()], pa.string())
    try:
        wanted = pa.scalar(where.value).cast(values.type if not pa.types.is_binary(values.type) else pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"--where {where.column}={where.value}: the column holds {values.type}, give a value of that type"
        ) from None
    mask = np.zeros(batch.batch.num_rows, bool)
    mask[present] = np.asarray(pa.compute.equal(values, wanted))
    return mask


def _open(path: str) -> BinaryIO:
    try:
        return FileSystems.open(path, compression_type=CompressionTypes.AUTO)
    except Exception:
        raise InputError(f"{path}: cannot be opened") from None


def _require(names: Sequence[str], wanted: Sequence[str] | None, path: str) -> None:
    for name in wanted or ():
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed}")


def _read_tfrecord(
    path: str, first: str, format: Format, wanted: list[str] | None, label: str | None
) -> Iterator[pa.RecordBatch]:
    # The extra `tfx`, loaded only where TFRecords are.
    from .tf_example import ExampleDecoder

    decoder = ExampleDecoder(path, wanted)
    with _open(path) as file:
        for records in read_records(file, path, BATCH_ROWS):
            yield _as_long_as(decoder.decode(records), len(records))


def _as_long_as(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """A batch without columns forgets how many records it has; a column of nulls remembers."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])


def _read_parquet(
    path: str, first: str, format: Format, wanted: list[str] | None, label: str | None
) -> Iterator[pa.RecordBatch]:
    with _open(path) as file:
        parquet = _parquet_file(file, path)
        if first != path:
            with _open(first) as sibling:
                _same_schema(parquet.schema_arrow, _parquet_file(sibling, first).schema_arrow, path, first)
        _require(parquet.schema_arrow.names, wanted, path)
        try:
            yield from parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted)
        except (pa.ArrowException, OSError):
            raise InputError(f"{path}: the Parquet file is damaged") from None


def _parquet_file(file: BinaryIO, path: str) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(pa.PythonFile(file, "r"))
    except (pa.ArrowException, OSError):
        raise InputError(f"{path}: not a Parquet file, or truncated") from None


def _same_schema(schema: pa.Schema, other: pa.Schema, path: str, first: str) -> None:
    if schema.equals(other, check_metadata=False):
        return
    for field in schema:
        if other.get_field_index(field.name) < 0:
            raise InputError(f"{path}: column {field.name!r} is not in {first}: all files need one schema")
        if not other.field(field.name).type.equals(field.type):
            raise InputError(
                f"{path}: column {field.name!r} holds {field.type}, but {other.field(field.name).type} in {first}: "
                "all files need one schema"
            )
    raise InputError(f"{path}: another schema than {first}: all files need the same columns in the same order")


def _read_csv(
    path: str, first: str, format: Format, wanted: list[str] | None, label: str | None
) -> Iterator[pa.RecordBatch]:
    types = _csv_types(first, format, label)
    names = list(types) if path == first else _csv_header(path)
    if set(names) != set(types):
        raise InputError(f"{path}: another header than {first}: all files need the same columns")
    _require(names, wanted, path)
    with _open(path) as file:
        try:
            yield from _csv_reader(file, types, wanted)
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            raise InputError(f"{path}: {_safe_csv_message(str(error), names, types, label)}") from None


def _csv_types(first: str, format: Format, label: str | None) -> dict[str, pa.DataType]:
    """The type of every column, from the first block of the first file."""
    with _open(first) as file:
        schema = _csv_schema(file, first)
    types = {}
    for field in schema:
        kind = field.type
        # Dates have no place in tf.Example, and an empty first block says nothing.
        types[field.name] = pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
    for name, kind in (format.csv_types or {}).items():
        if name not in types:
            raise InputError(f"--csv_types names {name!r}, which is not in {first}")
        types[name] = pa.type_for_alias(kind)
    if label in types:
        types[label] = pa.float64()
    return types


def _csv_reader(
    file: BinaryIO, types: Mapping[str, pa.DataType], wanted: list[str] | None
) -> pa.csv.CSVStreamingReader:
    return pa.csv.open_csv(
        pa.PythonFile(file, "r"),
        read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=types, include_columns=list(types) if wanted is None else wanted
        ),
    )


def _csv_schema(file: BinaryIO, path: str) -> pa.Schema:
    try:
        return _csv_reader(file, {}, None).schema
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise InputError(f"{path}: {_safe_csv_message(str(error), [], {}, None)}") from None


def _csv_header(path: str) -> list[str]:
    with _open(path) as file:
        return _csv_schema(file, path).names


def _safe_csv_message(message: str, names: Sequence[str], types: Mapping[str, Any], label: str | None) -> str:
    """What Arrow says of a bad CSV file, less the text that it quotes from the file."""
    if "Empty CSV file" in message:
        return "the CSV file is empty: it needs a header line and rows"
    fields = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        line = f"line {fields[1]} has" if fields[1] else "a line has"
        return f"{line} {fields[3]} fields, where the header has {fields[2]}"
    column = re.search(r"In CSV column #(\d+): (?:Row #(\d+): )?", message)
    if column and int(column[1]) < len(names):
        name = names[int(column[1])]
        line = f"line {column[2]}" if column[2] else "a line"
        if name == label:
            return f"label column {name!r} holds text on {line}, not a number: name another with --label, or mend it"
        return f"column {name!r} on {line} is not a {types[name]}: mend it, or give --csv_types {name}=string"
    return "not a CSV file that can be read, or damaged"
