"""Composition at a target delta, against the exact composition of randomized responses by enumeration."""

import itertools
import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.ledger.spent_budget import SMALLEST_DELTA, SpentBudget, composed_epsilon

costs = st.tuples(st.floats(1e-3, 4), st.sampled_from([0.0, 0.0, 1e-9, 1e-6, 1e-3]))
targets = st.sampled_from([1e-9, 1e-6, 1e-4, 1e-2, 0.2])


def budgets(spent: list[tuple[float, float]]) -> list[SpentBudget]:
    return [SpentBudget(Fraction(str(epsilon)), Fraction(str(delta))) for epsilon, delta in spent]


def exact_delta(spent: list[tuple[float, float]], epsilon: float) -> float:
    """Smallest delta of the composition at an epsilon, over all outcomes of randomized responses that may fail."""
    left = math.prod(1 - delta for _, delta in spent)
    excess = 0.0
    for signs in itertools.product((1, -1), repeat=len(spent)):
        loss = sum(sign * own for sign, (own, _) in zip(signs, spent, strict=True))
        likelihood = math.prod(1 / (1 + math.exp(-sign * own)) for sign, (own, _) in zip(signs, spent, strict=True))
        excess += max(0.0, -math.expm1(epsilon - loss)) * likelihood
    return 1 - left * (1 - excess)


@settings(deadline=None, max_examples=60)
@given(st.lists(costs, min_size=1, max_size=7), targets)
def test_it_is_an_upper_bound_and_almost_attained(spent: list[tuple[float, float]], delta: float) -> None:
    found = composed_epsilon(budgets(spent), delta)
    if found is None:
        assert 1 - math.prod(1 - own for _, own in spent) > delta * (1 - 1e-6) - 1e-14
        return
    assert exact_delta(spent, found) <= delta * (1 + 1e-6) + 1e-14
    assert (
        found <= math.nextafter(math.fsum(epsilon for epsilon, _ in spent), math.inf)
        or sum(own for _, own in spent) > delta
    )
    below = found * 0.998 - 1e-3
    assert below <= 0 or exact_delta(spent, below) >= delta * (1 - 1e-3)


def test_many_equal_releases_cost_about_their_square_root() -> None:
    """The binomial sum of Kairouz, Oh and Viswanath 2015, Theorem 3.3, for a year of daily releases."""
    epsilon, count, delta = 0.1, 365, 1e-6
    found = composed_epsilon(budgets([(epsilon, 0.0)] * count), delta)
    assert found is not None

    def exact(total: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))
        terms = (
            math.comb(count, k)
            * p ** (count - k)
            * (1 - p) ** k
            * max(0.0, -math.expm1(total - (count - 2 * k) * epsilon))
            for k in range(count + 1)
        )
        return math.fsum(terms)

    assert exact(found) <= delta <= exact(found * 0.999)
    assert found < 0.3 * epsilon * count


@pytest.mark.parametrize(
    ("spent", "delta", "expected"),
    [
        ([], 1e-6, 0.0),
        ([(0.0, 0.0)], 1e-6, 0.0),
        ([(0.0, 0.5)], 1e-6, None),
        ([(1.0, 1e-6)], 1e-6, 1.0),
        ([(1.0, 1e-6)], 1e-7, None),
        ([(1.0, 1.0)], 0.5, None),
        ([(1e9, 0.0), (1e-12, 0.0)], 1e-6, 1e9),
        ([(600.0, 0.1)], 0.05, None),
        ([(1e-15, 0.0)], 1e-6, 0.0),
    ],
)
def test_borders(spent: list[tuple[float, float]], delta: float, expected: float | None) -> None:
    found = composed_epsilon(budgets(spent), delta)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-5, abs=1e-6))


def test_the_smallest_delta_has_room_for_rounding_errors() -> None:
    """A thousand releases, of which each convolution cuts tails off."""
    found = composed_epsilon(budgets([(0.01 + number * 1e-6, 0.0) for number in range(1000)]), SMALLEST_DELTA)
    assert found is not None
    assert 1 < found < 5


def test_the_library_is_loaded_when_it_is_needed() -> None:
    script = (
        "import sys; import labeldp.pipelines.cli.ledger_command\n"
        "assert not {'dp_accounting', 'apache_beam', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_the_table_of_the_guide() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "repeated_releases.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for epsilon, count, basic, composed in rows:
        found = composed_epsilon(budgets([(float(epsilon), 0.0)] * int(count)), 1e-6)
        assert found is not None
        assert float(basic) == pytest.approx(float(epsilon) * int(count))
        assert found <= float(composed) <= 1.01 * found
