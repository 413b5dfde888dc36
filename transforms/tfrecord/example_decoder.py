"""Decodes all features of tf.Examples into Arrow.

Records in the canonical form of `wire` are decoded together; the others, and those with several texts in a
feature, one by one, with the parser of the protocol buffer library, which Beam brings. It accepts every valid encoding.
Its messages are declared here, in a descriptor pool of their own, so TensorFlow is not needed.

Source: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from ..errors import InputError
from .example_values import Entries, decode_varints, list_entries
from .framing import Frames
from .wire import BYTES, FLOAT, INT64

_TYPES = {"bytes_list": pa.large_binary(), "float_list": pa.float32(), "int64_list": pa.int64()}


class ExampleDecoder:
    """Decodes serialized tf.Examples of one source into columns of lists."""

    def __init__(self, source: str):
        """Starts a source, named in error messages."""
        self._source = source

    def decode_frames(self, frames: Frames) -> pa.RecordBatch:
        """Decodes a batch of records; result and errors as for `decode`."""
        canonical, entries = list_entries(frames.content, frames.starts, frames.stops)
        odd = ~canonical
        features = [*_features_of(frames.octets, entries, odd)]
        columns = {feature.name: feature.array(self._source) for feature in features}
        rows = np.flatnonzero(odd)
        if len(rows):
            parsed = self.decode(frames.select(rows).records())
            columns = self._merged(columns, parsed, rows, len(frames))
        return _batch(columns, len(frames))

    def _merged(
        self, columns: dict[str, pa.Array], parsed: pa.RecordBatch, rows: np.ndarray, records: int
    ) -> dict[str, pa.Array]:
        """Columns of all records: those given, with the parsed records in their rows."""
        places = np.arange(records)
        places[rows] = records + np.arange(len(rows))
        others = dict(zip(parsed.schema.names, parsed.columns, strict=True))
        merged = {}
        for name in columns.keys() | others.keys():
            both = columns.get(name, pa.nulls(records)), others.get(name, pa.nulls(len(rows)))
            kinds = {array.type for array in both if not pa.types.is_null(array.type)}
            if len(kinds) > 1:
                raise changed_type(self._source, name)
            kind = kinds.pop() if kinds else pa.null()
            merged[name] = pa.concat_arrays([array.cast(kind) for array in both]).take(pa.array(places))
        return merged

    def decode(self, records: list[bytes]) -> pa.RecordBatch:
        """Decodes serialized tf.Examples one by one, however they are encoded.

        Returns a column of large_list for each feature that occurs, in the order of their names; of nulls for a feature
        that has no list in any record. A record without the feature, or without a list in it, has a null. Raises
        InputError if a record is not a tf.Example, or a feature changes its type.
        """
        columns: dict[str, list[Any]] = {}
        kinds: dict[str, str] = {}
        for row, record in enumerate(records):
            for name, feature in self._features(record):
                column = columns.setdefault(name, [])
                kind = feature.WhichOneof("kind")
                if kind is not None:
                    if kinds.setdefault(name, kind) != kind:
                        raise changed_type(self._source, name)
                    column.extend([None] * (row - len(column)))
                    column.append(list(getattr(feature, kind).value))
        arrays = {name: _array(column, kinds.get(name), len(records)) for name, column in columns.items()}
        return _batch(arrays, len(records))

    def names(self, records: list[bytes]) -> set[str]:
        """Names of all features that occur in serialized tf.Examples; a feature may change its type.

        Raises InputError if a record is not a tf.Example.
        """
        return {name for record in records for name, _ in self._features(record)}

    def schema(self, records: list[bytes], labels: Sequence[str]) -> pa.Schema:
        """Finds the features of serialized tf.Examples and their types, without looking at a value of a label.

        Returns a field for each feature that occurs, in the order of their names; of null for a label and for a feature
        without a list. Raises InputError if a record is not a tf.Example.
        """
        kinds: dict[str, pa.DataType] = {}
        for record in records:
            for name, feature in self._features(record):
                kind = None if name in labels else feature.WhichOneof("kind")
                if kind is not None:
                    kinds[name] = pa.large_list(_TYPES[kind])
                kinds.setdefault(name, pa.null())
        return pa.schema(sorted(kinds.items()))

    def _features(self, record: bytes) -> Iterable[tuple[str, Any]]:
        try:
            example = _EXAMPLE.FromString(record)
        except DecodeError:
            raise undecodable(self._source) from None
        if any(example.feature_lists):
            raise InputError(
                f"{self._source}: a record is a tf.SequenceExample, whose feature_lists would be lost: "
                "convert the records to tf.Examples"
            )
        return example.features.feature.items()


def undecodable(source: str) -> InputError:
    """Error for records that are no tf.Examples, to be raised by the caller."""
    return InputError(f"{source}: a record is not a tf.Example")


def changed_type(source: str, name: str) -> InputError:
    """Error for a feature whose type differs between records, to be raised by the caller."""
    return InputError(
        f"{source}: feature {name!r} changes its type between records (float_list, int64_list, bytes_list): write it "
        "with one type"
    )


@dataclass(frozen=True, eq=False)
class _Lists:
    """Lists of one feature in n records, on the wire.

    kinds: (n,) kind of the list, 0 for none. starts, stops: (n,) offsets of the values in octets. texts: (n,) number of
    texts, 0 or 1, in a list of texts.
    """

    name: str
    octets: np.ndarray
    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    texts: np.ndarray

    def array(self, source: str) -> pa.Array:
        """The lists in Arrow."""
        present = self.kinds > 0
        if not present.any():
            return pa.nulls(len(present))
        kind = int(self.kinds[present][0])
        if (self.kinds[present] != kind).any():
            raise changed_type(source, self.name)
        counts, values = {BYTES: self._texts, FLOAT: self._floats, INT64: self._integers}[kind]()
        offsets = pa.array(np.append(0, np.cumsum(counts)))
        mask = None if present.all() else pa.array(~present)
        return pa.LargeListArray.from_arrays(offsets, values, mask=mask)

    def _texts(self) -> tuple[np.ndarray, pa.Array]:
        sizes = (self.stops - self.starts)[self.texts > 0]
        offsets, content = np.append(0, np.cumsum(sizes)), self.octets[_ranges(self.starts, self.stops)]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return self.texts, pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), buffers)

    def _floats(self) -> tuple[np.ndarray, pa.Array]:
        counts = (self.stops - self.starts) // 4
        content = self.octets[_ranges(self.starts, self.stops)]
        return counts, pa.array(content.view("<f4"))

    def _integers(self) -> tuple[np.ndarray, pa.Array]:
        at = _ranges(self.starts, self.stops)
        last = np.flatnonzero(self.octets[at] < 0x80)
        before = np.searchsorted(last, np.append(0, np.cumsum(self.stops - self.starts)))
        first = np.append(0, last + 1)[:-1]
        return np.diff(before), pa.array(decode_varints(self.octets, at[first], at[last] + 1))


def _features_of(octets: np.ndarray, entries: Entries, odd: np.ndarray) -> Iterable[_Lists]:
    """Features of the canonical records. odd: (n,) bool, records to leave out; more may be added."""
    order = np.argsort(entries.hashes, kind="stable")
    ends = np.flatnonzero(np.diff(entries.hashes[order])) + 1
    # By the first entry of each: the order of the hashes differs from process to process.
    groups = sorted((group for group in np.split(order, ends) if len(group)), key=lambda group: group[0])
    tags = np.where(entries.lists == entries.stops, 0, octets[np.minimum(entries.lists, len(octets) - 1)])
    # A list with a text has its tag, its length, and at least the text's tag and length.
    filled = entries.stops - entries.lists > 2
    several = (tags == BYTES) & (entries.kinds == 0) & filled
    odd[entries.rows[several]] = True
    for group in groups:
        odd[entries.rows[group[~_alike(octets, entries, group)]]] = True
    for group in groups:
        kept = group[~odd[entries.rows[group]]]
        if len(kept):
            rows = entries.rows[kept]
            kinds, starts, stops, texts = np.zeros((4, len(odd)), np.int64)
            kinds[rows], starts[rows], stops[rows] = tags[kept], entries.starts[kept], entries.stops[kept]
            texts[rows] = (tags[kept] == BYTES) & filled[kept]
            name = octets[entries.names[kept[0]] : entries.names_stops[kept[0]]].tobytes().decode()
            yield _Lists(name, octets, kinds, starts, stops, texts)


def _alike(octets: np.ndarray, entries: Entries, group: np.ndarray) -> np.ndarray:
    """Tests which keys equal the group's first, because keys that differ may have equal hashes."""
    sizes = (entries.names_stops - entries.names)[group]
    alike = sizes == sizes[0]
    keys = octets[entries.names[group][alike][:, None] + np.arange(sizes[0])]
    alike[alike] = (keys == keys[0]).all(axis=1)
    return alike


def _ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """All offsets in [start, stop), one range after the other."""
    sizes = stops - starts
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)


def _batch(columns: dict[str, pa.Array], records: int) -> pa.RecordBatch:
    """The columns in the order of their names. Only by selection has a batch without columns its length."""
    names = sorted(columns)
    arrays = [pa.nulls(records), *(columns[name] for name in names)]
    return pa.RecordBatch.from_arrays(arrays, ["", *names]).select(range(1, len(arrays)))


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
    example = file.message_type.add(name="Example")
    _add_message(example, "features", 1, "Features")
    # That of tf.SequenceExample, whose context has the number of features.
    example.field.add(name="feature_lists", number=2, label=field.LABEL_REPEATED, type=field.TYPE_BYTES)
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
