"""Positions of residuals in the ranges of their groups: no bias, the epsilon of the whole channel, exact ways back."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.center.group_positions import MOST_POSITIONS, GroupRanges
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.registry import mechanism_named

RESIDUALS = ResidualDomain(np.arange(0.0, 30.0, 0.5))
RANGES = GroupRanges(((-3, 4), (-20, 20), (0, 1)))
RECORDS = (50, 30, 0)


def randomizer_of(ranges: GroupRanges, epsilon: float = 1.0) -> Randomizer:
    labels = ranges.labels(RECORDS, RESIDUALS)
    return mechanism_named("unbiased").solve(Prior(labels, np.ones(len(labels))), epsilon).for_groups(ranges.ends)


@given(
    low=st.integers(-200, 198),
    length=st.integers(1, 300),
    positions=st.integers(2, MOST_POSITIONS),
    step=st.integers(-400, 400),
    word=st.integers(0, 2**64 - 1),
)
def test_positions_are_the_two_neighbors_of_the_exact_one(low, length, positions, step, word):
    ranges = GroupRanges(((low, low + length),))
    exact = Fraction((min(max(step, low), low + length) - low) * (positions - 1), length)
    steps, groups = np.array([step]), np.array([0])
    (found,) = ranges.find(steps, groups, positions, np.array([word], np.uint64))
    assert 0 <= found < positions
    assert abs(found - exact) < 1
    (below,), (chance,) = ranges.spread(steps, 0, positions)
    assert below == exact // 1
    assert chance == float(exact % 1)
    # All words modulo the length are equally likely, up to 2^-32 for lengths below 2^32.
    words = np.arange(length, dtype=np.uint64)
    all_found = ranges.find(np.full(length, step), np.zeros(length, int), positions, words)
    assert Fraction(int(all_found.sum()), length) == exact


def test_outputs_are_on_the_line_through_the_ends_of_the_range():
    randomizer = randomizer_of(RANGES)
    table = RANGES.outputs(randomizer, RESIDUALS)
    first, last = (Fraction(float(end)) for end in randomizer.labels[[0, -1]])
    for (low, high), row in zip(RANGES.ends, table, strict=True):
        for output, found in zip(randomizer.outputs, row, strict=True):
            share = (Fraction(float(output)) - first) / (last - first)
            expected = Fraction(low, 2) + share * Fraction(high - low, 2)
            assert abs(Fraction(float(found)) - expected) < Fraction(1, 10**12)


def test_labels_have_the_root_mean_square_length_of_the_ranges():
    labels = RANGES.labels(RECORDS, RESIDUALS)
    assert len(labels) == 41, "as many as the longest range has residuals"
    squares = (50 * 3.5**2 + 30 * 20**2) / 80
    assert labels[-1] - labels[0] == pytest.approx(squares**0.5)
    np.testing.assert_allclose(np.diff(labels), squares**0.5 / 40)
    whole = GroupRanges(((-59, 59),) * 2)
    np.testing.assert_allclose(whole.labels((1, 1), RESIDUALS), RESIDUALS.grid)
    np.testing.assert_allclose(GroupRanges(((-2, 2), (-7, 7))).labels((0, 0), RESIDUALS).mean(), 0, atol=1e-12)


def test_released_residuals_are_unbiased_in_every_group():
    """The mean over the coin and the mechanism is the clipped residual, exactly up to the bias of the mechanism."""
    randomizer = randomizer_of(RANGES)
    steps, table = np.arange(-25, 26), RANGES.outputs(randomizer, RESIDUALS)
    for group, (low, high) in enumerate(RANGES.ends):
        below, chance = RANGES.spread(steps, group, len(randomizer.labels))
        means = randomizer.probabilities() @ table[group]
        found = means[below] * (1 - chance) + means[np.minimum(below + 1, len(means) - 1)] * chance
        np.testing.assert_allclose(found, np.clip(steps, low, high) * 0.5, atol=1e-9)


def test_the_channel_of_a_record_satisfies_epsilon_with_the_coin_and_for_each_of_its_values():
    """Brute force over residuals of two groups, of which one has more residuals than positions, in exact integers."""
    ranges = GroupRanges(((-3, 4), (-9, 9)))
    labels = np.linspace(-2.0, 2.0, 6)
    randomizer = mechanism_named("unbiased").solve(Prior(labels, np.ones(6)), 1.0).for_groups(ranges.ends)
    weights = [[int(weight) for weight in row] for row in randomizer.weights]
    limit = Fraction(*np.exp(1.0).as_integer_ratio()) * (1 + Fraction(1, 10**12))
    for group, (low, high) in enumerate(ranges.ends):
        length = high - low
        rows = set()
        for step in range(low - 3, high + 4):
            found = {
                int(ranges.find(np.array([step]), np.array([group]), 6, np.array([word], np.uint64))[0])
                for word in range(length)
            }
            rows |= {tuple(Fraction(each) for each in weights[place]) for place in found}
            (below,), _ = ranges.spread(np.array([step]), group, 6)
            chance = Fraction((min(max(step, low), high) - low) * 5 % length, length)
            above = min(below + 1, 5)
            rows.add(tuple(a * (1 - chance) + b * chance for a, b in zip(weights[below], weights[above], strict=True)))
        assert len(rows) > 6
        assert all(p <= limit * q for one, two in product(rows, rows) for p, q in zip(one, two, strict=True))


def test_ranges_outside_the_domain_are_refused():
    for ends in ((), ((-60, 2),), ((0, 60),), ((3, 3),), ((4, 3),), ((-1, 1), (2, 2))):
        with pytest.raises(ValueError, match="ranges of the groups are not ranges of at least two residuals"):
            GroupRanges(ends).check(RESIDUALS)
    GroupRanges(((-59, 59),)).check(RESIDUALS)


def test_the_fingerprint_covers_the_ranges():
    plain = mechanism_named("unbiased").solve(Prior(np.arange(3.0), np.ones(3)), 1.0)
    assert plain.group_ranges is None
    assert "group_ranges" not in plain.to_json()
    one, other = plain.for_groups(((-1, 1), (-2, 2))), plain.for_groups(((-1, 1), (-2, 1)))
    assert len({plain.fingerprint, one.fingerprint, other.fingerprint}) == 3
    again = Randomizer.from_json(one.to_json())
    assert again == one
    assert again.group_ranges == ((-1, 1), (-2, 2))
    with pytest.raises(ValueError, match="fingerprint does not match"):
        Randomizer.from_json(one.to_json().replace("[-2, 2]", "[-2, 3]"))
    for bad in ([], [[1, 1]], [[2, 1]], [[0, 1.0]], [[True, 2]], [[0]], "x", [[0, 10**12]], 5):
        with pytest.raises(ValueError, match="group_ranges must"):
            plain.for_groups(bad)  # type: ignore[arg-type]


def test_draws_are_the_places_of_samples():
    randomizer = randomizer_of(RANGES)
    rng = np.random.default_rng(0)
    words, places = rng.integers(0, 2**64, 500, np.uint64), rng.integers(0, 41, 500)
    drawn = randomizer.draw(places, words)
    np.testing.assert_array_equal(randomizer.outputs[drawn], randomizer.sample(places, words))
