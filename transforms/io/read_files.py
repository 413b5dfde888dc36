"""Reading files into labelled batches: TFRecord of tf.Example, Parquet and CSV, on any Beam filesystem.

A file is read by one worker, from its first row on, so that row numbers are true; many files read in parallel, and of
a large Parquet file its row groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute
from apache_beam.pvalue import PBegin, PCollection

from ..batches import LabelledBatch, only_values
from ..errors import InputError, redact_errors
from .csv_reader import read_csv
from .filesystems import absolute, match
from .input_format import Equals, Format
from .parquet_reader import RowGroups, open_arrow_file, open_parquet_file, read_parquet
from .tfrecord_reader import Learned, read_tfrecord

# Of a Parquet file, undone from its compression: enough work for a worker, and not too many segments to put together.
_PART_BYTES = 32 << 20


_MOST_PARTS = 64


@dataclass
class ReadRecordBatches(beam.PTransform):
    """Files to a PCollection of LabelledBatch.

    Takes a pipeline; gives batches of at most some ten thousand records, each with its file and row numbers. Rows
    of one file come in order, of a large Parquet file within each of its parts; files and parts in any order. The first
    file that matches sets the schema that all others must have.

    pattern: a path or glob; it is matched when the job runs. format: tfrecord, parquet or csv; .gz is seen through.
    columns: what to read; None reads all. where: a filter on a public feature. label_column: read as float64 from CSV.
    encoded: for TFRecords that become TFRecords: batches carry the records as they stand in the file, and the columns
    beside, with one value or none for each record; `WriteTFRecords` writes them once their labels are replaced.
    """

    pattern: str
    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None
    encoded: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for encoded records of another format, or whose columns or label nobody named, and for a
        filter that looks at the label, or may do so."""
        super().__init__()
        self.pattern = absolute(self.pattern)
        if self.encoded and (self.format.name != "tfrecord" or not self.columns or self.label_column is None):
            raise ValueError("encoded needs the format tfrecord, columns and a label_column")
        if self.where is not None and self.label_column is None:
            raise ValueError("where needs a label_column, which no filter may look at")
        if self.where is not None and self.where.column == self.label_column:
            raise ValueError("where must not look at the label: which records are released would depend on it")

    def expand(self, pbegin: PBegin) -> PCollection[LabelledBatch]:
        sources: Any = (
            pbegin
            | "Pattern" >> beam.Create([self.pattern])
            | "Match" >> beam.FlatMap(_sources).with_output_types(_Source)
            # Files spread over the workers here, and nothing that follows is read before it is needed.
            | "Spread" >> beam.Reshuffle()
        )
        if self.format.name == "parquet":
            sources = (
                sources
                | "Split" >> beam.FlatMap(_in_parts).with_output_types(_Source)
                | "SpreadParts" >> beam.Reshuffle()
            )
        reading = _ReadFile(self.format, self.columns, self.where, self.label_column, self.encoded)
        return sources | "Read" >> beam.ParDo(reading).with_output_types(LabelledBatch)


@dataclass(frozen=True)
class _Source:
    path: str
    first: str
    part: RowGroups | None = None


def _sources(pattern: str) -> list[_Source]:
    paths = list(match(pattern))
    return [_Source(path, paths[0]) for path in paths]


@redact_errors("reading")
def _in_parts(source: _Source) -> Iterator[_Source]:
    with open_arrow_file(source.path) as file:
        metadata = open_parquet_file(file, source.path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    enough = max(_PART_BYTES, sum(group.total_byte_size for group in groups) // _MOST_PARTS)
    first = start = size = row = 0
    for number, group in enumerate(groups, 1):
        row, size = row + group.num_rows, size + group.total_byte_size
        if size >= enough or number == len(groups):
            yield dataclasses.replace(source, part=RowGroups(first, number, start))
            first, start, size = number, row, 0
    if not groups:
        # It may be refused still.
        yield source


class _ReadFile(beam.DoFn):
    def __init__(
        self,
        format: Format,
        columns: Sequence[str] | None,
        where: Equals | None,
        label: str | None,
        encoded: bool,
    ):
        self._format = format
        self._columns = columns
        self._where = where
        self._label = label
        self._encoded = encoded

    def setup(self) -> None:
        self._learned = Learned()

    @redact_errors("reading")
    def process(self, source: _Source) -> Iterator[LabelledBatch]:
        yield from read_file(
            source.path,
            source.first,
            self._format,
            self._columns,
            self._where,
            self._label,
            self._encoded,
            self._learned,
            source.part,
        )


def read_file(
    path: str,
    first: str,
    format: Format,
    columns: Sequence[str] | None = None,
    where: Equals | None = None,
    label: str | None = None,
    encoded: bool = False,
    learned: Learned | None = None,
    part: RowGroups | None = None,
) -> Iterator[LabelledBatch]:
    """The batches of one file, in order. first: the file whose schema this one must have. learned: from files before,
    read with the same options. part: of a Parquet file; None for all of it. The rest is as for `ReadRecordBatches`.

    Raises InputError when the file is missing, damaged, of another schema, or lacks a column that is asked for.
    """
    wanted = None if columns is None else list(columns)
    if wanted is not None and where is not None and where.column not in wanted:
        wanted.append(where.column)
    learned = learned or Learned()
    if format.name == "tfrecord":
        batches = read_tfrecord(path, wanted, label if encoded else None, learned)
    elif format.name == "parquet":
        batches = read_parquet(path, first, wanted, part)
    else:
        batches = read_csv(path, first, format, wanted, label, learned.csv_types)
    start = 0 if part is None else part.start
    for batch in batches:
        labelled = LabelledBatch.whole(path, start, batch)
        start = labelled.stop
        yield labelled if where is None else labelled.keep(_matches(labelled, where))


def _matches(batch: LabelledBatch, where: Equals) -> np.ndarray:
    column = batch.column(where.column)
    if column is None:
        return np.zeros(batch.batch.num_rows, bool)
    values, present = only_values(column)
    text = where.value
    if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        values, text = pa.array([str(value).lower() for value in values.to_pylist()], pa.string()), text.lower()
    try:
        wanted = pa.scalar(text).cast(values.type if not pa.types.is_binary(values.type) else pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"--where {where.column}={where.value}: the column holds {values.type}, give a value of that type"
        ) from None
    mask = np.zeros(batch.batch.num_rows, bool)
    mask[present] = np.asarray(pa.compute.equal(values, wanted))
    return mask
