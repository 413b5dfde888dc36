"""Names of records: unique per record, in a fixed format."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.noise.record_identities import (
    Identities,
    integer_identities,
    packed_identities,
    row_identities,
)


def bytes_identities(*ids: bytes) -> Identities:
    """Identities of the given text ids."""
    return packed_identities("u", np.frombuffer(b"".join(ids), np.uint8), np.cumsum([0, *map(len, ids)]))


def parts(*each: bytes) -> bytes:
    """The parts, each after its length."""
    return b"".join(len(one).to_bytes(8, "little") + one for one in each)


INTEGER, TEXT = (parts(kind, b"u") for kind in (b"integer id", b"text id"))


def names(*some: Identities) -> list[tuple[bytes, bytes]]:
    return [(one.space, block.tobytes()) for one in some for block in one.blocks]


def little_endian(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def test_a_row_is_named_by_its_file_and_number():
    rows = [7, 0, 2**32 + 1, 2**63 - 1]
    found = names(row_identities("logs/day=1 \u00e9.csv", np.array(rows)))
    space = parts(b"file and row", "logs/day=1 \u00e9.csv".encode())
    assert found == [(space, little_endian(row) + bytes(8)) for row in rows]


def test_an_integer_id_is_its_own_name():
    ids = [-(2**63), -5, 0, 7]
    assert names(integer_identities("u", np.array(ids))) == [(INTEGER, little_endian(one) + bytes(8)) for one in ids]


def test_a_short_bytes_id_is_its_own_name():
    ids = [b"", b"a", b"a\0", b"\0", b"fifteen bytes.."]
    assert names(bytes_identities(*ids)) == [(TEXT, one.ljust(15, b"\0") + bytes([len(one) + 1])) for one in ids]


def test_a_long_bytes_id_is_named_by_its_hash():
    ids = [b"sixteen bytes...", b"a longer id" * 100]
    hashes = [hashlib.blake2b(one, digest_size=16, person=b"labeldp id").digest() for one in ids]
    expected = [(TEXT, one[:15] + bytes([one[15] | 128])) for one in hashes]
    assert names(bytes_identities(*ids)) == expected


@given(st.lists(st.binary(max_size=20)))
def test_ids_of_any_lengths_are_named_each_by_itself(ids: list[bytes]):
    assert names(bytes_identities(*ids)) == [name for one in ids for name in names(bytes_identities(one))]
    assert len(set(names(bytes_identities(*ids)))) == len(set(ids))


def test_ids_are_taken_from_the_middle_of_their_data():
    """A slice of an Arrow array has such offsets into its data."""
    data = np.frombuffer(b"xxabcdefghijklmnopqrstuvwyy", np.uint8)
    assert names(packed_identities("u", data, np.array([2, 5, 5, 23, 25]))) == names(
        bytes_identities(b"abc", b"", b"defghijklmnopqrstu", b"vw")
    )


@pytest.mark.parametrize(
    "named", [lambda ids: integer_identities("u", ids), lambda rows: row_identities("a", rows)], ids=["ids", "rows"]
)
def test_names_do_not_depend_on_dtype_or_layout(named):
    numbers = np.arange(20, dtype=np.int64)
    for same in (numbers.astype(np.int32), numbers.astype(np.uint8), np.arange(40)[::2] // 2, numbers.astype(">i8")):
        assert names(named(same)) == names(named(numbers))


def test_names_are_unique_across_sources_rows_and_kinds():
    numbers = np.arange(100)
    kinds = [
        row_identities("a", numbers),
        row_identities("b", numbers),
        row_identities("", numbers),
        row_identities("a", numbers + 2**32),
        integer_identities("u", numbers),
        integer_identities("v", numbers),
        integer_identities("u", -1 - numbers),
        bytes_identities(*(b"%d" % number for number in numbers)),
        bytes_identities(*(little_endian(int(number)) for number in numbers)),
        bytes_identities(*(little_endian(int(number)) + bytes(8) for number in numbers)),
    ]
    assert len(set(names(*kinds))) == 100 * len(kinds)


def test_ids_differ_without_their_space():
    """The search for duplicate ids compares blocks only."""
    blocks = [
        *integer_identities("u", np.arange(-50, 50)).blocks,
        *bytes_identities(*(b"%d" % n for n in range(100))).blocks,
    ]
    assert len({block.tobytes() for block in blocks}) == 200


@pytest.mark.parametrize(
    "none", [row_identities("a", np.array([], int)), integer_identities("u", np.array([], int)), bytes_identities()]
)
def test_no_records_have_no_names(none):
    assert len(none) == 0
    assert none.blocks.shape == (0, 2)
