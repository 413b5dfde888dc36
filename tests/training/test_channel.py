"""Weights of outputs: without bias for every label, of least variance, and best on average where none are exact."""

from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("mechanism", ["unbiased", "rr", "debiased_rr", "laplace", "exponential"])
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_weights_have_the_mean_of_any_function_of_the_label(made: Any, mechanism: str, epsilon: float) -> None:
    channel = made(mechanism, epsilon)[1].channel
    assert channel.full_rank
    for values in (channel.labels**2, np.abs(channel.labels - 3.3), np.cos(channel.labels), np.eye(11)):
        weights = channel.weights(values)
        assert channel.exact(weights, values)
        for place in range(11):
            mean = sum(p * w for p, w in zip(channel.probabilities[place], weights, strict=True))
            assert mean == pytest.approx(values[place], abs=1e-9 * np.ptp(values))


def test_weights_have_the_least_variance(made: Any) -> None:
    """Any other exact weights differ by a null vector of the probabilities, which adds variance under the prior."""
    channel = made("unbiased", 1)[1].channel
    values = channel.labels**2
    weights = channel.weights(values)
    assert len(channel.outputs) > len(channel.labels)
    *_, rows = np.linalg.svd(channel.probabilities)
    q = channel._weights @ channel.probabilities
    for null in rows[len(channel.labels) :]:
        assert abs(np.sum(q * weights * null)) < 1e-8 * np.sqrt(np.sum(q * weights**2))
        other = weights + null * np.abs(weights).max()
        assert channel.exact(other, values)
        assert q @ other**2 > q @ weights**2


def test_a_coarse_mechanism_has_no_exact_weights(made: Any) -> None:
    """With few outputs the weights minimize squared bias plus variance / n: no step in any direction is better."""
    channel = made("rr_on_bins", 1)[1].channel
    values = channel.labels**2
    assert not channel.full_rank
    assert not channel.exact(channel.weights(values), values)
    found, p = channel.weights(values, 500), channel._weights
    q = p @ channel.probabilities

    def error(weights: np.ndarray) -> float:
        return float(p @ channel.bias(weights, values) ** 2 + q @ weights**2 / 500)

    for place in range(len(channel.outputs)):
        for step in (-0.1, 0.1):
            assert error(found + step * (np.arange(len(found)) == place)) > error(found)


def test_covariances_and_posterior_by_enumeration(made: Any) -> None:
    channel = made("unbiased", 1)[1].channel
    first, second = channel.outputs, channel.weights(channel.labels**2)
    for place, chances in enumerate(channel.probabilities):
        pairs = list(zip(chances, first, second, strict=True))
        means = sum(p * a for p, a, _ in pairs), sum(p * b for p, _, b in pairs)
        covariance = sum(p * (a - means[0]) * (b - means[1]) for p, a, b in pairs)
        assert channel.covariance(first, second)[place] == pytest.approx(covariance)
    joint = channel.probabilities * channel._weights[:, None]
    assert channel.posterior == pytest.approx((joint / joint.sum(axis=0)).T)
