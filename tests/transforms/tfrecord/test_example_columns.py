"""Columns read from encoded records equal decoded ones; records passed through change in their label only."""

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.transforms import InputError, LabelledBatch
from labeldp.transforms.batches import label_values, replace_label
from labeldp.transforms.tfrecord.framing import Frames, read_records

tf: Any = pytest.importorskip("tensorflow")

from labeldp.transforms.tfrecord.example_columns import ExampleColumns  # noqa: E402
from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder  # noqa: E402

SENTINEL = "SENTINEL123"
LISTS = {"int64": tf.train.Int64List, "float": tf.train.FloatList, "bytes": tf.train.BytesList}


def feature(kind: str | None, *values: Any) -> Any:
    """A tf.train.Feature with a list of the given kind, or with no list."""
    return tf.train.Feature(**{f"{kind}_list": LISTS[kind](value=values)}) if kind else tf.train.Feature()


def example(**features: Any) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def features_of(record: bytes) -> dict[str, bytes]:
    """Serialized features by name, without those that have no kind."""
    found = tf.train.Example.FromString(record).features.feature
    return {
        name: value.SerializeToString(deterministic=True) for name, value in found.items() if value.WhichOneof("kind")
    }


def read(records: list[bytes], columns: tuple[str, ...] = ("y", "id")) -> pa.RecordBatch:
    return ExampleColumns("/logs/a", columns).read(Frames.of(records))


def encoded(records: list[bytes]) -> LabelledBatch:
    columns, found = ExampleColumns("/logs/a", ["y", "id"]).read_encoded(Frames.of(records), ["y"])
    return LabelledBatch("/logs/a", 0, len(records), np.arange(len(records)), columns, encoded=found)


def framed(batch: LabelledBatch) -> bytes:
    assert batch.encoded is not None
    return batch.encoded.framed().to_pybytes()


def replaced(batch: LabelledBatch, values: np.ndarray) -> list[bytes]:
    """Returns the records with the new labels as passed to the writer, after a check of their checksums."""
    content = io.BytesIO(framed(replace_label(batch, "y", values)))
    return [record for frames in read_records(content, "shard", 1000) for record in frames]


def test_any_record_is_read_as_tensorflow_reads_it(fuzzed):
    """Records of any form, decoded and in columns; those that are passed through hold their features and no more."""
    fuzzed("tf_example")


# Records passed through.

PLAIN = [
    example(
        y=feature("float", 0.5), x=feature("float", 1.5, float(i)), t=feature("bytes", b"a" * i), n=feature("int64", i)
    )
    for i in range(300)
]


@pytest.mark.parametrize("rows", [1, 20, 300])
def test_canonical_records_differ_in_four_bytes_only(rows):
    outputs = np.arange(rows) + 0.25
    for before, after, output in zip(PLAIN, replaced(encoded(PLAIN[:rows]), outputs), outputs, strict=False):
        assert len(after) == len(before)
        place = before.index(b"\x12\x06\x0a\x04" + struct.pack("<f", 0.5)) + 4
        assert after == before[:place] + struct.pack("<f", output) + before[place + 4 :]


def test_records_without_a_usable_label_go_nowhere():
    log = [
        example(id=feature("bytes", b"none")),
        example(y=feature("float"), id=feature("bytes", b"empty")),
        example(y=feature("float", 1.5, 2.5), id=feature("bytes", b"two")),
        example(y=feature("float", float("nan")), id=feature("bytes", b"nan")),
        example(y=feature("float", 3.5), id=feature("bytes", b"good")),
    ]
    batch = encoded(log)
    usable = np.isfinite(label_values(batch, "y"))
    assert usable.tolist() == [False] * 4 + [True]
    (after,) = replaced(batch.keep(usable), np.array([1.5]))
    assert features_of(after)["id"] == feature("bytes", b"good").SerializeToString()
    with pytest.raises(ValueError, match="a record without a label"):
        replace_label(batch, "y", np.zeros(5))


def test_labels_must_be_replaced_before_records_are_written():
    with pytest.raises(ValueError, match="the labels of these records have not been replaced"):
        framed(encoded(PLAIN))


# Columns.


def test_a_feature_that_no_record_has_is_no_column():
    batch = read([example(y=feature("float", 0.5))] * 3)
    assert batch.schema.names == ["y"]
    assert batch.column(0).type == pa.float32()
    assert ExampleColumns("/logs/a", ["nope"]).read(Frames.of(PLAIN)).num_columns == 0


@pytest.mark.parametrize("odd", [b"\x7a\x03odd", b"\x0a\x00" * 2, example(y=feature(None)) + b"\x7a\x03odd"])
def test_odd_records_may_have_nothing_in_them(odd):
    good = example(y=feature("float", 0.5))
    assert read([odd, good, odd]).to_pydict() == {"y": [None, 0.5, None]}
    assert read([odd, odd]).to_pydict().get("y", [None, None]) == [None, None]
    batch = encoded([odd, good, odd])
    assert replaced(batch.keep(np.array([False, True, False])), np.array([1.5])) == [example(y=feature("float", 1.5))]


def test_a_column_comes_and_goes_and_gets_its_type_when_it_has_a_value():
    columns = ExampleColumns("/logs/a", ["y", "id"])
    for _ in range(2):
        for record, expected in (
            (example(y=feature(None)), {"y": [None]}),
            (example(id=feature("bytes", b"a")), {"id": [b"a"]}),
            (example(y=feature("float", 0.5), id=feature("bytes", b"b")), {"y": [0.5], "id": [b"b"]}),
        ):
            assert columns.read(Frames.of([record])).to_pydict() == expected


def test_types_come_from_the_wire():
    batch = read([example(y=feature("int64", -5), id=feature("bytes", b"\xff"))] * 2)
    assert {field.name: field.type for field in batch.schema} == {"y": pa.int64(), "id": pa.large_binary()}
    assert batch.to_pydict() == {"y": [-5, -5], "id": [b"\xff"] * 2}


BAD = {
    "no example": [b"\xff\xff not a protocol buffer " + SENTINEL.encode()],
    "truncated": [example(y=feature("bytes", SENTINEL.encode()))[:-3]],
}
CHANGED = {
    "two types in a batch": [example(y=feature("float", 48613.71)), example(y=feature("bytes", SENTINEL.encode()))],
    "two types of numbers": [example(y=feature("float", 48613.71)), example(y=feature("int64", 48613))],
}


@pytest.mark.parametrize("records", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("way", ["read", "read_encoded"])
def test_bad_records_are_an_input_error_without_their_values(records, way):
    columns = ExampleColumns("/logs/a", ["y", "id"])
    with pytest.raises(InputError, match=r"^/logs/a: a record is not a tf.Example$"):
        getattr(columns, way)(Frames.of(records), *(["y"] if way == "read_encoded" else []))


@pytest.mark.parametrize("records", CHANGED.values(), ids=list(CHANGED))
@pytest.mark.parametrize("way", ["read", "read_encoded", "decode", "decode_frames"])
def test_a_feature_that_changes_its_type_is_named_without_its_values(records, way):
    columns, decoder, frames = ExampleColumns("/logs/a", ["y"]), ExampleDecoder("/logs/a"), Frames.of(records)
    ways = {
        "read": lambda: columns.read(frames),
        "read_encoded": lambda: columns.read_encoded(frames, ["y"]),
        "decode": lambda: decoder.decode(records),
        "decode_frames": lambda: decoder.decode_frames(frames),
    }
    with pytest.raises(InputError, match=r"^/logs/a: feature 'y' changes its type between records") as caught:
        ways[way]()
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


@pytest.mark.parametrize("change", [feature("bytes", SENTINEL.encode()), feature("int64", 48613)], ids=["text", "int"])
def test_a_type_that_changes_between_batches_is_an_input_error_without_values(change):
    columns = ExampleColumns("/logs/a", ["y"])
    columns.read(Frames.of(PLAIN))
    with pytest.raises(InputError, match=r"^/logs/a: feature 'y' changes its type") as caught:
        columns.read(Frames.of([example(y=change)]))
    assert SENTINEL not in str(caught.value)
    assert "48613" not in str(caught.value)


def test_features_that_are_not_wanted_may_change():
    records = [
        example(x=feature("int64", 1), y=feature("float", 0.5)),
        example(x=feature("bytes", b"a"), y=feature("float", 1.5)),
    ]
    assert read(records).to_pydict() == {"y": [0.5, 1.5]}
    assert [features_of(one)["x"] for one in replaced(encoded(records), np.zeros(2))] == [
        features_of(one)["x"] for one in records
    ]
