"""Values found in encoded tf.Examples equal those that protocol buffers parse, and canonical records hold no more."""

import itertools
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms.tfrecord import wire
from labeldp.transforms.tfrecord.example_values import (
    FoundValues,
    decode_varints,
    encode_varints,
    find_values,
    list_entries,
    varint,
)
from labeldp.transforms.tfrecord.framing import PADDING
from labeldp.transforms.tfrecord.wire import BYTES, FLOAT, INT64

from tests.transforms.tfrecord import wire_reference

tf: Any = pytest.importorskip("tensorflow")

SEED = bytes(range(16))
KINDS = {"bytes_list": BYTES, "float_list": FLOAT, "int64_list": INT64}


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint(len(content)) + content


def entry(name: str | bytes, feature: bytes) -> bytes:
    return field(0x0A, field(0x0A, name if isinstance(name, bytes) else name.encode()) + field(0x12, feature))


def example(*entries: bytes) -> bytes:
    return field(0x0A, b"".join(entries))


def floats(*values: float) -> bytes:
    """A Feature that holds the values, packed."""
    return field(FLOAT, field(0x0A, struct.pack(f"<{len(values)}f", *values)))


def integers(*values: int) -> bytes:
    return field(INT64, field(0x0A, encode_varints(np.array(values, np.int64))[0].tobytes()))


def texts(*values: bytes) -> bytes:
    return field(BYTES, b"".join(field(0x0A, value) for value in values))


def find(records: list[bytes], names: tuple[str, ...] = ("y", "id")) -> FoundValues:
    """Finds values in the records; positions count from the first byte of the first record."""
    ends = np.cumsum([0, *map(len, records)])
    return find_values(b"".join(records), ends[:-1], ends[1:], names)


def assert_same(records: list[bytes], names: tuple[str, ...] = ("y", "id")) -> None:
    """Asserts that the compiled walk and the one in Python give the same answers."""
    ends = np.cumsum([0, *map(len, records)])
    wanted = tuple(name.encode() for name in names)

    def answer(walk: Any, listing: bool) -> tuple[Any, ...]:
        canonical, found = np.empty(len(records), bool), np.zeros((len(names), 3, len(records)), np.int64)
        listed = walk(b"".join(records), ends[:-1], ends[1:], wanted, canonical, found, listing, SEED)
        return canonical.tolist(), found.tolist(), listed

    expected = answer(wire_reference.walk_examples, True)
    assert answer(wire.walk_examples, True) == expected
    assert answer(wire.walk_examples, False) == (*expected[:2], b"")


def parsed(record: bytes) -> Any:
    """Returns the parsed Example, or None if the record is not a valid one."""
    try:
        return tf.train.Example.FromString(record)
    except Exception:
        return None


def assert_agrees(record: bytes, found: FoundValues, row: int, start: int) -> None:
    """Asserts that, if the record is canonical, the found values are those that protocol buffers parse."""
    read = parsed(record)
    if not found.canonical[row]:
        return
    assert read is not None
    for name, values in found.values.items():
        if name not in read.features.feature:
            assert values.kinds[row] == 0
            continue
        feature = read.features.feature[name]
        kind = feature.WhichOneof("kind")
        several = getattr(feature, kind).value if kind else []
        if len(several) != 1:
            assert values.kinds[row] == -1
            continue
        assert values.kinds[row] == KINDS[kind]
        content = record[values.starts[row] - start : values.stops[row] - start]
        if kind == "bytes_list":
            assert content == several[0]
        elif kind == "float_list":
            assert struct.pack("<f", several[0]) == content or np.isnan(several[0])
        else:
            octets = np.frombuffer(content + bytes(PADDING), np.uint8)
            assert decode_varints(octets, np.array([0]), np.array([len(content)])).tolist() == list(several)


def test_the_compiled_functions_are_installed():
    """The set-up of the tests has a C compiler; without the compiled functions the comparisons below show nothing."""
    assert wire.COMPILED
    assert wire.walk_examples is not wire_reference.walk_examples


FEATURES = {
    "text": texts(b"text"),
    "long text": texts(b"t" * 123),
    "longer text": texts(b"t" * 124),
    "varint": integers(300),
    "varints": integers(1, 2, 3),
    "many varints": integers(*range(100)),
    "unpacked varint": field(INT64, b"\x08\x07"),
    "float": floats(1.5),
    "floats": floats(1.5, 2.5),
    "unpacked float": field(FLOAT, b"\x0d1234"),
    "no list": b"",
    "no value": field(INT64, b""),
    "empty packed": integers(),
    "empty text": texts(b""),
    "texts": texts(b"a", b"b"),
}
END = entry("end of the content", texts(b"." * 60))


@pytest.mark.parametrize("name", ["y", "a name of more than sixteen bytes"])
@pytest.mark.parametrize("feature", FEATURES.values(), ids=list(FEATURES))
def test_every_byte_before_a_value_and_every_length_is_judged_as_by_the_reference(name, feature):
    whole = example(entry(name, feature), END)
    start = whole.index(name.encode()) - 4
    batch = [
        whole[:place] + bytes([octet]) + whole[place + 1 :]
        for place in range(start, start + len(name) + 14)
        for octet in range(256)
    ]
    for kind in (BYTES, INT64, FLOAT):
        for size in range(131):
            for last in (b"\x01", b"\x80"):
                content = field(0x0A, b"\x81" * (size - 1) + last) if size else b"\x0a\0"
                batch.append(example(entry(name, field(kind, content)), END))
    # The last bytes of the three lengths before the value, as if each had one byte.
    content = entry(name, feature)
    first = content.index(name.encode()) - 2
    header = content[first : first + len(name) + 8 + (len(feature) >= 0x80)]
    for size in range(131):
        for places in itertools.product((0, 1), repeat=3):
            octets = bytearray(header)
            for place, length, changed in zip((-5, -3, -1), (size + 4, size + 2, size), places, strict=True):
                octets[place] = length % 256 if changed else octets[place]
            batch.append(example(field(0x0A, bytes(octets) + b"\x01" * size), END))
    # Lengths that belong together, apart from one.
    shift = random.Random(1)
    for _ in range(500):
        octets = bytearray(whole)
        more = shift.randrange(-5, 6)
        for place in shift.sample(range(start, start + len(name) + 14), 3):
            octets[place] = (octets[place] + more) % 256
        batch.append(bytes(octets))
    assert_same(batch, (name, "id"))
    assert 0 < find(batch, (name, "id")).canonical.sum() < len(batch)


UTF8 = [bytes([0xC0 | place, 0x80]) for place in range(64)] + [
    bytes([first, second, *bytes([third]) * more])
    for first, more in [(0xE0, 1), (0xE1, 1), (0xED, 1), (0xEF, 1), (0xF0, 2), (0xF3, 2), (0xF4, 2), (0xF5, 2)]
    for second in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    for third in (0x7F, 0x80, 0xBF, 0xC0)
]


@pytest.mark.parametrize("before", [b"", b"1234567"], ids=["at the start", "across words"])
def test_keys_are_judged_as_python_judges_utf8(before):
    keys = [before + octets[:size] + behind for octets in UTF8 for size in (1, 2, 3, 4) for behind in (b"", b"a")]
    batch = [example(entry(key, Y)) for key in keys]
    assert_same(batch)
    assert 0 < find(batch).canonical.sum() < len(batch)


def test_a_record_beyond_the_content_is_not_read():
    record = example(entry("y", Y))
    for walk in (wire.walk_examples, wire_reference.walk_examples):
        canonical, found = np.empty(4, bool), np.zeros((1, 3, 4), np.int64)
        starts, stops = np.array([0, -1, 3, 0]), np.array([len(record), len(record), 2, len(record) + 1])
        walk(record, starts, stops, (b"y",), canonical, found, False, SEED)
        assert canonical.tolist() == [True, False, False, False]
        assert not found[:, :, 1:].any()


@pytest.mark.parametrize("content", [b"", b"\0" * 9])
def test_arrays_that_do_not_fit_are_refused(content):
    number, flags = np.zeros(1, np.int64), np.empty(1, bool)
    found = np.zeros((1, 3, 1), np.int64)
    for arrays in [
        (number, np.zeros(2, np.int64), flags, found),
        (number, number, np.empty(2, bool), found),
        (number, number, flags, np.zeros((1, 2, 1), np.int64)),
        (number.astype(np.int32), number, flags, found),
        (number.astype(np.float64), number, flags, found),
        (number, number.astype(np.uint64), flags, found),
        (number.astype(">i8"), number, flags, found),
        (np.zeros(8, np.int64), np.zeros(8, np.int64), np.zeros(1, np.int64), np.zeros((1, 3, 8), np.int64)),
        (np.zeros((2, 2), np.int64)[:, 0], np.zeros(2, np.int64), np.empty(2, bool), np.zeros((1, 3, 2), np.int64)),
    ]:
        starts, stops, canonical, places = arrays
        with pytest.raises(ValueError, match=r"int64|length|contiguous"):
            wire.walk_examples(content, starts, stops, (b"y",), canonical, places, False, SEED)


# Single cases.

Y, ID = floats(1.5), texts(b"me")
GOOD = {
    "no byte": b"",
    "no entry": example(),
    "no y": example(entry("id", ID)),
    "float": example(entry("id", ID), entry("y", Y)),
    "float, unpacked": example(entry("y", field(FLOAT, b"\x0d" + struct.pack("<f", 1.5)))),
    "int64": example(entry("y", integers(-1))),
    "int64, unpacked": example(entry("y", field(INT64, b"\x08\x07"))),
    "text": example(entry("y", texts(b""))),
    "no kind": example(entry("y", b"")),
    "empty list": example(entry("y", field(FLOAT, b""))),
    "empty packed": example(entry("y", floats())),
    "several": example(entry("y", floats(1.5, 2.5)), entry("id", texts(b"a", b"b"))),
    "many texts": example(entry("id", texts(*[b"%d" % i for i in range(300)])), entry("y", Y)),
    "long varints": example(entry("x", integers(*[-1] * 30)), entry("y", Y)),
    "lengths of two and three bytes": example(entry("x", texts(bytes(20_000))), entry("y", Y), entry("z", texts(b""))),
    "hundreds of features": example(*(entry(f"feature {i}", Y) for i in range(400)), entry("y", Y)),
    "names that differ late": example(entry("a" * 80 + "b", ID), entry("a" * 80 + "c", Y), entry("y", Y)),
}


@pytest.mark.parametrize("record", GOOD.values(), ids=list(GOOD))
def test_canonical_records_are_answered_for(record):
    found = find([record])
    assert found.canonical.tolist() == [True]
    assert_agrees(record, found, 0, 0)


SECRET = floats(48613.5)
BAD = {
    "the label twice": example(entry("y", SECRET), entry("y", Y)),
    "another feature twice": example(entry("x", SECRET), entry("y", Y), entry("x", Y)),
    "two kinds": example(entry("y", SECRET + ID)),
    "a kind twice": example(entry("y", SECRET + Y)),
    "an unknown field in Feature": example(entry("y", Y + field(0x22, SECRET))),
    "an unknown field in a list": example(entry("y", field(FLOAT, field(0x0A, b"1234") + field(0x12, SECRET)))),
    "an unknown field in an entry": example(field(0x0A, field(0x0A, b"y") + field(0x12, Y) + field(0x1A, SECRET))),
    "an unknown field in Features": example(entry("y", Y), field(0x12, SECRET)),
    "an unknown field in Example": example(entry("y", Y)) + field(0x12, SECRET),
    "two features fields": example(entry("y", SECRET)) + example(entry("y", Y)),
    "an overwritten value": example(field(0x0A, field(0x0A, b"y") + field(0x12, SECRET) + field(0x12, Y))),
    "an overwritten key": example(field(0x0A, field(0x0A, b"x") + field(0x0A, b"y") + field(0x12, Y))),
    "a value before its key": example(field(0x0A, field(0x12, Y) + field(0x0A, b"y"))),
    "no value": example(field(0x0A, field(0x0A, b"y"))),
    "no key": example(field(0x0A, field(0x12, Y))),
    "two packed fields": example(entry("y", field(FLOAT, field(0x0A, b"1234") * 2))),
    "packed and unpacked": example(entry("y", field(FLOAT, field(0x0A, b"1234") + b"\x0d1234"))),
    "a group": example(entry("y", Y), b"\x13\x14"),
    "a length in too many bytes": b"\x0a\x8b\x00" + example(entry("y", Y))[2:],
    "a tag in too many bytes": b"\x8a\x00" + example(entry("y", Y))[1:],
    "a key that is no text": example(entry(b"\xff", Y), entry("y", Y)),
    "half a float": example(entry("y", field(FLOAT, field(0x0A, b"123")))),
    "a varint without end": example(entry("y", field(INT64, field(0x0A, b"\x80")))),
    "a varint of eleven bytes": example(entry("y", field(INT64, field(0x0A, b"\xff" * 10 + b"\x01")))),
    "such a varint among others": example(entry("y", field(INT64, field(0x0A, b"\1" * 9 + b"\xff" * 11 + b"\x01")))),
    "an unpacked varint of eleven bytes": example(entry("y", field(INT64, b"\x08" + b"\xff" * 10 + b"\x01"))),
    "too long": example(entry("y", Y))[:-1],
    "too short": example(entry("y", Y)) + b"\0",
    "no protocol buffer": b"\xff\xff\xff",
    "a length beyond all": b"\x0a\xff\xff\xff\xff\x7f" + entry("y", Y),
}


@pytest.mark.parametrize("record", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("copies", [1, 200])
def test_a_record_in_which_something_could_hide_is_left_to_the_caller(record, copies):
    good = example(entry("id", ID), entry("y", Y))
    found = find([good, record, good] * copies)
    assert found.canonical.tolist() == [True, False, True] * copies


def many_features(repeat: int | None = None) -> bytes:
    """A record of 200 features; with `repeat`, one of them twice."""
    names = [f"f{number}" for number in range(200)]
    names += [] if repeat is None else [f"f{repeat}"]
    return example(*(entry(name, Y) for name in names))


def test_every_key_is_compared_with_every_other():
    batch = [many_features(repeat) for repeat in range(200)]
    assert not find(batch).canonical.any()
    assert find([*batch, many_features()]).canonical.tolist() == [False] * 200 + [True]
    assert_same([*batch, many_features()])


def changed(keys: list[bytes], how: str, shuffle: random.Random) -> list[bytes]:
    """The keys of a record, changed in one place."""
    place = shuffle.randrange(len(keys))
    if how == "one less":
        return keys[:place] + keys[place + 1 :]
    if how == "fewer":
        return keys[:place]
    if how == "another":
        return [*keys[:place], keys[place][:-1] + b"?", *keys[place + 1 :]]
    if how == "none of UTF-8":
        return [*keys[:place], keys[place][:-1] + b"\xff", *keys[place + 1 :]]
    if how == "one twice":
        return [*keys[:place], shuffle.choice(keys), *keys[place:]]
    if how == "one more":
        return [*keys, b"one more"]
    return shuffle.sample(keys, len(keys)) if how == "another order" else keys


@pytest.mark.parametrize("count", [1, 2, 9, 70])
def test_records_follow_the_order_of_keys_of_the_record_before(count):
    """A record whose keys differ from those of the record before, at any place, is read as by the reference."""
    shuffle, keys = random.Random(count), [f"{'key' * (i % 5)} {i}".encode() for i in range(count)]
    ways = ["same", "same", "one less", "fewer", "another", "none of UTF-8", "one twice", "one more", "another order"]
    for step in range(4):
        batch = []
        for _ in range(100):
            found = changed(keys, shuffle.choice(ways), shuffle)
            batch.append(example(*(entry(key, integers(shuffle.randrange(400))) for key in found)))
        assert_same(batch, (keys[0].decode(), keys[-1].decode(), "one more", "absent"))
        keys = changed(keys, ["same", "another order", "one more", "same"][step], shuffle)


# The first two of the vectors for SipHash-1-3 in the tests of Rust's library, of the key 00 01 ... 0f.
@pytest.mark.parametrize(("key", "expected"), [(b"", "dcc40f055801acab"), (b"\0", "93ca577df39bf4c9")])
def test_names_are_hashed_by_siphash(key, expected):
    record = example(entry(key, Y))
    bounds = np.array([0]), np.array([len(record)])
    hashes = []
    for walk in (wire.walk_examples, wire_reference.walk_examples):
        for seed in (SEED, bytes(16)):
            found = np.zeros((0, 3, 1), np.int64)
            listed = walk(record, *bounds, (), np.empty(1, bool), found, True, seed)
            hashes.append(np.frombuffer(listed, np.int64)[1].tobytes().hex())
    assert hashes == [expected, hashes[1]] * 2
    assert hashes[1] != expected


def test_entries_are_those_of_the_canonical_records():
    good = example(entry("y", Y), entry("id", ID))
    batch = [good, good + good, b"", good]
    ends = np.cumsum([0, *map(len, batch)])
    content = b"".join(batch)
    canonical, found = list_entries(content, ends[:-1], ends[1:])
    assert canonical.tolist() == [True, False, True, True]
    assert found.rows.tolist() == [0, 0, 3, 3]
    assert [content[a:b] for a, b in zip(found.names, found.names_stops, strict=True)] == [b"y", b"id"] * 2
    assert found.kinds.tolist() == [FLOAT, BYTES] * 2
    assert [content[a:b] for a, b in zip(found.starts, found.stops, strict=True)] == [struct.pack("<f", 1.5), b"me"] * 2


# Varints.


@settings(deadline=None)
@given(st.lists(st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_decoded_varints_are_what_was_encoded(numbers):
    octets, sizes = encode_varints(np.array(numbers, np.int64))
    stops = np.cumsum(sizes)
    padded = np.concatenate([octets, np.zeros(PADDING, np.uint8)])
    assert decode_varints(padded, stops - sizes, stops).tolist() == numbers
