"""Split of a budget between labels: exact sums, equal shares of equal domains, least error against brute force."""

import functools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.composition.label_split import label_shares, split_exactly
from labeldp.mechanisms.core.exact_bounds import decimal_value, round_up
from labeldp.mechanisms.core.losses import SQUARED
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import mechanism_named

BINARY, FEW, MANY = np.array([0.0, 1.0]), np.arange(5.0), np.arange(21.0)


@given(
    st.floats(1e-9, 30),
    st.lists(st.fractions(Fraction(1, 100), 100), min_size=1, max_size=12),
)
def test_the_parts_add_up_to_the_total_and_never_exceed_it(total: float, numbers: list[Fraction]) -> None:
    shares = [number / sum(numbers) for number in numbers]
    parts = split_exactly(total, shares)
    exact = sum(map(Fraction, parts), Fraction(0))
    assert exact <= min(Fraction(total), decimal_value(total))
    assert round_up(exact) in (total, math.nextafter(total, 0))
    for part, share in zip(parts, shares, strict=True):
        assert part == pytest.approx(float(share) * total, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_equal_domains_get_equal_shares_wherever_they_lie(count: int) -> None:
    domains = [place + (place + 1) * FEW for place in range(count)]
    assert label_shares(1, domains, mechanism_named("unbiased")) == [Fraction(1, count)] * count


@functools.cache
def relative_error(labels: tuple[float, ...], name: str, epsilon: float) -> float:
    domain = np.array(labels)
    prior = Prior(domain, np.ones(len(domain)))
    loss = mechanism_named(name).solve(prior, epsilon).expected_loss(prior, SQUARED)
    return loss / np.var(domain)


@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
@pytest.mark.parametrize("name", ["unbiased", "rr_on_bins", "laplace"])
def test_no_other_split_has_a_smaller_error(name: str, epsilon: float) -> None:
    domains = [BINARY, FEW, MANY]
    found = label_shares(epsilon, domains, mechanism_named(name))
    assert sum(found) == 1
    assert min(found) >= Fraction(1, 6)

    def error(shares: tuple[Fraction, ...]) -> float:
        parts = zip(domains, shares, strict=True)
        return sum(relative_error(tuple(domain), name, epsilon * float(share)) for domain, share in parts)

    steps = [Fraction(number, 32) for number in range(6, 21)]
    others = [(a, b, 1 - a - b) for a, b in product(steps, steps) if Fraction(6, 32) <= 1 - a - b]
    assert error(tuple(found)) <= min(map(error, others)) * (1 + 1e-8)


def test_labels_of_one_domain_share_what_it_gets() -> None:
    found = label_shares(2, [BINARY, MANY, BINARY], mechanism_named("unbiased"))
    assert found[0] == found[2] < found[1]
    assert sum(found) == 1


def test_a_domain_of_one_label_needs_no_more_than_the_least_share() -> None:
    assert label_shares(1, [np.array([3.0]), FEW], mechanism_named("unbiased")) == [Fraction(1, 4), Fraction(3, 4)]
