"""Decodes tf.Examples into Arrow. The only module that imports tfx_bsl, of the extra `tfx`; imported when needed."""

from __future__ import annotations

import pyarrow as pa
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from ..errors import InputError


class ExampleDecoder:
    """Decodes serialized tf.Examples of one source into columns of lists."""

    def __init__(self, source: str):
        """Starts a source.

        Args:
          source: Name of the source, for error messages.
        """
        self._source = source
        self._decoder = ExamplesToRecordBatchDecoder()

    def decode(self, records: list[bytes]) -> pa.RecordBatch:
        """Decodes a batch of records.

        Args:
          records: Serialized tf.Examples.

        Returns:
          A column of large_list for each feature that occurs.

        Raises:
          InputError: If a record is not a tf.Example, or a feature changes its type.
        """
        try:
            return self._decoder.DecodeBatch(records)
        except Exception:
            raise undecodable(self._source) from None


def undecodable(source: str) -> InputError:
    """Error for records that cannot be read.

    Args:
      source: Name of the source.

    Returns:
      The exception, to be raised by the caller.
    """
    return InputError(f"{source}: a record is not a tf.Example, or a feature changes its type between records")
