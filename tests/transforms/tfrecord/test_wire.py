"""The compiled loops over bytes give what the reference in Python gives; walks are compared in test_example_values."""

import itertools
import random
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms.tfrecord import _wire, wire
from labeldp.transforms.tfrecord.example_encoder import encode_examples

from tests.transforms.tfrecord import wire_reference

TIMEOUT_SECONDS = 120
RECORDS = st.lists(st.binary(max_size=40), max_size=8)


def encoded(features: dict[str, Any]) -> bytes:
    """A canonical tf.Example."""
    if not features:
        return b""
    return encode_examples(pa.RecordBatch.from_pydict({name: [value] for name, value in features.items()}))[0]


def without_wide_integers(features: dict[str, Any]) -> dict[str, Any]:
    return {name: value % 2**63 if isinstance(value, int) else value for name, value in features.items()}


def unframed(content: bytes) -> list[bytes]:
    starts = np.zeros(9, np.int64)
    count, end, _ = wire.skim_frames(content, starts)
    assert end == len(content)
    ends = [*starts[:count].tolist(), end]
    return [content[start + 12 : stop - 4] for start, stop in itertools.pairwise(ends)]


def followed(functions, content: bytes, position: int, stop: int, most: int) -> tuple[int, bool, list[int]]:
    ends = np.zeros(most, np.int64)
    count, corrupt = functions.follow_frames(content, position, stop, ends)
    return count, corrupt, ends.tolist()


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_checksums(content):
    assert wire.crc32c(content) == wire_reference.crc32c(content)
    # As on a processor without instructions for it.
    assert _wire.crc32c_by_tables(content) == wire_reference.crc32c(content)


@settings(deadline=None)
@given(RECORDS)
def test_frames_are_written_alike(records):
    assert wire.frame(records) == wire_reference.frame(records)


@settings(deadline=None, max_examples=200)
@given(RECORDS, st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 9), st.integers(0, 2**32))
def test_frames_are_followed_alike(records, before, behind, most, seed):
    content = bytearray(before + wire.frame(records) + behind)
    shuffle = random.Random(seed)
    for _ in range(shuffle.choice([0, 0, 1, 2])):
        if content:
            content[shuffle.randrange(len(content))] ^= 1 << shuffle.randrange(8)
    stop = len(content) - shuffle.choice([0, 0, shuffle.randrange(len(content) + 1)])
    arguments = bytes(content), min(len(before), stop), stop, most
    assert followed(wire, *arguments) == followed(wire_reference, *arguments)


@settings(deadline=None, max_examples=100)
@given(RECORDS, st.binary(max_size=20), st.integers(0, 9), st.integers(0, 2**32))
def test_frames_are_skimmed_alike(records, behind, most, seed):
    content = bytearray(wire.frame(records) + behind)
    shuffle = random.Random(seed)
    if content and shuffle.random() < 0.5:
        content[shuffle.randrange(len(content))] ^= 1 << shuffle.randrange(8)
    answers = []
    for functions in (wire, wire_reference):
        starts = np.zeros(most, np.int64)
        answers.append((functions.skim_frames(bytes(content), starts), starts.tolist()))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, (1 << 64) - 16, (1 << 63) - 17, 1 << 40])
def test_lengths_beyond_all_content_are_not_followed(length):
    header = length.to_bytes(8, "little")
    crc = wire.crc32c(header)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    content = wire.frame([b"good"]) + header + masked.to_bytes(4, "little") + bytes(40)
    for functions in (wire, wire_reference):
        assert followed(functions, content, 0, len(content), 3) == (1, False, [20, 0, 0])
        starts = np.zeros(3, np.int64)
        skimmed = (2, 20 + 16 + length, False) if length < 1 << 48 else (1, 20, True)
        assert functions.skim_frames(content, starts) == skimmed


@settings(deadline=None)
@given(RECORDS)
def test_footers_are_written_alike(records):
    framed, bounds = wire.frame(records), np.append(0, np.cumsum([len(record) + 16 for record in records]))
    for functions in (wire, wire_reference):
        octets = np.frombuffer(framed, np.uint8).copy()
        for stop in bounds[1:]:
            octets[stop - 4 : stop] = 7
        functions.write_footers(octets, bounds.astype(np.int64))
        assert octets.tobytes() == framed


@pytest.mark.parametrize(
    "bounds",
    [
        [0, 41],
        [-1, 20],
        [0, 15],
        [20, 4],
        [0, 20, 30],
        [16, -1 << 63],
        [0, -1 << 63],
        [-1 << 63, 20],
        [(1 << 63) - 1, 40],
        [0, (1 << 63) - 1],
        [0, 20, (1 << 63) - 1, -1 << 63],
    ],
)
def test_no_footer_is_written_beyond_the_frames(bounds):
    for functions in (wire, wire_reference):
        with pytest.raises(ValueError, match="bounds"):
            functions.write_footers(np.zeros(40, np.uint8), np.array(bounds, np.int64))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.one_of(st.integers(0, 5000), st.integers(0, (1 << 33) - 1))))
)
def test_checksums_are_shifted_alike(pairs):
    answers = []
    for functions in (wire, wire_reference):
        checksums = np.array([checksum for checksum, _ in pairs], np.uint32)
        functions.shift_checksums(checksums, np.array([count for _, count in pairs], np.int64))
        answers.append(checksums.tolist())
    assert answers[0] == answers[1]


def test_many_checksums_are_shifted_alike():
    """Tests more checksums than one vector has, of counts of different numbers of digits."""
    random = np.random.default_rng(1)
    checksums = random.integers(0, 1 << 32, 1003, np.uint32)
    counts = random.integers(0, 1 << random.choice([1, 8, 16, 33], 1003))
    one, two = checksums.copy(), checksums.copy()
    wire.shift_checksums(one, counts)
    wire_reference.shift_checksums(two, counts)
    assert one.tolist() == two.tolist()


@settings(deadline=None)
@given(RECORDS, st.integers(0, 3))
def test_texts_are_hashed_as_by_zlib(texts, before):
    content, bounds = b"".join([bytes(before), *texts]), np.cumsum([before, *map(len, texts)])
    for functions in (wire, wire_reference):
        hashes = np.full(len(texts), -1)
        functions.hash_texts(content, bounds, hashes)
        assert hashes.tolist() == [zlib.crc32(text) for text in texts]


@pytest.mark.parametrize(
    ("bounds", "count"),
    [([0, 5], 1), ([-1, 2], 1), ([3, 2], 1), ([0, 4], 2), ([0, 4], 0), ([], 1), ([0, 1 << 62], 1), ([-1 << 63, 4], 1)],
)
def test_no_text_is_hashed_beyond_the_content(bounds, count):
    for functions in (wire, wire_reference):
        hashes = np.full(count, -1)
        with pytest.raises(ValueError, match="do not ascend within the content"):
            functions.hash_texts(b"text", np.array(bounds, np.int64), hashes)
        assert set(hashes.tolist()) <= {-1}


@settings(deadline=None)
@given(st.lists(st.binary(max_size=10), max_size=6), st.permutations(range(6)), st.integers(0, 3))
def test_values_are_read_at_their_places(values, order, before):
    """Tests varints of any bytes, also those that no encoder writes, and texts; in any order, some twice."""
    ends = np.cumsum([before, *map(len, values)])
    content, rows = b"".join([bytes(before), *values]), [row for row in order if row < len(values)] * 2
    starts, stops = ends[:-1][rows], ends[1:][rows]
    bits = [sum((octet & 0x7F) << 7 * place for place, octet in enumerate(values[row])) for row in rows]
    for functions in (wire, wire_reference):
        numbers, bounds = np.full(len(rows), -1), np.full(len(rows) + 1, -1)
        functions.read_varints(content, starts, stops, numbers)
        assert numbers.view(np.uint64).tolist() == [number % (1 << 64) for number in bits]
        assert functions.join_texts(content, starts, stops, bounds) == b"".join(values[row] for row in rows)
        assert bounds.tolist() == [0, *itertools.accumulate(len(values[row]) for row in rows)]


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 2), (0, 5), (3, 2), (5, 5), (1 << 62, 4), (0, -1 << 63), (-1 << 63, (1 << 63) - 1)]
)
def test_no_value_is_read_beyond_the_content(start, stop):
    starts, stops = np.array([0, start]), np.array([4, stop])
    for functions in (wire, wire_reference):
        with pytest.raises(ValueError, match="beyond the content"):
            functions.read_varints(b"text", starts, stops, np.zeros(2, np.int64))
        with pytest.raises(ValueError, match="beyond the content"):
            functions.join_texts(b"text", starts, stops, np.zeros(3, np.int64))


def test_values_need_arrays_of_their_length():
    number = np.zeros(1, np.int64)
    for functions in (wire, wire_reference):
        for starts, stops in ((np.zeros(2, np.int64), number), (number, np.zeros(2, np.int64))):
            for function, more in ((functions.read_varints, 0), (functions.join_texts, 1)):
                with pytest.raises(ValueError, match="differ in length"):
                    function(b"text", starts, stops, np.zeros(1 + more, np.int64))
        with pytest.raises(ValueError, match="differ in length"):
            functions.join_texts(b"text", number, number, number)
        with pytest.raises(ValueError, match="beyond the content"):
            functions.read_varints(bytes(11), number, number + 11, number)


NAMES = ["a", "user", "é", "", "a" * 130]
FEATURES = st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=150) | st.integers() | st.floats(width=32))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(FEATURES.map(without_wide_integers), max_size=4),
    st.lists(st.sampled_from(NAMES), max_size=3),
    st.binary(max_size=5),
)
def test_entries_are_dropped_alike_and_records_without_them_are_encoded_so(examples, names, before):
    records = [encoded(features) for features in examples]
    content = before + wire.frame(records) + before
    bounds = np.cumsum([len(before), *(len(record) + 16 for record in records)])
    results = []
    for functions in (wire, wire_reference):
        ends = np.ones(len(bounds), np.int64)
        made = functions.drop_entries(content, bounds, tuple(name.encode() for name in names), ends)
        assert ends.tolist() == [0, *itertools.accumulate(len(one) + 16 for one in unframed(made))]
        results.append(made)
    kept = [{name: value for name, value in features.items() if name not in names} for features in examples]
    assert results == 2 * [wire.frame([encoded(features) for features in kept])]


@pytest.mark.parametrize("cut", range(1, 32))
def test_no_entry_is_dropped_from_frames_that_are_none(cut):
    """A record that is cut, or bounds that do not ascend, are refused by both, and nothing outside is read."""
    whole = wire.frame([encoded({"a": b"text", "user": 7})])
    for content, bounds in (
        (whole[: len(whole) - cut], [0, len(whole) - cut]),
        (whole, [0, len(whole) + cut]),
        (whole, [-cut, len(whole)]),
        (whole, [len(whole), cut]),
    ):
        for functions in (wire, wire_reference):
            with pytest.raises(ValueError, match="canonical"):
                functions.drop_entries(content, np.array(bounds), (b"user",), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"int64|buffer"):
        wire.drop_entries(whole, np.zeros(2), (b"user",), np.zeros(2, np.int64))


@pytest.mark.parametrize("counts", [[1], [1, 2, 3], [0, -1], [1 << 33, 0], [0, -1 << 63]])
def test_counts_out_of_range_shift_no_checksum(counts):
    for functions in (wire, wire_reference):
        with pytest.raises(ValueError, match="count"):
            functions.shift_checksums(np.ones(2, np.uint32), np.array(counts, np.int64))


def test_arrays_of_other_types_are_refused():
    """Tests that no array is read as one of int64 that is none: 8 bytes an item, in the processor's order."""
    for kind in (np.float64, np.uint64, ">i8", "M8[s]", np.int32):
        numbers = np.zeros(3, kind)
        with pytest.raises(ValueError, match=r"int64|buffer"):
            wire.follow_frames(bytes(40), 0, 40, numbers)
        with pytest.raises(ValueError, match=r"int64|buffer"):
            wire.skim_frames(bytes(40), numbers)
        with pytest.raises(ValueError, match=r"int64|buffer"):
            wire.write_footers(np.zeros(40, np.uint8), numbers)
        with pytest.raises(ValueError, match=r"int64|buffer"):
            wire.shift_checksums(np.zeros(3, np.uint32), numbers)
        with pytest.raises(ValueError, match=r"int64|buffer"):
            wire.hash_texts(bytes(40), np.zeros(4, np.int64), numbers)
        for function in (wire.read_varints, wire.join_texts):
            with pytest.raises(ValueError, match=r"int64|buffer"):
                function(bytes(40), np.zeros(3, np.int64), np.zeros(3, np.int64), numbers)
    with pytest.raises(ValueError, match="contiguous"):
        wire.skim_frames(bytes(40), np.zeros(6, np.int64)[::2])
    with pytest.raises(ValueError, match="as many"):
        wire.shift_checksums(np.zeros(12, np.uint8), np.zeros(3, np.int64))


def test_offsets_beyond_the_content_are_refused():
    for position, stop in [(-1, 4), (0, 41), (0, -1), ((1 << 63) - 1, -1 << 63), (16, -1 << 63), (-1 << 63, 40)]:
        with pytest.raises(ValueError, match="offsets"):
            wire.follow_frames(bytes(40), position, stop, np.zeros(1, np.int64))
    with pytest.raises(TypeError, match="bytes"):
        wire.frame(["text"])  # type: ignore[list-item]


WITHOUT = """
import sys
sys.modules["labeldp.transforms.tfrecord._wire"] = None
from labeldp.transforms import InputError
from labeldp.transforms.tfrecord import wire
try:
    wire.frame([])
except InputError as error:
    print(wire.COMPILED, wire.hash_texts.__module__, error)
"""


def test_pipelines_of_others_are_told_that_the_compiled_part_is_missing():
    done = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True)
    assert wire.COMPILED
    assert wire.hash_texts is not wire.hash_texts_without_compiler
    assert done.stdout.startswith(
        "False labeldp.transforms.tfrecord.wire reading and writing TFRecords needs the compiled part of labeldp"
    )
