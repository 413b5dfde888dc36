"""Composed losses against Google's dp-accounting: from the same curve, and from the weights of each pair of labels."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from labeldp.mechanisms import Prior, mechanism_named
from labeldp.mechanisms.composition.loss_distribution import (
    loss_distribution,
    worst_pair_curve,
)

PRIOR = Prior(np.arange(5.0), np.arange(1.0, 6.0))
INTERVAL = 1e-4


@pytest.mark.parametrize("name", ["rr", "rr_on_bins", "unbiased", "laplace", "exponential"])
@pytest.mark.parametrize(("label_epsilon", "records"), [(2.0, 2), (0.5, 10), (0.1, 200)])
def test_both_compose_a_curve_to_the_same_distribution(
    name: str, label_epsilon: float, records: int, accounting_distribution: Any
) -> None:
    """dp-accounting truncates tails of 1e-15 and may lose that much more to its Fourier transforms."""
    curve = worst_pair_curve(mechanism_named(name).solve(PRIOR, label_epsilon).weights, 62)
    ours, theirs = loss_distribution(curve).composed(records), accounting_distribution(curve, records)
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        assert float(ours.delta(epsilon)) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-12)
    for delta in (1e-9, 1e-6, 1e-3):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-5)


@pytest.mark.parametrize("name", ["rr", "rr_on_bins", "unbiased", "laplace"])
@pytest.mark.parametrize(("label_epsilon", "records"), [(1.0, 2), (0.5, 10), (0.2, 50)])
def test_no_pair_of_labels_exceeds_our_bound(name: str, label_epsilon: float, records: int) -> None:
    """dp-accounting composes the losses of each pair of labels, rounded down: a lower bound, up to its own floats."""
    weights = mechanism_named(name).solve(PRIOR, label_epsilon).weights
    ours = loss_distribution(worst_pair_curve(weights, 62)).composed(records)
    masses = [{c: math.log(w) - 62 * math.log(2) for c, w in enumerate(row)} for row in weights.tolist()]
    lower = [
        from_two_probability_mass_functions(
            one, two, pessimistic_estimate=False, value_discretization_interval=INTERVAL, symmetric=False
        ).self_compose(records)
        for one, two in itertools.combinations(masses, 2)
    ]
    for epsilon in (0.5, 1.5, 3.0):
        best = max(each.get_delta_for_epsilon(epsilon) for each in lower)
        assert best <= float(ours.delta(epsilon)) + 1e-12
    worst = max(each.get_epsilon_for_delta(1e-6) for each in lower)
    assert worst * (1 - 1e-8) <= ours.epsilon(1e-6) <= worst + records * INTERVAL + 0.02 * worst
