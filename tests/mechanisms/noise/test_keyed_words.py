"""The noise: uniform where it says so, a function of its key and purpose, and in a format that is pinned.

The format is restated here from the docstrings, a record at a time, so that an accidental change of a byte layout,
which would silently draw new noise for an old release, is seen.
"""

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.noise import discrete_laplace as discrete_laplace_module
from labeldp.mechanisms.noise import keyed_words as noise
from labeldp.mechanisms.noise.discrete_laplace import ByteStream, discrete_laplace
from labeldp.mechanisms.noise.noise_binding_key import derive_noise_key
from labeldp.mechanisms.noise.record_identities import Identities, bytes_identities, integer_identities, row_identities
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance
from opendp.mod import enable_features
from scipy.stats import chi2

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
FINGERPRINT = hashlib.sha256(b"a mechanism").digest()
MODULUS = 1 << 256


def rows(*numbers: int, source: str = "a") -> Identities:
    return row_identities(source, np.array(numbers))


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
    message = len(purpose).to_bytes(8, "little") + purpose + space
    derived = hashlib.blake2b(message, key=key, digest_size=32, person=b"labeldp words").digest()
    encrypted = Cipher(algorithms.AES(derived), modes.ECB()).encryptor().update(block)
    return int.from_bytes(encrypted[:8], "little")


@pytest.mark.parametrize(
    "identities",
    [
        rows(0, 1, 5, 4_000_000_000, 2**40, 2**63 - 1),
        rows(5, 0, source="logs/day=1 \u00e9.csv"),
        integer_identities(np.array([-5, 7])),
        bytes_identities([b"a", b"b"]),
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
    assert noise.words(KEY, FINGERPRINT, bytes_identities([])).shape == (0,)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**62), st.lists(st.integers(0, 200), max_size=5), st.randoms(use_true_random=False))
def test_a_records_word_does_not_depend_on_the_other_records(first, cuts, random):
    """Batches, gaps and order."""
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
    # Eight independent bytes, 255 degrees of freedom each. Both tails: too even would be as wrong.
    assert chi2.ppf(1e-6, 8 * 255) <= statistic <= chi2.ppf(1 - 1e-6, 8 * 255)


def test_words_of_neighbouring_rows_are_independent():
    """Pairs of top four bits of a row and the next: 255 degrees of freedom."""
    top = (noise.words(KEY, FINGERPRINT, row_identities("a", np.arange(60_000))) >> np.uint64(60)).astype(int)
    observed = np.bincount(top[0::2] * 16 + top[1::2], minlength=256)
    statistic = ((observed - 30_000 / 256) ** 2 / (30_000 / 256)).sum()
    assert chi2.ppf(1e-6, 255) <= statistic <= chi2.ppf(1 - 1e-6, 255)


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
            # As the purpose "file x" before the file "a" would be, were the two not kept apart.
            row_identities("xfile a", numbers),
            integer_identities(numbers),
            bytes_identities([b"%d" % number for number in numbers]),
        )
    ]
    assert len(np.unique(np.concatenate(drawn))) == 2 * 4 * 7 * 1000


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(64)], ids=len)
def test_a_key_of_another_size_is_refused(key):
    uses: list[Callable[[], object]] = [
        lambda: noise.words(key, FINGERPRINT, rows(1, 2)),
        lambda: noise.keyed_hash(key, b"use", b""),
        lambda: derive_noise_key(key, 0, "y", np.zeros(1), [1.0], "nearest"),
        lambda: ByteStream(key, b""),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="32 bytes"):
            use()


# The noise key.


def test_noise_key_is_keyed_blake2b_of_sorted_json():
    labels, epsilons = np.array([0.0, 0.1, 3.0]), (0.25, 0.75)
    document = json.dumps(
        {
            "column": "weight \u00e9",
            "digest": format(77, "064x"),
            "epsilons": ["0x1.0000000000000p-2", "0x1.8000000000000p-1"],
            "labels": ["0x0.0p+0", "0x1.999999999999ap-4", "0x1.8000000000000p+1"],
            "rounding": "nearest",
        }
    )
    expected = hashlib.blake2b(document.encode(), key=KEY, digest_size=32, person=b"labeldp noise").digest()
    assert derive_noise_key(KEY, 77, "weight \u00e9", labels, epsilons, "nearest") == expected


def test_noise_key_is_bound_to_secret_digest_column_domain_epsilons_and_rounding():
    labels = np.array([0.0, 1.0])
    keys = {
        derive_noise_key(KEY, 1, "y", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(OTHER_KEY, 1, "y", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 2, "y", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, MODULUS - 1, "y", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 1, "z", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 1, "", labels, (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 1, "y", np.array([0.0, np.nextafter(1.0, 2.0)]), (0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 1, "y", np.array([0.0]), (1.0, 0.5, 0.5), "nearest"),
        derive_noise_key(KEY, 1, "y", labels, (0.5, np.nextafter(0.5, 1.0)), "nearest"),
        derive_noise_key(KEY, 1, "y", labels, (0.5,), "nearest"),
        derive_noise_key(KEY, 1, "y", labels, (0.5, 0.5), "randomized"),
    }
    assert len(keys) == 11
    assert {len(key) for key in keys} == {32}


# Byte streams.


def test_stream_is_blake2b_in_counter_mode():
    message = (5).to_bytes(8, "little") + b"prior"
    blocks = [
        hashlib.blake2b(
            message + counter.to_bytes(8, "little"), key=KEY, digest_size=64, person=b"labeldp stream"
        ).digest()
        for counter in range(4)
    ]
    assert ByteStream(KEY, b"prior").take(4 * 64) == b"".join(blocks)


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), max_size=20))
def test_stream_does_not_depend_on_how_it_is_cut(sizes):
    stream = ByteStream(KEY, b"cut")
    pieces = [stream.take(size) for size in sizes]
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == ByteStream(KEY, b"cut").take(sum(sizes))


def test_streams_of_other_keys_or_purposes_differ():
    streams = {
        ByteStream(key, purpose).take(32) for key in (KEY, OTHER_KEY) for purpose in (b"", b"prior", b"prior\0", b"p")
    }
    assert len(streams) == 8


@settings(deadline=None)
@given(st.integers(1, 1 << 70))
def test_below_is_rejection_on_the_streams_bytes(bound):
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    raw = ByteStream(KEY, b"below").take(size * 400)
    candidates = (int.from_bytes(raw[at * size : (at + 1) * size], "little") % (1 << bits) for at in range(400))
    stream = ByteStream(KEY, b"below")
    assert stream.below(bound) == next(candidate for candidate in candidates if candidate < bound)
    assert all(0 <= stream.below(bound) < bound for _ in range(20))


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 7, 255, 256, 257, 300])
def test_below_is_uniform_on_its_range(bound, fits):
    stream = ByteStream(KEY, b"uniform")
    counts = np.bincount([stream.below(bound) for _ in range(30 * bound + 3000)], minlength=bound)
    assert len(counts) == bound
    assert fits(counts, np.full(bound, 1 / bound))


# Discrete Laplace.


class Undecided(Exception):
    """The sampler asked for one more answer than the script holds; chances: those of the answers 0, 1, ..."""

    def __init__(self, chances: list[float]):
        super().__init__(chances)
        self.chances = chances


class ScriptedStream(ByteStream):
    """Answers from a script, and raises Undecided at its end."""

    def __init__(self, script: tuple[int, ...]):
        super().__init__(KEY, b"")
        self.script = iter(script)

    def answer(self, chances: list[float]) -> int:
        for answer in self.script:
            return answer
        raise Undecided(chances)

    def below(self, bound: int) -> int:
        return self.answer([1 / bound] * bound)


def exact_law(
    sampler: Callable[[Any], Any], stream: Callable[[tuple[int, ...]], ScriptedStream], cutoff: float
) -> tuple[dict[Any, float], float]:
    """What the sampler returns and how often, by following every answer of the stream; and the mass not followed.

    Paths less likely than cutoff are given up. Every result's true probability is at least its value here, and
    above it by no more than the mass not followed.
    """
    law: dict[Any, float] = {}
    lost = 0.0
    paths: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while paths:
        script, mass = paths.pop()
        if mass < cutoff:
            lost += mass
            continue
        try:
            result = sampler(stream(script))
        except Undecided as undecided:
            paths += [((*script, answer), mass * chance) for answer, chance in enumerate(undecided.chances)]
        else:
            law[result] = law.get(result, 0.0) + mass
    assert sum(law.values()) + lost == pytest.approx(1, abs=1e-9)
    return law, lost


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (5, 7)])
def test_bernoulli_is_exact_over_all_answers_of_the_stream(numerator, denominator):
    law, lost = exact_law(
        lambda stream: discrete_laplace_module._bernoulli_exp(stream, numerator, denominator), ScriptedStream, 1e-8
    )
    expected = math.exp(-numerator / denominator)
    assert lost < 1e-3
    assert law[True] - 1e-12 <= expected <= law[True] + lost + 1e-12
    assert law.get(False, 0.0) - 1e-12 <= 1 - expected <= law.get(False, 0.0) + lost + 1e-12


def laplace_probability(value: int, scale: float) -> float:
    return math.tanh(1 / (2 * scale)) * math.exp(-abs(value) / scale)


class Rejected(Exception):
    """The sampler threw its draw away and started again."""


class OneTry(ScriptedStream):
    """For a sampler that starts every try with below(first), and asks for that bound nowhere else."""

    def __init__(self, script: tuple[int, ...], first: int):
        super().__init__(script)
        self.first = first
        self.tries = 0

    def below(self, bound: int) -> int:
        self.tries += bound == self.first
        if self.tries > 1:
            raise Rejected
        return super().below(bound)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(1, 3), Fraction(7, 3), Fraction(3, 2), Fraction(8)])
def test_discrete_laplace_is_exact_over_all_answers_of_the_stream(scale, monkeypatch):
    def exact_bernoulli(stream: ScriptedStream, numerator: int, denominator: int) -> bool:
        chance = math.exp(-numerator / denominator)
        return bool(stream.answer([1 - chance, chance]))

    def one_try(stream: ScriptedStream) -> int | None:
        try:
            return int(discrete_laplace(stream, scale, 1)[0])
        except Rejected:
            return None

    monkeypatch.setattr(discrete_laplace_module, "_bernoulli_exp", exact_bernoulli)
    law, lost = exact_law(one_try, lambda script: OneTry(script, scale.numerator), 1e-10)
    assert lost < 1e-7
    # A rejected try leaves no trace, so the draw follows the law of the tries that are not rejected.
    accepted = 1 - law[None]
    for value in range(-20, 21):
        mass, expected = law.get(value, 0.0), laplace_probability(value, float(scale))
        assert mass / accepted - 1e-12 <= expected <= (mass + lost) / (accepted - lost) + 1e-12


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(1), Fraction(7, 3), Fraction(1, 3), Fraction(40)])
def test_discrete_laplace_follows_its_law(scale, fits):
    draws = discrete_laplace(ByteStream(KEY, b"law"), scale, 12_000)
    reach = int(30 * scale) + 10
    assert np.abs(draws).max() <= reach
    counts = np.bincount(draws + reach, minlength=2 * reach + 1)
    assert fits(counts, [laplace_probability(value, float(scale)) for value in range(-reach, reach + 1)])


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(7, 3)])
def test_discrete_laplace_agrees_with_opendp(scale):
    enable_features("contrib")
    size = 12_000
    space = vector_domain(atom_domain(T=int)), l1_distance(T=int)
    theirs = np.array(make_laplace(*space, scale=float(scale))([0] * size))
    ours = discrete_laplace(ByteStream(KEY, b"opendp"), scale, size)
    # Cells -8..8 and the two tails; every one of them is expected over 20 times.
    samples = [np.bincount(np.clip(draws, -9, 9) + 9, minlength=19).astype(float) for draws in (ours, theirs)]
    statistic = ((samples[0] - samples[1]) ** 2 / (samples[0] + samples[1])).sum()
    # Their noise is fresh in every run, so the bound is one that no run should ever meet.
    assert statistic <= chi2.ppf(1 - 1e-9, 18)


def test_discrete_laplace_is_a_function_of_its_stream():
    draws = discrete_laplace(ByteStream(KEY, b"prior"), Fraction(5), 50)
    assert draws.dtype == np.int64
    np.testing.assert_array_equal(discrete_laplace(ByteStream(KEY, b"prior"), Fraction(5), 50), draws)
    assert not np.array_equal(discrete_laplace(ByteStream(OTHER_KEY, b"prior"), Fraction(5), 50), draws)
    assert not np.array_equal(discrete_laplace(ByteStream(KEY, b"other"), Fraction(5), 50), draws)
    assert discrete_laplace(ByteStream(KEY, b"prior"), Fraction(5), 0).shape == (0,)


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1, 2)])
def test_discrete_laplace_needs_a_positive_scale(scale):
    with pytest.raises(ValueError, match="positive"):
        discrete_laplace(ByteStream(KEY, b""), scale, 1)
