"""Shared by the tests of the mechanisms: rational bounds on exp and a chi-square test of fit.

Neither uses the code under test.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from tests.false_alarms import chi_square_bounds

LEAST_EXPECTED = 10.0
"""Cells expected less often than this are pooled: the chi-square law does not describe them."""


def _exp_bracket(exponent: Fraction, bits: int = 400) -> tuple[Fraction, Fraction]:
    """Computes rationals below and above exp(exponent), within a relative 2^-300, by a Taylor series.

    exponent is in [0, 64]. exp(x) = exp(x / 2^7)^(2^7); for y = x / 2^7 <= 1/2 the terms after y^n / n! add up to less
    than the last one.
    """
    assert 0 <= exponent <= 64
    unit = 1 << bits
    halvings = 7
    small = exponent / (1 << halvings)
    low = high = Fraction(1)
    term = Fraction(1)
    for n in range(1, 101):
        term = Fraction(-(-term * small * unit // n), unit)  # rounded up
        high += term
        low += max(term - Fraction(n, unit), Fraction(0))  # each rounding so far added less than one unit
    high += term
    for _ in range(halvings):
        low = Fraction(low * low * unit // 1, unit)
        high = Fraction(-(-high * high * unit // 1), unit)
    return low, high


@pytest.fixture(scope="session")
def exp_bracket() -> Callable[[Fraction], tuple[Fraction, Fraction]]:
    """exponent -> rationals (below, above) that enclose exp(exponent) within a relative 2^-300."""
    return _exp_bracket


def _pool(expected: np.ndarray) -> list[np.ndarray]:
    """Groups the indices of cells, rarest first, so that each group has an expected count of LEAST_EXPECTED or more."""
    groups: list[np.ndarray] = []
    start, order = 0, np.argsort(expected)
    total = 0.0
    for stop, cell in enumerate(order, start=1):
        total += expected[cell]
        if total >= LEAST_EXPECTED:
            groups.append(order[start:stop])
            start, total = stop, 0.0
    if start < len(order):
        groups[-1] = np.append(groups[-1], order[start:])
    return groups


def _fits(observed: Sequence[int] | np.ndarray, probabilities: Sequence[float] | np.ndarray) -> bool:
    counts = np.asarray(observed, np.float64)
    expected = np.asarray(probabilities, np.float64) * counts.sum()
    if counts[expected == 0].any():
        return False
    groups = _pool(expected)
    statistic = sum((counts[group].sum() - expected[group].sum()) ** 2 / expected[group].sum() for group in groups)
    return bool(statistic <= chi_square_bounds(max(len(groups) - 1, 1))[1])


@pytest.fixture(scope="session")
def fits() -> Callable[[Sequence[int] | np.ndarray, Sequence[float] | np.ndarray], bool]:
    """(observed counts, probabilities that sum to 1) -> whether a chi-square test accepts them; keys are fixed."""
    return _fits
