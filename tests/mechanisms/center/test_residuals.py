"""Residuals: their grid and cells against brute force, and the estimate of their distribution from noised counts.

Range of the residuals: errors of clipping against brute force, and ranges close to the best of all.
"""

import json
import os
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, label_grid, mechanism_named
from labeldp.mechanisms.center.residuals import (
    ResidualDomain,
    choose_range,
    clipped_prior,
    clipping_error,
    estimated_counts,
    symmetrized,
)
from labeldp.mechanisms.core.randomizer import variances
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts

GRIDS = st.tuples(st.integers(-50, 50), st.integers(2, 500), st.sampled_from(["1", "0.5", "0.1", "3"])).map(
    lambda grid: label_grid(str(grid[0]), str(grid[0] + (grid[1] - 1) * Fraction(grid[2])), grid[2])
)
SMALL = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(-9, 30), min_size=size, max_size=size),
        st.lists(st.integers(1, 4), min_size=size, max_size=size),
    )
)
WEIGHTS = st.lists(st.integers(0, 9), min_size=3, max_size=21).filter(any)
UNBIASED = mechanism_named("unbiased")


@given(GRIDS)
def test_the_grid_has_all_differences_of_labels(labels):
    domain = ResidualDomain(labels)
    assert len(domain.grid) == 2 * len(labels) - 1
    assert np.array_equal(domain.grid, -domain.grid[::-1])
    i, j = np.divmod(np.arange(min(len(labels), 40) ** 2), min(len(labels), 40))
    steps = domain.grid[i - j + domain.most]
    assert np.allclose(steps, labels[i] - labels[j], rtol=0, atol=1e-9 * (labels[-1] - labels[0]))


@given(GRIDS)
def test_cells_cover_each_residual_once_and_are_symmetric(labels):
    domain = ResidualDomain(labels)
    bounds = domain.bounds.tolist()
    assert (bounds[0], bounds[-1]) == (-domain.most, domain.most + 1)
    widths = np.diff(bounds)
    assert widths.min() >= 1
    assert np.array_equal(widths, widths[::-1])
    for first, stop in pairwise(bounds):
        if first > 0:
            assert stop - first <= max(first // 4, 1), "a cell is at most a quarter of its distance from 0"
    assert domain.cells == len(widths) <= 2 * len(labels) - 1
    steps = np.arange(-domain.most, domain.most + 1)
    expected = [sum(1 for step in steps.tolist() if a <= step < b) for a, b in pairwise(bounds)]
    assert domain.count(steps).tolist() == expected


@pytest.mark.parametrize("labels", [[1.0], [0.0, 1.0, 2.5], [0.0, 1.0, 1.0]])
def test_uneven_domains_are_refused(labels):
    with pytest.raises(ValueError, match="label"):
        ResidualDomain(np.array(labels))


def test_place_finds_consecutive_residuals_only():
    domain = ResidualDomain(label_grid("0", "5", "0.1"))
    assert domain.place(domain.grid[7:20]) == 7
    for residuals in (domain.grid[7:20:2], domain.grid[7:20] + 1e-12, np.array([99.0]), np.array([-99.0])):
        with pytest.raises(ValueError, match="consecutive residuals"):
            domain.place(residuals)


def falling(densities: list[Fraction], widths: list[int]) -> list[Fraction]:
    """Antitonic regression by the min-max formula, which pools nothing."""
    count = range(len(widths))

    def mean(first: int, last: int) -> Fraction:
        span = range(first, last + 1)
        return sum(densities[i] * widths[i] for i in span) / Fraction(sum(widths[i] for i in span))

    return [min(max(mean(first, last) for last in count if last >= i) for first in count if first <= i) for i in count]


@given(SMALL)
def test_the_estimate_is_the_closest_density_with_one_mode(cells):
    counts, widths = cells
    if max(counts) <= 0:
        return
    densities = [Fraction(count, width) for count, width in zip(counts, widths, strict=True)]
    mode = densities.index(max(densities))
    left = falling(densities[mode::-1], widths[mode::-1])[::-1]
    right = falling(densities[mode:], widths[mode:])
    expected = [float(max(density * width, 0)) for density, width in zip([*left, *right[1:]], widths, strict=True)]
    # The scale is so large that no count is significant.
    assert estimated_counts(counts, np.array(widths), 1e6) == pytest.approx(expected)


@given(SMALL)
def test_significant_counts_stay(cells):
    counts, widths = cells
    found = estimated_counts(counts, np.array(widths), 1e-6)
    expected = [max(count, 0) for count in counts]
    assert found == pytest.approx(expected if any(expected) else widths, abs=1e-4)


def test_a_histogram_without_a_positive_count_says_nothing():
    assert estimated_counts([-3, 0, -1], np.array([2, 1, 2]), 1.0) == [2, 1, 2]
    domain = ResidualDomain(label_grid("0", "9", "1"))
    prior = domain.prior(np.full(domain.cells, -5), 0.1)
    assert np.allclose(prior.weights, 1 / 19)


def test_opposite_counts_are_averaged_where_noise_explains_their_difference():
    counts = np.array([0, 3, 50, 9, 40, 5, 1])
    assert symmetrized(counts, 10.0) == [1, 8, 90, 18, 90, 8, 1]
    assert symmetrized(counts, 1e-9) == [2 * count for count in counts.tolist()]
    biased = np.array([0, 0, 0, 9, 40, 40, 40])
    assert symmetrized(biased, 10.0) == [2 * count for count in biased.tolist()], "the center is too low"


@given(st.integers(0, 2**32))
def test_without_noise_the_prior_is_the_histogram(seed):
    domain = ResidualDomain(label_grid("0", "30", "1"))
    steps = np.random.default_rng(seed).integers(-30, 31, 500)
    prior = domain.prior(domain.count(steps), 1e9)
    found = np.add.reduceat(prior.weights, domain.bounds[:-1] + 30)
    assert np.allclose(found, domain.count(steps) / 500)


def test_noise_on_empty_cells_is_no_heavy_tail():
    """Clipped at 0 and normalized, the same counts have a spread of more than twice the true one."""
    domain = ResidualDomain(label_grid("0", "400", "1"))
    ratios, clipped = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        true = domain.count(np.clip(np.rint(rng.normal(0, 20, 5000)), -400, 400).astype(int))
        noised = true + rng.laplace(0, 40, domain.cells).round().astype(int)
        spread = [
            (prior.weights * prior.labels**2).sum()
            for prior in (domain.prior(noised, 2 / 40), domain.prior(noised, 1e9), domain.prior(true, 1e9))
        ]
        ratios.append(spread[0] / spread[2])
        clipped.append(spread[1] / spread[2])
    assert np.median(clipped) > 4
    assert np.median(ratios) < np.median(clipped) / 2


def test_noise_alone_does_not_move_the_residuals_away_from_the_center():
    """Noise larger than all records together: the estimate stays symmetric, whichever cell has the largest count.

    Noise explains the difference of the two sides in all but 0.3 % of the releases, and that of two cells, or of a cell
    and the density, in all but 0.2 %: among 100, more than three others have a probability below 1e-3.
    """
    domain = ResidualDomain(label_grid("0", "1", "0.01"))
    rng = np.random.default_rng(6)
    true = domain.count(np.clip(np.rint(rng.normal(0, 15, 1276)), -100, 100).astype(int))
    moved = 0
    for _ in range(100):
        prior = domain.prior(true + rng.laplace(0, 640, domain.cells).round().astype(int), 2 / 640)
        moved += abs((prior.weights * prior.labels).sum()) > 0.02
    assert moved <= 3


def test_the_prior_has_the_same_bits_on_another_cpu():
    """numpy's loops for another CPU sum in another order; the estimate does not use them."""
    code = (
        "import json, numpy as np\n"
        "from labeldp.mechanisms import label_grid\n"
        "from labeldp.mechanisms.center.residuals import ResidualDomain\n"
        "d = ResidualDomain(label_grid('0', '400', '1'))\n"
        "c = np.random.default_rng(5).integers(-40, 300, d.cells)\n"
        "print(json.dumps([w.hex() for w in d.prior(c, 0.1).weights.tolist()]))\n"
    )
    plain = {name: value for name, value in os.environ.items() if name != "NPY_DISABLE_CPU_FEATURES"}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=plain | extra, check=True, capture_output=True, text=True)
        for extra in ({}, {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"})
    ]
    first, second = (json.loads(run.stdout) for run in runs)
    assert first == second


def prior_of(weights: list[int]) -> Prior:
    return Prior(np.arange(len(weights), dtype=float) - len(weights) // 2, np.array(weights, float))


@given(WEIGHTS, st.data())
def test_clipping_moves_the_tails_to_the_ends(weights, data):
    prior = prior_of(weights)
    first = data.draw(st.integers(0, len(weights) - 1))
    last = data.draw(st.integers(first, len(weights) - 1))
    clipped = clipped_prior(prior, first, last)
    expected = np.zeros(last - first + 1)
    moves = []
    for place, weight in enumerate(prior.weights.tolist()):
        target = min(max(place, first), last)
        expected[target - first] += weight
        moves.append((weight, target - place))
    assert np.array_equal(clipped.labels, prior.labels[first : last + 1])
    assert np.allclose(clipped.weights, expected)
    error = clipping_error(prior, float(prior.labels[first]), float(prior.labels[last]))
    assert error.share == pytest.approx(sum(weight for weight, move in moves if move))
    assert error.bias == pytest.approx(sum(weight * move for weight, move in moves))
    assert error.squared == pytest.approx(sum(weight * move**2 for weight, move in moves))


def ends(prior: Prior, mechanism: Any, epsilon: float, records: int) -> tuple[int, int]:
    found = choose_range(prior, mechanism, epsilon, records)
    return found.first, found.last


def objective(prior: Prior, first: int, last: int, epsilon: float, share: float) -> float:
    clipped = clipped_prior(prior, first, last)
    randomizer = UNBIASED.solve(clipped, epsilon)
    noise = float(clipped.weights @ variances(randomizer))
    return clipping_error(prior, prior.labels[first], prior.labels[last]).squared + share * noise


@pytest.mark.parametrize(
    ("shape", "epsilon", "records"),
    [
        ("normal", 0.3, 300), ("normal", 1.0, 5000), ("skewed", 1.0, 5000), ("skewed", 4.0, 10**6),
        ("two modes", 0.3, 10**6), ("two modes", 1.0, 300),
    ],
)  # fmt: skip
def test_the_range_is_close_to_the_best_of_all(shape, epsilon, records):
    places = np.arange(-12, 13)
    weights = {
        "normal": np.exp(-((places / 3) ** 2) / 2),
        "skewed": np.where(places < -2, 0.0, np.exp(-(places + 2) / 3)),
        "two modes": np.exp(-((places / 2) ** 2) / 2) + 0.1 * np.exp(-((places - 8) ** 2) / 2),
    }[shape]
    prior = Prior(places.astype(float), weights)
    share = min(100 / records, 1)
    found = objective(prior, *ends(prior, UNBIASED, epsilon, records), epsilon, share)
    best = min(
        objective(prior, first, last, epsilon, share)
        for first in range(0, 13, 2)
        for last in range(max(first + 1, 11), 25, 2)
    )
    assert found <= 1.25 * best


def test_many_records_and_a_large_epsilon_leave_the_domain_whole():
    prior = prior_of([1, 2, 5, 9, 5, 2, 1])
    assert ends(prior, UNBIASED, 8.0, 10**9) == (0, 6)


def test_a_range_falls_with_fewer_records_and_with_less_epsilon():
    prior = Prior(np.arange(-100.0, 101.0), np.exp(-np.abs(np.arange(-100, 101)) / 10))
    lengths = [
        [last - first for first, last in (ends(prior, UNBIASED, epsilon, records) for records in (10**3, 10**6))]
        for epsilon in (0.3, 3.0)
    ]
    assert lengths[0][0] < lengths[0][1] <= 200
    assert lengths[0][0] < lengths[1][0]


def test_a_prior_of_one_residual_gets_a_range_of_two_residuals_or_more():
    first, last = ends(prior_of([0, 0, 1, 0, 0]), UNBIASED, 1.0, 1000)
    assert first < last


def test_a_fine_grid_does_not_shorten_the_range():
    prior = Prior(np.arange(-5000.0, 5001.0), np.ones(10001))
    assert ends(prior, UNBIASED, 8.0, 10**9) == (0, 10000)


def test_the_whole_domain_for_a_mechanism_that_supports_no_range():
    class Refusing:
        def solve(self, prior, epsilon):
            raise ValueError("no")

    assert ends(prior_of([1, 2, 1]), Refusing(), 1.0, 10) == (0, 2)


@pytest.mark.parametrize(("labels", "spread", "heavy"), [(53, 5.0, False), (201, 12.0, False), (201, 12.0, True)])
def test_the_mean_square_is_estimated_without_bias(labels: int, spread: float, heavy: bool):
    """That of the fitted histogram is too large: no count is negative, and noise in the tails counts most."""
    domain, random, epsilon = ResidualDomain(np.arange(float(labels))), np.random.default_rng(3), 0.05
    drawn = random.standard_t(5, 20_000) if heavy else random.normal(size=20_000)
    steps = np.clip(np.rint(spread * drawn), 1 - labels, labels - 1).astype(np.int64)
    counts, true = domain.count(steps), float((steps**2).mean())
    noised = [noisy_counts(counts, epsilon, bytes([number]) * 32) for number in range(40)]
    found = [domain.mean_square(each, epsilon) for each in noised]
    values, errors = np.array(found).T
    fitted = [domain.prior(each, epsilon).weights @ domain.grid**2 for each in noised]

    # The mean of 40 draws, within three of its standard errors and the two percent of cells of several residuals.
    assert abs(values.mean() - true) < 3 * values.std() / np.sqrt(40) + 0.02 * true
    assert abs(values.mean() - true) < abs(np.mean(fitted) - true) / 2
    assert np.mean(abs(values - true) < 2 * errors) > 0.8
    # A histogram without a record has no error that is a number.
    assert np.isfinite(domain.mean_square(np.zeros_like(counts), epsilon)).all()
