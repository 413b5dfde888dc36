"""Planning: splits of a budget, compared with a lower bound on the loss, with a grid of splits and with brute force."""

import functools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import POISSON, SQUARED, Prior, Randomizer, mechanism_named, split_budget
from labeldp.mechanisms.analysis.model_error import linear_error, recommend
from labeldp.mechanisms.analysis.planning import (
    expected_counts,
    expected_loss,
    label_shares,
    plan_model,
    plan_split,
    simulate,
    split_exactly,
)
from labeldp.mechanisms.core.budget import decimal_value, round_up
from labeldp.mechanisms.noise.noisy_histogram import mean_variance

SKEWED = Prior(np.arange(12.0), np.array([40, 20, 10, 5, 3, 2, 1, 1, 1, 1, 1, 15.0]))
RR_ON_BINS = mechanism_named("rr_on_bins")
LOSS = expected_loss(SKEWED, SQUARED)

weights = st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any)
BINARY, FEW, MANY = np.array([0.0, 1.0]), np.arange(5.0), np.arange(21.0)


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    masses = draw(weights)
    steps = draw(st.lists(st.integers(1, 5), min_size=len(masses), max_size=len(masses)))
    return Prior(np.cumsum(steps), np.array(masses))


@given(priors(), st.integers(1, 10**12))
def test_counts_sum_to_the_records_and_are_within_one_of_their_shares(prior: Prior, records: int) -> None:
    counts = expected_counts(prior, records)

    assert counts.sum() == records
    # Within one record, plus the rounding error of floats of that size.
    assert np.all(np.abs(counts - prior.weights * records) < 1 + records * 2.0**-50)
    assert np.all(counts >= 0)


def test_no_noised_histogram_beats_the_prior_itself() -> None:
    """Ghazi et al. 2022, Theorem 5: the mechanism solved for the true prior is optimal under the true prior."""
    for prior_epsilon in (0.01, 0.1, 0.5):
        losses = simulate(RR_ON_BINS, SKEWED, 500, 1.0, prior_epsilon, LOSS, range(20))
        best = RR_ON_BINS.solve(SKEWED, split_budget(1.0, 12, 500, prior_epsilon).labels).expected_loss(SKEWED, SQUARED)
        assert losses.shape == (20, 1)
        assert np.all(losses >= best * (1 - 1e-9))
        assert len(np.unique(losses)) > 1


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("records", [20, 1000, 100_000])
def test_the_best_split_lies_between_the_default_and_what_none_can_reach(epsilon: float, records: int) -> None:
    split = plan_split(RR_ON_BINS, SKEWED, records, epsilon, LOSS, draws=6)

    assert split.epsilon == epsilon
    assert split.known_prior <= split.best.value <= split.default.value
    assert split.known_prior <= split.uniform_prior
    assert split.default.prior_epsilon == split_budget(epsilon, 12, records).prior
    assert 0 < split.best.prior_epsilon <= 0.75 * epsilon
    for share in (split.default, split.best):
        losses = simulate(RR_ON_BINS, SKEWED, records, epsilon, share.prior_epsilon, LOSS, range(6, 12))
        assert share.value == losses.mean()
        assert share.standard_error == pytest.approx(losses.std(ddof=1) / math.sqrt(6))
        assert share.parts == ()


@pytest.mark.parametrize(("records", "epsilon"), [(50, 0.5), (1000, 1.0), (1000, 4.0), (100_000, 1.0)])
def test_no_split_on_a_fine_grid_is_much_better(records: int, epsilon: float) -> None:
    """The search uses 40 draws; its result is compared with the whole grid on the next 40 draws."""
    split = plan_split(RR_ON_BINS, SKEWED, records, epsilon, LOSS, draws=40)

    grid = [split.default.prior_epsilon * 2 ** (step / 2) for step in range(-20, 5)]
    values = {
        e1: simulate(RR_ON_BINS, SKEWED, records, epsilon, e1, LOSS, range(40, 80))[:, 0]
        for e1 in grid
        if e1 <= 0.75 * epsilon
    }
    best = min(values, key=lambda e1: values[e1].mean())
    ours = simulate(RR_ON_BINS, SKEWED, records, epsilon, split.best.prior_epsilon, LOSS, range(40, 80))[:, 0]
    # On the same draws, the best split of the grid gains at most three standard errors, or 1 % of the loss.
    gained = ours - values[best]
    assert gained.mean() <= max(3 * gained.std(ddof=1) / math.sqrt(40), 0.01 * ours.mean())


def test_a_mechanism_that_ignores_the_prior_wants_the_least_for_it() -> None:
    split = plan_split(mechanism_named("rr"), SKEWED, 1000, 1.0, LOSS, draws=2)

    assert split.best.prior_epsilon == pytest.approx(split.default.prior_epsilon / 1024, rel=0.02)
    assert split.default.standard_error == 0
    assert split.known_prior == split.uniform_prior < split.best.value < split.default.value


def test_more_records_want_a_smaller_share() -> None:
    shares = [plan_split(RR_ON_BINS, SKEWED, n, 1.0, LOSS, draws=10).best.prior_epsilon for n in (30, 3000, 300_000)]
    assert shares[0] > shares[1] > shares[2]


def test_an_infinite_loss_has_no_error_bar() -> None:
    split = plan_split(mechanism_named("rr"), SKEWED, 1000, 1.0, expected_loss(SKEWED, POISSON), draws=2)
    assert split.default == split.best
    assert (split.default.value, split.default.standard_error) == (math.inf, math.inf)


@settings(max_examples=15, deadline=None)
@given(priors(), st.integers(1, 10**6), st.floats(0.01, 6))
def test_any_prior_can_be_planned_for(prior: Prior, records: int, epsilon: float) -> None:
    split = plan_split(RR_ON_BINS, prior, records, epsilon, expected_loss(prior, SQUARED), draws=1)
    tiny = 1e-9 * np.ptp(prior.labels) ** 2
    assert split.known_prior - tiny <= split.best.value <= split.default.value
    assert split.best.standard_error == split.default.standard_error == 0


def test_a_plan_for_a_model_with_all_of_its_parts() -> None:
    plan = plan_model(SKEWED, 1000, 1.0, 5, 0.3, draws=3)

    share, bias = plan.split.best, recommend(SKEWED, 1.0, 1000, 5, 0.3)
    assert plan.mechanism == f"bias_limited:bias={bias:g}"

    def measure(randomizer: Randomizer, prior_epsilon: float) -> tuple[float, ...]:
        error = linear_error(randomizer, SKEWED, 1000, 5, 0.3, mean_variance(SKEWED, 1000, prior_epsilon))
        return error.total, error.bias, error.variance

    limited = mechanism_named("bias_limited", bias=bias)
    again = simulate(limited, SKEWED, 1000, 1.0, share.prior_epsilon, measure, range(3, 6)).mean(axis=0)
    np.testing.assert_allclose([share.value, *share.parts], again, rtol=1e-12)
    assert share.value == pytest.approx(sum(share.parts))
    assert share.value <= min(plan.split.default.value, plan.rr_on_bins)
    unbiased = simulate(mechanism_named("unbiased"), SKEWED, 1000, 1.0, share.prior_epsilon, measure, range(3, 6))
    assert plan.unbiased == pytest.approx(unbiased[:, 0].mean())


@pytest.mark.parametrize(("records", "explained", "mechanism"), [(10**9, None, "unbiased"), (30, 0.02, "rr_on_bins")])
def test_a_plan_for_a_model_at_the_ends(records: int, explained: float | None, mechanism: str) -> None:
    plan = plan_model(SKEWED, records, 1.0, 10, explained, draws=2)

    assert plan.mechanism == mechanism
    same = plan.rr_on_bins if mechanism == "rr_on_bins" else plan.unbiased
    assert plan.split.best.value == same


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


def test_a_domain_of_one_label_needs_no_more_than_the_least_share() -> None:
    assert label_shares(1, [np.array([3.0]), FEW], mechanism_named("unbiased")) == [Fraction(1, 4), Fraction(3, 4)]
