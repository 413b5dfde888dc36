"""Labels of serialized tf.Examples, compared with protocol buffers, and records that hide bytes from their readers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.audit.documents import RefusedDocument
from labeldp.pipelines.audit.records.example_labels import read_centered_labels, read_labels
from labeldp.pipelines.audit.records.tfrecord_shards import Records


def labels_of(records, label=b"y"):
    lengths = np.array([len(record) for record in records], np.int64)
    return read_labels(Records(b"".join(records), np.cumsum(lengths) - lengths, lengths), label, 100)


def field(number, content):
    """A field of at most 127 bytes."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def float32(value):
    return np.float32(value).tobytes()


def entry(name, feature):
    return field(1, field(1, name) + field(2, feature))


def example(*entries):
    return field(1, b"".join(entries))


LABEL = entry(b"y", field(2, field(1, float32(1.5))))


def test_a_label_packed_or_not():
    unpacked = entry(b"y", field(2, b"\x0d" + float32(2.5)))
    assert labels_of([example(LABEL), example(unpacked), example(LABEL)]).tolist() == [1.5, 2.5, 1.5]


def test_the_last_of_several_messages_counts_and_lists_are_joined():
    split = field(2, field(1, float32(1.5))) + field(2, b"")
    assert labels_of([example(entry(b"y", split)), example(entry(b"x", b"")) + example(LABEL)]).tolist() == [1.5, 1.5]


SECRET = b"\x15" + float32(7.0)  # field 2, four bytes, which no message here has


@pytest.mark.parametrize(
    "record",
    [
        example(LABEL) + SECRET,
        example(LABEL) + field(2, b"secret"),
        example(LABEL, SECRET),
        example(field(1, field(1, b"y") + field(2, field(2, field(1, float32(1.5)))) + field(3, b"secret"))),
        example(entry(b"y", field(2, field(1, float32(7.0)))), LABEL),
        example(field(1, field(1, b"x") + field(1, b"y") + field(2, field(2, field(1, float32(1.5)))))),
        example(entry(b"y", field(2, field(1, float32(1.5))) + field(4, b"secret"))),
        example(entry(b"y", field(3, field(1, b"\x07")) + field(2, field(1, float32(1.5))))),
        example(entry(b"y", field(2, field(1, float32(1.5)) + field(2, b"secret")))),
        example(entry(b"x", field(1, field(1, b"text") + field(2, b"secret"))), LABEL),
        example(entry(b"x", field(3, b"\x10\x07")), LABEL),
        b"\x0a" + bytes([len(LABEL) | 0x80, 0x80, 0x00]) + LABEL,
    ],
)
def test_bytes_that_readers_do_not_see_are_refused(record):
    with pytest.raises(RefusedDocument, match=r"^record 101 has bytes that readers of tf\.Examples do not see$"):
        labels_of([example(LABEL), record])


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a", b"\x0a\x05abc", b"\xff" * 11, b"\x00\x00", b"\x0b\x0c", example(LABEL)[:-1],
        example(entry(b"\xff", b""), LABEL), example(entry(b"y", field(2, field(1, b"abc")))),
    ],
)  # fmt: skip
def test_what_is_no_example_is_refused(record):
    with pytest.raises(RefusedDocument, match=r"^record 101 is not a tf\.Example$"):
        labels_of([example(LABEL), record])


@pytest.mark.parametrize(
    "record",
    [
        b"", example(), example(entry(b"x", field(2, field(1, float32(1.5))))), example(entry(b"y", b"")),
        example(entry(b"y", field(2, b""))), example(entry(b"y", field(2, field(1, float32(1) + float32(2))))),
        example(entry(b"y", field(3, field(1, b"\x07")))), example(entry(b"y", field(1, field(1, b"7.5!")))),
    ],
)  # fmt: skip
def test_a_label_is_one_float(record):
    with pytest.raises(RefusedDocument, match=r"^the label of record 101 is not one float$"):
        labels_of([example(LABEL), record])


values = st.one_of(
    st.lists(st.binary(max_size=4), max_size=3).map(lambda found: ("bytes_list", found)),
    st.lists(st.integers(-5, 300), max_size=3).map(lambda found: ("int64_list", found)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda found: ("float_list", found)),
)
records = st.tuples(st.floats(width=32, allow_nan=False), st.dictionaries(st.text(max_size=2), values, max_size=3))


@settings(max_examples=100, deadline=None)
@given(st.lists(records, min_size=1, max_size=8), st.integers(1, 40))
def test_labels_are_those_of_protocol_buffers(found, times):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    texts = []
    for label, features in found:
        message = tensorflow.train.Example()
        message.features.feature["y"].float_list.value.append(label)
        for name, (kind, items) in features.items():
            if name != "y":
                getattr(message.features.feature[name], kind).value.extend(items)
        texts.append(message.SerializeToString())
    expected = [label for label, _ in found] * times
    assert labels_of(texts * times).tobytes() == np.array(expected, np.float32).tobytes()


def varint(value):
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def centers_of(features):
    records = [example(LABEL, *([] if feature is None else [entry(b"c", feature)])) for feature in features]
    lengths = np.array([len(record) for record in records], np.int64)
    whole = Records(b"".join(records), np.cumsum(lengths) - lengths, lengths)
    labels, centers = read_centered_labels(whole, b"y", 0, b"c")
    assert labels.tolist() == [1.5] * len(records)
    return centers


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=70))
def test_centers_are_single_integers_packed_or_not(numbers):
    packed = centers_of([field(3, field(1, varint(number))) for number in numbers])
    unpacked = centers_of([field(3, b"\x08" + varint(number)) for number in numbers])
    assert packed.tolist() == unpacked.tolist() == [float(number) for number in numbers]


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=70))
def test_centers_are_single_floats(numbers):
    assert centers_of([field(2, field(1, float32(number))) for number in numbers]).tolist() == numbers


def test_records_without_exactly_one_number_have_no_center():
    one, two = field(1, float32(1.0)), field(1, float32(1.0) + float32(2.0))
    integers = field(1, varint(3) + varint(400))
    features = [
        None,
        b"",
        field(2, b""),
        field(2, two),
        field(2, one + one),
        field(3, integers),
        field(1, field(1, b"t")),
    ]
    assert np.isnan(centers_of(features)).all()
    assert centers_of([*features, field(2, one)])[-1] == 1.0
