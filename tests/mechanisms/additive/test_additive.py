"""Additive mechanisms: exact privacy on every lattice, convergence to the textbook losses as the lattice is refined,
the best staircase width and the least sigma."""

import json
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.audit_mechanism import audit_mechanism
from labeldp.mechanisms import ABSOLUTE, POISSON, SQUARED, Prior, Randomizer
from labeldp.mechanisms.additive.exponential import Exponential
from labeldp.mechanisms.additive.gaussian import Gaussian, gaussian_weights
from labeldp.mechanisms.additive.laplace import Laplace
from labeldp.mechanisms.additive.output_grid import make_output_grid
from labeldp.mechanisms.additive.staircase import Staircase
from labeldp.mechanisms.core.certificate import hockey_stick
from scipy.special import ndtr

TOTAL = 1 << 62
EPSILONS = [0.05, 0.5, 1.0, 4.0, 8.0]
GAUSSIAN = partial(Gaussian, 1e-6)
ADDITIVE: list[Any] = [Laplace, Staircase, GAUSSIAN]
MECHANISMS: list[Any] = [*ADDITIVE, Exponential]


def uniform(k: int) -> Prior:
    return Prior(np.arange(k, dtype=float), np.ones(k))


def ends() -> Prior:
    """Labels 0 and 1, for which a fine lattice stays small. All mass is on 0."""
    return Prior(np.array([0.0, 1.0]), np.array([1.0, 0.0]))


@st.composite
def priors(draw: st.DrawFn, most: int = 9) -> Prior:
    """Unevenly spaced labels, some with mass 0."""
    labels = draw(st.lists(st.integers(-1000, 1000), min_size=2, max_size=most, unique=True))
    weights = draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1)), min_size=len(labels), max_size=len(labels)))
    scale = draw(st.sampled_from([1.0, 0.1, 1e6]))
    return Prior(np.array(sorted(labels)) * scale, np.array(weights) + (0.0 if any(weights) else 1.0))


def check(randomizer: Randomizer, epsilon: float) -> None:
    """Asserts that the certificate and the audit confirm epsilon and that rows sum to 2^62."""
    assert randomizer.certificate().epsilon <= epsilon
    assert randomizer.certificate().delta <= randomizer.delta
    assert {sum(row) for row in randomizer.weights.tolist()} == {TOTAL}
    audit = audit_mechanism(json.loads(randomizer.to_json()))
    assert audit.problems == ()
    assert audit.delta == randomizer.certificate().delta


# Privacy.


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 7, 53, 401])
@pytest.mark.parametrize("family", MECHANISMS)
def test_certificate_and_audit_hold_on_the_labels(family, k, epsilon):
    randomizer = family().solve(uniform(k), epsilon)
    assert np.array_equal(randomizer.outputs, randomizer.labels)
    check(randomizer, epsilon)


# With 401 labels each audit takes seconds, so only one epsilon is tested.
@pytest.mark.parametrize(
    ("k", "epsilon"),
    [(k, epsilon) for k in (2, 7) for epsilon in EPSILONS] + [(53, 1.0), (53, 4.0), (53, 8.0), (401, 8.0)],
)
@pytest.mark.parametrize("family", ADDITIVE)
def test_certificate_and_audit_hold_unclipped(family, k, epsilon):
    randomizer = family(clip=False).solve(uniform(k), epsilon)
    assert randomizer.outputs[0] < 0
    assert randomizer.outputs[-1] > k - 1
    check(randomizer, epsilon)


@pytest.mark.parametrize("k", [53, 401])
@pytest.mark.parametrize("family", ADDITIVE)
def test_the_largest_unclipped_lattices_are_certified(family, k):
    certificate = family(clip=False).solve(uniform(k), 0.05).certificate()
    assert certificate.epsilon <= 0.05
    assert certificate.delta <= 1e-6


@settings(deadline=None, max_examples=40)
@given(
    family=st.sampled_from(MECHANISMS),
    prior=priors(),
    epsilon=st.floats(0.3, 20),
    clip=st.booleans(),
    pieces=st.one_of(st.none(), st.floats(0.5, 60)),
)
def test_any_domain_and_step_is_private_and_travels(family, prior, epsilon, clip, pieces):
    span = float(prior.labels[-1] - prior.labels[0])
    parameters: dict[str, Any] = {"step": None if pieces is None else span / pieces}
    if family is not Exponential:
        parameters["clip"] = clip
    randomizer = family(**parameters).solve(prior, epsilon)
    check(randomizer, epsilon)
    assert Randomizer.from_json(randomizer.to_json()) == randomizer
    assert np.isfinite(randomizer.expected_loss(prior, SQUARED))
    if family is not Exponential and not clip:
        assert np.max(np.abs(randomizer.bias())) <= 1e-8 * span
    else:
        assert randomizer.outputs[0] >= prior.labels[0]
        assert randomizer.outputs[-1] <= prior.labels[-1]


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 30.0])
@pytest.mark.parametrize("family", MECHANISMS)
def test_extreme_epsilons_hold(family, epsilon):
    check(family().solve(uniform(7), epsilon), epsilon)


@pytest.mark.parametrize("family", [Laplace, Staircase])
def test_noise_spends_the_whole_epsilon_and_the_exponential_half_of_it(family):
    assert family().solve(uniform(53), 1.0).certificate().epsilon == pytest.approx(1.0, abs=2e-11)
    assert Exponential().solve(uniform(53), 1.0).certificate().epsilon == pytest.approx(0.5, abs=1e-6)


# Lattice.


def test_a_label_between_points_moves_to_its_neighbours_with_its_mean_kept():
    grid = make_output_grid(np.array([0.0, 1.0, 10.0]), 2.5, 0.0)
    assert grid.points.tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert (grid.lower.tolist(), grid.share.tolist()) == ([0, 0, 4], [0.0, 0.4, 0.0])
    # Without noise, only the rounding to the lattice remains.
    rows = grid.rows(np.eye(1, 5)[0], 0.0)
    np.testing.assert_allclose(rows @ grid.points, [0.0, 1.0, 10.0])


def test_the_range_is_cut_into_equal_steps_no_larger_than_asked():
    grid = make_output_grid(np.array([0.0, 10.0]), 3.0, 0.0)
    np.testing.assert_allclose(np.diff(grid.points), 2.5)


def test_outputs_are_the_labels_themselves_in_spite_of_float_spacing():
    labels = np.arange(11) * 0.1
    assert make_output_grid(labels, None, 0.0).points.tolist() == labels.tolist()
    assert set(labels) <= set(make_output_grid(labels, 0.05, 2.0).points)


def test_uneven_labels_get_a_bounded_lattice():
    assert make_output_grid(np.array([0.0, 1e-9, 1.0]), None, 0.0).steps == 1023
    assert make_output_grid(np.array([0.0, 1.0, 3.0]), None, 0.0).points.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("family", ADDITIVE)
def test_too_many_outputs_are_refused_with_advice(family):
    with pytest.raises(ValueError, match=r"more than 67108864: use a larger step$"):
        family(step=1e-9).solve(uniform(2), 1.0)
    with pytest.raises(ValueError, match=r"use a larger epsilon, or clip the outputs to the label range \(clip\)"):
        family(clip=False).solve(uniform(53), 1e-9)


@pytest.mark.parametrize("step", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_step_is_refused(step):
    with pytest.raises(ValueError, match="step must be a positive number"):
        Laplace(step=step).solve(uniform(2), 1.0)


# Laplace: textbook losses.


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_laplace_tends_to_the_continuous_one(epsilon):
    errors = []
    for step in (1 / 50, 1 / 500):
        randomizer = Laplace(step=step, clip=False).solve(ends(), epsilon)
        squared, absolute = (randomizer.expected_loss(ends(), loss) for loss in (SQUARED, ABSOLUTE))
        errors.append((abs(squared * epsilon**2 / 2 - 1), abs(absolute * epsilon - 1)))
    for coarse, fine in zip(*errors, strict=True):
        assert fine < 1e-4
        assert fine < coarse / 50  # the error is proportional to the square of the step


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_clipped_laplace_tends_to_the_continuous_one(epsilon):
    labels = np.array([0.0, 0.2, 1.0])
    randomizer = Laplace(step=1 / 5000).solve(Prior(labels, np.ones(3)), epsilon)
    scale = 1 / epsilon
    for i, label in enumerate(labels):
        prior = Prior(labels, np.eye(3)[i])
        depths = np.array([label, 1 - label]) / scale  # noise stops at the ends of the range
        squared = scale**2 * (1 - np.exp(-depths) * (1 + depths)).sum()
        absolute = scale / 2 * (1 - np.exp(-depths)).sum()
        assert randomizer.expected_loss(prior, SQUARED) == pytest.approx(squared, rel=1e-3)
        assert randomizer.expected_loss(prior, ABSOLUTE) == pytest.approx(absolute, rel=1e-3)


# Staircase: Geng and Viswanath 2014.


def staircase_moment(gamma: float, epsilon: float, power: int) -> float:
    """E|X|^power of the continuous staircase distribution of sensitivity 1, summed over its steps."""
    fall = math.exp(-epsilon)
    height = (1 - fall) / (2 * (gamma + fall * (1 - gamma)))
    stairs = np.arange(int(60 / epsilon) + 2)

    def integral(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return (high ** (power + 1) - low ** (power + 1)) / (power + 1)

    higher = integral(stairs, stairs + gamma) + fall * integral(stairs + gamma, stairs + 1.0)
    return float(2 * height * (fall**stairs) @ higher)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
@pytest.mark.parametrize(("loss", "power"), [(ABSOLUTE, 1), (SQUARED, 2)])
def test_staircase_of_any_gamma_tends_to_the_continuous_one(loss, power, epsilon):
    for gamma in (0.1, 0.5, 0.9):
        randomizer = Staircase(gamma=gamma, step=1 / 1000, clip=False).solve(ends(), epsilon)
        assert randomizer.parameters["gamma"] == pytest.approx(gamma, abs=1e-3)
        expected = staircase_moment(randomizer.parameters["gamma"], epsilon, power)
        assert randomizer.expected_loss(ends(), loss) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_the_best_gamma_is_the_closed_form(epsilon):
    # Geng, Viswanath 2014: the optimum for the absolute value, and for the variance.
    randomizer = Staircase(loss=ABSOLUTE, step=1 / 2000, clip=False).solve(ends(), epsilon)
    assert randomizer.parameters["gamma"] == pytest.approx(1 / (1 + math.exp(epsilon / 2)), abs=1e-3)
    assert randomizer.expected_loss(ends(), ABSOLUTE) == pytest.approx(
        math.exp(epsilon / 2) / math.expm1(epsilon), rel=1e-3
    )
    b = math.exp(-epsilon)
    randomizer = Staircase(loss=SQUARED, step=1 / 2000, clip=False).solve(ends(), epsilon)
    root = ((b - 2 * b**2 + 2 * b**4 - b**5) / 2) ** (1 / 3)
    assert randomizer.parameters["gamma"] == pytest.approx(-b / (1 - b) + root / (1 - b) ** 2, abs=1e-3)
    variance = (2 ** (-2 / 3) * b ** (2 / 3) * (1 + b) ** (2 / 3) + b) / (1 - b) ** 2
    assert randomizer.expected_loss(ends(), SQUARED) == pytest.approx(variance, rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    prior=priors(6),
    epsilon=st.floats(0.5, 8),
    loss=st.sampled_from([SQUARED, ABSOLUTE]),
    clip=st.booleans(),
    steps=st.integers(1, 12),
)
def test_no_other_stair_has_a_smaller_loss(prior, epsilon, loss, clip, steps):
    step = float(prior.labels[-1] - prior.labels[0]) / steps
    best = Staircase(loss=loss, step=step, clip=clip).solve(prior, epsilon)
    others = [
        Staircase(loss=loss, gamma=(r - 0.5) / steps, step=step, clip=clip).solve(prior, epsilon)
        for r in range(1, steps + 1)
    ]
    assert [other.parameters["r"] for other in others] == list(range(1, steps + 1))
    losses = [other.expected_loss(prior, loss) for other in others]
    assert best.expected_loss(prior, loss) <= min(losses) * (1 + 1e-9)


def test_a_loss_that_is_always_infinite_leaves_the_choice_to_the_squared_one():
    prior = uniform(7)  # labels > 0 can get the output 0, whose Poisson loss is infinite
    assert Staircase(loss=POISSON).solve(prior, 1.0) == Staircase(loss=SQUARED).solve(prior, 1.0)


def test_poisson_loss_without_zero_chooses_for_itself():
    prior = Prior(np.arange(1.0, 8), np.ones(7))
    losses = [Staircase(gamma=(r - 0.5) / 6).solve(prior, 2.0).expected_loss(prior, POISSON) for r in range(1, 7)]
    assert Staircase(loss=POISSON).solve(prior, 2.0).parameters["r"] == np.argmin(losses) + 1


def test_bad_staircases_are_refused():
    with pytest.raises(ValueError, match="gamma must be between 0 and 1"):
        Staircase(gamma=1.5).solve(uniform(3), 1.0)
    with pytest.raises(ValueError, match="poisson loss needs outputs >= 0"):
        Staircase(loss=POISSON, clip=False).solve(uniform(3), 1.0)
    with pytest.raises(ValueError, match="poisson loss needs labels >= 0"):
        Staircase(loss=POISSON).solve(Prior(np.array([-1.0, 1.0]), np.ones(2)), 1.0)


# Exponential.


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_exponential_has_the_probabilities_of_its_formula(epsilon):
    labels = np.array([0.0, 1.0, 1.5, 7.0])
    randomizer = Exponential(step=0.5).solve(Prior(labels, np.ones(4)), epsilon)
    expected = np.exp(-epsilon * np.abs(np.arange(15) / 2 - labels[:, None]) / 14)
    np.testing.assert_allclose(randomizer.probabilities(), expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_exponential_tends_to_the_continuous_one(epsilon):
    labels = np.array([0.0, 0.3, 1.0])
    randomizer = Exponential(step=1 / 5000).solve(Prior(labels, np.ones(3)), epsilon)
    scale = 2 / epsilon
    for i, label in enumerate(labels):
        depths = np.array([label, 1 - label]) / scale
        mass = -np.expm1(-depths).sum()
        absolute = scale * (1 - np.exp(-depths) * (1 + depths)).sum() / mass
        squared = scale**2 * (2 - np.exp(-depths) * (2 + 2 * depths + depths**2)).sum() / mass
        prior = Prior(labels, np.eye(3)[i])
        assert randomizer.expected_loss(prior, ABSOLUTE) == pytest.approx(absolute, rel=2e-3)
        assert randomizer.expected_loss(prior, SQUARED) == pytest.approx(squared, rel=2e-3)


# Gaussian.


def brute_force_delta(weights: np.ndarray, ratio: Fraction) -> Fraction:
    rows, top, bottom = weights.tolist(), ratio.numerator, ratio.denominator
    sums = (
        sum(max(0, bottom * p - top * q) for p, q in zip(first, second, strict=True))
        for first in rows
        for second in rows
    )
    return Fraction(max(sums), bottom * TOTAL)


@settings(deadline=None, max_examples=30)
@given(prior=priors(6), epsilon=st.floats(0.3, 8), delta=st.floats(1e-9, 0.4), clip=st.booleans())
def test_delta_is_what_every_pair_of_labels_gives(prior, epsilon, delta, clip, exp_bracket):
    step = float(prior.labels[-1] - prior.labels[0]) / 5
    randomizer = Gaussian(delta=delta, step=step, clip=clip).solve(prior, epsilon)
    low, high = exp_bracket(Fraction(epsilon))
    true_low, true_high = brute_force_delta(randomizer.weights, high), brute_force_delta(randomizer.weights, low)
    certified = Fraction(randomizer.certificate().delta)
    assert true_low <= certified <= true_high * (1 + Fraction(1, 10**15)) + Fraction(1, 10**40)
    assert certified <= Fraction(delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_a_slightly_smaller_sigma_violates_delta(epsilon, clip, delta):
    prior = uniform(4)
    randomizer = Gaussian(delta=delta, clip=clip).solve(prior, epsilon)
    beyond = (len(randomizer.outputs) - 4) // 2
    grid = make_output_grid(prior.labels, 1.0, beyond / 3)
    sigma = randomizer.parameters["sigma"]
    assert hockey_stick(gaussian_weights(grid, sigma), epsilon, 62) <= Fraction(delta)
    assert hockey_stick(gaussian_weights(grid, sigma * (1 - 1e-6)), epsilon, 62) > Fraction(delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_sigma_tends_to_the_analytic_gaussians(epsilon, delta):
    randomizer = Gaussian(delta=delta, step=1 / 500, clip=False).solve(ends(), epsilon)
    sigma = randomizer.parameters["sigma"]
    # Balle, Wang 2018, Theorem 8.
    analytic = ndtr(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * ndtr(-0.5 / sigma - epsilon * sigma)
    assert analytic == pytest.approx(delta, rel=2e-3)
    assert randomizer.expected_loss(ends(), SQUARED) == pytest.approx(sigma**2, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-13, 0.6, math.nan])
def test_a_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be between"):
        Gaussian(delta=delta)


def test_pure_privacy_is_not_given_up_unawares():
    with pytest.raises(ValueError, match="gaussian is not pure label DP: it needs a `delta`"):
        Gaussian()
