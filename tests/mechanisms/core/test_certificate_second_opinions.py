"""Certificates against brute force over all sets of outputs, and against Google's privacy loss distributions."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, mechanism_named
from labeldp.mechanisms.core.budget import exp_below
from labeldp.mechanisms.core.certificate import certify, hockey_stick

BITS = 12
INTERVAL = 1e-4


@st.composite
def channels(draw: st.DrawFn, least: int) -> np.ndarray:
    """Weights of 2 to 4 labels and 2 to 6 outputs, each at least `least`; rows sum to 2^12."""
    labels, outputs = draw(st.integers(2, 4)), draw(st.integers(2, 6))
    rows = []
    for _ in range(labels):
        free = (1 << BITS) - least * outputs
        cuts = sorted(draw(st.lists(st.integers(0, free), min_size=outputs - 1, max_size=outputs - 1)))
        rows.append([least + part for part in np.diff([0, *cuts, free]).tolist()])
    return np.array(rows, np.uint64)


def sums_over_sets(weights: np.ndarray) -> np.ndarray:
    """Weight of every non-empty set of outputs for each label: shape (labels, sets)."""
    sets = [choice for choice in itertools.product([0, 1], repeat=weights.shape[1]) if any(choice)]
    return weights.astype(np.int64) @ np.array(sets).T


@settings(deadline=None)
@given(channels(least=1))
def test_pure_epsilon_is_that_of_the_worst_set(weights: np.ndarray) -> None:
    """P(S | y) <= ratio P(S | y') for all sets S and labels, with equality for one of them."""
    sums = sums_over_sets(weights).tolist()
    worst = max(Fraction(p, q) for row in sums for other in sums for p, q in zip(row, other, strict=True))
    labels, outputs = np.arange(len(weights)) * 1.0, np.arange(weights.shape[1]) * 1.0
    assert certify(labels, outputs, weights, BITS).ratio == worst


@settings(deadline=None)
@given(weights=channels(least=0), epsilon=st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.5]))
def test_delta_is_that_of_the_worst_set(weights: np.ndarray, epsilon: float, exp_bracket: Any) -> None:
    """delta is the largest P(S | y) - exp(epsilon) P(S | y') over all sets S and labels."""
    sums = sums_over_sets(weights).tolist()

    def worst(factor: Fraction) -> Fraction:
        return max(p - factor * q for row in sums for other in sums for p, q in zip(row, other, strict=True))

    found = hockey_stick(weights, epsilon, BITS)
    assert found == max(worst(exp_below(Fraction(epsilon))), Fraction(0)) / 2**BITS
    # exp_below is the code's own; the bracket of exp(epsilon) is not.
    low, high = exp_bracket(Fraction(epsilon))
    assert (
        max(worst(high), Fraction(0)) / 2**BITS <= found <= max(worst(low), Fraction(0)) / 2**BITS + Fraction(1, 2**50)
    )


def loss_distributions(weights: np.ndarray, bits: int, pessimistic: bool) -> list[Any]:
    """Google's privacy loss distribution of each unordered pair of labels; it has both directions."""
    masses = [
        {output: math.log(weight) - bits * math.log(2) for output, weight in enumerate(row) if weight}
        for row in weights.tolist()
    ]
    return [
        from_two_probability_mass_functions(
            one, two, pessimistic_estimate=pessimistic, value_discretization_interval=INTERVAL, symmetric=False
        )
        for one, two in itertools.combinations(masses, 2)
    ]


@settings(deadline=None, max_examples=25)
@given(channels(least=0), st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_delta_is_between_the_bounds_of_loss_distributions(weights: np.ndarray, epsilon: float) -> None:
    """Losses are rounded up or down to multiples of 1e-4, so each bound is off by less than 1e-4 exp(1e-4)."""
    found = float(hockey_stick(weights, epsilon, BITS))
    lower, upper = (
        max(pld.get_delta_for_epsilon(epsilon) for pld in loss_distributions(weights, BITS, pessimistic))
        for pessimistic in (False, True)
    )
    assert lower - 1e-12 <= found <= upper + 1e-12
    assert upper - lower <= 2.001 * INTERVAL


@settings(deadline=None, max_examples=25)
@given(channels(least=1))
def test_pure_epsilon_is_between_the_bounds_of_loss_distributions(weights: np.ndarray) -> None:
    labels, outputs = np.arange(len(weights)) * 1.0, np.arange(weights.shape[1]) * 1.0
    epsilon = certify(labels, outputs, weights, BITS).epsilon
    lower, upper = (
        max(pld.get_epsilon_for_delta(0.0) for pld in loss_distributions(weights, BITS, pessimistic))
        for pessimistic in (False, True)
    )
    assert lower - 1e-12 <= epsilon <= upper + 1e-12
    assert upper - lower <= 1.001 * INTERVAL


@pytest.mark.parametrize(
    ("name", "epsilon", "parameters"),
    [
        ("rr", 1.0, {}),
        ("rr_on_bins", 2.0, {}),
        ("unbiased", 1.0, {}),
        ("laplace", 0.5, {}),
        ("staircase", 1.0, {}),
        ("gaussian", 1.0, {"delta": 1e-3}),
        ("gaussian", 0.5, {"delta": 1e-2, "clip": False}),
    ],
)
def test_mechanisms_have_the_delta_that_loss_distributions_give(
    name: str, epsilon: float, parameters: dict[str, Any]
) -> None:
    """A loss distribution of weights of 2^62, at the certified epsilon."""
    randomizer = mechanism_named(name, **parameters).solve(Prior(np.arange(5.0), np.arange(1.0, 6.0)), epsilon)
    certificate = randomizer.certificate()
    lower, upper = (
        max(
            pld.get_delta_for_epsilon(certificate.epsilon)
            for pld in loss_distributions(randomizer.weights, 62, pessimistic)
        )
        for pessimistic in (False, True)
    )
    assert lower - 1e-12 <= certificate.delta <= upper + 1e-12
    assert upper - lower <= 2.001 * INTERVAL
