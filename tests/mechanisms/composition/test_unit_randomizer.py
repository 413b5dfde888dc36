"""Search of the randomizer of a unit: what it proves holds by other bounds, and it stops close to the best epsilon."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from labeldp.mechanisms import Prior, Randomizer, mechanism_named
from labeldp.mechanisms.composition import unit_randomizer
from labeldp.mechanisms.composition.closed_form import optimal_label_epsilon
from labeldp.mechanisms.composition.loss_curve import worst_pair_curve
from labeldp.mechanisms.composition.loss_distribution import composed_losses
from labeldp.mechanisms.composition.second_opinion import accounting_distribution
from labeldp.mechanisms.composition.unit_randomizer import DELTA_MARGIN, UnitRandomizer, solve_for_unit

PRIOR = Prior(np.arange(12.0), np.arange(1.0, 13.0))


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
def test_what_is_found_is_proven(name: str, epsilon: float, delta: float, records: int) -> None:
    solver = Solver(name)
    found = solve_for_unit(solver, epsilon, delta, records)
    assert found.proven_epsilon <= epsilon
    assert found.proven_delta <= delta
    assert len(solver.epsilons) <= 16
    assert found.randomizer.epsilon >= optimal_label_epsilon(epsilon, Fraction(delta) * (1 - DELTA_MARGIN), records)
    theirs = accounting_distribution(worst_pair_curve(found.randomizer.weights, 62), records)
    assert theirs.get_delta_for_epsilon(epsilon) <= delta * (1 + 1e-6) + 1e-13


@pytest.mark.parametrize("name", ["rr", "unbiased", "exponential"])
def test_the_next_epsilon_of_the_grid_is_refused(name: str) -> None:
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

    monkeypatch.setattr("labeldp.mechanisms.composition.loss_curve.np.log", other)
    found = solve_for_unit(Solver("laplace"), 4.0, 1e-6, 50)
    assert found.randomizer.to_json() == expected.randomizer.to_json()
    assert found.proven_delta == expected.proven_delta


def test_randomizers_that_are_too_large_for_an_audit_get_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = optimal_label_epsilon(4.0, Fraction(1e-6) * (1 - DELTA_MARGIN), 20)
    monkeypatch.setattr(unit_randomizer, "_MOST_SEGMENTS", 5)
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
