"""Input digest: a sum over records that depends on each record and is published only as a keyed hash.

The tests implement the format independently, with Python integers, one record at a time.
"""

import hashlib
import json
import struct
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.noise.input_digest import RawSums, add_sums, digest_sums, input_digest
from labeldp.mechanisms.noise.keyed_words import NoiseRequest, integer_identities, packed_identities, row_identities

KEY = bytes(range(32))
Y = "weight \u00e9"
LABELS, BUDGET = np.array([0.0, 0.1]), BudgetSplit(0.25, 0.75)
REQUEST = NoiseRequest(Y, LABELS, "nearest"), BUDGET
OTHER_KEY = bytes(range(1, 33))
WORD = 1 << 64

LABEL = st.floats(allow_nan=False, allow_infinity=False)
ROW = st.integers(0, 2**63 - 1)
RECORDS = st.lists(st.tuples(st.sampled_from(["a", "b"]), ROW, LABEL), max_size=20, unique_by=lambda one: one[:2])

Records = list[tuple[str, int, float]]


def raw(lanes: list[int]) -> RawSums:
    return RawSums(np.array(lanes, np.uint64))


def sums_of(records: Records, secret: bytes = KEY) -> list[int]:
    """Sums of the records, digested in one batch per run of consecutive records of one source."""
    parts, start = [], 0
    for stop in range(1, len(records) + 1):
        if stop == len(records) or records[stop][0] != records[start][0]:
            source, rows, labels = zip(*records[start:stop], strict=True)
            parts.append(digest_sums(secret, Y, row_identities(source[0], np.array(rows)), np.array(labels)))
            start = stop
    return add_sums(parts).lanes.tolist()


def digest_of(records: Records, secret: bytes = KEY) -> int:
    return input_digest(secret, raw(sums_of(records, secret)), *REQUEST)


def joined(*parts: bytes) -> bytes:
    """The parts, each after its length."""
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def lane_key(secret: bytes, lane: int, column: str, kind: bytes, name: bytes) -> bytes:
    message = joined(bytes([lane]), column.encode(), joined(kind, name))
    return hashlib.blake2b(message, key=secret, digest_size=32, person=b"labeldp lane").digest()


def restated(records: Records, secret: bytes = KEY) -> list[int]:
    sums = [0] * 4
    for source, row, label in records:
        low, high = struct.unpack("<II", struct.pack("<d", 0.0 if label == 0 else label))
        for lane in range(4):
            key = lane_key(secret, lane, Y, b"file and row", source.encode())
            block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(struct.pack("<QQ", row, 0))
            r, s = struct.unpack("<QQ", block)
            sums[lane] = (sums[lane] + r * low + s * (high + 1)) % WORD
    return sums


@settings(deadline=None)
@given(RECORDS)
def test_sums_are_those_of_the_records(records):
    assert sums_of(records) == restated(records)


def test_sums_of_ids_are_those_of_their_blocks():
    text = packed_identities("user", np.frombuffer(b"xy", np.uint8), np.arange(3))
    for kind, identities in ((b"integer id", integer_identities("user", np.array([-3, 5]))), (b"text id", text)):
        labels = np.array([0.1, -2.0])
        sums = [0] * 4
        for lane in range(4):
            key = lane_key(KEY, lane, "z", kind, b"user")
            for block, label in zip(identities.blocks, labels, strict=True):
                r, s = struct.unpack(
                    "<QQ", Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block.tobytes())
                )
                low, high = struct.unpack("<II", struct.pack("<d", label))
                sums[lane] = (sums[lane] + r * low + s * (high + 1)) % WORD
        assert digest_sums(KEY, "z", identities, labels).lanes.tolist() == sums


@settings(deadline=None)
@given(RECORDS, st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order(records, random):
    shuffled = list(records)
    random.shuffle(shuffled)
    assert sums_of(shuffled) == sums_of(records)


@settings(deadline=None)
@given(RECORDS, st.lists(st.integers(0, 20), max_size=4))
def test_sums_of_parts_add_up(records, cuts):
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    parts = [sums_of(records[start:stop]) for start, stop in pairwise(edges)]
    assert add_sums(map(raw, parts)).lanes.tolist() == sums_of(records)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, WORD - 1), min_size=4, max_size=4), max_size=5))
def test_sums_add_up_lane_by_lane_modulo_two_to_the_64(parts):
    sums = [raw(part) for part in parts]
    found = add_sums(sums).lanes
    assert (found.dtype, found.shape) == (np.uint64, (4,))
    assert found.tolist() == [sum(part[lane] for part in parts) % WORD for lane in range(4)]
    assert [one.lanes.tolist() for one in sums] == parts


def test_nothing_sums_to_zero():
    assert sums_of([]) == [0] * 4
    assert digest_sums(KEY, Y, row_identities("a", np.array([], int)), np.array([])).lanes.tolist() == [0] * 4
    assert digest_sums(KEY, Y, integer_identities("u", np.array([], int)), np.array([])).lanes.tolist() == [0] * 4


@settings(deadline=None)
@given(RECORDS.filter(bool), st.data())
def test_any_label_row_file_or_record_changes_every_lane(records, data):
    place = data.draw(st.integers(0, len(records) - 1))
    source, row, label = records[place]
    taken = {record[:2] for record in records}
    other_label = data.draw(LABEL.filter(lambda other: other != label))
    other_row = data.draw(ROW.filter(lambda other: (source, other) not in taken))
    before, after = records[:place], records[place + 1 :]
    inputs = [
        records,
        [*before, (source, row, other_label), *after],
        [*before, (source, other_row, label), *after],
        [*before, ("another", row, label), *after],
        [*before, *after],
        [*records, (source, other_row, label)],
    ]
    sums = [sums_of(one) for one in inputs] + [sums_of(records, OTHER_KEY)]
    for lane in range(4):
        assert len({one[lane] for one in sums}) == len(sums)
    digests = [digest_of(one) for one in inputs] + [digest_of(records, OTHER_KEY)]
    assert len(set(digests)) == len(digests)


def test_one_bit_of_a_label_changes_every_lane():
    """Covers the sign, the exponent and all bits of the mantissa; a lane misses a change with probability 2^-32."""
    label = np.array([1.5])
    flipped = [
        sums_of([("a", 3, float((label.view(np.uint64) ^ np.uint64(1 << bit)).view(np.float64)[0]))])
        for bit in range(64)
        if bit != 62  # would make the label infinite
    ]
    for lane in range(4):
        assert len({one[lane] for one in [*flipped, sums_of([("a", 3, 1.5)])]}) == 64


def test_a_record_counts_whatever_its_label():
    """The label 0.0, whose bits are all zero, still contributes to the sums."""
    assert 0 not in sums_of([("a", 0, 0.0)])
    assert sums_of([("a", 0, 0.0), ("a", 1, 0.0)]) != sums_of([("a", 0, 0.0)])


def test_swapping_two_records_labels_changes_the_digest():
    assert digest_of([("a", 1, 0.0), ("a", 2, 1.0)]) != digest_of([("a", 1, 1.0), ("a", 2, 0.0)])


def test_minus_zero_is_zero():
    assert sums_of([("a", 1, -0.0)]) == sums_of([("a", 1, 0.0)])


def test_labels_of_other_types_give_the_sums_of_the_same_numbers():
    rows = row_identities("a", np.arange(2))
    for labels in (np.array([0.5, 2.5], np.float32), np.array([3, 4]), np.array([0.5, 2.5], ">f8")):
        same = digest_sums(KEY, Y, rows, labels.astype(np.float64))
        assert digest_sums(KEY, Y, rows, labels).lanes.tolist() == same.lanes.tolist()


def test_rows_beyond_32_bits_are_rows_of_their_own():
    assert len({tuple(sums_of([("a", row, 1.0)])) for row in (1, 2**32 + 1, 2**33 + 1, 2**62 + 1)}) == 4


# Published digest.


def test_the_digest_is_keyed_blake2b_of_the_sums_and_the_request():
    sums = raw([1, 2, 3, WORD - 1])
    request = {
        "column": Y,
        "epsilons": ["0x1.0000000000000p-2", "0x1.8000000000000p-1"],
        "labels": ["0x0.0p+0", "0x1.999999999999ap-4"],
        "rounding": "nearest",
    }
    message = joined(struct.pack("<4Q", 1, 2, 3, WORD - 1), json.dumps(request).encode())
    expected = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"labeldp input").digest()
    assert input_digest(KEY, sums, *REQUEST) == int.from_bytes(expected, "big")


# Columns. Equal digests of equal columns would show that two label columns agree in every record.


def test_equal_columns_have_independent_digests():
    """Only the label column, the id column, or the kind of the ids differs; all labels and all ids are equal."""
    numbers, labels = np.arange(50), np.linspace(0, 1, 50)
    text = np.frombuffer(b"".join(b"%02d" % number for number in numbers), np.uint8)
    identities = [
        integer_identities("u", numbers),
        integer_identities("v", numbers),
        # Equal to a column "u" of another kind if names and kinds were concatenated without their lengths.
        integer_identities("uinteger id", numbers),
        packed_identities("u", text, np.arange(0, 102, 2)),
        packed_identities("v", text, np.arange(0, 102, 2)),
        row_identities("u", numbers),
    ]
    sums = {
        (column, index): digest_sums(KEY, column, each, labels)
        for column in ("y", "z", "", "yz")
        for index, each in enumerate(identities)
    }
    for lane in range(4):
        assert len({int(each.lanes[lane]) for each in sums.values()}) == len(sums)
    digests = {
        input_digest(KEY, each, NoiseRequest(column, LABELS, "nearest"), BUDGET) for (column, _), each in sums.items()
    }
    assert len(digests) == len(sums)
    again = digest_sums(KEY, "y", integer_identities("u", numbers), labels)
    assert input_digest(KEY, again, NoiseRequest("y", LABELS, "nearest"), BUDGET) in digests


def test_equal_sums_have_independent_digests_in_another_request():
    """Equal digests at two epsilons would show that no label changed between the two releases."""
    requests = [
        REQUEST,
        (NoiseRequest("z", LABELS, "nearest"), BUDGET),
        (NoiseRequest(Y, np.array([0.0, 0.2]), "nearest"), BUDGET),
        (NoiseRequest(Y, np.array([0.0]), "nearest"), BUDGET),
        (NoiseRequest(Y, LABELS, "nearest"), BudgetSplit(0.25, 0.5)),
        (NoiseRequest(Y, LABELS, "nearest"), BudgetSplit(0.5, 0.75)),
        (NoiseRequest(Y, LABELS, "randomized"), BUDGET),
    ]
    sums = raw([1, 2, 3, 4])
    digests = [input_digest(KEY, sums, *request) for request in requests]
    assert len(set(digests)) == len(requests)
    # 256 bits of independent random strings differ in 128 places, within 8 standard deviations of 8.
    for one, two in pairwise(digests):
        assert 64 < (one ^ two).bit_count() < 192


@pytest.mark.parametrize("secret", [KEY, OTHER_KEY])
def test_the_digest_is_not_the_sums(secret):
    records = [("a", row, float(row)) for row in range(50)]
    sums, digest = sums_of(records, secret), digest_of(records, secret)
    for order in ("little", "big"):
        published = digest.to_bytes(32, order)
        for one in sums:
            assert one.to_bytes(8, "little") not in published
            assert one.to_bytes(8, "big") not in published


def test_sums_have_no_text():
    assert str(raw([486131] * 4)) == repr(raw([486131] * 4)) == "RawSums()"


def test_differences_of_sums_show_labels_and_those_of_digests_do_not():
    """Sums must not leave the job: if one label differs, the difference of two runs' sums shows its trailing zeros."""
    others = [("a", row, float(row)) for row in range(1, 50)]
    ends = []
    for zeros in range(1, 31):
        label = np.array([1 << zeros], np.uint64).view(np.float64)[0]
        runs = [[("a", 0, value), *others] for value in (0.0, float(label))]
        one, two = (sums_of(run)[0] for run in runs)
        difference = (two - one) % WORD
        assert difference % (1 << zeros) == 0
        published = (digest_of(runs[1]) - digest_of(runs[0])) % (1 << 256)
        ends.append(published % (1 << zeros) == 0)
    # Differences of digests end in zeros only by chance: the first with probability 1/2, the second with 1/4, ...
    assert sum(ends) <= 5


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(64)], ids=len)
def test_a_key_of_another_size_is_refused(key):
    with pytest.raises(ValueError, match="32 bytes"):
        digest_sums(key, Y, row_identities("a", np.arange(2)), np.zeros(2))
    with pytest.raises(ValueError, match="32 bytes"):
        input_digest(key, raw([0] * 4), *REQUEST)
