"""Run-length encoded weights: their divergence, and exact bounds on logarithms."""

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.audit_mechanism import audit_mechanism
from labeldp.audit.weight_runs import ln_at_most, ln_bounds

from tests.audit.mechanism_files import random_row, valid_mechanism


@pytest.mark.parametrize("seed", range(20))
def test_delta_agrees_with_every_pair_of_labels(seed):
    rng = random.Random(seed)
    k, m, bits = rng.randint(1, 6), rng.randint(2, 6), 62
    rows = [random_row(rng, m, bits) for _ in range(k)]
    document = valid_mechanism(rows, [float(y) for y in range(k)], [float(c) for c in range(m)], bits)
    epsilon = rng.choice([0.0, 0.1, 1.0, 5.0])
    factor = Fraction(Decimal(epsilon).exp())
    true = max(
        sum(max(Fraction(0), p - factor * q) for p, q in zip(first, second, strict=True)) / 2**bits
        for first in rows
        for second in rows
    )
    document.update({"epsilon": epsilon, "delta": 0.999})
    document["certificate"] |= {"epsilon": epsilon, "delta": min(float(true) * (1 + 1e-12), 0.999)}
    audit = audit_mechanism(document)
    assert audit.problems == ()
    assert audit.delta == pytest.approx(float(true), rel=1e-12, abs=1e-25)


positive = st.builds(Fraction, st.integers(1, 2**70), st.integers(1, 2**64))


near_one = st.builds(lambda n, step: Fraction(n + step, n), st.integers(8, 2**64), st.integers(-3, 3))


@settings(max_examples=100, deadline=None)
@given(positive | near_one, st.integers(1, 24))
def test_ln_bounds_hold_and_close(x, terms):
    lower, upper = ln_bounds(x, terms)
    inner_lower, inner_upper = ln_bounds(x, terms + 10)
    assert lower <= inner_lower <= inner_upper <= upper
    assert upper - lower <= Fraction(200, 9**terms)
    with localcontext() as context:
        context.prec = 80
        exact = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).ln())
    assert lower - Fraction(1, 10**70) <= exact <= upper + Fraction(1, 10**70)
    assert (lower == upper) == (x == 1)


@settings(max_examples=60, deadline=None)
@given(positive | near_one, st.integers(-3, 3))
def test_ln_at_most_next_to_the_border(x, steps):
    with localcontext() as context:
        context.prec = 120
        exact = (Decimal(x.numerator) / Decimal(x.denominator)).ln()
        bound = float(exact)
        for _ in range(abs(steps)):
            bound = math.nextafter(bound, math.copysign(math.inf, steps))
        assert ln_at_most(x, Fraction(bound)) == (exact <= Decimal(bound))
        # A bound that agrees with ln(x) to 100 digits needs a higher precision.
        for offset in (Decimal("1e-100"), Decimal("-1e-100")):
            assert ln_at_most(x, Fraction(exact + offset)) == (offset > 0)


def test_ln_of_one_and_of_no_number():
    assert ln_bounds(Fraction(1), 1) == (0, 0)
    assert ln_at_most(Fraction(1), Fraction(0))
    assert not ln_at_most(Fraction(1), Fraction(-1, 10**400))
    for x in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="ln needs a number > 0"):
            ln_bounds(x, 3)
