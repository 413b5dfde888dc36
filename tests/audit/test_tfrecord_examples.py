"""TFRecord files in the audit: checksums, every kind of damage, labels, and bytes that readers do not see."""

import gzip
import struct

import google_crc32c as crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit import tfrecord_examples
from labeldp.audit.documents import RefusedDocument
from labeldp.audit.tfrecord_examples import Records, checksums, read_features, read_tfrecords


def masked(text):
    crc = crc32c.value(text)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def framed(records):
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, struct.pack("<I", masked(length)), record, struct.pack("<I", masked(record))]
    return b"".join(parts)


def read(path):
    return [
        part.content[start : start + length]
        for part in read_tfrecords(path)
        for start, length in zip(part.starts.tolist(), part.lengths.tolist(), strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000), st.data())
def test_checksums_of_parts(text, data):
    ends = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    parts = data.draw(st.lists(ends, max_size=8))
    starts, stops = np.array(parts, np.int64).reshape(-1, 2).T
    expected = [masked(text[start:stop]) for start, stop in parts]
    assert checksums(text, starts, stops - starts).tolist() == expected


RECORDS = [bytes([i % 251]) * (i * 37 % 700) for i in range(200)] + [b"", bytes(range(256)) * 400, b"end"]


@pytest.mark.parametrize("chunk", [1, 13, 4096, 4 << 20])
@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_records_are_read_in_any_chunks(tmp_path, monkeypatch, suffix, chunk):
    monkeypatch.setattr(tfrecord_examples, "CHUNK_BYTES", chunk)
    path = tmp_path / f"shard.{suffix}"
    content = framed(RECORDS)
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert read(path) == RECORDS
    path.write_bytes(b"")
    assert read(path) == []


SMALL = [b"first", b"second record", b"third"]
STARTS = [0, 21, 50]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 8 * len(framed(SMALL)) - 1))
def test_every_flipped_bit_is_found(tmp_path_factory, bit):
    path = tmp_path_factory.getbasetemp() / "flipped.tfrecord"
    content = bytearray(framed(SMALL))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with pytest.raises(RefusedDocument, match="has a wrong checksum") as refused:
        read(path)
    place = max(start for start in STARTS if start <= bit // 8)
    assert str(refused.value).endswith(f"at byte {place}")


@pytest.mark.parametrize("size", range(len(framed(SMALL))))
def test_every_truncation_is_found_but_one_between_records(tmp_path, size):
    path = tmp_path / "short.tfrecord"
    path.write_bytes(framed(SMALL)[:size])
    if size in STARTS:
        assert read(path) == SMALL[: STARTS.index(size)]
    else:
        place = max(start for start in STARTS if start <= size)
        with pytest.raises(RefusedDocument, match=f"is truncated: the record at byte {place} "):
            read(path)


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: b"x" + text, lambda text: text + b"x"])
def test_damaged_gzip_is_found(tmp_path, damage):
    path = tmp_path / "shard.tfrecord.gz"
    path.write_bytes(damage(gzip.compress(framed(SMALL))))
    with pytest.raises(RefusedDocument, match="is truncated or is not gzip"):
        read(path)


def test_a_length_that_no_record_has_is_not_waited_for(tmp_path):
    path = tmp_path / "huge.tfrecord"
    length = struct.pack("<Q", 1 << 40)
    path.write_bytes(length + struct.pack("<I", masked(length)) + bytes(100))
    with pytest.raises(RefusedDocument, match="has a record of 2 GiB or more"):
        read(path)


def labels_of(records, label=b"y"):
    lengths = np.array([len(record) for record in records], np.int64)
    return read_features(Records(b"".join(records), np.cumsum(lengths) - lengths, lengths), label, 100, [])[0]


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
    labels, found = read_features(whole, b"y", 0, [b"c"])
    centers = found[b"c"].numbers
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
