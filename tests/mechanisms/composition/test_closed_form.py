"""Closed form of the optimal composition against the published sums, loss distributions and dp-accounting."""

import math
from fractions import Fraction
from typing import Any

import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.composition.closed_form import optimal_delta, optimal_label_epsilon
from labeldp.mechanisms.composition.loss_curve import response_curve
from labeldp.mechanisms.composition.loss_distribution import loss_distribution

RECORDS = st.integers(1, 60)
LABEL_EPSILONS = st.sampled_from([1e-9, 1e-3, 0.1, 0.5, 2.0])
DELTAS = [1e-12, 1e-9, 1e-6, 1e-3]


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


def test_label_epsilons_are_monotone() -> None:
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
