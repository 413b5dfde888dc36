"""Default splits: shares of families of mechanisms, and their distance from the best split."""

import numpy as np
import pytest
from labeldp.mechanisms import MECHANISMS, SQUARED, Prior, mechanism_named, solve, split_budget
from labeldp.mechanisms.analysis.planning import expected_loss, simulate
from labeldp.mechanisms.core.budget import LABEL_SHARE, PUBLIC_SHARE, UNBIASED_SHARE
from labeldp.mechanisms.registry import default_rounding, prior_share

# 10 labels with an atom on each end, as the weeks that people work have.
WORKED = Prior(np.arange(11), np.array([47, 3, 4, 3, 3, 3, 3, 3, 4, 5, 22]))


@pytest.mark.parametrize("name", ["rr", "debiased_rr", "laplace", "exponential", "gaussian"])
def test_mechanisms_with_the_least_share_do_not_depend_on_the_prior(name):
    parameters = {"delta": 1e-6} if name == "gaussian" else {}
    assert prior_share(name) == PUBLIC_SHARE
    for epsilon in (0.5, 3.0):
        flat, other = (
            solve(name, Prior(WORKED.labels, weights), epsilon, **parameters)
            for weights in (np.ones(11), WORKED.weights)
        )
        assert flat.fingerprint == other.fingerprint


def test_every_other_mechanism_has_the_share_of_its_purpose():
    shares = {name: prior_share(name) for name in MECHANISMS if prior_share(name) != PUBLIC_SHARE}
    assert {name for name, share in shares.items() if share == LABEL_SHARE} == {
        "rr_on_bins",
        "rr_top_k",
        "rp_with_prior",
    }
    unbiased = {name for name, share in shares.items() if share == UNBIASED_SHARE}
    assert all(default_rounding(name) == "randomized" for name in unbiased)
    assert {"unbiased", "bias_limited", "unbiased_grid"} <= unbiased


@pytest.mark.parametrize("name", ["unbiased", "laplace"])
@pytest.mark.parametrize("records", [2_000, 254_654])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_default_split_is_within_a_tenth_of_the_best(name, records, epsilon):
    """Against shares of epsilon by factors of 4 and no histogram at all, with the same noise."""
    mechanism, measure = mechanism_named(name), expected_loss(WORKED, SQUARED)

    def value(prior_epsilon: float) -> float:
        return float(simulate(mechanism, WORKED, records, epsilon, prior_epsilon, measure, range(4)).mean())

    default = split_budget(epsilon, 11, records, most=prior_share(name)).prior
    flat = mechanism.solve(Prior(WORKED.labels, np.ones(11)), epsilon).expected_loss(WORKED, SQUARED)
    best = min(flat, *(value(epsilon / 4**power) for power in range(1, 6)))
    assert value(default) <= 1.1 * best
    if name == "unbiased" and epsilon == 0.1 and records == 2_000:
        # The split of earlier versions, sqrt(k / n) but at most a half.
        assert value(split_budget(epsilon, 11, records).prior) > 3 * best
