"""Widening of integer labels to float32: enclosing lengths are updated and all other bytes are unchanged."""

from typing import Any

import numpy as np
import pytest
from labeldp.transforms.tfrecord.example_columns import widen_integer_labels
from labeldp.transforms.tfrecord.example_values import encode_varints, find_values, varint
from labeldp.transforms.tfrecord.framing import Frames, checksums, overwrite_words
from labeldp.transforms.tfrecord.wire import INT64

tf: Any = pytest.importorskip("tensorflow")


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint(len(content)) + content


def example(label: int | None, before: int = 0, behind: int = 0, packed: bool = True, name: str = "y") -> bytes:
    """A tf.Example with the label between two text features of `before` and `behind` bytes."""
    number = b"" if label is None else encode_varints(np.array([label]))[0].tobytes()
    value = {"x": field(0x0A, field(0x0A, bytes(before))), name: field(0x1A, field(0x0A, number))}
    value["z"] = field(0x0A, field(0x0A, bytes(behind)))
    if not packed:
        value[name] = field(0x1A, b"\x08" + number)
    if label is None:
        del value[name]
    entries = [field(0x0A, field(0x0A, key.encode()) + field(0x12, feature)) for key, feature in value.items()]
    return field(0x0A, b"".join(entries))


def with_floats(records: list[bytes], name: str = "y") -> tuple[list[bytes], list[int], Frames]:
    frames = Frames.of(records)
    values = find_values(frames.content, frames.starts, frames.stops, [name]).values[name]
    made, places = widen_integer_labels(frames, name, values)
    octets = np.frombuffer(made.content, np.uint8)
    claimed = [int.from_bytes(octets[stop : stop + 4].tobytes(), "little") for stop in made.stops]
    assert claimed == checksums(made.records()).tolist()
    return made.records(), places.tolist(), made


def expected(record: bytes, name: str, label: float) -> Any:
    found = tf.train.Example.FromString(record)
    found.features.feature[name].float_list.value[:] = [label]
    return found


SIZES = (0, 60, 80, 90, 100, 16_300, 16_320, 16_340)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("label", [0, 8, 10, 26, 127, 128, 300, 2**27, 2**35, 2**62, -1])
def test_features_stay_and_lengths_are_right(label, packed):
    """Tests sizes around those at which a length needs one more byte."""
    log = [
        example(label, before + step, behind, packed) for before in SIZES for behind in (0, 7) for step in range(0, 30)
    ]
    made, places, frames = with_floats(log)
    for old, new in zip(log, made, strict=True):
        read = tf.train.Example.FromString(new)
        assert read == expected(old, "y", 0.0)
        assert len(new) == read.ByteSize()
    octets = np.frombuffer(frames.content, np.uint8).copy()
    outputs = np.arange(len(log), dtype="<f4") + 0.5
    overwrite_words(octets, frames.bounds, frames.bounds[:-1] + places, outputs)
    written = Frames(octets.tobytes(), frames.bounds)
    assert checksums(written.records()).tolist() == [
        int.from_bytes(written.content[stop : stop + 4], "little") for stop in written.stops
    ]
    for old, new, output in zip(log, written.records(), outputs.tolist(), strict=True):
        assert tf.train.Example.FromString(new) == expected(old, "y", output)


@pytest.mark.parametrize("name", ["", "été", "y" * 127, "y" * 128, "y" * 20_000], ids=len)
def test_any_name(name):
    log = [example(5, name=name), example(-5, 100, name=name)]
    made, _, _ = with_floats(log, name)
    assert [tf.train.Example.FromString(new) for new in made] == [expected(old, name, 0.0) for old in log]


def test_records_without_an_integer_label_stay_as_they_are():
    log = [example(None, 9), example(5), example(None, 200), example(None), example(7)]
    made, places, _ = with_floats(log)
    assert [made[i] for i in (0, 2, 3)] == [log[i] for i in (0, 2, 3)]
    assert [place < 0 for place in places] == [True, False, True, True, False]


def test_frames_may_stand_in_the_middle_of_more():
    """The batches of a file that was read as one chunk share its buffer."""
    whole = Frames.of([example(i) for i in range(9)])
    part = Frames(whole.content, whole.bounds[3:7])
    values = find_values(part.content, part.starts, part.stops, ["y"]).values["y"]
    assert (values.kinds == INT64).all()
    made, _ = widen_integer_labels(part, "y", values)
    assert [tf.train.Example.FromString(one) for one in made] == [expected(one, "y", 0.0) for one in part]
