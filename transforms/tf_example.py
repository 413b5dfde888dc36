"""tf.Example to Arrow. The only file that knows tfx_bsl, of the extra `tfx`; imported where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2 as generated
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from .errors import InputError

# Protocol buffer classes appear at run time; type checkers do not see them.
schema_pb2: Any = generated


class ExampleDecoder:
    """Decodes serialized tf.Examples of one source into columns of lists."""

    def __init__(self, source: str, columns: Sequence[str] | None = None):
        """columns: the features wanted; None for all. One that a batch does not have is not in its result."""
        self._source = source
        self._columns = columns
        self._whole = ExamplesToRecordBatchDecoder()
        self._partial: ExamplesToRecordBatchDecoder | None = None

    def decode(self, records: list[bytes]) -> pa.RecordBatch:
        """The records as a batch with a large_list column per feature. Raises InputError for what is no tf.Example."""
        if self._partial is not None:
            return self._decode(self._partial, records)
        batch = self._decode(self._whole, records)
        if self._columns is None:
            return batch
        schema = schema_pb2.Schema()
        wanted = [name for name in self._columns if batch.schema.get_field_index(name) >= 0]
        for name in wanted:
            schema.feature.add(name=name, type=_feature_type(batch.schema.field(name).type))
        # From the second batch on, only the wanted features are decoded, if all of their types are known by now.
        if len(wanted) == len(self._columns) and all(feature.type for feature in schema.feature):
            self._partial = ExamplesToRecordBatchDecoder(schema.SerializeToString())
        return pa.RecordBatch.from_arrays([batch.column(batch.schema.get_field_index(n)) for n in wanted], wanted)

    def _decode(self, decoder: ExamplesToRecordBatchDecoder, records: list[bytes]) -> pa.RecordBatch:
        try:
            return decoder.DecodeBatch(records)
        except Exception:
            raise InputError(
                f"{self._source}: a record is not a tf.Example, or a feature changes its type between records"
            ) from None


def _feature_type(kind: pa.DataType) -> int:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return schema_pb2.TYPE_UNKNOWN
    if pa.types.is_integer(kind.value_type):
        return schema_pb2.INT
    if pa.types.is_floating(kind.value_type):
        return schema_pb2.FLOAT
    return schema_pb2.BYTES if not pa.types.is_null(kind.value_type) else schema_pb2.TYPE_UNKNOWN
