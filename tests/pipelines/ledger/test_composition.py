"""Sums of the ledger against Google's composition of privacy loss distributions.

Losses are multiples of 2^-10, the discretization of the distributions, so that nothing is rounded.
"""

from fractions import Fraction
from typing import Any

import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.ledger.spent_budget import LedgerEntry, compose

INTERVAL = 2.0**-10

releases = st.lists(
    st.tuples(st.integers(1, 3000).map(lambda steps: steps * INTERVAL), st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1])),
    min_size=1,
    max_size=6,
)


def entries_of(spent: list[tuple[float, float]]) -> list[LedgerEntry]:
    return [LedgerEntry("labels", epsilon, str(number), delta) for number, (epsilon, delta) in enumerate(spent)]


def composed(spent: list[tuple[float, float]]) -> Any:
    """Google's privacy loss distribution of all releases together, without truncation."""
    first, *others = [
        from_privacy_parameters(DifferentialPrivacyParameters(*budget), value_discretization_interval=INTERVAL)
        for budget in spent
    ]
    for other in others:
        first = first.compose(other, tail_mass_truncation=0)
    return first


@settings(deadline=None, max_examples=50)
@given(releases)
def test_pure_budgets_compose_to_their_sum(spent: list[tuple[float, float]]) -> None:
    """Randomized response attains each epsilon, so no smaller epsilon holds for all of them without a delta.

    Google inverts delta(epsilon) in floats, with a relative error.
    """
    pure = [(epsilon, 0.0) for epsilon, _ in spent]
    found = compose(entries_of(pure))
    assert found.delta == 0
    assert float(found.epsilon) == pytest.approx(composed(pure).get_epsilon_for_delta(0.0), rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(releases)
def test_the_optimal_composition_is_within_our_sum(spent: list[tuple[float, float]]) -> None:
    found, theirs = compose(entries_of(spent)), composed(spent)
    assert theirs.get_delta_for_epsilon(float(found.epsilon)) <= float(found.delta) * (1 + 1e-9) + 1e-12
    assert theirs.get_epsilon_for_delta(min(float(found.delta) + 1e-12, 1.0)) <= float(found.epsilon)
    # At this epsilon only the events of probability delta are left: 1 - (1 - delta_1) (1 - delta_2) ...
    left = 1.0
    for _, delta in spent:
        left *= 1 - delta
    assert theirs.get_delta_for_epsilon(float(found.epsilon)) == pytest.approx(1 - left, rel=1e-9, abs=1e-12)


def test_a_release_in_the_ledger_twice_is_composed_once() -> None:
    spent = [(0.5, 1e-3), (1.0, 0.0)]
    assert compose(entries_of(spent) + entries_of(spent)) == compose(entries_of(spent))
    assert compose(entries_of(spent)).epsilon == Fraction(3, 2)
