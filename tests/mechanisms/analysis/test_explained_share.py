"""Share of a function of the label that features explain, compared with the joint distribution of normal scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.analysis.explained_share import ExplainedShare
from scipy.stats import norm

WEIGHTS = st.lists(st.integers(1, 50), min_size=2, max_size=30)


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
