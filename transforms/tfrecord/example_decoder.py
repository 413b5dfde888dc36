"""tf.Example to Arrow. The only file that knows tfx_bsl, of the extra `tfx`; imported where it is needed."""

from __future__ import annotations

import pyarrow as pa
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from ..errors import InputError


class ExampleDecoder:
    """Decodes serialized tf.Examples of one source into columns of lists."""

    def __init__(self, source: str):
        self._source = source
        self._decoder = ExamplesToRecordBatchDecoder()

    def decode(self, records: list[bytes]) -> pa.RecordBatch:
        """The records as a batch with a large_list column per feature. Raises InputError for what is no tf.Example."""
        try:
            return self._decoder.DecodeBatch(records)
        except Exception:
            raise not_examples(self._source) from None


def not_examples(source: str) -> InputError:
    """What to raise for records that cannot be read."""
    return InputError(f"{source}: a record is not a tf.Example, or a feature changes its type between records")
