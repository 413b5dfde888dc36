"""Ranges of groups: their histograms, classes and priors, the meaning of the loss, and what groups gain or lose."""

from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.analysis.automatic import CANDIDATES, solve_for_groups
from labeldp.mechanisms.analysis.release_warnings import release_warnings
from labeldp.mechanisms.analysis.released_facts import CenterFacts, ReleasedFacts
from labeldp.mechanisms.analysis.verdict import debiasing, verdict
from labeldp.mechanisms.center.group_positions import GroupRanges
from labeldp.mechanisms.center.group_ranges import choose_group_ranges
from labeldp.mechanisms.center.grouped_histogram import (
    GroupedHistogram,
    histogram_of_groups,
    merged_counts,
    supports_histograms,
)
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.center.truncation import choose_range, clipped_prior, clipping_error
from labeldp.mechanisms.core.losses import SQUARED
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.quality import variances
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
from labeldp.mechanisms.registry import mechanism_named

RESIDUALS = ResidualDomain(np.arange(101.0))
UNBIASED = mechanism_named("unbiased")
MOST = RESIDUALS.most


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
