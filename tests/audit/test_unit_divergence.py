"""The auditor's composition over the records of a unit: brute force, planted breaks, and the solver's own bound."""

import itertools
import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit import unit_divergence as audited
from labeldp.audit.documents import RefusedDocument
from labeldp.audit.unit_divergence import unit_divergence
from labeldp.mechanisms import Prior, Randomizer, mechanism_named
from labeldp.mechanisms.composition import unit_composition
from labeldp.mechanisms.composition.loss_distribution import loss_distribution, worst_pair_curve
from labeldp.mechanisms.composition.unit_composition import optimal_delta, solve_for_unit

BITS = 10
PRIOR = Prior(np.arange(12.0), np.arange(1.0, 13.0))


@st.composite
def rows_of_weights(draw: st.DrawFn) -> list[list[int]]:
    """Positive weights of 2 or 3 labels and 2 or 3 outputs; rows sum to 2^10."""
    labels, outputs = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    free = (1 << BITS) - 8 * outputs
    cuts = st.lists(st.integers(0, free), min_size=outputs - 1, max_size=outputs - 1).map(sorted)
    return [[int(part) + 8 for part in np.diff([0, *draw(cuts), free])] for _ in range(labels)]


def columns_of(rows: list[list[int]]) -> list[Any]:
    """Run-length encoded columns, as a mechanism file has them."""
    return [
        [[str(weight), len(list(run))] for weight, run in itertools.groupby(column)]
        for column in zip(*rows, strict=True)
    ]


def bound(rows: list[list[int]], records: int, epsilon: float, **enough: Fraction) -> Fraction:
    return unit_divergence(columns_of(rows), len(rows), BITS, records, Fraction(epsilon), **enough)


def exponential(epsilon: float) -> Fraction:
    with localcontext() as context:
        context.prec = 80
        return Fraction(Decimal(epsilon).exp())


def worst_of_all(rows: list[list[int]], records: int, factor: Fraction) -> Fraction:
    """The largest divergence over all pairs of tuples of labels, exactly. Other orders of a tuple have the same one."""

    def joint(choice: list[list[int]]) -> list[int]:
        return reduce(lambda one, two: [p * q for p in one for q in two], choice, [1])

    best = Fraction(0)
    for choice in itertools.combinations_with_replacement(itertools.product(rows, repeat=2), records):
        first, second = joint([one for one, _ in choice]), joint([two for _, two in choice])
        terms = [factor.denominator * p - factor.numerator * q for p, q in zip(first, second, strict=True)]
        best = max(best, Fraction(sum(term for term in terms if term > 0), factor.denominator))
    return best / sum(rows[0]) ** records


@settings(deadline=None, max_examples=60)
@given(rows=rows_of_weights(), records=st.sampled_from([1, 2, 3]), epsilon=st.sampled_from([0.0, 0.3, 1.0, 2.5]))
def test_no_labels_of_a_unit_exceed_the_bound(rows: list[list[int]], records: int, epsilon: float) -> None:
    exact = worst_of_all(rows, records, exponential(epsilon))
    assert exact <= bound(rows, records, epsilon) + Fraction(1, 10**45)


@settings(deadline=None, max_examples=40)
@given(rows=rows_of_weights(), records=st.sampled_from([1, 2, 3]), epsilon=st.sampled_from([0.0, 0.3, 1.0, 2.5]))
def test_two_mirrored_labels_attain_it(rows: list[list[int]], records: int, epsilon: float) -> None:
    pair = [rows[0], rows[0][::-1]]
    exact = worst_of_all(pair, records, exponential(epsilon))
    found = bound(pair, records, epsilon)
    assert exact <= found + Fraction(1, 10**45)
    assert found - exact <= Fraction(1, 1000)


@settings(deadline=None, max_examples=40)
@given(rows=rows_of_weights(), records=st.integers(1, 40), epsilon=st.sampled_from([0.0, 0.3, 1.0, 2.5]))
def test_it_is_at_most_the_bound_of_the_solver(rows: list[list[int]], records: int, epsilon: float) -> None:
    """Its grid is finer, so what the solver proves with its margin passes the audit."""
    curve = worst_pair_curve(np.array(rows, np.uint64), BITS)
    ours = loss_distribution(curve).composed(records).delta(epsilon)
    found = bound(rows, records, epsilon)
    assert found <= ours * (1 + Fraction(1, 1 << 21)) + Fraction(1, 10**20)
    assert found >= ours * Fraction(4, 5) - Fraction(1, 10**3)


@settings(deadline=None, max_examples=40)
@given(rows=rows_of_weights(), records=st.integers(1, 30), epsilon=st.sampled_from([0.0, 0.3, 1.0]))
def test_it_grows_with_records_and_falls_with_epsilon(rows: list[list[int]], records: int, epsilon: float) -> None:
    found, unit = bound(rows, records, epsilon), Fraction(1, 10**20)
    assert found <= bound(rows, records + 1, epsilon) + unit
    assert bound(rows, records, epsilon + 0.1) <= found + unit


def file_of(randomizer: Randomizer) -> tuple[list[Any], int]:
    document = json.loads(randomizer.to_json())
    return document["columns"], len(document["labels"])


@pytest.mark.parametrize("name", ["rr", "rr_on_bins", "unbiased", "laplace", "exponential"])
@pytest.mark.parametrize(("epsilon", "delta", "records"), [(1.0, 1e-6, 2), (4.0, 1e-6, 10), (1.0, 1e-9, 50)])
def test_what_the_solver_finds_passes_and_what_is_too_small_is_refused(
    name: str, epsilon: float, delta: float, records: int
) -> None:
    mechanism = mechanism_named(name)
    found = solve_for_unit(lambda each: mechanism.solve(PRIOR, each), epsilon, delta, records)
    columns, labels = file_of(found.randomizer)
    claim = Fraction(delta)

    def proven(of_epsilon: float, of_delta: Fraction, of_records: int) -> bool:
        return unit_divergence(columns, labels, 62, of_records, Fraction(of_epsilon), of_delta) <= of_delta

    assert proven(epsilon, claim, records)
    assert proven(epsilon, Fraction(found.proven_delta) * (1 + Fraction(1, 1 << 20)) + Fraction(1, 10**20), records)
    # The solver's proof is sharp: an epsilon, or a number of records, that is 5 % off does not pass.
    assert not proven(0.95 * found.proven_epsilon, claim, records)
    assert not proven(found.proven_epsilon, claim, records + max(1, records // 20))


@pytest.mark.parametrize("name", ["rr_on_bins", "unbiased"])
def test_a_randomizer_of_a_larger_epsilon_is_refused(name: str) -> None:
    """Both have the losses of binary randomized response here, so the closed form leaves nothing."""
    mechanism = mechanism_named(name)
    found = solve_for_unit(lambda epsilon: mechanism.solve(PRIOR, epsilon), 1.0, 1e-6, 20)
    columns, labels = file_of(mechanism.solve(PRIOR, 1.05 * found.randomizer.epsilon))
    assert unit_divergence(columns, labels, 62, 20, Fraction(1), Fraction(1e-6)) > Fraction(1e-6)


def test_one_changed_weight_is_noticed() -> None:
    """One label's probability of one output grows by 5 %, at the expense of its most likely output."""
    randomizer = mechanism_named("rr").solve(PRIOR, 0.5)
    rows = randomizer.weights.tolist()
    changed = [list(row) for row in rows]
    more = rows[3][3] // 20
    changed[3][3] += more
    changed[3][5] -= more
    before, after = (unit_divergence(columns_of(each), 12, 62, 10, Fraction(3)) for each in (rows, changed))
    assert after > before * Fraction(6, 5)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.7, 3.0])
def test_binary_randomized_response_has_the_closed_form(epsilon: float) -> None:
    randomizer = mechanism_named("rr").solve(Prior(np.arange(2.0), np.ones(2)), 0.3)
    columns, labels = file_of(randomizer)
    found = unit_divergence(columns, labels, 62, 10, Fraction(epsilon))
    assert float(found) == pytest.approx(
        float(optimal_delta(randomizer.certificate().epsilon, 10, epsilon)), rel=1e-12, abs=1e-18
    )


def test_epsilons_that_add_up_need_no_delta() -> None:
    columns, labels = file_of(mechanism_named("unbiased").solve(PRIOR, 0.25))
    assert unit_divergence(columns, labels, 62, 4, Fraction(1)) == 0
    assert unit_divergence(columns, labels, 62, 5, Fraction(1)) > 0


def test_an_output_that_only_some_labels_have_has_no_bound() -> None:
    assert bound([[512, 512, 0], [512, 256, 256]], 2, 1.0) == 1


def test_a_randomizer_that_ignores_the_label_has_no_divergence() -> None:
    assert bound([[512, 512], [512, 512]], 9, 0.0) == 0


def test_large_mechanisms_have_the_bound_of_randomized_response(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, labels = file_of(mechanism_named("rr").solve(PRIOR, 0.5))
    exact = unit_divergence(columns, labels, 62, 10, Fraction(2))
    monkeypatch.setattr(audited, "_MOST_SEGMENTS", 11)
    assert unit_divergence(columns, labels, 62, 10, Fraction(2)) > 2 * exact
    monkeypatch.setattr(audited, "_MOST_SEGMENTS", 12)
    assert unit_divergence(columns, labels, 62, 10, Fraction(2)) == exact
    monkeypatch.setattr(audited, "_MOST_PAIRS_OF_RUNS", 20)
    assert unit_divergence(columns, labels, 62, 10, Fraction(2)) > 2 * exact


@pytest.mark.parametrize(
    "ratio", [Fraction(2), Fraction((1 << 62) - 1, 3), Fraction((1 << 62) + 1, 1 << 62), Fraction(1)]
)
def test_roots_are_rounded_up(ratio: Fraction) -> None:
    root = audited._root(ratio)
    assert Fraction(root, 1 << 160) ** 64 >= ratio
    assert Fraction(root - 3, 1 << 160) ** 64 < ratio


@settings(deadline=None)
@given(*[st.lists(st.integers(0, 1 << 100), min_size=1, max_size=9)] * 2)
def test_products_are_those_of_polynomials_rounded_up(first: list[int], second: list[int]) -> None:
    exact = [0] * (len(first) + len(second) - 1)
    for i, one in enumerate(first):
        for j, two in enumerate(second):
            exact[i + j] += one * two
    assert audited._multiplied(first, second) == [-(-value >> 100) for value in exact]


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(0, 1 << 170), min_size=64, max_size=64), st.integers(1, 1 << 159))
def test_masses_are_the_changes_of_slope_of_the_curve(points: list[int], above: int) -> None:
    root = (1 << 160) + above
    divergences = [*(Fraction(point, 1 << 170) for point in points), Fraction(0)]
    step = Fraction(root, 1 << 160)
    curve = [(1 / step**j, 1 - (1 - divergences[j]) / step**j) for j in range(64, 0, -1)]
    curve += [(step**j, divergence) for j, divergence in enumerate(divergences)]
    slopes = [(v - u) / (y - x) for (x, u), (y, v) in itertools.pairwise(curve)]
    changes = [right - left for left, right in itertools.pairwise([Fraction(-1), *slopes, Fraction(0)])]
    exact = [ratio * change for (ratio, _), change in zip(curve, changes, strict=True)]
    assert audited._masses(divergences, root) == [max(math.ceil(mass * (1 << 100)), 0) for mass in exact]


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 97), min_size=3, max_size=9), st.integers(1, 1 << 159), st.integers(0, 1 << 162))
def test_the_divergence_is_rounded_up(masses: list[int], above: int, more: int) -> None:
    masses = masses[: len(masses) - 1 + len(masses) % 2]
    root, factor = (1 << 160) + above, (1 << 160) + more
    half, exact = len(masses) // 2, Fraction(0)
    for place, mass in enumerate(masses[half:]):
        share = Fraction(factor, 1 << 160) / Fraction(root, 1 << 160) ** place
        exact += Fraction(mass, 1 << 100) * max(1 - share, Fraction(0))
    assert exact <= audited._divergence(masses, root, factor) <= exact + Fraction(1, 1 << 140)


def test_solver_and_auditor_have_the_same_limits() -> None:
    """Otherwise the solver would prove what no audit can check."""
    assert unit_composition._MOST_SEGMENTS == audited._MOST_SEGMENTS
    assert unit_composition._MOST_PAIRS_OF_RUNS == audited._MOST_PAIRS_OF_RUNS


@pytest.mark.parametrize(
    ("columns", "labels", "records", "epsilon"),
    [
        ([[["512", 2]], [["512", 1]]], 2, 2, 1),
        ([[["512", 2]], [["x", 2]]], 2, 2, 1),
        ([[["512", 2]], [["512", 2]]], 2, 0, 1),
        ([[["512", 2]], [["512", 2]]], 2, 1001, 1),
        ([[["512", 2]], [["512", 2]]], 2, 2, 65),
        ([None], 2, 2, 1),
    ],
)
def test_malformed_files_are_refused(columns: list[Any], labels: int, records: int, epsilon: int) -> None:
    with pytest.raises(RefusedDocument):
        unit_divergence(columns, labels, BITS, records, Fraction(epsilon))


def test_many_records() -> None:
    columns, labels = file_of(mechanism_named("rr").solve(PRIOR, 0.1))
    found = unit_divergence(columns, labels, 62, 300, Fraction(2), Fraction(1, 10**9))
    ours = loss_distribution(worst_pair_curve(mechanism_named("rr").solve(PRIOR, 0.1).weights, 62)).composed(300)
    assert math.isclose(found, ours.delta(2.0), rel_tol=1e-6)
