"""Records of a synthetic log, in every form in which a stage of the job takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from labeldp.mechanisms.noise.keyed_words import Identities
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart, Format
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.framing import Frames, read_records
from labeldp.transforms.usable_records import UsableRecords, usable_records
from log_schema import LABEL, LABEL_MAX
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one TFRecord file, in batches.

    Attributes:
      path: The file.
      raw: Its bytes.
      column: The label column.
      frames: Frames of each batch.
      examples: Serialized tf.Examples of each batch.
      decoded: Batches as Arrow.
      batches: Batches as in the job: only the label is decoded.
      usable: Records of each batch with their labels, all of which are usable.
    """

    path: str
    raw: bytes
    column: LabelColumn
    frames: list[Frames]
    examples: list[list[bytes]]
    decoded: list[pa.RecordBatch]
    batches: list[LabelledBatch]
    usable: list[UsableRecords]

    @property
    def values(self) -> list[np.ndarray]:
        """Labels of each batch, shape (n,), float64."""
        return [each.labels.values for each in self.usable]

    @property
    def names(self) -> list[Identities]:
        """Identities of the records of each batch."""
        return [each.labels.identities for each in self.usable]

    @classmethod
    def read(cls, path: Path) -> Records:
        """Reads a file.

        Args:
          path: A TFRecord file.

        Returns:
          Its records.
        """
        with path.open("rb") as file:
            frames = list(read_records(file, str(path), BATCH_ROWS))
        examples = [list(batch) for batch in frames]
        batches = list(read_batches(str(path)))
        column = LabelColumn(LABEL, tuple(float(label) for label in range(LABEL_MAX + 1)))
        return cls(
            path=str(path),
            raw=path.read_bytes(),
            column=column,
            frames=frames,
            examples=examples,
            decoded=[ExamplesToRecordBatchDecoder().DecodeBatch(batch) for batch in examples],
            batches=batches,
            usable=[usable_records(batch, column) for batch in batches],
        )


def read_batches(path: str) -> Iterator[LabelledBatch]:
    """Reads a file as in the job: only the label is decoded.

    Args:
      path: A TFRecord file.

    Returns:
      Its batches, read while they are iterated.
    """
    reader = FileReader(Format("tfrecord"), [LABEL], label_column=LABEL, encoded=True)
    return reader.read(FilePart(path, path))
