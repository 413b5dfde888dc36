"""Keyed words: uniform, a function of key and purpose only, and in a fixed format.

The tests implement the format independently from the docstrings, one record at a time, to detect an accidental change
of a byte layout. Such a change would silently draw new noise for an old release.

Identities of records: unique for each record, in a fixed format.
"""

import hashlib
import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.noise import keyed_words as noise
from labeldp.mechanisms.noise.keyed_words import (
    Identities,
    NoiseRequest,
    derive_noise_key,
    integer_identities,
    packed_identities,
    row_identities,
)

from tests.false_alarms import chi_square_bounds

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
FINGERPRINT = hashlib.sha256(b"a mechanism").digest()
MODULUS = 1 << 256


def rows(*numbers: int, source: str = "a") -> Identities:
    return row_identities(source, np.array(numbers))


def bytes_identities(*ids: bytes) -> Identities:
    """Identities of the given text ids."""
    return packed_identities("u", np.frombuffer(b"".join(ids), np.uint8), np.cumsum([0, *map(len, ids)]))


# AES.

NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
"""NIST SP 800-38A, appendix F: the key of all vectors of AES-256."""
NIST_ECB = [
    ("6bc1bee22e409f96e93d7e117393172a", "f3eed1bdb5d2a03c064b5a7e3db181f8"),
    ("ae2d8a571e03ac9c9eb76fac45af8e51", "591ccb10d410ed26dc5ba74a31362870"),
    ("30c81c46a35ce411e5fbc1191a0a52ef", "b6ed21b99ca6f4f9f153e7b1beafed1d"),
    ("f69f2445df4f9b17ad2b417be66c3710", "23304b7a39f9f3ff067d8d8f9e24ecc7"),
]
"""F.1.5, ECB-AES256.Encrypt: plaintext, ciphertext."""
NIST_CTR = [
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", "0bdf7df1591716335e9a8b15c860c502"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff00", "5a6e699d536119065433863c8f657b94"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff01", "1bc12c9c01610d5d0d8bd6a3378eca62"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff02", "2956e1c8693536b1bee99c73a31576b6"),
]
"""F.5.5, CTR-AES256.Encrypt: counter, output block."""


@pytest.mark.parametrize("vectors", [NIST_ECB, NIST_CTR], ids=["ECB", "CTR"])
def test_blocks_are_those_of_nist(vectors):
    plain = b"".join(bytes.fromhex(block) for block, _ in vectors)
    found = noise.keyed_blocks(NIST_KEY, np.frombuffer(plain, "<u8").reshape(-1, 2))
    assert [block.tobytes().hex() for block in found] == [block for _, block in vectors]


def test_blocks_are_encrypted_each_by_itself_whatever_their_layout():
    blocks = np.random.default_rng(1).integers(0, 1 << 63, (10_000, 2), np.uint64)
    found = noise.keyed_blocks(KEY, blocks)
    cipher = Cipher(algorithms.AES(KEY), modes.ECB())
    for place in (0, 1, 4096, 9_999):
        assert found[place].tobytes() == cipher.encryptor().update(blocks[place].tobytes())
    np.testing.assert_array_equal(noise.keyed_blocks(KEY, np.asfortranarray(blocks)), found)
    np.testing.assert_array_equal(noise.keyed_blocks(KEY, blocks.astype(">u8")), found)
    np.testing.assert_array_equal(noise.keyed_blocks(KEY, blocks[::3]), found[::3])


# Words.


def restated_word(key: bytes, purpose: bytes, space: bytes, block: bytes) -> int:
    message = b"".join(len(part).to_bytes(8, "little") + part for part in (purpose, space))
    derived = hashlib.blake2b(message, key=key, digest_size=32, person=b"labeldp words").digest()
    encrypted = Cipher(algorithms.AES(derived), modes.ECB()).encryptor().update(block)
    return int.from_bytes(encrypted[:8], "little")


@pytest.mark.parametrize(
    "identities",
    [
        rows(0, 1, 5, 4_000_000_000, 2**40, 2**63 - 1),
        rows(5, 0, source="logs/day=1 \u00e9.csv"),
        integer_identities("u", np.array([-5, 7])),
        bytes_identities(b"a", b"b"),
    ],
    ids=["rows", "rows of another file", "integer ids", "text ids"],
)
def test_words_are_aes_under_a_key_of_purpose_and_space(identities):
    words = noise.words(KEY, FINGERPRINT, identities)
    assert words.dtype == np.uint64
    assert words.tolist() == [
        restated_word(KEY, FINGERPRINT, identities.space, block.tobytes()) for block in identities.blocks
    ]


def test_words_of_no_records_are_none():
    assert noise.words(KEY, FINGERPRINT, bytes_identities()).shape == (0,)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**62), st.lists(st.integers(0, 200), max_size=5), st.randoms(use_true_random=False))
def test_a_records_word_does_not_depend_on_the_other_records(first, cuts, random):
    """Tests different batches, gaps in the rows and orders."""
    numbers = np.arange(first, first + 200)
    whole = noise.words(KEY, FINGERPRINT, row_identities("a", numbers))
    edges = [0, *sorted(cuts), 200]
    pieces = [numbers[start:stop] for start, stop in pairwise(edges)]
    found = [noise.words(KEY, FINGERPRINT, row_identities("a", piece)) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(found), whole)
    some = np.array(random.sample(range(200), 50))
    np.testing.assert_array_equal(noise.words(KEY, FINGERPRINT, row_identities("a", numbers[some])), whole[some])


@pytest.mark.parametrize("start", [0, 2**32 - 15_000, 2**62], ids=["first rows", "around 2^32", "around 2^62"])
def test_words_are_uniform_in_every_byte(start):
    words = noise.words(KEY, FINGERPRINT, row_identities("a", np.arange(start, start + 30_000)))
    table = words.view(np.uint8).reshape(-1, 8)
    expected = len(table) / 256
    statistic = sum(
        ((np.bincount(table[:, place], minlength=256) - expected) ** 2 / expected).sum() for place in range(8)
    )
    # Eight independent bytes, 255 degrees of freedom each. The test is two-sided: too uniform is an error, too.
    low, high = chi_square_bounds(8 * 255)
    assert low <= statistic <= high


def test_words_of_neighbouring_rows_are_independent():
    """Chi-square test of the pairs of top four bits of adjacent rows: 255 degrees of freedom."""
    top = (noise.words(KEY, FINGERPRINT, row_identities("a", np.arange(60_000))) >> np.uint64(60)).astype(int)
    observed = np.bincount(top[0::2] * 16 + top[1::2], minlength=256)
    statistic = ((observed - 30_000 / 256) ** 2 / (30_000 / 256)).sum()
    low, high = chi_square_bounds(255)
    assert low <= statistic <= high


def test_no_word_repeats_over_keys_purposes_files_rows_and_kinds():
    numbers = np.arange(1000)
    drawn = [
        noise.words(key, purpose, identities)
        for key in (KEY, OTHER_KEY)
        for purpose in (FINGERPRINT, FINGERPRINT[::-1], b"", b"file x")
        for identities in (
            row_identities("a", numbers),
            row_identities("b", numbers),
            row_identities("a", numbers + 2**32),
            row_identities("", numbers),
            # Would equal the purpose "file x" with the file "a" if the two were concatenated without a separator.
            row_identities("xfile a", numbers),
            integer_identities("u", numbers),
            integer_identities("v", numbers),
            bytes_identities(*(b"%d" % number for number in numbers)),
        )
    ]
    assert len(np.unique(np.concatenate(drawn))) == 2 * 4 * 8 * 1000


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(64)], ids=len)
def test_a_key_of_another_size_is_refused(key):
    uses: list[Callable[[], object]] = [
        lambda: noise.words(key, FINGERPRINT, rows(1, 2)),
        lambda: noise.keyed_hash(key, b"use", b""),
        lambda: derive_noise_key(key, 0, NoiseRequest("y", np.zeros(1), "nearest"), BudgetSplit(0.0, 1.0)),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="32 bytes"):
            use()


# Noise key.


def test_noise_key_is_keyed_blake2b_of_digest_and_request():
    labels, budget = np.array([0.0, 0.1, 3.0]), BudgetSplit(0.25, 0.75)
    document = json.dumps(
        {
            "column": "weight \u00e9",
            "epsilons": ["0x1.0000000000000p-2", "0x1.8000000000000p-1"],
            "labels": ["0x0.0p+0", "0x1.999999999999ap-4", "0x1.8000000000000p+1"],
            "rounding": "nearest",
        }
    )
    parts = (b"".join([bytes(31), b"M"]), document.encode())
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    expected = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"labeldp noise").digest()
    assert derive_noise_key(KEY, 77, NoiseRequest("weight \u00e9", labels, "nearest"), budget) == expected


def test_noise_key_is_bound_to_secret_digest_column_domain_budget_and_rounding():
    labels = np.array([0.0, 1.0])
    keys = {
        derive_noise_key(KEY, 1, NoiseRequest("y", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(OTHER_KEY, 1, NoiseRequest("y", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(KEY, 2, NoiseRequest("y", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(KEY, MODULUS - 1, NoiseRequest("y", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(KEY, 1, NoiseRequest("z", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(KEY, 1, NoiseRequest("", labels, "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(
            KEY, 1, NoiseRequest("y", np.array([0.0, np.nextafter(1.0, 2.0)]), "nearest"), BudgetSplit(0.5, 0.5)
        ),
        derive_noise_key(KEY, 1, NoiseRequest("y", np.array([0.0]), "nearest"), BudgetSplit(0.5, 0.5)),
        derive_noise_key(KEY, 1, NoiseRequest("y", labels, "nearest"), BudgetSplit(0.5, np.nextafter(0.5, 1.0))),
        derive_noise_key(KEY, 1, NoiseRequest("y", labels, "nearest"), BudgetSplit(np.nextafter(0.5, 1.0), 0.5)),
        derive_noise_key(KEY, 1, NoiseRequest("y", labels, "randomized"), BudgetSplit(0.5, 0.5)),
    }
    assert len(keys) == 11
    assert {len(key) for key in keys} == {32}


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
