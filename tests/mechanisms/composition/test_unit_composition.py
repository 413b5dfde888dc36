"""Closed form of the optimal composition against the published sums, loss distributions and dp-accounting.

Search of the randomizer of a unit: what it proves holds by other bounds, and it stops close to the best epsilon.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, Randomizer, mechanism_named
from labeldp.mechanisms.composition import unit_composition
from labeldp.mechanisms.composition.loss_distribution import (
    loss_distribution,
    response_curve,
    worst_pair_curve,
)
from labeldp.mechanisms.composition.unit_composition import (
    DELTA_MARGIN,
    UnitRandomizer,
    optimal_delta,
    optimal_label_epsilon,
    solve_for_unit,
)

RECORDS = st.integers(1, 60)
LABEL_EPSILONS = st.sampled_from([1e-9, 1e-3, 0.1, 0.5, 2.0])
DELTAS = [1e-12, 1e-9, 1e-6, 1e-3]
PRIOR = Prior(np.arange(12.0), np.arange(1.0, 13.0))


def published(label_epsilon: float, records: int, place: int) -> float:
    """Theorem 3.3: delta at (records - 2 place) label_epsilon, in floats."""
    total = math.fsum(
        math.comb(records, flips)
        * (math.exp((records - flips) * label_epsilon) - math.exp((records - 2 * place + flips) * label_epsilon))
        for flips in range(place)
    )
    return total / (1 + math.exp(label_epsilon)) ** records


@settings(deadline=None)
@given(RECORDS, st.sampled_from([0.1, 0.5, 2.0]), st.data())
def test_deltas_are_those_of_the_theorem(records: int, label_epsilon: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, records // 2))
    found = optimal_delta(label_epsilon, records, (records - 2 * place) * label_epsilon)
    assert float(found) == pytest.approx(published(label_epsilon, records, place), rel=1e-9, abs=1e-15)


@settings(deadline=None)
@given(RECORDS, LABEL_EPSILONS, st.floats(0, 5))
def test_the_sum_is_that_of_the_loss_distribution(records: int, label_epsilon: float, epsilon: float) -> None:
    found = optimal_delta(label_epsilon, records, epsilon)
    other = loss_distribution(response_curve(label_epsilon)).composed(records).delta(epsilon)
    assert abs(found - other) <= Fraction(1, 10**20)


@settings(deadline=None)
@given(records=st.integers(1, 12), label_epsilon=st.sampled_from([0.1, 0.5, 2.0]), epsilon=st.floats(0, 2))
def test_the_sum_is_rounded_up(records: int, label_epsilon: float, epsilon: float, exp_bracket: Any) -> None:
    x, factor = exp_bracket(Fraction(label_epsilon))[0], exp_bracket(Fraction(epsilon))[1]
    below = Fraction(0)
    for flips in range(records + 1):
        below += math.comb(records, flips) * max(x ** (records - flips) - factor * x**flips, Fraction(0))
    below /= (1 + x) ** records
    found = optimal_delta(label_epsilon, records, epsilon)
    assert below <= found <= below + Fraction(1, 10**25)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(1, 2000), st.floats(0, 5))
def test_dp_accounting_gives_the_same_deltas(records: int, steps: int, epsilon: float) -> None:
    interval = 2.0**-10
    single = from_privacy_parameters(
        DifferentialPrivacyParameters(steps * interval, 0.0), value_discretization_interval=interval
    )
    theirs = single.self_compose(records, tail_mass_truncation=0).get_delta_for_epsilon(epsilon)
    assert float(optimal_delta(steps * interval, records, epsilon)) == pytest.approx(theirs, rel=1e-6, abs=1e-12)


@settings(deadline=None)
@given(RECORDS, LABEL_EPSILONS, st.floats(0, 5))
def test_delta_is_monotone(records: int, label_epsilon: float, epsilon: float) -> None:
    found = optimal_delta(label_epsilon, records, epsilon)
    assert found <= optimal_delta(label_epsilon, records + 1, epsilon) + Fraction(1, 10**20)
    assert found <= optimal_delta(label_epsilon * 1.01, records, epsilon)
    assert found >= optimal_delta(label_epsilon, records, epsilon + 0.01)
    assert 0 <= found <= 1


def test_epsilons_that_add_up_need_no_delta() -> None:
    assert optimal_delta(0.25, 4, 1.0) == 0
    assert optimal_delta(0.25, 4, math.nextafter(1.0, 0)) > 0
    assert optimal_delta(0.0, 7, 0.0) == 0


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 100), st.sampled_from([0.01, 1.0, 4.0, 12.0]), st.sampled_from(DELTAS))
def test_label_epsilons_are_the_largest_that_hold(records: int, epsilon: float, delta: float) -> None:
    found = optimal_label_epsilon(epsilon, delta, records)
    assert optimal_delta(found, records, epsilon) <= Fraction(delta)
    assert epsilon / records * (1 - 1e-15) <= found <= epsilon
    if found < epsilon:
        assert optimal_delta(found * (1 + 2.0**-19), records, epsilon) > Fraction(delta)


def test_optimal_label_epsilons_are_monotone() -> None:
    by_records = [optimal_label_epsilon(1.0, 1e-6, records) for records in range(1, 40)]
    assert by_records == sorted(by_records, reverse=True)
    by_delta = [optimal_label_epsilon(1.0, delta, 20) for delta in DELTAS]
    assert by_delta == sorted(by_delta)
    by_epsilon = [optimal_label_epsilon(epsilon, 1e-6, 20) for epsilon in (0.1, 0.5, 1.0, 4.0)]
    assert by_epsilon == sorted(by_epsilon)


def test_without_a_delta_epsilons_add_up() -> None:
    for records in (1, 3, 7, 50):
        found = optimal_label_epsilon(1.0, 0.0, records)
        assert records * Fraction(found) <= 1 < records * Fraction(math.nextafter(found, 9))


def test_many_records_gain_the_square_root() -> None:
    """About epsilon / sqrt(2 M ln(1 / delta)) each, instead of epsilon / M."""
    found = optimal_label_epsilon(1.0, 1e-6, 1000)
    assert 5 < found * 1000 < 9


@pytest.mark.parametrize(
    ("epsilon", "delta", "records", "message"),
    [
        (31.0, 1e-6, 2, "epsilon must be"),
        (1.0, 1.0, 2, "delta must be"),
        (1.0, -0.1, 2, "delta must be"),
        (1.0, 1e-6, 0, "1 to 1000 records"),
        (1.0, 1e-6, 1001, "1 to 1000 records"),
        (1e-9, 0.0, 2, "epsilon must be"),
    ],
)
def test_wrong_arguments_are_refused(epsilon: float, delta: float, records: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimal_label_epsilon(epsilon, delta, records)


def test_a_wrong_label_epsilon_is_refused() -> None:
    for wrong in (-0.1, 30.5, math.nan):
        with pytest.raises(ValueError, match="label_epsilon"):
            optimal_delta(wrong, 2, 1.0)


class Solver:
    """A mechanism that remembers the epsilons it was solved for."""

    def __init__(self, name: str):
        self.mechanism = mechanism_named(name)
        self.epsilons: list[float] = []

    def __call__(self, epsilon: float) -> Randomizer:
        self.epsilons.append(epsilon)
        return self.mechanism.solve(PRIOR, epsilon)


CASES = [(1.0, 1e-6, 2), (4.0, 1e-6, 10), (1.0, 1e-9, 50), (0.1, 1e-12, 5)]


@pytest.mark.parametrize("name", ["rr", "rr_on_bins", "unbiased", "laplace", "exponential"])
@pytest.mark.parametrize(("epsilon", "delta", "records"), CASES)
def test_what_is_found_is_proven(
    name: str, epsilon: float, delta: float, records: int, accounting_distribution: Any
) -> None:
    solver = Solver(name)
    found = solve_for_unit(solver, epsilon, delta, records)
    assert found.proven_epsilon <= epsilon
    assert found.proven_delta <= delta
    assert len(solver.epsilons) <= 16
    assert found.randomizer.epsilon >= optimal_label_epsilon(epsilon, Fraction(delta) * (1 - DELTA_MARGIN), records)
    theirs = accounting_distribution(worst_pair_curve(found.randomizer.weights, 62), records)
    assert theirs.get_delta_for_epsilon(epsilon) <= delta * (1 + 1e-6) + 1e-13


@pytest.mark.parametrize("name", ["rr", "unbiased", "exponential"])
def test_the_next_epsilon_of_the_grid_is_refused(name: str, composed_losses: Any) -> None:
    solver = Solver(name)
    found = solve_for_unit(solver, 4.0, 1e-6, 20)
    larger = solver.mechanism.solve(PRIOR, found.randomizer.epsilon * (1 + 1 / 64))
    assert composed_losses(larger.weights, 62, 20).delta(4.0) > Fraction(1e-6) * (1 - DELTA_MARGIN)


def test_randomized_response_over_many_labels_gains_more_than_the_closed_form() -> None:
    found = solve_for_unit(Solver("rr"), 4.0, 1e-6, 20)
    assert found.randomizer.epsilon > 1.3 * optimal_label_epsilon(4.0, 1e-6, 20)


def test_two_bins_have_the_closed_form() -> None:
    """rr_on_bins has two outputs at a small epsilon: binary randomized response, which attains the closed form."""
    solver = Solver("rr_on_bins")
    found = solve_for_unit(solver, 1.0, 1e-6, 50)
    assert found.randomizer.epsilon == solver.epsilons[0]
    assert len(solver.epsilons) == 2


def test_without_a_delta_the_epsilons_add_up() -> None:
    solver = Solver("unbiased")
    found = solve_for_unit(solver, 1.0, 0.0, 7)
    assert len(solver.epsilons) == 1
    assert 7 * Fraction(found.randomizer.epsilon) <= 1
    assert 0.999 < found.proven_epsilon <= 1.0
    assert found.proven_delta == 0


def test_a_single_record_gets_the_whole_epsilon() -> None:
    solver = Solver("rr_on_bins")
    found = solve_for_unit(solver, 1.5, 1e-6, 1)
    assert solver.epsilons == [1.5]
    assert found.proven_epsilon <= 1.5


def test_label_epsilons_are_monotone() -> None:
    def label_epsilons(cases: list[tuple[float, float, int]]) -> list[float]:
        return [solve_for_unit(Solver("exponential"), *case).randomizer.epsilon for case in cases]

    tolerance = 1 + 1 / 64
    for cases in (
        [(1.0, 1e-6, records) for records in (40, 20, 10, 3, 2, 1)],
        [(1.0, delta, 10) for delta in (0.0, 1e-12, 1e-9, 1e-6, 1e-3)],
        [(epsilon, 1e-6, 10) for epsilon in (0.1, 0.5, 1.0, 4.0)],
    ):
        found = label_epsilons(cases)
        assert all(after * tolerance >= before for before, after in pairwise(found))


def test_a_repeated_search_gives_the_same_bytes() -> None:
    first, second = (solve_for_unit(Solver("laplace"), 4.0, 1e-6, 50) for _ in range(2))
    assert first.randomizer.to_json() == second.randomizer.to_json()
    assert (first.proven_epsilon, first.proven_delta) == (second.proven_epsilon, second.proven_delta)


def test_floating_point_logarithms_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's logarithm differs between CPUs in its last bits; with other last bits the result is the same."""
    expected = solve_for_unit(Solver("laplace"), 4.0, 1e-6, 50)
    real = np.log

    def other(x: np.ndarray) -> np.ndarray:
        return np.nextafter(np.nextafter(real(x), 99.0), 99.0)

    monkeypatch.setattr("labeldp.mechanisms.composition.loss_distribution.np.log", other)
    found = solve_for_unit(Solver("laplace"), 4.0, 1e-6, 50)
    assert found.randomizer.to_json() == expected.randomizer.to_json()
    assert found.proven_delta == expected.proven_delta


def test_randomizers_that_are_too_large_for_an_audit_get_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = optimal_label_epsilon(4.0, Fraction(1e-6) * (1 - DELTA_MARGIN), 20)
    monkeypatch.setattr(unit_composition, "_MOST_SEGMENTS", 5)
    solver = Solver("rr")
    found = solve_for_unit(solver, 4.0, 1e-6, 20)
    assert solver.epsilons == [expected]
    assert math.isclose(found.proven_epsilon, 4.0, rel_tol=1e-6)
    assert found.proven_delta <= 1e-6


def constant(randomizer: Randomizer) -> Callable[[float], Randomizer]:
    return lambda epsilon: randomizer


def test_a_mechanism_that_misses_its_epsilon_is_refused() -> None:
    for delta in (0.0, 1e-6):
        with pytest.raises(ValueError, match="does not satisfy epsilon"):
            solve_for_unit(constant(Solver("rr")(1.0)), 1.0, delta, 2)


def test_a_mechanism_with_a_delta_of_its_own_is_refused() -> None:
    gaussian = mechanism_named("gaussian", delta=1e-6).solve(PRIOR, 0.5)
    with pytest.raises(ValueError, match="pure label DP"):
        solve_for_unit(constant(gaussian), 1.0, 1e-6, 2)


@pytest.mark.parametrize("delta", [-1e-6, 1e-16, 1.0, math.nan])
def test_a_delta_out_of_range_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be 0, or at least 1e-15"):
        solve_for_unit(Solver("rr"), 1.0, delta, 2)


def test_the_result_is_a_plain_record() -> None:
    found = solve_for_unit(Solver("rr"), 1.0, 1e-6, 2)
    assert found == UnitRandomizer(found.randomizer, 2, 1.0, 1e-6, found.proven_epsilon, found.proven_delta)
