"""The compiled loops over bytes give what the reference in Python gives; walks are compared in test_example_values."""

import itertools
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


def followed(functions, content: bytes, position: int, stop: int, most: int) -> tuple[int, bool, list[int]]:
    ends = np.zeros(most, np.int64)
    count, corrupt = functions.follow_frames(content, position, stop, ends)
    return count, corrupt, ends.tolist()


def test_the_compiled_functions_do_what_the_reference_does_with_any_arguments(fuzzed):
    fuzzed("wire")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_checksums(content):
    # As on a processor without instructions for it.
    assert _wire.crc32c_by_tables(content) == wire_reference.crc32c(content)


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
        assert ends[-1] == len(made)
        results.append(made)
    kept = [{name: value for name, value in features.items() if name not in names} for features in examples]
    assert results == 2 * [wire.frame([encoded(features) for features in kept])]


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


def test_records_of_another_type_are_refused():
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
