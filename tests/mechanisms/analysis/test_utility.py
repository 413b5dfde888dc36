"""Utility of randomized labels, compared with sums over the joint distribution and with regressions.

The share of a function of the label that features explain is compared with the joint distribution of normal scores.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Randomizer
from labeldp.mechanisms.analysis.model_error import model_error
from labeldp.mechanisms.analysis.utility import ExplainedShare, Utility, clipped_utility, utility
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import solve
from scipy.stats import norm

SHARES = st.lists(st.integers(1, 100), min_size=2, max_size=8)
EPSILONS = st.floats(0.2, 6)
NAMES = st.sampled_from(["rr", "rr_on_bins", "debiased_rr", "laplace", "exponential"])
WEIGHTS = st.lists(st.integers(1, 50), min_size=2, max_size=30)


def prior_of(shares: list[int]) -> Prior:
    # Unevenly spaced, one of them negative.
    labels = np.cumsum(np.arange(1, len(shares) + 1)) - 2.0
    return Prior(labels, np.array(shares, np.float64))


def joint(name: str, prior: Prior, epsilon: float) -> tuple[Utility, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the utility, and all pairs of label and output with their probabilities."""
    randomizer = solve(name, prior, epsilon)
    labels, outputs = np.broadcast_arrays(prior.labels[:, None], randomizer.outputs[None, :])
    chances = prior.weights[:, None] * randomizer.probabilities()
    return utility(randomizer, prior), labels.ravel(), outputs.ravel(), chances.ravel()


@settings(deadline=None, max_examples=40)
@given(NAMES, SHARES, EPSILONS)
def test_moments_are_those_of_the_joint_distribution(name: str, shares: list[int], epsilon: float) -> None:
    prior = prior_of(shares)
    found, labels, outputs, chances = joint(name, prior, epsilon)

    for place, label in enumerate(prior.labels):
        of_label = labels == label
        weights = chances[of_label] / chances[of_label].sum()
        mean = weights @ outputs[of_label]
        assert found.bias[place] == pytest.approx(mean - label, abs=1e-9 * np.ptp(outputs) + 1e-12)
        assert found.deviation[place] ** 2 == pytest.approx(
            weights @ (outputs[of_label] - mean) ** 2, rel=1e-6, abs=1e-9
        )
        error = weights @ (outputs[of_label] - label) ** 2
        assert found.error[place] ** 2 == pytest.approx(error, rel=1e-6, abs=1e-9)
    assert found.squared_error == pytest.approx(chances @ (outputs - labels) ** 2, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(NAMES, SHARES, EPSILONS)
def test_the_line_is_the_least_squares_fit(name: str, shares: list[int], epsilon: float) -> None:
    found, labels, outputs, chances = joint(name, prior_of(shares), epsilon)

    slope, intercept = np.polyfit(labels, outputs, 1, w=np.sqrt(chances))
    scale = np.ptp(outputs)
    assert found.slope == pytest.approx(slope, rel=1e-5, abs=1e-7 * scale)
    assert found.intercept == pytest.approx(intercept, rel=1e-5, abs=1e-5 * scale)


@settings(deadline=None, max_examples=40)
@given(NAMES, SHARES, EPSILONS, st.floats(0.5, 1e6))
def test_the_error_of_plain_labels_is_that_of_plan(
    name: str, shares: list[int], epsilon: float, records_per_parameter: float
) -> None:
    """Of debiased labels, it is that of a randomizer with debiased outputs."""
    prior, features = prior_of(shares), 99
    records = 100 * int(records_per_parameter + 2)
    randomizer = solve(name, prior, epsilon)
    found = utility(randomizer, prior)

    plain = model_error(randomizer, prior, records, features)
    error = found.training_error(records / 100)
    assert error.bias == pytest.approx(plain.bias, rel=1e-9, abs=1e-9)
    assert error.variance == pytest.approx(plain.variance, rel=1e-9)
    if found.line is not None:
        intercept, slope = found.line
        outputs = (randomizer.outputs - intercept) / slope
        line = Randomizer(randomizer.labels, outputs, randomizer.weights, epsilon, name)
        corrected = model_error(line, prior, records, features)
        error = found.training_error(records / 100, debiased=True)
        assert error.bias == pytest.approx(corrected.bias, rel=1e-6, abs=1e-7 / slope**2)
        assert error.variance == pytest.approx(corrected.variance, rel=1e-6)
        best, debiased = found.best_use(records / 100)
        assert best.total == pytest.approx(min(plain.total, corrected.total), rel=1e-6, abs=1e-7 / slope**2)
        assert debiased == (error.total < found.training_error(records / 100).total)


@settings(deadline=None, max_examples=40)
@given(NAMES, SHARES, EPSILONS, st.floats(0.01, 2))
def test_the_records_per_parameter_give_the_error(name: str, shares: list[int], epsilon: float, share: float) -> None:
    found = utility(solve(name, prior_of(shares), epsilon), prior_of(shares))
    needed = found.records_per_parameter(share * found.variance)

    if np.isinf(needed):
        assert found.best_use(1e12)[0].total >= share * found.variance
    else:
        assert found.best_use(needed)[0].total == pytest.approx(share * found.variance, rel=1e-6)


def test_an_unbiased_randomizer_needs_no_line() -> None:
    prior = prior_of([3, 1, 4, 1, 5])
    found = utility(solve("unbiased", prior, 1.0), prior)

    assert found.unbiased
    assert found.line is None
    assert found.slope == pytest.approx(1, abs=1e-9)
    assert found.intercept == pytest.approx(0, abs=1e-8)
    assert np.abs(found.remaining_bias).max() < 1e-8
    # Without bias, the worth is Var(y) / Var(M), however many records there are.
    assert found.worth(1) == pytest.approx(found.variance / (found.variance + found.noise), rel=1e-9)
    assert found.worth(1e6) == pytest.approx(found.worth(1), rel=1e-6)


def test_randomized_response_is_debiased_by_its_line_entirely() -> None:
    """E[M(y)] = c + y (E - 1) / (E + k - 1) is exactly affine in y, so the worth is the squared correlation."""
    prior, epsilon = prior_of([3, 1, 4, 1, 5]), 1.5
    found, labels, outputs, chances = joint("rr", prior, epsilon)

    assert not found.unbiased
    assert found.slope == pytest.approx(np.expm1(epsilon) / (np.exp(epsilon) + 4), rel=1e-9)
    assert np.abs(found.remaining_bias).max() < 1e-9
    covariance = np.cov(labels, outputs, aweights=chances, ddof=0)
    correlation = covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1])
    assert found.worth(1e6) == pytest.approx(correlation, rel=1e-5)


def test_bias_that_remains_is_not_averaged_away() -> None:
    prior = Prior(np.arange(53.0), np.exp(-np.arange(53.0) / 8))
    found = utility(solve("rr_on_bins", prior, 1.0), prior)
    left = found.weights @ found.remaining_bias**2

    # True labels of the same error are as many for a million records as for any more.
    equivalent = [records * found.worth(records) for records in (1e6, 1e9)]
    assert equivalent == pytest.approx([found.variance / left] * 2, rel=1e-2)


def test_worth_is_the_ratio_of_the_variances_of_regressions() -> None:
    """Regresses labels x + e, with x from 0 to 3 and e 0 or 1, on x: once the true labels, once the released ones."""
    labels, shares = np.arange(5.0), np.convolve(np.full(4, 1 / 4), np.full(2, 1 / 2))
    prior = Prior(labels, shares)
    randomizer = solve("debiased_rr", prior, 2.0)
    found = utility(randomizer, prior)
    explained = 1.25 / (1.25 + 0.25)  # variances of x and of e
    generator = np.random.default_rng(7)
    repeats, records = 4000, 64
    x = np.repeat(np.arange(4.0), records // 4)
    true = x + generator.integers(0, 2, (repeats, records))
    words = generator.integers(0, 1 << 64, true.size, np.uint64)
    released = randomizer.sample(true.astype(np.int64).ravel(), words).reshape(true.shape)

    centred = x - x.mean()
    slopes = [values @ centred / (centred @ centred) for values in (true, released)]
    ratio = slopes[0].var() / slopes[1].var()

    # A sample variance of n normal values has relative variance 2 / n, the ratio of two 4 / n; five deviations.
    assert ratio == pytest.approx(found.worth(records / 2, explained), rel=5 * np.sqrt(4 / repeats))
    assert slopes[1].mean() == pytest.approx(1, abs=5 * slopes[1].std() / np.sqrt(repeats))


def test_what_makes_no_sense_is_refused() -> None:
    prior = prior_of([1, 1])
    with pytest.raises(ValueError, match="records_per_parameter must be above 0"):
        utility(solve("rr", prior, 1.0), prior).worth(0)
    with pytest.raises(ValueError, match="no line"):
        utility(solve("unbiased", prior, 1.0), prior).training_error(1, debiased=True)
    with pytest.raises(ValueError, match="different label domains"):
        utility(solve("rr", prior, 1.0), prior_of([1, 1, 1]))
    with pytest.raises(ValueError, match="not a part"):
        clipped_utility(solve("rr", prior, 1.0), Prior(np.array([5.0, 6.0]), np.ones(2)))


@settings(deadline=None, max_examples=30)
@given(NAMES, st.lists(st.integers(1, 100), min_size=6, max_size=9), EPSILONS)
def test_clipping_is_a_part_of_the_bias(name: str, shares: list[int], epsilon: float) -> None:
    """Clipping, then the randomizer, is a randomizer whose rows at the ends are repeated."""
    whole = prior_of(shares)
    inner = Prior(whole.labels[1:-2], np.ones(len(shares) - 3))
    randomizer = solve(name, inner, epsilon)
    rows = np.clip(np.arange(len(shares)) - 1, 0, len(inner.labels) - 1)
    repeated = Randomizer(whole.labels, randomizer.outputs, randomizer.weights[rows], epsilon, name)

    found, expected = clipped_utility(randomizer, whole), utility(repeated, whole)
    assert found.bias == pytest.approx(expected.bias, abs=1e-9)
    assert found.deviation == pytest.approx(expected.deviation, abs=1e-6)
    assert found.training_error(10).total == pytest.approx(expected.training_error(10).total, rel=1e-6)
    assert found.line == pytest.approx(expected.line) if name != "debiased_rr" else found.line is None


def moments(weights: np.ndarray, values: np.ndarray) -> float:
    return float(weights @ (values - weights @ values) ** 2)


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, st.floats(0, 1), st.integers(0, 2**32))
def test_the_share_of_the_label_is_the_given_one_and_no_function_exceeds_the_correlation(
    shares: list[int], explained: float, seed: int
) -> None:
    weights = np.array(shares) / sum(shares)
    labels = np.cumsum(np.random.default_rng(seed).uniform(0.1, 2, len(shares)))
    share = ExplainedShare(labels, weights, explained)

    assert share.of(labels) == pytest.approx(explained * moments(weights, labels), rel=1e-9, abs=1e-12)
    other = np.random.default_rng(seed + 1).normal(size=len(shares))
    assert 0 <= share.of(other) <= moments(weights, other) * (1 + 1e-9)
    # A function that goes up and down is explained less than the label, which only goes up.
    if len(shares) > 4:
        alternating = np.where(np.arange(len(shares)) % 2, 1.0, -1.0)
        if explained < 0.9:
            limit = max(np.sqrt(explained), explained) * moments(weights, alternating)
            assert share.of(alternating) <= limit + 1e-9


def test_the_variance_is_that_of_the_mean_given_a_score() -> None:
    """Integrates E[g(y) | z] numerically, for normal scores of label and prediction with squared correlation 0.6."""
    weights = np.exp(-np.arange(12.0) / 4)
    weights /= weights.sum()
    labels, correlation = np.arange(12.0), 0.6
    bounds = norm.ppf(np.minimum(np.concatenate([[0], np.cumsum(weights)]), 1))
    z = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    above = norm.cdf((bounds[None, :] - np.sqrt(correlation) * z[:, None]) / np.sqrt(1 - correlation))
    chances = np.diff(above, axis=1)
    explained = (chances @ labels).var() / moments(weights, labels)
    share = ExplainedShare(labels, weights, explained)

    for values in (labels, np.sin(labels), (labels > 3).astype(float), labels**2):
        assert share.of(values) == pytest.approx((chances @ values).var(), rel=1e-3)


@pytest.mark.parametrize("explained", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_0_and_1(explained: float) -> None:
    with pytest.raises(ValueError, match="explained must be between 0 and 1"):
        ExplainedShare(np.arange(2.0), np.full(2, 0.5), explained)
