"""Composition of releases at a target delta, by the privacy loss distributions of dp-accounting. Needs extra `ledger`.

Of all (epsilon, delta)-DP mechanisms, one that fails with probability delta and is randomized response otherwise says
the most (Kairouz, Oh and Viswanath 2015, Theorem 3.1). The distribution of its privacy loss has three values; the
library convolves those of all releases and reads off the epsilon that holds with the target delta. Releases may be
chosen adaptively.

Losses are rounded up to a grid, so that all distributions have their values on it: the result is an upper bound, up to
the library's floating-point arithmetic. Caps are checked in exact arithmetic, by basic composition.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from ...mechanisms.core.budget import decimal_value, shown_above
from .spent_budget import SpentBudget, total

SMALLEST_DELTA = 1e-10
"""Smallest target delta; rounding errors of the library are far below it."""

# Cells of the grid: rounding adds at most a cell for each release.
_CELLS_A_RELEASE, _FEWEST_CELLS, _MOST_CELLS = 1000, 1 << 16, 1 << 22
_SMALLEST_CELL = 2.0**-60
# exp of it is a float.
_LARGEST_EPSILON = 500


def composed_epsilon(spent: Sequence[SpentBudget], delta: float) -> float | None:
    """Upper bound on the epsilon of distinct releases at a target delta, from `SMALLEST_DELTA` to below 1.

    It is at most the sum of the epsilons where the sum of the deltas is within the target. None if there is no bound,
    because the deltas of the releases alone exceed the target, or it is far above 500. Raises ImportError if
    dp-accounting is not installed.
    """
    sums = total(spent)
    basic = shown_above(sums.epsilon) if sums.delta <= decimal_value(delta) else math.inf
    found = basic
    if sums.epsilon and max(cost.epsilon for cost in spent) <= _LARGEST_EPSILON:
        found = min(basic, _by_loss_distributions(spent, float(sums.epsilon), delta))
    return None if math.isinf(found) else found


def _by_loss_distributions(spent: Sequence[SpentBudget], sum_of_epsilons: float, delta: float) -> float:
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    cells = min(max(_CELLS_A_RELEASE * len(spent), _FEWEST_CELLS), _MOST_CELLS)
    # Multiples of a power of two: the library divides by it exactly.
    cell = 2.0 ** math.floor(math.log2(max(sum_of_epsilons / cells, _SMALLEST_CELL)))
    counts = Counter((math.ceil(cost.epsilon / Fraction(cell)), min(float(cost.delta), 1.0)) for cost in spent)
    distributions = []
    for (cells, own_delta), count in counts.items():
        privacy = DifferentialPrivacyParameters(cells * cell, own_delta)
        distributions.append(from_privacy_parameters(privacy, value_discretization_interval=cell).self_compose(count))
    # In pairs, so that most convolutions are short.
    while len(distributions) > 1:
        pairs = [pair[0].compose(pair[1]) for pair in zip(distributions[::2], distributions[1::2], strict=False)]
        distributions = pairs + distributions[2 * len(pairs) :]
    return float(distributions[0].get_epsilon_for_delta(delta))
