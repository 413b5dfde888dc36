"""The noise: uniform where it says so, a function of its key and purpose, and in a format that is pinned.

The format is restated here from the docstrings with hashlib alone, so that an accidental change of a byte layout,
which would silently draw new noise for an old release, is seen.
"""

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import noise
from labeldp.mechanisms.noise import ByteStream, discrete_laplace
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance
from opendp.mod import enable_features
from scipy.stats import chi2

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
FINGERPRINT = hashlib.sha256(b"a mechanism").digest()
MODULUS = 1 << 256

LABEL = st.floats(allow_nan=False, allow_infinity=False)
RECORDS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), LABEL), max_size=30)


def digest_of(records: list[tuple[int, float]], secret: bytes = KEY) -> int:
    ids = np.array([identity for identity, _ in records], np.int64)
    labels = np.array([label for _, label in records], np.float64)
    return noise.multiset_digest(secret, noise.integer_identities(ids), labels)


def little_endian(number: int, size: int = 8) -> bytes:
    return number.to_bytes(size, "little", signed=True)


# Identities.


def test_row_identity_is_hashed_source_then_row_number():
    tag = hashlib.blake2b(b"logs/day=1.csv", digest_size=16, person=b"labeldp source").digest()
    identities = noise.row_identities("logs/day=1.csv", np.array([0, 1, 2**40]))
    assert [row.tobytes() for row in identities] == [tag + little_endian(row) for row in (0, 1, 2**40)]


def test_integer_identity_is_tag_then_id():
    tag = hashlib.blake2b(b"", digest_size=16, person=b"labeldp int id").digest()
    identities = noise.integer_identities(np.array([-5, 7]))
    assert [row.tobytes() for row in identities] == [tag + little_endian(-5), tag + little_endian(7)]


def test_bytes_identity_is_hashed_id():
    ids = [b"", b"a", b"a longer id"]
    expected = [hashlib.blake2b(one, digest_size=24, person=b"labeldp bytes id").digest() for one in ids]
    assert [row.tobytes() for row in noise.bytes_identities(ids)] == expected


def test_integer_identities_do_not_depend_on_dtype_or_layout():
    ids = np.arange(20, dtype=np.int64)
    for same in (ids.astype(np.int32), ids.astype(np.uint8), np.arange(40)[::2] // 2, ids.astype(">i8")):
        np.testing.assert_array_equal(noise.integer_identities(same), noise.integer_identities(ids))


def test_identities_are_unique_across_sources_rows_and_kinds():
    numbers = np.arange(100)
    kinds = [
        noise.row_identities("a", numbers),
        noise.row_identities("b", numbers),
        noise.row_identities("", numbers),
        noise.integer_identities(numbers),
        noise.integer_identities(-1 - numbers),
        noise.bytes_identities([b"%d" % number for number in numbers]),
        noise.bytes_identities([little_endian(int(number)) for number in numbers]),
    ]
    assert len({row.tobytes() for row in np.concatenate(kinds)}) == 100 * len(kinds)


def test_no_records_have_no_identities():
    assert noise.integer_identities(np.array([], np.int64)).shape == (0, 24)
    assert noise.row_identities("a", np.array([], np.int64)).shape == (0, 24)
    assert noise.bytes_identities([]).shape == (0, 24)


# Words.


def test_words_are_keyed_blake2b_of_fingerprint_and_identity():
    identities = noise.bytes_identities([b"a", b"b"])
    expected = [
        int.from_bytes(
            hashlib.blake2b(FINGERPRINT + row.tobytes(), key=KEY, digest_size=8, person=b"labeldp word").digest(),
            "little",
        )
        for row in identities
    ]
    words = noise.words(KEY, FINGERPRINT, identities)
    assert words.dtype == np.uint64
    assert words.tolist() == expected


def test_words_of_no_records_are_none():
    assert noise.words(KEY, FINGERPRINT, noise.bytes_identities([])).shape == (0,)


def test_words_are_uniform_in_every_byte():
    words = noise.words(KEY, FINGERPRINT, noise.integer_identities(np.arange(30_000)))
    table = words.view(np.uint8).reshape(-1, 8)
    expected = len(table) / 256
    statistic = sum(
        ((np.bincount(table[:, place], minlength=256) - expected) ** 2 / expected).sum() for place in range(8)
    )
    # Eight independent bytes, 255 degrees of freedom each. Both tails: too even would be as wrong.
    assert chi2.ppf(1e-6, 8 * 255) <= statistic <= chi2.ppf(1 - 1e-6, 8 * 255)


def test_words_differ_by_key_fingerprint_and_identity():
    identities = noise.integer_identities(np.arange(1000))
    words = noise.words(KEY, FINGERPRINT, identities)
    others = [
        noise.words(OTHER_KEY, FINGERPRINT, identities),
        noise.words(KEY, FINGERPRINT[::-1], identities),
        noise.words(KEY, FINGERPRINT, noise.integer_identities(np.arange(1000, 2000))),
    ]
    assert len(np.unique(np.concatenate([words, *others]))) == 4000
    np.testing.assert_array_equal(noise.words(KEY, FINGERPRINT, identities[::-1]), words[::-1])


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(64)], ids=len)
def test_a_key_of_another_size_is_refused(key):
    identities = noise.integer_identities(np.arange(2))
    uses: list[Callable[[], object]] = [
        lambda: noise.words(key, FINGERPRINT, identities),
        lambda: noise.multiset_digest(key, identities, np.zeros(2)),
        lambda: noise.derive_noise_key(key, 0, "y", np.zeros(1), [1.0]),
        lambda: ByteStream(key, b""),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="32 bytes"):
            use()


# The digest of the input.


@settings(deadline=None)
@given(RECORDS)
def test_digest_is_the_sum_of_the_records_hashes(records):
    tag = hashlib.blake2b(b"", digest_size=16, person=b"labeldp int id").digest()
    expected = 0
    for identity, label in records:
        message = tag + little_endian(identity) + np.array(label + 0.0, "<f8").tobytes()
        digest = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"labeldp digest").digest()
        expected += int.from_bytes(digest, "little")
    assert digest_of(records) == expected % MODULUS


@settings(deadline=None)
@given(RECORDS, st.randoms(use_true_random=False))
def test_digest_does_not_depend_on_order(records, random):
    shuffled = list(records)
    random.shuffle(shuffled)
    assert digest_of(shuffled) == digest_of(records)


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=5))
def test_digests_of_parts_add_up(parts):
    whole = [record for part in parts for record in part]
    assert noise.add_digests([digest_of(part) for part in parts]) == digest_of(whole)


def test_digest_of_nothing_is_zero():
    assert digest_of([]) == 0
    assert noise.add_digests([]) == 0


@settings(deadline=None)
@given(RECORDS.filter(bool), st.data())
def test_digest_changes_with_any_label_or_identity(records, data):
    place = data.draw(st.integers(0, len(records) - 1))
    identity, label = records[place]
    other_label = data.draw(LABEL.filter(lambda other: other != label))
    other_identity = data.draw(st.integers(-(2**63), 2**63 - 1).filter(lambda other: other != identity))
    before, after = records[:place], records[place + 1 :]
    digests = {
        digest_of(records),
        digest_of([*before, (identity, other_label), *after]),
        digest_of([*before, (other_identity, label), *after]),
        digest_of([*before, *after]),
        digest_of([*records, (identity, label)]),
        digest_of(records, OTHER_KEY),
    }
    assert len(digests) == 6


def test_swapping_two_records_labels_changes_the_digest():
    assert digest_of([(1, 0.0), (2, 1.0)]) != digest_of([(1, 1.0), (2, 0.0)])


def test_minus_zero_is_zero():
    assert digest_of([(1, -0.0)]) == digest_of([(1, 0.0)])


def test_float32_labels_give_the_digest_of_the_same_numbers():
    labels = np.array([0.1, 2.5], np.float32)
    identities = noise.integer_identities(np.arange(2))
    same = noise.multiset_digest(KEY, identities, labels.astype(np.float64))
    assert noise.multiset_digest(KEY, identities, labels) == same


# The noise key.


def test_noise_key_is_keyed_blake2b_of_sorted_json():
    labels, epsilons = np.array([0.0, 0.1, 3.0]), (0.25, 0.75)
    document = json.dumps(
        {
            "column": "weight \u00e9",
            "digest": format(77, "064x"),
            "epsilons": ["0x1.0000000000000p-2", "0x1.8000000000000p-1"],
            "labels": ["0x0.0p+0", "0x1.999999999999ap-4", "0x1.8000000000000p+1"],
        }
    )
    expected = hashlib.blake2b(document.encode(), key=KEY, digest_size=32, person=b"labeldp noise").digest()
    assert noise.derive_noise_key(KEY, 77, "weight \u00e9", labels, epsilons) == expected


def test_noise_key_is_bound_to_secret_digest_column_domain_and_epsilons():
    labels = np.array([0.0, 1.0])
    keys = {
        noise.derive_noise_key(KEY, 1, "y", labels, (0.5, 0.5)),
        noise.derive_noise_key(OTHER_KEY, 1, "y", labels, (0.5, 0.5)),
        noise.derive_noise_key(KEY, 2, "y", labels, (0.5, 0.5)),
        noise.derive_noise_key(KEY, MODULUS - 1, "y", labels, (0.5, 0.5)),
        noise.derive_noise_key(KEY, 1, "z", labels, (0.5, 0.5)),
        noise.derive_noise_key(KEY, 1, "", labels, (0.5, 0.5)),
        noise.derive_noise_key(KEY, 1, "y", np.array([0.0, np.nextafter(1.0, 2.0)]), (0.5, 0.5)),
        noise.derive_noise_key(KEY, 1, "y", np.array([0.0]), (1.0, 0.5, 0.5)),
        noise.derive_noise_key(KEY, 1, "y", labels, (0.5, np.nextafter(0.5, 1.0))),
        noise.derive_noise_key(KEY, 1, "y", labels, (0.5,)),
    }
    assert len(keys) == 10
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
    law, lost = exact_law(lambda stream: noise._bernoulli_exp(stream, numerator, denominator), ScriptedStream, 1e-8)
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

    monkeypatch.setattr(noise, "_bernoulli_exp", exact_bernoulli)
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
