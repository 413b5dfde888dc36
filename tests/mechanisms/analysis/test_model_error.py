"""Error of a model on privatized labels, compared with exact errors of group means and with simulated regressions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.analysis.model_error import linear_error, model_error, recommend, ridge_error

SKEWED = Prior(np.arange(12.0), np.array([40, 20, 10, 5, 3, 2, 1, 1, 1, 1, 1, 15.0]))


@st.composite
def groups(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels, shape (k,), and records per group and label, shape (g, k); all groups have the same size."""
    k, g, size = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 8))
    labels = np.cumsum(draw(st.lists(st.integers(1, 4), min_size=k, max_size=k))).astype(float)
    rows = [draw(st.lists(st.integers(0, k - 1), min_size=size, max_size=size)) for _ in range(g)]
    return labels, np.array([np.bincount(row, minlength=k) for row in rows])


def exact_error(randomizer: Randomizer, counts: np.ndarray, records: int) -> tuple[float, float]:
    """Computes the bias and variance of the group means, to which least squares with one feature per group is equal.

    For each group, n / g labels are drawn from its distribution and privatized.
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    chances = shares @ randomizer.probabilities()
    means = chances @ randomizer.outputs
    spreads = (chances * (randomizer.outputs - means[:, None]) ** 2).sum(axis=1)
    bias = ((means - shares @ randomizer.labels) ** 2).mean()
    return float(bias), float((spreads / (records / len(counts))).mean())


@settings(max_examples=80, deadline=None)
@given(groups(), st.floats(0.1, 5))
def test_the_error_of_group_means_is_exact_where_bias_is_affine(
    case: tuple[np.ndarray, np.ndarray], epsilon: float
) -> None:
    """For randomized response E[M(y)] is affine in y, so the features explain the same share of the bias as of y."""
    labels, counts = case
    prior = Prior(labels, counts.sum(axis=0))
    randomizer = solve("rr", prior, epsilon)
    shares = counts / counts.sum(axis=1, keepdims=True)
    spread = float(prior.weights @ (labels - prior.weights @ labels) ** 2)
    explained = min(float((shares @ labels).var()) / spread, 1.0) if spread else 0.0
    records = 10 * len(counts)

    error = model_error(randomizer, prior, records, features=len(counts) - 1, explained=explained)

    bias, variance = exact_error(randomizer, counts, records)
    scale = float(np.ptp(labels)) ** 2
    assert error.bias == pytest.approx(bias, rel=1e-9, abs=1e-12 * scale)
    assert error.variance == pytest.approx(variance, rel=1e-9, abs=1e-12 * scale)
    assert error.total == error.bias + error.variance


@settings(max_examples=80, deadline=None)
@given(groups(), st.floats(0.1, 5), st.sampled_from(["rr_on_bins", "bias_limited", "unbiased", "laplace", "staircase"]))
def test_without_the_explained_part_it_is_a_bound(
    case: tuple[np.ndarray, np.ndarray], epsilon: float, name: str
) -> None:
    labels, counts = case
    prior = Prior(labels, counts.sum(axis=0))
    randomizer = solve(name, prior, epsilon)
    records = 10 * len(counts)

    bound = model_error(randomizer, prior, records, features=len(counts) - 1)

    bias, variance = exact_error(randomizer, counts, records)
    tiny = 1e-12 * float(np.ptp(labels)) ** 2
    assert bias <= bound.bias * (1 + 1e-9) + tiny
    assert variance <= bound.variance * (1 + 1e-9) + tiny


@pytest.mark.parametrize("name", ["unbiased", "rr"])
def test_the_error_of_ridge_regression_on_drawn_labels(name: str) -> None:
    """y is binomial with 2 trials and a probability that is linear in three features, whose slopes are small."""
    records, repeats, slopes = 1000, 400, np.array([0.1, 0.07, 0.03])
    random = np.random.default_rng(2)
    features = random.uniform(-1, 1, (records, 3))
    features -= features.mean(axis=0)
    features = features @ np.linalg.inv(np.linalg.cholesky(features.T @ features / records)).T
    chances = 0.5 + features @ slopes / 2
    mean, labels = 2 * chances, np.arange(3.0)
    masses = np.array([((1 - chances) ** 2).mean(), (2 * chances * (1 - chances)).mean(), (chances**2).mean()])
    prior = Prior(labels, masses)
    explained = float(mean.var() / (masses @ (labels - masses @ labels) ** 2))
    randomizer = solve(name, prior, 1.0)
    expected = ridge_error(randomizer, prior, records, 3, explained, math.inf)
    # Shrinking the slopes by a factor multiplies their variance under least squares by its square.
    loose = model_error(randomizer, prior, records, 3, explained)
    noise = loose.variance / 4
    factor = math.sqrt((expected.variance - noise) / (3 * noise))
    penalty = records * (1 / factor - 1)

    errors = []
    for _ in range(repeats):
        words = random.integers(0, 2**64, records, dtype=np.uint64)
        found = randomizer.sample(random.binomial(2, chances), words)
        fit = features.T @ (found - found.mean()) / (records + penalty)
        errors.append(((found.mean() + features @ fit - mean) ** 2).mean())

    # Five standard errors, plus the next-order term (d + 1) / n.
    slack = 5 * float(np.std(errors)) / math.sqrt(repeats) + expected.total * 4 / records
    assert np.mean(errors) == pytest.approx(expected.total, abs=slack)
    assert slack < 0.35 * expected.total
    assert 0.05 < factor < 0.8
    if name == "unbiased":
        assert expected.total < 0.8 * loose.total


def test_the_constant_is_as_good_as_what_is_known_of_the_mean() -> None:
    """The means of the labels and of the histogram are weighted by precision; at equal variances, by 1/2 each."""
    randomizer = solve("rr", SKEWED, 1.0)

    def error(mean_variance: float) -> tuple[float, float]:
        found = ridge_error(randomizer, SKEWED, 100, 0, 0.0, mean_variance)
        return found.bias, found.variance

    own_bias, own = error(math.inf)
    assert error(0.0) == (0.0, 0.0)
    assert error(own) == pytest.approx((own_bias / 4, own / 2))
    assert own_bias == pytest.approx(float(SKEWED.weights @ randomizer.bias()) ** 2)
    with pytest.raises(ValueError, match="mean_variance"):
        error(-1.0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["rr_on_bins", "bias_limited", "unbiased", "laplace"]), st.floats(0.1, 5), st.floats(0, 1),
    st.integers(0, 40),
)  # fmt: skip
def test_shrinking_helps_and_costs_nothing_where_there_are_many_records(
    name: str, epsilon: float, explained: float, features: int
) -> None:
    randomizer = solve(name, SKEWED, epsilon)
    spread = float(SKEWED.weights @ (SKEWED.labels - SKEWED.weights @ SKEWED.labels) ** 2)
    mean_bias = float(SKEWED.weights @ randomizer.bias())

    for records in (50, 10**12):
        ridge = ridge_error(randomizer, SKEWED, records, features, explained, math.inf)
        least = model_error(randomizer, SKEWED, records, features, explained)
        if randomizer.mechanism == "unbiased":
            assert ridge.total <= least.total * (1 + 1e-9)
            # No worse than predicting the mean, whose error is the explained variance and its own noise.
            assert ridge.total <= (explained * spread + least.variance / (features + 1) + mean_bias**2) * (1 + 1e-9)
    if explained > 1e-3:
        assert ridge.total == pytest.approx(least.total, rel=1e-4, abs=1e-9 * spread)


def bounded_error(
    bias: float | None, prior: Prior, epsilon: float, records: int, features: int, explained: float | None = None
) -> float:
    """Computes the error of a model on labels of a bound of the bias, as `recommend` gives it."""
    name = "rr_on_bins" if bias is None else "bias_limited" if bias else "unbiased"
    randomizer = solve(name, prior, epsilon, **{"bias": bias} if bias else {})
    return linear_error(randomizer, prior, records, features, explained).total


@pytest.mark.parametrize("explained", [None, 0.05, 1.0])
@pytest.mark.parametrize("records", [50, 2000, 10**8])
def test_the_recommended_bias_beats_both_ends(records: int, explained: float | None) -> None:
    least = bounded_error(recommend(SKEWED, 1.0, records, 5, explained), SKEWED, 1.0, records, 5, explained)
    largest = solve("rr_on_bins", SKEWED, 1.0).certificate().max_bias / 11
    for bias in (None, 0.0, *(float(f"{largest / 2**octave:.2g}") for octave in range(1, 8))):
        assert least <= bounded_error(bias, SKEWED, 1.0, records, 5, explained)


def test_many_records_want_no_bias_and_few_want_it() -> None:
    assert recommend(SKEWED, 1.0, 10**9, 5) == 0
    assert recommend(SKEWED, 1.0, 10**9, 5, 0.02) == 0
    assert recommend(SKEWED, 1.0, 30, 10) is None
    for between in (recommend(SKEWED, 1.0, 400, 5), recommend(SKEWED, 1.0, 30, 10, 0.02)):
        assert between is not None
        assert 0 < between < 1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any), st.floats(0.1, 6))
def test_any_prior_has_a_recommendation(masses: list[int], epsilon: float) -> None:
    prior = Prior(np.arange(len(masses)) / 3, np.array(masses))
    least = bounded_error(recommend(prior, epsilon, 100, 3), prior, epsilon, 100, 3)
    assert least <= min(bounded_error(bias, prior, epsilon, 100, 3) for bias in (None, 0.0))


@pytest.mark.parametrize(
    ("records", "features", "explained", "said"),
    [(4, 3, None, "records"), (10, -1, None, "features"), (10, 3, 1.1, "explained"), (10, 3, -0.1, "explained"),
     (10, 3, math.nan, "explained")],
)  # fmt: skip
def test_what_no_model_has(records: int, features: int, explained: float | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model_error(solve("rr", SKEWED, 1.0), SKEWED, records, features, explained)
    if explained is not None:
        with pytest.raises(ValueError, match=said):
            ridge_error(solve("rr", SKEWED, 1.0), SKEWED, records, features, explained)


def test_a_prior_of_another_domain() -> None:
    with pytest.raises(ValueError, match="domain"):
        model_error(solve("rr", SKEWED, 1.0), Prior(np.arange(3.0), np.ones(3)), 100, 2)
