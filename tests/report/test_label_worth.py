"""Worth of a label for models: bias that is left, shares of the variance of labels, and none."""

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.utility import CenterFacts, ReleasedFacts
from labeldp.report.number_summary import worth_of_label

PRIOR = Prior(np.arange(53.0), np.exp(-np.arange(53.0) / 8))
UNBIASED = solve("unbiased", PRIOR, 1.0)


def test_around_a_center_the_bias_of_clipping_counts() -> None:
    whole = Prior(np.arange(-52.0, 53), np.exp(-np.abs(np.arange(-52.0, 53)) / 6))
    inner = Prior(whole.labels[48:57], whole.weights[48:57])
    randomizer = solve("unbiased", inner, 4.0)
    moved = np.clip(whole.labels, -4, 4) - whole.labels
    spread = float(whole.weights @ whole.labels**2)
    unknown, known = (
        worth_of_label(ReleasedFacts(randomizer, inner, 0.1, 10**7, center=center), 1e9)
        for center in (CenterFacts(whole, (0.0, 52.0), 0), CenterFacts(whole, (0.0, 52.0), 0, 20 * spread))
    )
    assert unknown is not None
    assert known is not None
    assert unknown.bias == pytest.approx(whole.weights @ moved**2 / spread, rel=1e-6)
    # Shares of the variance of the labels, which is known around a linear center.
    assert known.bias == pytest.approx(unknown.bias / 20)
    assert known.error == pytest.approx(unknown.error / 20)
    assert known.worth == unknown.worth


def test_a_single_value_has_no_worth() -> None:
    prior = Prior(np.arange(2.0), np.array([1.0, 0.0]))
    assert worth_of_label(ReleasedFacts(solve("rr", prior, 1.0), prior, 0.1, 1000), 10) is None


def test_a_label_can_be_worth_less_than_nothing() -> None:
    facts = ReleasedFacts(UNBIASED, PRIOR, 0.1, 1000)
    some, none = worth_of_label(facts, 1e4), worth_of_label(facts, 2)
    assert some is not None
    assert none is not None
    assert (some.less_than_nothing, none.less_than_nothing) == (False, True)
    assert some.worth == pytest.approx(none.worth)
    assert some.by_share[0] > some.by_share[1]
