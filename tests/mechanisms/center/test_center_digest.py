"""Centers in the input digest and in the words of streams: any change of a center gives fresh noise."""

import hashlib
import struct

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.noise.input_digest import add_sums, digest_sums, input_digest
from labeldp.mechanisms.noise.keyed_words import NoiseRequest, derive_noise_key, labelled_words, row_identities

KEY = bytes(range(32))
INDICES = st.lists(st.integers(0, 2**20 - 1), min_size=1, max_size=12)


def joined(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def term(row: int, center: int, lane: int) -> int:
    """The part of a lane that one center adds, with Python integers."""
    space = joined(b"file and row", b"/a")
    message = joined(bytes([lane - lane % 2]), b"y", b"c", space)
    key = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"labeldp center").digest()
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    halves = struct.unpack("<QQ", encryptor.update(struct.pack("<QQ", row, 0)))
    return halves[lane % 2] * (center + 1)


def sums(centers: list[int], name: str = "c") -> list[int]:
    rows = row_identities("/a", np.arange(len(centers)))
    return digest_sums(KEY, "y", rows, np.zeros(len(centers)), (name, np.array(centers))).lanes.tolist()


@given(INDICES)
def test_the_sums_are_those_of_the_labels_and_of_each_center(centers):
    rows = row_identities("/a", np.arange(len(centers)))
    labels = digest_sums(KEY, "y", rows, np.zeros(len(centers))).lanes.tolist()
    expected = [
        (labels[lane] + sum(term(row, center, lane) for row, center in enumerate(centers))) % 2**64 for lane in range(4)
    ]
    assert sums(centers) == expected


@given(INDICES, st.data())
def test_every_change_of_a_center_changes_all_lanes(centers, data):
    place = data.draw(st.integers(0, len(centers) - 1))
    other = list(centers)
    other[place] = data.draw(st.integers(0, 2**20 - 1).filter(lambda index: index != centers[place]))
    assert all(one != two for one, two in zip(sums(centers), sums(other), strict=True))


def test_equal_residuals_of_other_centers_have_other_sums():
    """Label and center both move by a step, so the residual is the same."""
    rows = row_identities("/a", np.arange(3))
    one = digest_sums(KEY, "y", rows, np.array([1.0, 2.0, 3.0]), ("c", np.array([1, 1, 1])))
    two = digest_sums(KEY, "y", rows, np.array([2.0, 2.0, 3.0]), ("c", np.array([2, 1, 1])))
    assert not (one.lanes == two.lanes).any()


def test_parts_add_up_and_no_record_adds_nothing():
    rows = row_identities("/a", np.arange(5))
    labels, centers = np.arange(5.0), np.array([4, 3, 0, 1, 2])
    whole = digest_sums(KEY, "y", rows, labels, ("c", centers))
    parts = [
        digest_sums(KEY, "y", row_identities("/a", np.arange(a, b)), labels[a:b], ("c", centers[a:b]))
        for a, b in ((0, 2), (2, 2), (2, 5))
    ]
    assert add_sums(parts).lanes.tolist() == whole.lanes.tolist()


def test_digest_and_noise_key_bind_the_name_of_the_center_column():
    budget = BudgetSplit(0.5, 0.5)
    raw = digest_sums(KEY, "y", row_identities("/a", np.arange(2)), np.zeros(2), ("c", np.zeros(2, int)))
    names = (None, "c", "d", "")
    requests = [NoiseRequest("y", np.array([0.0, 1.0]), "nearest", name) for name in names]
    assert len({input_digest(KEY, raw, request, budget) for request in requests}) == len(names)
    assert len({derive_noise_key(KEY, 7, request, budget) for request in requests}) == len(names)
    assert sums([1, 2], "c") != sums([1, 2], "d")


def test_words_of_a_stream_are_independent_for_another_center():
    rows, labels = row_identities("/a", np.arange(4096)), np.zeros(4096)
    plain = labelled_words(KEY, b"f", rows, labels)
    one, two = (labelled_words(KEY, b"f", rows, labels, np.full(4096, center)) for center in (1, 2))
    again = labelled_words(KEY, b"f", rows, labels, np.full(4096, 2))
    assert np.array_equal(two, again)
    for first, second in ((one, two), (plain, one)):
        assert not (first == second).any()
        # The top bits agree as often as those of independent words: 1 in 16, within 5 standard deviations.
        same = int((first >> np.uint64(60) == second >> np.uint64(60)).sum())
        assert abs(same - 256) < 5 * 15.5
