"""Tail bounds, compared with exact probabilities by convolution."""

import math

import numpy as np
import pytest
from labeldp.pipelines.audit.records.noise_tails import NoiseTails, divergence

FAILURE = 1e-4


def probabilities(scale, most):
    values = np.arange(-most, most + 1)
    p = math.exp(-1 / scale)
    return values, (1 - p) / (1 + p) * p ** np.abs(values)


def sum_above(scale, kinds, bound):
    """P(sum > bound), exactly: one discrete Laplace draw for each floor; None: no floor, else max(z, -floor)."""
    most = math.ceil(40 * scale)
    values, chances = probabilities(scale, most)
    total, shift = np.ones(1), 0
    for floor in kinds:
        clipped = chances.copy()
        if floor is not None:
            low = values < -floor
            clipped[most - floor] += clipped[low].sum()
            clipped[low] = 0
        total, shift = np.convolve(total, clipped), shift - most
    return total[np.arange(len(total)) + shift > bound].sum()


@pytest.mark.parametrize("scale", [0.1, 0.7, 3.0, 12.5])
@pytest.mark.parametrize(
    "kinds", [[None], [None] * 12, [0], [0] * 12, [4] * 12, [None] * 5 + [0] * 7, [4] * 3 + [0] * 3], ids=str
)
def test_sums_stay_below_their_bound(scale, kinds):
    tails = NoiseTails(scale, FAILURE)
    floor = next((kind for kind in kinds if kind), None)
    bound = tails.above(len(kinds), kinds.count(0), floor)
    assert sum_above(scale, kinds, bound) <= FAILURE
    # Chernoff's bound loses a factor of the square root of the exponent or so, and the noise is whole numbers.
    if scale > 1:
        assert sum_above(scale, kinds, 0.6 * bound) > FAILURE


def test_no_draw_has_no_sum():
    assert NoiseTails(3.0, FAILURE).above(0) == 0


@pytest.mark.parametrize("scale", [0.1, 0.7, 3.0, 12.5])
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_the_largest_of_several(scale, count):
    values, chances = probabilities(scale, math.ceil(60 * scale) + 60)
    limit = NoiseTails(scale, FAILURE).single(count)
    assert count * chances[np.abs(values) >= limit].sum() <= FAILURE


@pytest.mark.parametrize("scale", [0.7, 3.0, 12.5])
@pytest.mark.parametrize("count", [1, 2, 50, 5000])
def test_how_many_are_large(scale, count):
    tails = NoiseTails(scale, FAILURE)
    values, chances = probabilities(scale, math.ceil(60 * scale))
    chance, most = chances[values >= tails.large].sum(), tails.exceeding(count)
    # P(more than `most`) of a binomial distribution, from its largest term on.
    terms = [
        math.exp(
            math.lgamma(count + 1) - math.lgamma(j + 1) - math.lgamma(count - j + 1)
            + j * math.log(chance) + (count - j) * math.log1p(-chance)
        )
        for j in range(most + 1, min(count, most + 200) + 1)
    ]  # fmt: skip
    assert math.fsum(terms) <= FAILURE
    assert most <= max(5, 3 * count * chance)


def test_a_divergence_is_that_of_two_coins():
    assert divergence(0.5, 0.25) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert divergence(0.3, 0.3) == 0
    assert divergence(0.0, 0.5) == divergence(1.0, 0.5) == pytest.approx(math.log(2))
    assert divergence(0.1, 0.0) == divergence(0.9, 1.0) == math.inf
