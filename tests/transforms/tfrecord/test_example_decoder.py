"""tf.Example to Arrow: one list column per feature, and errors for invalid records."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import InputError
from labeldp.transforms.tfrecord import example_decoder
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import Frames

tf: Any = pytest.importorskip("tensorflow")

from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder  # noqa: E402

SENTINEL = "SENTINEL123"


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


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
            "f": st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
            "b": st.lists(st.binary(max_size=4), min_size=1, max_size=3),
            "t": TEXTS,
        }
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(RECORDS, st.integers(0, 3))
def test_encoding_and_decoding_give_the_lists_back(records, skip):
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([record["i"] for record in records], pa.list_(pa.int64())),
            pa.array([record["f"] for record in records], pa.large_list(pa.float32())),
            pa.array([record["b"] for record in records], pa.list_(pa.binary())),
            pa.array([record["t"] for record in records], pa.string()),
        ],
        ["i", "f", "b", "t"],
    ).slice(skip)
    if not batch.num_rows:
        return
    back = decoded(encode_examples(batch)).to_pylist()
    expected = [{**record, "t": [record["t"].encode()]} for record in records[skip:]]
    assert [{name: record[name] for name in "ifbt"} for record in back] == expected


THREE = [
    example(id=feature("bytes", b"a"), x=feature("float", 1.5), y=feature("float", 0.5)),
    example(id=feature("bytes", b"b"), x=feature("float"), y=feature("float", 2.5)),
    example(id=feature("bytes", b"c"), y=feature("float", 3.5, 4.5)),
]


def test_decoder_gives_a_column_of_lists_for_every_feature():
    batch = decoded(THREE)
    assert batch.num_rows == 3
    assert sorted(batch.schema.names) == ["id", "x", "y"]
    assert all(pa.types.is_large_list(kind) for kind in batch.schema.types)
    assert batch.column(batch.schema.get_field_index("x")).to_pylist() == [[1.5], [], None]
    assert batch.column(batch.schema.get_field_index("y")).to_pylist() == [[0.5], [2.5], [3.5, 4.5]]


LISTS = st.one_of(
    st.none(),
    st.builds(feature, st.just("int64"), st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200)),
    st.builds(feature, st.just("int64"), st.integers(-200, 200)),
    st.builds(feature, st.sampled_from(["int64", None])),
)
TEXT_LISTS = st.one_of(
    st.none(),
    st.builds(feature, st.just("bytes"), st.binary(max_size=3)),
    st.builds(feature, st.just("bytes"), st.binary(max_size=3), st.binary(max_size=3)),
    st.builds(feature, st.sampled_from(["bytes", None])),
)
FLOAT_LISTS = st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda values: feature("float", *values))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.fixed_dictionaries({"i": LISTS, "long name": TEXT_LISTS, "f": FLOAT_LISTS}), min_size=1, max_size=9),
    st.sets(st.integers(0, 8)),
)
def test_frames_are_decoded_as_single_records(logs, odd):
    records = [example(**{name: value for name, value in log.items() if value is not None}) for log in logs]
    # A field that parsers skip makes a record non-canonical.
    records = [record + b"\x7a\x03odd" if row in odd else record for row, record in enumerate(records)]

    assert ExampleDecoder("/logs/a").decode_frames(Frames.of(records)).equals(decoded(records))


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


BAD = {
    "no example": [b"\xff\xff not a protocol buffer " + SENTINEL.encode()],
    "truncated": [example(y=feature("bytes", SENTINEL.encode()))[:-3]],
    "two types in a batch": [example(y=feature("float", 48613.71)), example(y=feature("bytes", SENTINEL.encode()))],
}


@pytest.mark.parametrize("records", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("first", [[], THREE], ids=["first batch", "second batch"])
@pytest.mark.parametrize("decode", [ExampleDecoder.decode, lambda to, records: to.decode_frames(Frames.of(records))])
def test_bad_records_are_an_input_error_without_their_values(records, first, decode):
    decoder = ExampleDecoder("/logs/a")
    decoder.decode(first)
    with pytest.raises(InputError, match=r"^/logs/a: ") as caught:
        decode(decoder, records)
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


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
