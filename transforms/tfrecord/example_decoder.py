"""Decodes tf.Examples into Arrow, with the parser of the protocol buffer library, which Beam brings.

The messages are declared here, in a descriptor pool of their own, so TensorFlow is not needed. The parser accepts every
valid encoding: fields in any order, repeated, packed or not, and fields that it does not know.

Source: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from ..errors import InputError

_TYPES = {"bytes_list": pa.large_binary(), "float_list": pa.float32(), "int64_list": pa.int64()}


class ExampleDecoder:
    """Decodes serialized tf.Examples of one source into columns of lists."""

    def __init__(self, source: str):
        """Starts a source.

        Args:
          source: Name of the source, for error messages.
        """
        self._source = source

    def decode(self, records: list[bytes]) -> pa.RecordBatch:
        """Decodes a batch of records.

        Args:
          records: Serialized tf.Examples.

        Returns:
          A column of large_list for each feature that occurs, in the order of their names; of nulls for a feature that
          has no list in any record. A record without the feature, or without a list in it, has a null.

        Raises:
          InputError: If a record is not a tf.Example, or a feature changes its type.
        """
        columns: dict[str, list[Any]] = {}
        kinds: dict[str, str] = {}
        for row, record in enumerate(records):
            for name, feature in self._features(record):
                column = columns.setdefault(name, [])
                kind = feature.WhichOneof("kind")
                if kind is not None:
                    if kinds.setdefault(name, kind) != kind:
                        raise undecodable(self._source)
                    column.extend([None] * (row - len(column)))
                    column.append(list(getattr(feature, kind).value))
        names = sorted(columns)
        arrays = [_array(columns[name], kinds.get(name), len(records)) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names)

    def _features(self, record: bytes) -> Iterable[tuple[str, Any]]:
        try:
            return _EXAMPLE.FromString(record).features.feature.items()
        except DecodeError:
            raise undecodable(self._source) from None


def undecodable(source: str) -> InputError:
    """Error for records that cannot be read.

    Args:
      source: Name of the source.

    Returns:
      The exception, to be raised by the caller.
    """
    return InputError(f"{source}: a record is not a tf.Example, or a feature changes its type between records")


def _array(lists: list[Any], kind: str | None, records: int) -> pa.Array:
    if kind is None:
        return pa.nulls(records)
    return pa.array(lists + [None] * (records - len(lists)), pa.large_list(_TYPES[kind]))


def _example_class() -> Any:
    """Class of the message tensorflow.Example."""
    field = FieldDescriptorProto
    file = FileDescriptorProto(name="labeldp/example.proto", package="tensorflow", syntax="proto3")
    lists = {"BytesList": field.TYPE_BYTES, "FloatList": field.TYPE_FLOAT, "Int64List": field.TYPE_INT64}
    for name, kind in lists.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=field.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, message) in enumerate(zip(_TYPES, lists, strict=True), 1):
        _add_message(feature, name, number, message).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    _add_message(entry, "value", 2, "Feature")
    _add_message(features, "feature", 1, "Features.FeatureEntry").label = field.LABEL_REPEATED
    _add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _add_message(message: DescriptorProto, name: str, number: int, kind: str) -> FieldDescriptorProto:
    """Adds a field that holds a message."""
    return message.field.add(
        name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".tensorflow.{kind}",
    )  # fmt: skip


_EXAMPLE = _example_class()
