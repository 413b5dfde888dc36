"""tf.Example to Arrow: one list column per feature, and errors for invalid records."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.transforms import InputError
from labeldp.transforms.tfrecord import example_decoder
from labeldp.transforms.tfrecord.framing import Frames

tf: Any = pytest.importorskip("tensorflow")

from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder  # noqa: E402


def feature(kind: str | None, *values: Any) -> Any:
    """A tf.train.Feature with a list of the given kind, or with no list."""
    if kind is None:
        return tf.train.Feature()
    lists = {"int64": tf.train.Int64List, "float": tf.train.FloatList, "bytes": tf.train.BytesList}
    return tf.train.Feature(**{f"{kind}_list": lists[kind](value=values)})


def example(**features: Any) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def decoded(records: list[bytes]) -> pa.RecordBatch:
    return ExampleDecoder("/logs/a").decode(records)


THREE = [
    example(id=feature("bytes", b"a"), x=feature("float", 1.5), y=feature("float", 0.5)),
    example(id=feature("bytes", b"b"), x=feature("float"), y=feature("float", 2.5)),
    example(id=feature("bytes", b"c"), y=feature("float", 3.5, 4.5)),
]


def test_the_columns_of_a_decoder_are_lists():
    batch = decoded(THREE)
    assert sorted(batch.schema.names) == ["id", "x", "y"]
    assert all(pa.types.is_large_list(kind) for kind in batch.schema.types)
    assert batch.column(batch.schema.get_field_index("x")).to_pylist() == [[1.5], [], None]


def test_keys_of_equal_hashes_are_told_apart(monkeypatch):
    listed = example_decoder.list_entries

    def alike(*args):
        canonical, entries = listed(*args)
        return canonical, dataclasses.replace(entries, hashes=np.zeros_like(entries.hashes))

    monkeypatch.setattr(example_decoder, "list_entries", alike)
    records = [example(**{"ab"[row % 2]: feature("float", row)}) for row in range(6)]

    frames = Frames.of(records)
    batch = ExampleDecoder("/logs/a").decode_frames(frames)
    assert batch.to_pydict() == {"a": [[0], None, [2], None, [4], None], "b": [None, [1], None, [3], None, [5]]}


def test_a_sequence_example_is_refused():
    """Its feature_lists would be lost, and the rest released as if nothing had been."""
    context = tf.train.Features(feature={"y": feature("float", 7.5)})
    lists = tf.train.FeatureLists(feature_list={"s": tf.train.FeatureList(feature=[feature("int64", 1)])})
    record = tf.train.SequenceExample(context=context, feature_lists=lists).SerializeToString()
    frames = Frames.of([example(y=feature("float", 1.0)), record])
    with pytest.raises(
        InputError, match=r"/logs/a: a record is a tf.SequenceExample, whose feature_lists would be lost"
    ):
        ExampleDecoder("/logs/a").decode_frames(frames)
    without = tf.train.SequenceExample(context=context).SerializeToString()
    assert decoded([without]).to_pydict() == {"y": [[7.5]]}
