"""Worst-pair curves against brute force over pairs of labels and against the certificate's divergence."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, mechanism_named
from labeldp.mechanisms.composition.loss_distribution import LossCurve, response_curve, worst_pair_curve
from labeldp.mechanisms.core.budget import exp_below, log_above
from labeldp.mechanisms.core.certificate import hockey_stick, likelihood_ratio
from labeldp.mechanisms.core.randomizer import Randomizer

BITS = 12
PRIOR = Prior(np.arange(7.0), np.arange(1.0, 8.0))
MECHANISMS = ["rr", "rr_on_bins", "unbiased", "laplace", "exponential", "staircase"]


@st.composite
def channels(draw: st.DrawFn, least: int) -> np.ndarray:
    """Weights of 2 to 4 labels and 2 to 5 outputs, each at least `least`; rows sum to 2^12."""
    labels, outputs = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    free = (1 << BITS) - least * outputs
    cuts = st.lists(st.integers(0, free), min_size=outputs - 1, max_size=outputs - 1).map(sorted)
    return np.array([np.diff([0, *draw(cuts), free]) + least for _ in range(labels)]).astype(np.uint64)


def worst(weights: np.ndarray, factor: Fraction) -> Fraction:
    """The largest divergence over ordered pairs of rows."""
    return max(
        sum((max(p - factor * q, Fraction(0)) for p, q in zip(one, other, strict=True)), Fraction(0))
        for one, other in itertools.permutations(weights.tolist(), 2)
    ) / int(weights[0].sum())


def check_curve(weights: np.ndarray, curve: LossCurve, exp_bracket: Callable[[Fraction], Any]) -> None:
    for j, delta in enumerate(curve.deltas):
        low, high = exp_bracket(j * curve.step)
        assert worst(weights, high) <= delta <= worst(weights, low) + Fraction(1, 10**49)


@settings(deadline=None, max_examples=50)
@given(weights=channels(least=1), steps=st.sampled_from([1, 2, 7, 32]))
def test_pure_curves_are_those_of_brute_force(weights: np.ndarray, steps: int, exp_bracket: Any) -> None:
    curve = worst_pair_curve(weights, BITS, steps)
    check_curve(weights, curve, exp_bracket)
    assert curve.deltas[-1] == 0
    ratio = likelihood_ratio(weights)
    assert ratio is not None
    if ratio > 1:
        assert len(curve.deltas) == steps + 1
        assert curve.step * steps == Fraction(log_above(ratio))


@settings(deadline=None, max_examples=50)
@given(weights=channels(least=0), largest=st.sampled_from([0.25, 1.0, 5.0]), steps=st.sampled_from([1, 6]))
def test_curves_with_an_infinite_loss_are_those_of_brute_force(
    weights: np.ndarray, largest: float, steps: int, exp_bracket: Any
) -> None:
    check_curve(weights, worst_pair_curve(weights, BITS, steps, largest), exp_bracket)


@settings(deadline=None, max_examples=50)
@given(weights=channels(least=1))
def test_randomized_response_has_the_largest_curve(weights: np.ndarray) -> None:
    curve = worst_pair_curve(weights, BITS, 1)
    ratio = likelihood_ratio(weights)
    assert ratio is not None
    assert curve.deltas[0] <= response_curve(log_above(ratio)).deltas[0]


def randomizer_of(name: str, epsilon: float) -> Randomizer:
    return mechanism_named(name).solve(PRIOR, epsilon)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.5, 3.0])
def test_mechanisms_have_the_divergences_of_the_certificate(name: str, epsilon: float) -> None:
    """The certificate takes floats, so it is asked a little below and a little above each loss."""
    weights = randomizer_of(name, epsilon).weights
    curve = worst_pair_curve(weights, 62, 8)
    for j, delta in enumerate(curve.deltas[1:], start=1):
        loss = float(j * curve.step)
        assert hockey_stick(weights, math.nextafter(loss, 99), 62) <= delta
        assert delta <= hockey_stick(weights, math.nextafter(loss, 0), 62)
    assert curve.deltas[0] == hockey_stick(weights, 0.0, 62)


@st.composite
def nearly_tied(draw: st.DrawFn) -> np.ndarray:
    """Rows of 2^62 that are permutations of each other, up to a few units: floats cannot tell the pairs apart."""
    largest = draw(st.integers(1 << 60, 1 << 61))
    base = [largest, largest // 3 + 7, largest // 5 + 11]
    rows = []
    for _ in range(4):
        row = [weight + draw(st.integers(-300, 300)) for weight in draw(st.permutations(base))]
        rows.append([*row, (1 << 62) - sum(row)])
    return np.array(rows, np.uint64)


@settings(deadline=None, max_examples=50)
@given(weights=st.one_of(channels(least=0), nearly_tied()), steps=st.sampled_from([1, 2, 5]))
def test_values_are_exact_for_the_lower_bounds_of_exp(weights: np.ndarray, steps: int) -> None:
    bits = int(weights[0].sum()).bit_length() - 1
    curve = worst_pair_curve(weights, bits, steps, 1.5)
    for j, delta in enumerate(curve.deltas):
        factor = Fraction(int(exp_below(j * curve.step) * 2**200), 2**200)
        assert delta == (worst(weights, factor) if j < steps or delta else 0)


def test_a_ratio_that_equals_a_point_of_the_grid_up_to_one_unit_is_decided_by_integers() -> None:
    """Weights p and q with p / q just below and just above exp(1/2), closer than floats tell, beside a ratio of 2."""
    factor = Fraction(int(exp_below(Fraction(1, 2)) * 2**200), 2**200)
    q = 10**18
    for p in (int(factor * q), int(factor * q) + 1):
        rows = [[p, 2 * 10**17], [q, 10**17]]
        weights = np.array([[*row, (1 << 62) - sum(row)] for row in rows], np.uint64)
        curve = worst_pair_curve(weights, 62, 2, 1.0)
        assert curve.deltas[1] == (max(p - factor * q, Fraction(0)) + (2 - factor) * 10**17) / (1 << 62)


def test_neither_the_order_of_labels_nor_that_of_outputs_matters() -> None:
    weights = randomizer_of("unbiased", 1.0).weights
    curve = worst_pair_curve(weights, 62)
    assert worst_pair_curve(weights[::-1], 62) == curve
    assert worst_pair_curve(np.ascontiguousarray(weights[:, ::-1]), 62) == curve
    assert worst_pair_curve(np.repeat(weights, 3, axis=0), 62) == curve


def test_ratios_at_points_of_the_grid_are_decided_by_integers() -> None:
    """Randomized response with the ratio of a power of two: its losses are points of many grids."""
    weights = np.array([[8, 2, 2, 4], [2, 8, 4, 2], [4, 4, 4, 4]], np.uint64)
    curve = worst_pair_curve(weights, 4, 2)
    # At the largest loss, ln 4, and at ln 2, both rounded up by a hair.
    assert curve.deltas[2] == 0
    assert curve.deltas[1] == pytest.approx((8 - 2 * 2 + 0) / 16, rel=1e-12)
    assert curve.deltas[0] == Fraction(8, 16)


def test_a_randomizer_that_ignores_the_label_has_no_divergence() -> None:
    assert set(worst_pair_curve(np.full((3, 4), 4, np.uint64), 4).deltas) == {Fraction(0)}
    assert response_curve(0.0).deltas == (0,)


def test_one_pair_of_labels_does_not_dominate_the_others() -> None:
    """Labels 0 and 1 differ most at loss 0, labels 2 and 3 have the largest ratio; the curve follows both."""
    weights = np.array([[700, 300, 12, 12], [300, 700, 12, 12], [500, 500, 20, 4], [500, 500, 4, 20]], np.uint64)
    curve = worst_pair_curve(weights, 10, 16)
    first, second = worst_pair_curve(weights[:2], 10), worst_pair_curve(weights[2:], 10)
    assert curve.deltas[0] == first.deltas[0] > second.deltas[0]
    assert curve.step * 16 == second.step * 32 > first.step * 32
    assert curve.deltas[15] > 0


def test_wrong_arguments_are_refused() -> None:
    mixed = np.array([[1, 3], [4, 0]], np.uint64)
    with pytest.raises(ValueError, match="needs the largest loss"):
        worst_pair_curve(mixed, 2)
    with pytest.raises(ValueError, match="do not sum"):
        worst_pair_curve(mixed, 3)
    for steps, largest in ((0, None), (4, 0.0), (4, -1.0)):
        with pytest.raises(ValueError, match="must be positive"):
            worst_pair_curve(mixed, 2, steps, largest)
    with pytest.raises(ValueError, match="62 bits"):
        worst_pair_curve(np.full((2, 2), 1 << 62, np.uint64), 63)
