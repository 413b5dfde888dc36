"""What released classes say about true ones: shares, posterior and the error of corrected shares, against draws."""

import math

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.class_utility import ClassUtility, correction
from labeldp.mechanisms.analysis.utility import ReleasedFacts
from labeldp.mechanisms.analysis.verdict import class_debiasing

WEIGHTS = np.array([0.5, 0.3, 0.15, 0.05])


def utility_of(name: str, epsilon: float = 1.5) -> ClassUtility:
    prior = Prior(np.arange(4.0), WEIGHTS)
    return ClassUtility(solve(name, prior, epsilon), prior)


def drawn(utility: ClassUtility, records: int) -> tuple[np.ndarray, np.ndarray]:
    """True and released classes of records whose shares are those of the prior."""
    rng = np.random.default_rng(1)
    true = np.repeat(np.arange(4), (WEIGHTS * records).astype(int))
    cumulated = utility.randomizer.probabilities().cumsum(axis=1)[true]
    released = utility.randomizer.outputs[(rng.random(len(true))[:, None] > cumulated).sum(axis=1)]
    return true, released.astype(int)


@pytest.mark.parametrize("name", ["rr", "rr_top_k"])
def test_shares_and_posterior_are_those_of_draws(name: str) -> None:
    utility = utility_of(name)
    true, released = drawn(utility, 400_000)
    counts = np.zeros((4, 4))
    np.add.at(counts, (released, true), 1)
    assert utility.released == pytest.approx(counts.sum(axis=1) / len(true), abs=5e-3)
    for place in range(4):
        if counts[place].any():
            assert utility.posterior[place] == pytest.approx(counts[place] / counts[place].sum(), abs=1e-2)
        else:
            assert place in utility.lost
            assert not utility.posterior[place].any()
    assert utility.square.sum(axis=1) == pytest.approx(np.ones(4))
    assert utility.kept == pytest.approx((true == released).mean(), abs=5e-3)


def test_the_error_of_corrected_shares_is_that_of_draws() -> None:
    utility, records, rng = utility_of("rr"), 1000, np.random.default_rng(2)
    true = np.repeat(np.arange(4), (WEIGHTS * records).astype(int))
    cumulated = utility.randomizer.probabilities().cumsum(axis=1)[true]
    own, other = correction(utility.randomizer)
    released = (rng.random((4000, len(true), 1)) > cumulated).sum(axis=2)
    shares = (np.stack([(released == place).mean(axis=1) for place in range(4)]) - other) / (own - other)
    assert shares.mean(axis=1) == pytest.approx(WEIGHTS, abs=2e-3)
    assert shares.std(axis=1).max() == pytest.approx(utility.share_error(records), rel=0.05)
    facts = ReleasedFacts(utility.randomizer, utility.prior, 0.1, records)
    assert class_debiasing(facts).formula == f"true share = (released share - {other:.6g}) / {own - other:.6g}"


def test_shares_without_a_correction() -> None:
    assert math.isinf(utility_of("rr_top_k", 0.5).share_error(1000))
