"""tf.Example to Arrow and back. The only file that knows tfx_bsl, of the extra `tfx`; imported where it is needed.

tf.Example holds lists of float32, int64 and bytes. Other Arrow types are cast on the way out: booleans to int64,
text to bytes, float64 and decimals to float32, which rounds them to 24 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2 as generated
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder, RecordBatchToExamplesEncoder

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


def encode_examples(batch: pa.RecordBatch) -> list[bytes]:
    """Each record as a serialized tf.Example. A null becomes a feature without a value.

    Raises InputError, naming the column, for a type that tf.Example cannot hold.
    """
    columns = [_feature_column(name, batch.column(i)) for i, name in enumerate(batch.schema.names)]
    return RecordBatchToExamplesEncoder().encode(pa.RecordBatch.from_arrays(columns, batch.schema.names))


def _feature_column(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _feature_column(name, column.dictionary_decode())
    if pa.types.is_null(kind):
        return _feature_column(name, column.cast(pa.int64()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _example_values(name, column.values)
        if values is column.values:
            return column
        return pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), values)
    present = np.asarray(column.is_valid())
    offsets = np.append(0, np.cumsum(present))
    # A null offset makes a null list: the feature has no value there.
    nulls = np.append(~present, False)
    values = _example_values(name, column.filter(pa.array(present)) if column.null_count else column)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64(), mask=nulls), values)


def _example_values(name: str, values: pa.Array) -> pa.Array:
    kind = values.type
    if kind in (pa.float32(), pa.int64(), pa.binary(), pa.large_binary()):
        return values
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.int64(), safe=False)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64()).cast(pa.float32(), safe=False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.large_binary())
    raise InputError(f"column {name!r} holds {kind}, which tf.Example cannot: cast it to a number or text first")
