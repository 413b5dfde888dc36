"""Composed losses against brute force over all labels and outputs of two and three records, and against themselves."""

import itertools
import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, mechanism_named
from labeldp.mechanisms.composition.loss_distribution import (
    MAX_RECORDS,
    LossCurve,
    LossDistribution,
    _product,
    _shrink,
    loss_distribution,
    response_curve,
    worst_pair_curve,
)
from labeldp.mechanisms.core.certificate import hockey_stick

BITS = 10
UNIT = 10**30
PRIOR = Prior(np.arange(5.0), np.arange(1.0, 6.0))
EPSILONS = [0.0, 0.3, 1.0, 2.5]


@st.composite
def channels(draw: st.DrawFn) -> np.ndarray:
    """Positive weights of 2 or 3 labels and 2 or 3 outputs; rows sum to 2^10."""
    labels, outputs = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    free = (1 << BITS) - 8 * outputs
    cuts = st.lists(st.integers(0, free), min_size=outputs - 1, max_size=outputs - 1).map(sorted)
    return np.array([np.diff([0, *draw(cuts), free]) + 8 for _ in range(labels)]).astype(np.uint64)


def joint(rows: list[list[int]]) -> list[int]:
    """Weights of all tuples of outputs of independent draws."""
    return reduce(lambda one, two: [p * q for p in one for q in two], rows, [1])


def worst_of_all(weights: np.ndarray, records: int, factor: Fraction) -> Fraction:
    """The largest divergence over all pairs of tuples of labels, exactly. Other orders of a tuple have the same one."""
    pairs = list(itertools.product(weights.tolist(), repeat=2))
    top, bottom = factor.numerator, factor.denominator
    best = 0
    for choice in itertools.combinations_with_replacement(pairs, records):
        first, second = joint([one for one, _ in choice]), joint([two for _, two in choice])
        terms = (bottom * p - top * q for p, q in zip(first, second, strict=True))
        best = max(best, sum(term for term in terms if term > 0))
    return Fraction(best, bottom) / int(weights[0].sum()) ** records


@settings(deadline=None, max_examples=40)
@given(weights=channels(), records=st.sampled_from([2, 3]), epsilon=st.sampled_from(EPSILONS))
def test_no_labels_of_a_unit_exceed_the_bound(
    weights: np.ndarray, records: int, epsilon: float, exp_bracket: Any, composed_losses: Any
) -> None:
    low, _ = exp_bracket(Fraction(epsilon))
    exact = worst_of_all(weights, records, low)
    for steps in (1, 4, 32):
        assert exact <= composed_losses(weights, BITS, records, steps).delta(epsilon) + Fraction(1, 10**49)


@settings(deadline=None, max_examples=25)
@given(weights=channels(), records=st.sampled_from([2, 3]), epsilon=st.sampled_from(EPSILONS))
def test_the_bound_is_that_of_two_labels_on_a_fine_grid(
    weights: np.ndarray, records: int, epsilon: float, exp_bracket: Any, composed_losses: Any
) -> None:
    """Two labels have a single unordered pair, and with symmetric rows it dominates: the bound is then attained."""
    row = weights[0]
    pair = np.array([row, row[::-1]])
    exact = worst_of_all(pair, records, exp_bracket(Fraction(epsilon))[0])
    bound = composed_losses(pair, BITS, records, 512).delta(epsilon)
    assert exact <= bound + Fraction(1, 10**49)
    assert bound - exact <= Fraction(1, 10**4)


@pytest.mark.parametrize("records", [1, 2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.9, 4.0])
def test_randomized_response_attains_the_bound(
    records: int, epsilon: float, exp_bracket: Any, composed_losses: Any
) -> None:
    weights = np.array([[724, 300], [300, 724]], np.uint64)
    exact = worst_of_all(weights, records, exp_bracket(Fraction(epsilon))[0])
    for steps in (1, 3, 32):
        # The largest loss is rounded up to a float.
        assert abs(composed_losses(weights, BITS, records, steps).delta(epsilon) - exact) <= Fraction(1, 10**14)


def test_labels_of_different_pairs_are_worse_than_any_one_pair(composed_losses: Any) -> None:
    """Labels 0 and 1 differ most often, labels 2 and 3 by the largest ratio. A unit with one record of each is worse
    off than with two records of either: the loss distribution of a single worst pair would not be a bound."""
    weights = np.array([[700, 300, 12, 12], [300, 700, 12, 12], [500, 500, 20, 4], [500, 500, 4, 20]], np.uint64)
    factor = Fraction(6)
    mixed = worst_of_all(weights, 2, factor)
    assert mixed > max(worst_of_all(weights[:2], 2, factor), worst_of_all(weights[2:], 2, factor))
    # The dominating pair is that of no two labels, so the bound is not attained.
    assert mixed <= composed_losses(weights, BITS, 2).delta(math.log(6)) <= 2 * mixed


@settings(deadline=None, max_examples=50)
@given(weights=channels(), records=st.integers(1, 8), step=st.sampled_from([1, 8, 32]))
def test_masses_are_those_of_a_pair_of_distributions(
    weights: np.ndarray, records: int, step: int, composed_losses: Any
) -> None:
    """They sum to 1, and so do those of the other label, exp(-loss) times as large, up to what was rounded up."""
    losses = composed_losses(weights, BITS, records, step)
    assert min(losses.masses) >= 0
    assert 0 <= sum(losses.masses) - UNIT <= 10**6 * len(losses.masses) * records
    half = len(losses.masses) // 2
    other = math.fsum(
        mass / UNIT * math.exp(-float((place - half) * losses.step)) for place, mass in enumerate(losses.masses)
    )
    assert other == pytest.approx(1, abs=1e-9)
    assert losses.infinite == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, UNIT), min_size=1, max_size=9), st.lists(st.integers(0, UNIT), min_size=1, max_size=9))
def test_products_are_those_of_polynomials_rounded_up(first: list[int], second: list[int]) -> None:
    exact = [0] * (len(first) + len(second) - 1)
    for i, one in enumerate(first):
        for j, two in enumerate(second):
            exact[i + j] += one * two
    assert _product(first, second) == [-(-value // UNIT) for value in exact]


@pytest.mark.parametrize("step", [Fraction(1, 10**9), Fraction(1, 7), Fraction(3)])
def test_weights_of_masses_are_rounded_down(step: Fraction, exp_bracket: Any) -> None:
    low, high = exp_bracket(step)
    assert _shrink(step) <= 10**45 / high
    assert _shrink(step) >= 10**45 / low - 2


@settings(deadline=None, max_examples=50)
@given(weights=channels(), records=st.integers(1, 30), epsilon=st.sampled_from(EPSILONS))
def test_delta_falls_with_epsilon_and_grows_with_records(
    weights: np.ndarray, records: int, epsilon: float, composed_losses: Any
) -> None:
    fewer, more = (composed_losses(weights, BITS, count) for count in (records, records + 1))
    assert fewer.delta(epsilon) <= more.delta(epsilon) + Fraction(1, 10**25)
    assert fewer.delta(epsilon + 0.1) <= fewer.delta(epsilon)
    assert fewer.epsilon(1e-3) <= more.epsilon(1e-3) * (1 + 1e-15)
    assert fewer.epsilon(1e-3) <= fewer.epsilon(1e-6) <= fewer.epsilon(0.0)


@settings(deadline=None, max_examples=50)
@given(weights=channels(), records=st.integers(1, 30), delta=st.sampled_from([0.3, 1e-3, 1e-6, 1e-12]))
def test_epsilon_inverts_delta(weights: np.ndarray, records: int, delta: float, composed_losses: Any) -> None:
    losses = composed_losses(weights, BITS, records)
    epsilon = losses.epsilon(delta)
    assert losses.delta(epsilon) <= Fraction(delta) * (1 + Fraction(1, 10**12))
    if epsilon > 0:
        assert losses.delta(epsilon * (1 - 1e-9)) > Fraction(delta) * (1 - Fraction(1, 10**12))


@settings(deadline=None, max_examples=50)
@given(weights=channels(), records=st.integers(1, 30), epsilon=st.sampled_from(EPSILONS))
def test_finer_grids_are_tighter(weights: np.ndarray, records: int, epsilon: float, composed_losses: Any) -> None:
    bounds = [composed_losses(weights, BITS, records, steps).delta(epsilon) for steps in (1, 4, 16)]
    assert bounds[2] <= bounds[1] + Fraction(1, 10**25)
    assert bounds[1] <= bounds[0] + Fraction(1, 10**25)


@pytest.mark.parametrize("name", ["rr", "rr_on_bins", "unbiased", "laplace"])
def test_one_record_has_the_divergence_of_the_certificate(name: str) -> None:
    randomizer = mechanism_named(name).solve(PRIOR, 1.0)
    losses = loss_distribution(worst_pair_curve(randomizer.weights, 62, 64))
    for epsilon in (0.0, 0.25, 0.8, 1.0):
        exact = hockey_stick(randomizer.weights, epsilon, 62)
        assert exact <= losses.delta(epsilon) + Fraction(1, 10**40) <= exact + Fraction(1, 1000)
    assert losses.epsilon(0.0) == pytest.approx(randomizer.certificate().epsilon, rel=1e-15)


def test_an_infinite_loss_of_one_record_is_one_of_all() -> None:
    curve = LossCurve(Fraction(1), (Fraction(1, 2), Fraction(1, 4)))
    single = loss_distribution(curve)
    assert single.infinite == UNIT // 4
    losses = single.composed(3)
    assert losses.infinite == pytest.approx(UNIT * (1 - 0.75**3), rel=1e-15)
    assert losses.epsilon(0.5) == math.inf
    assert losses.epsilon(0.6) < 3.0
    assert losses.delta(3.0) == Fraction(losses.infinite, UNIT)


def test_a_mechanism_with_a_delta_composes_from_a_grid_that_is_long_enough() -> None:
    """Two draws of a discrete Gaussian, from epsilon 0.5 with delta 1e-3."""
    randomizer = mechanism_named("gaussian", delta=1e-3).solve(PRIOR, 0.5)
    losses = loss_distribution(worst_pair_curve(randomizer.weights, 62, 64, 2.0)).composed(2)
    assert losses.epsilon(2e-3) < 1.0
    assert losses.epsilon(2e-3) > 0.5


def test_repeated_composition_is_one_composition() -> None:
    single = loss_distribution(worst_pair_curve(np.array([[9, 4, 3], [3, 4, 9]], np.uint64), 4))
    twice, once = single.composed(3).composed(4), single.composed(12)
    assert twice.epsilon(1e-6) == pytest.approx(once.epsilon(1e-6), rel=1e-15)


def test_a_thousand_records() -> None:
    """Near the normal limit: the sum of the losses has mean n e tanh(e / 2) and variance n e^2 / cosh(e / 2)^2."""
    losses = loss_distribution(response_curve(0.02)).composed(MAX_RECORDS)
    epsilon = losses.epsilon(1e-6)
    mean, deviation = 1000 * 0.02 * math.tanh(0.01), math.sqrt(1000) * 0.02 / math.cosh(0.01)
    assert mean + 3 * deviation < epsilon < mean + 5 * deviation


def test_losses_that_do_not_depend_on_the_label_stay_zero(composed_losses: Any) -> None:
    losses = composed_losses(np.full((2, 2), 8, np.uint64), 4, 5)
    assert losses.delta(0.0) == 0
    assert losses.epsilon(1e-9) == 0


@pytest.mark.parametrize("records", [0, -1, 1001])
def test_wrong_numbers_of_records_are_refused(records: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000 records"):
        LossDistribution(Fraction(1), (UNIT,)).composed(records)
