"""Byte streams and discrete Laplace noise: the format of the stream and the exact distribution of the samplers."""

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.noise import discrete_laplace as discrete_laplace_module
from labeldp.mechanisms.noise.discrete_laplace import ByteStream, discrete_laplace
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance
from opendp.mod import enable_features

from tests.false_alarms import chi_square_bounds

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))


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
    """Raised when the sampler requests more answers than the script holds. chances: probabilities of 0, 1, ..."""

    def __init__(self, chances: list[float]):
        super().__init__(chances)
        self.chances = chances


class ScriptedStream(ByteStream):
    """A stream that returns the answers of a script and raises Undecided at its end."""

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
    """Computes the distribution of a sampler by enumerating the answers of the stream; returns it and the lost mass.

    Paths of a probability below cutoff are abandoned and counted as lost mass. The true probability of a result is at
    least the returned one, and exceeds it by at most the lost mass.
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
        lambda stream: discrete_laplace_module.bernoulli_exp(stream, numerator, denominator), ScriptedStream, 1e-8
    )
    expected = math.exp(-numerator / denominator)
    assert lost < 1e-3
    assert law[True] - 1e-12 <= expected <= law[True] + lost + 1e-12
    assert law.get(False, 0.0) - 1e-12 <= 1 - expected <= law.get(False, 0.0) + lost + 1e-12


def laplace_probability(value: int, scale: float) -> float:
    return math.tanh(1 / (2 * scale)) * math.exp(-abs(value) / scale)


class Rejected(Exception):
    """Raised when the sampler rejects its draw and starts again."""


class OneTry(ScriptedStream):
    """A script for a sampler that begins each try with below(first) and uses that bound nowhere else."""

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

    monkeypatch.setattr(discrete_laplace_module, "bernoulli_exp", exact_bernoulli)
    law, lost = exact_law(one_try, lambda script: OneTry(script, scale.numerator), 1e-10)
    assert lost < 1e-7
    # Tries are independent, so the distribution of a draw is that of one try, given that it is accepted.
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
    # Cells -8..8 and the two tails; each has an expected count above 20.
    samples = [np.bincount(np.clip(draws, -9, 9) + 9, minlength=19).astype(float) for draws in (ours, theirs)]
    statistic = ((samples[0] - samples[1]) ** 2 / (samples[0] + samples[1])).sum()
    # OpenDP draws new noise in every run.
    assert statistic <= chi_square_bounds(18)[1]


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


def test_a_stream_needs_a_key_of_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        ByteStream(bytes(31), b"")
