"""Reading of one file after the other into batches, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..batches import LabelledBatch, single_values
from ..errors import InputError
from .csv_reader import CSVReader
from .input_format import Equals, FilePart, Format
from .parquet_reader import ParquetReader
from .tfrecord_reader import TFRecordReader


@dataclass
class FileReader:
    """Reads files with one set of options. A worker reuses record templates and CSV column types for the next file.

    Attributes:
      format: Format of the files.
      columns: Columns to read, besides that of `where`; None reads all.
      where: Filter on a public feature; needs `label_column`.
      label_column: The label's column, which CSV files are read with as float64.
      encoded: Whether batches carry the records as they stand in the file, for TFRecord output; needs the format
        tfrecord, `columns` and `label_column`.
    """

    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None
    encoded: bool = False

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          ValueError: If encoded batches are asked for without what they need, or the filter reads the label or has no
            `label_column` to exclude.
        """
        if self.encoded and (self.format.name != "tfrecord" or not self.columns or self.label_column is None):
            raise ValueError("encoded needs the format tfrecord, columns and a label_column")
        if self.where is not None and self.label_column is None:
            raise ValueError("where needs a label_column, which no filter may look at")
        if self.where is not None and self.where.column == self.label_column:
            raise ValueError("where must not look at the label: which records are released would depend on it")
        self._batches = self._format_reader()

    def _format_reader(self) -> TFRecordReader | ParquetReader | CSVReader:
        columns = None if self.columns is None else list(self.columns)
        if columns is not None and self.where is not None and self.where.column not in columns:
            columns.append(self.where.column)
        if self.format.name == "tfrecord":
            return TFRecordReader(columns, self.label_column if self.encoded else None)
        if self.format.name == "parquet":
            return ParquetReader(columns)
        return CSVReader(columns, self.label_column, self.format.csv_types)

    def read(self, part: FilePart) -> Iterator[LabelledBatch]:
        """Reads one file or part.

        Args:
          part: The file or part.

        Yields:
          Its batches in order.

        Raises:
          InputError: If the file is missing, damaged, of another schema than the first one, or lacks a column that is
            asked for; or if no value of the filter's column can equal its value.
        """
        start = 0 if part.groups is None else part.groups.start
        for batch in self._batches.read(part):
            labelled = LabelledBatch.whole(part.path, start, batch)
            start = labelled.stop
            yield labelled if self.where is None else labelled.keep(_matches(labelled, self.where))


def _matches(batch: LabelledBatch, where: Equals) -> np.ndarray:
    """Records that the filter keeps, (n,) bool."""
    column = batch.column(where.column)
    if column is None:
        return np.zeros(batch.batch.num_rows, bool)
    values, present = single_values(column)
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
