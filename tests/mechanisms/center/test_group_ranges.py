"""Ranges of groups: their histograms, classes and priors, the meaning of the loss, and what groups gain or lose.

Positions of residuals in these ranges: no bias, the epsilon of the whole channel, exact ways back.
"""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.analysis.automatic import CANDIDATES, solve_for_groups
from labeldp.mechanisms.analysis.utility import CenterFacts, ReleasedFacts
from labeldp.mechanisms.analysis.verdict import debiasing, release_warnings, verdict
from labeldp.mechanisms.center.group_ranges import (
    MOST_POSITIONS,
    GroupedHistogram,
    GroupRanges,
    choose_group_ranges,
    histogram_of_groups,
    merged_counts,
    supports_histograms,
)
from labeldp.mechanisms.center.residuals import ResidualDomain, choose_range, clipped_prior, clipping_error
from labeldp.mechanisms.core.losses import SQUARED
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer, variances
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
from labeldp.mechanisms.registry import mechanism_named

RESIDUALS = ResidualDomain(np.arange(101.0))
UNBIASED = mechanism_named("unbiased")
MOST = RESIDUALS.most
HALF_STEPS = ResidualDomain(np.arange(0.0, 30.0, 0.5))
RANGES = GroupRanges(((-3, 4), (-20, 20), (0, 1)))
RECORDS = (50, 30, 0)


def steps_of(spreads: list[float], records: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        np.clip(np.rint(rng.normal(0, spread, count)), -MOST, MOST).astype(int)
        for spread, count in zip(spreads, records, strict=True)
    ]


def histogram(steps: list[np.ndarray], epsilon: float, seed: int = 0, histograms: int | None = None) -> Any:
    records = [len(each) for each in steps]
    counts = np.concatenate([RESIDUALS.count(each) for each in steps])
    merged = merged_counts(counts, records, histograms or len(records))
    return GroupedHistogram(RESIDUALS, noisy_counts(merged, epsilon, bytes([seed]) * 32).tolist(), records, epsilon)


def error_of(steps: list[np.ndarray], randomizer: Any) -> float:
    """Squared error of a model of 100 parameters, from the true residuals, the coin and the randomizer."""
    ranges, total = GroupRanges(randomizer.group_ranges), sum(len(each) for each in steps)
    table, chances = ranges.outputs(randomizer, RESIDUALS), randomizer.probabilities()
    share, error = min(100 / total, 1), 0.0
    for group, own in enumerate(steps):
        low, high = ranges.ends[group]
        clipped = np.clip(own, low, high)
        below, chance = ranges.spread(own, group, len(randomizer.labels))
        mean, square = chances @ table[group], chances @ table[group] ** 2
        above = np.minimum(below + 1, len(mean) - 1)
        means, squares = (each[below] * (1 - chance) + each[above] * chance for each in (mean, square))
        error += ((clipped - own) ** 2).sum() + ((means - clipped) ** 2).sum() + share * (squares - means**2).sum()
    return error / total


def error_without_groups(steps: list[np.ndarray], epsilon: float, prior_epsilon: float, seed: int) -> float:
    together, total = np.concatenate(steps), sum(len(each) for each in steps)
    noised = noisy_counts(RESIDUALS.count(together), prior_epsilon, bytes([seed]) * 32)
    prior = RESIDUALS.prior(noised, prior_epsilon)
    found = choose_range(prior, UNBIASED, epsilon, total)
    randomizer = UNBIASED.solve(clipped_prior(prior, found.first, found.last), epsilon)
    clipped = np.clip(together, found.first - MOST, found.last - MOST)
    noise = variances(randomizer)[clipped - (found.first - MOST)].mean()
    return ((clipped - together) ** 2).mean() + min(100 / total, 1) * noise


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_groups_of_different_spread_gain_clearly(epsilon):
    ratios = []
    for seed in range(3):
        steps = steps_of([3, 12], [15000, 15000], seed)
        own = solve_for_groups(histogram(steps, epsilon / 8, seed), epsilon * 7 / 8, UNBIASED)
        assert own.group_ranges is not None
        (low, high), (first, last) = own.group_ranges
        assert 2 * (high - low) < last - first
        ratios.append(error_of(steps, own) / error_without_groups(steps, epsilon * 7 / 8, epsilon / 8, seed))
    assert np.median(ratios) < 0.85
    assert max(ratios) < 1


def test_one_group_of_wide_residuals_among_narrow_ones():
    """Spreads of 1 and 10: without groups, one record in ten makes the labels of all of them noisy."""
    steps = steps_of([1, 10], [27000, 3000])
    own = solve_for_groups(histogram(steps, 0.125), 0.875, UNBIASED)
    assert error_of(steps, own) < 0.5 * error_without_groups(steps, 0.875, 0.125, 0)


@pytest.mark.parametrize(("records", "groups"), [(1000, 8), (5000, 4), (30000, 8)])
def test_groups_of_equal_spread_lose_little(records, groups):
    """In percent of the variance of the residuals, beside the range for all from as much budget."""
    for seed in range(2):
        steps = steps_of([8] * groups, [records // groups] * groups, seed)
        count = next(h for h in range(groups, 0, -1) if supports_histograms(h, records, 0.125))
        own = solve_for_groups(histogram(steps, 0.125, seed, count), 0.875, UNBIASED)
        lost = error_of(steps, own) - error_without_groups(steps, 0.875, 0.125, seed)
        assert lost < 0.02 * 64


def test_a_group_of_few_records_has_the_range_of_the_others():
    for seed in range(5):
        found = histogram(steps_of([8, 8, 1], [20000, 20000, 20], seed), 0.125, seed)
        assert found.classes == (0, 0, 0)
        assert all(np.array_equal(each.weights, found.pooled.weights) for each in found.priors)
        ranges = choose_group_ranges(found, UNBIASED, 0.875).ranges
        assert len(set(ranges.ends)) == 1


def test_the_number_of_histograms_follows_from_public_numbers():
    records = [10, 500, 0, 500, 90]
    assert histogram_of_groups(records, 5).tolist() == [0, 1, 4, 2, 3], "in the order of the groups"
    assert histogram_of_groups(records, 3).tolist() == [2, 0, 2, 1, 2]
    assert histogram_of_groups(records, 1).tolist() == [0] * 5
    assert merged_counts(np.arange(10), records, 3).tolist() == [2, 3, 6, 7, 0 + 4 + 8, 1 + 5 + 9]
    assert supports_histograms(1, 1, 1e-9)
    assert not supports_histograms(2, 1000, 0.125)
    assert supports_histograms(2, 5000, 0.125)
    assert not supports_histograms(16, 30000, 0.125)


def test_a_changed_label_changes_two_counts_by_one():
    rng = np.random.default_rng(3)
    records = [40, 30, 20]
    for _ in range(20):
        steps = [rng.integers(-MOST, MOST + 1, count) for count in records]
        before = merged_counts(np.concatenate([RESIDUALS.count(each) for each in steps]), records, 2)
        steps[rng.integers(3)][0] = rng.integers(-MOST, MOST + 1)
        after = merged_counts(np.concatenate([RESIDUALS.count(each) for each in steps]), records, 2)
        assert np.abs(after - before).sum() <= 2


@pytest.mark.parametrize("mechanism", ["unbiased", "rr_on_bins"])
def test_the_expected_loss_is_the_mean_squared_error_over_all_records(mechanism):
    """Under the estimated distributions, apart from clipping and from drawing a neighbor."""
    found = histogram(steps_of([2, 9, 9], [4000, 9000, 3000]), 1.0)
    ranges = GroupRanges(((-8, 8), (-40, 32), (-4, 4)))
    prior = found.position_prior(ranges)
    randomizer = mechanism_named(mechanism).solve(prior, 1.0).for_groups(ranges.ends)
    table, chances = ranges.outputs(randomizer, RESIDUALS), randomizer.probabilities()
    expected = 0.0
    for group, own in enumerate(found.priors):
        low, high = ranges.ends[group]
        below, chance = ranges.spread(np.arange(-MOST, MOST + 1), group, len(randomizer.labels))
        places = low + np.arange(len(randomizer.labels)) * (high - low) / (len(randomizer.labels) - 1)
        errors = (chances * (table[group][None, :] - places[:, None]) ** 2).sum(axis=1)
        above = np.minimum(below + 1, len(errors) - 1)
        expected += found.records[group] / 16000 * own.weights @ (errors[below] * (1 - chance) + errors[above] * chance)
    assert randomizer.expected_loss(prior, SQUARED) == pytest.approx(expected)


def test_the_distribution_before_clipping_has_the_mean_squares_of_the_groups():
    found = histogram(steps_of([2, 9], [4000, 9000]), 1.0)
    ranges = GroupRanges(((-3, 3), (-15, 15)))
    labels = ranges.labels(found.records, RESIDUALS)
    whole = found.whole_prior(ranges, labels)
    assert np.isin(labels, whole.labels).all()
    squares = sum(
        records / 13000 * own.weights @ RESIDUALS.grid**2
        for own, records in zip(found.priors, found.records, strict=True)
    )
    assert whole.weights @ whole.labels**2 == pytest.approx(squares, rel=1e-3), "apart from drawing a neighbor"
    clipped = clipping_error(whole, float(labels[0]), float(labels[-1]))
    assert clipped.squared == pytest.approx(found.clipping(ranges).squared)
    inside = (whole.labels >= labels[0]) & (whole.labels <= labels[-1])
    assert inside.sum() == len(labels)


def test_auto_states_what_it_chose_among_all_candidates():
    found = histogram(steps_of([2, 9], [4000, 9000]), 0.5)
    randomizer = solve_for_groups(found, 1.0, None)
    assert randomizer.choice is not None
    assert set(randomizer.choice["model_errors"]) == set(CANDIDATES)
    assert randomizer.choice["mechanism"].partition(":")[0] == randomizer.mechanism
    assert randomizer.certificate().epsilon <= 1.0


def test_a_biased_mechanism_has_a_line_for_each_group():
    found = histogram(steps_of([2, 9], [4000, 9000]), 1.0)
    randomizer = solve_for_groups(found, 0.5, mechanism_named("rr_on_bins"))
    ranges = GroupRanges(randomizer.group_ranges or ())
    center = CenterFacts(found.whole_prior(ranges, randomizer.labels), (0.0, 100.0), 0, grouped=True)
    facts = ReleasedFacts(randomizer, found.position_prior(ranges), 1.0, 13000, 3, "squared", center)
    line = debiasing(facts)
    assert line.formula is None
    assert "differs between groups: its slope is " in line.line
    assert verdict(facts).text
    assert [warning.text for warning in release_warnings(facts)]


def test_a_mechanism_that_supports_no_range_has_an_infinite_error():
    found = histogram(steps_of([2, 9], [400, 900]), 0.5)

    class Refusing:
        name = "refusing"

        def solve(self, prior: Prior, epsilon: float) -> Any:
            raise ValueError("never")

    assert choose_group_ranges(found, Refusing(), 1.0).error == np.inf


def test_counts_of_another_number_of_cells_are_refused():
    with pytest.raises(ValueError, match="as many counts as cells"):
        GroupedHistogram(RESIDUALS, [1] * (RESIDUALS.cells + 1), [1, 2], 0.5)
    with pytest.raises(ValueError, match="as many counts as cells"):
        GroupedHistogram(RESIDUALS, [1] * (3 * RESIDUALS.cells), [1, 2], 0.5)
    with pytest.raises(ValueError, match="at least one record"):
        GroupedHistogram(RESIDUALS, [1] * RESIDUALS.cells, [0, 0], 0.5)


def randomizer_of(ranges: GroupRanges, epsilon: float = 1.0) -> Randomizer:
    labels = ranges.labels(RECORDS, HALF_STEPS)
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
    table = RANGES.outputs(randomizer, HALF_STEPS)
    first, last = (Fraction(float(end)) for end in randomizer.labels[[0, -1]])
    for (low, high), row in zip(RANGES.ends, table, strict=True):
        for output, found in zip(randomizer.outputs, row, strict=True):
            share = (Fraction(float(output)) - first) / (last - first)
            expected = Fraction(low, 2) + share * Fraction(high - low, 2)
            assert abs(Fraction(float(found)) - expected) < Fraction(1, 10**12)


def test_labels_have_the_root_mean_square_length_of_the_ranges():
    labels = RANGES.labels(RECORDS, HALF_STEPS)
    assert len(labels) == 41, "as many as the longest range has residuals"
    squares = (50 * 3.5**2 + 30 * 20**2) / 80
    assert labels[-1] - labels[0] == pytest.approx(squares**0.5)
    np.testing.assert_allclose(np.diff(labels), squares**0.5 / 40)
    whole = GroupRanges(((-59, 59),) * 2)
    np.testing.assert_allclose(whole.labels((1, 1), HALF_STEPS), HALF_STEPS.grid)
    np.testing.assert_allclose(GroupRanges(((-2, 2), (-7, 7))).labels((0, 0), HALF_STEPS).mean(), 0, atol=1e-12)


def test_released_residuals_are_unbiased_in_every_group():
    """The mean over the coin and the mechanism is the clipped residual, exactly up to the bias of the mechanism."""
    randomizer = randomizer_of(RANGES)
    steps, table = np.arange(-25, 26), RANGES.outputs(randomizer, HALF_STEPS)
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
            GroupRanges(ends).check(HALF_STEPS)
    GroupRanges(((-59, 59),)).check(HALF_STEPS)


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
