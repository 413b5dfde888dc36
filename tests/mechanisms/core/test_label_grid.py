"""Label grid: exact decimals, correctly rounded, refusal of invalid grids, and the grid that mechanisms use.

Rounding to the domain: exactly to the nearest label, or unbiased at random to one of the two adjacent labels.
"""

import bisect
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import SQUARED, Prior, label_grid, solve
from labeldp.mechanisms.core.label_grid import DeclaredGrid, LabelRounder, _Cells, is_even, working_grid

LEAST = 2.0**-1020
"""Of smaller labels the half may be no float."""
REAL = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: 0.0 if abs(value) < LEAST else value)
UNEVEN = st.lists(REAL, min_size=1, max_size=20, unique=True).map(sorted)


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4), st.integers(1, 300), st.integers(0, 8))
def test_a_label_grid_holds_the_correctly_rounded_multiples(first, step, steps, digits):
    def decimal(units: int) -> str:
        return f"{units}e-{digits}"

    last = first + steps * step
    grid = label_grid(decimal(first), decimal(last), decimal(step))
    # float() rounds decimals correctly.
    assert grid.tolist() == [float(decimal(first + i * step)) for i in range(steps + 1)]
    assert np.all(np.diff(grid) > 0)


@pytest.mark.parametrize(
    ("low", "high", "step", "message"),
    [
        ("1", "0", "1", "label_min must be below label_max"),
        ("1", "1.0", "1", "label_min must be below label_max"),
        ("0", "1", "0", "label_step must be positive"),
        ("0", "1", "-0.1", "label_step must be positive"),
        ("0", "1", "0.3", "does not divide"),
        ("0", "1", "2", "does not divide"),
        ("0", "1048576", "1", "at most 1048576"),
        ("0", "1", "1e-300", "at most 1048576"),
        ("zero", "1", "1", "label_min must be a number"),
        ("0", "nan", "1", "label_max must be a number"),
        ("0", "inf", "1", "label_max must be a number"),
        ("0", "1", "", "label_step must be a number"),
        ("0", "1", "1/0", "label_step must be a number"),
        ("0", "1e101", "1e101", "label_max 1e101 or label_min 0 is above 1e"),
        ("-1e400", "0", "1e400", "scale the labels down"),
    ],
)
def test_a_bad_grid_is_refused_naming_the_flag(low, high, step, message):
    with pytest.raises(ValueError, match=message):
        label_grid(low, high, step)


@pytest.mark.parametrize("largest", [1.1e100, 1e200, -1e308])
def test_labels_whose_squares_are_no_floats_are_refused(largest):
    """Losses of such labels are infinite, and numpy warns about them on standard error."""
    with pytest.raises(ValueError, match=r"at most 1e\+100 in magnitude: scale the labels down"):
        Prior(np.sort([0.0, largest]), np.ones(2))
    Prior(np.array([-1e100, 1e100]), np.ones(2))


def even(low: int, steps: int, digits: int) -> np.ndarray:
    return label_grid(f"{low}e-{digits}", f"{low + steps}e-{digits}", f"1e-{digits}")


@settings(deadline=None)
@given(st.integers(-(10**5), 10**5), st.integers(1, 20_000), st.integers(0, 4), st.floats(0.01, 30))
def test_a_working_grid_keeps_the_range_and_is_fine_enough(low, steps, digits, epsilon):
    labels = even(low, steps, digits)
    used, declared = working_grid(labels, epsilon)
    assert (used[0], used[-1]) == (labels[0], labels[-1])
    assert is_even(used)
    assert len(used) <= 1025
    if declared is None:
        assert used is labels
    else:
        assert declared == DeclaredGrid(len(labels), epsilon)
        assert 256 < len(used) - 1 < steps
        # At most a hundredth of the least variance, up to the epsilon where 1,024 steps are the limit.
        assert epsilon > 7.8 or len(used) - 1 >= 20 * np.sinh(epsilon / 2)
        if steps % (len(used) - 1) == 0:
            assert set(used.tolist()) <= set(labels.tolist())


@pytest.mark.parametrize(
    ("steps", "epsilon", "used"),
    [(40_000, 1, 500), (1000, 1, 500), (4000, 1, 500), (600, 1, 300), (521, 1, 512), (10**6, 8, 1000), (1000, 8, 1000)],
)
def test_the_rule_of_the_working_grid(steps, epsilon, used):
    assert len(working_grid(even(0, steps, 2), epsilon)[0]) == used + 1


def test_a_coarser_step_with_the_same_grid_has_the_same_labels():
    fine, coarse = (working_grid(label_grid("0.1", "400.1", step), 1.0)[0] for step in ("0.01", "0.1"))
    assert np.array_equal(fine, coarse)
    assert np.array_equal(fine, label_grid("0.1", "400.1", "0.8"))


def test_uneven_labels_are_all_used_or_refused():
    labels = np.arange(4096.0) ** 2
    assert working_grid(labels, 1.0)[0] is labels
    with pytest.raises(ValueError, match="4,097 labels that are not evenly spaced"):
        working_grid(np.arange(4097.0) ** 2, 1.0)
    with pytest.raises(ValueError, match="epsilon must be between"):
        working_grid(np.arange(1000.0), 0.0)


@pytest.mark.parametrize("epsilon", [0.2, 1, 3, 6])
def test_no_unbiased_mechanism_has_less_variance_than_the_bound(epsilon):
    """Solves for the least variance at a single label, at the middle and at an end, which the whole weight is on."""
    labels = np.linspace(0, 8, 33)
    for place in (0, 8, 16):
        weights = np.full(33, 1e-9)
        weights[place] = 1
        least = solve("unbiased", Prior(labels, weights), epsilon).expected_loss(Prior(labels, weights), SQUARED)
        reach = max(labels[place], 8 - labels[place])
        assert least >= 0.999 * reach**2 / (4 * np.sinh(epsilon / 2) ** 2)


@pytest.mark.parametrize(
    ("mechanism", "epsilon"), [("unbiased", 1), ("unbiased", 4), ("rr_on_bins", 1), ("rr_on_bins", 4)]
)
@pytest.mark.parametrize("middle", [25.0, 320.0])
def test_a_working_grid_costs_next_to_nothing(mechanism, epsilon, middle):
    """Expected squared error on 513 labels, and on every fourth of them, fewer than any working grid has."""
    fine = np.linspace(0, 400, 513)
    prior = Prior(fine, np.exp(-np.abs(fine - middle) / 40))
    coarse = fine[::4]
    below = np.minimum(np.arange(513) // 4, 127)
    chance = (fine - coarse[below]) / (coarse[1] - coarse[0])
    folded = np.bincount(below, prior.weights * (1 - chance), 129) + np.bincount(below + 1, prior.weights * chance, 129)
    randomizer = solve(mechanism, Prior(coarse, folded), epsilon)
    squares = (randomizer.outputs - fine[:, None]) ** 2
    probabilities = randomizer.probabilities()
    rows = probabilities[below] * (1 - chance)[:, None] + probabilities[below + 1] * chance[:, None]
    error = float(prior.weights @ (rows * squares).sum(axis=1))
    assert error <= 1.015 * solve(mechanism, prior, epsilon).expected_loss(prior, SQUARED)


@st.composite
def grids(draw: st.DrawFn) -> list[float]:
    """Evenly spaced grids of decimals or of binary fractions, and almost evenly spaced ones."""
    k = draw(st.integers(1, 100))
    step = draw(st.one_of(st.fractions(Fraction(1, 1000), 1000), st.integers(-60, 60).map(lambda e: Fraction(2) ** e)))
    first = draw(st.integers(-1000, 1000)) * step
    wobble = draw(st.sampled_from([0.0, 0.0, 0.2, 0.45]))
    labels = np.array([float(first + i * step) for i in range(k)])
    labels += wobble * float(step) * np.sin(np.arange(k))
    return labels.tolist()


def nearest(labels: list[float], value: float) -> int:
    """Finds the index of the nearest label in exact arithmetic; ties go to the upper label."""
    above = bisect.bisect_left(labels, value)
    neighbours = [i for i in (above - 1, above) if 0 <= i < len(labels)]
    return min(neighbours, key=lambda i: (abs(Fraction(labels[i]) - Fraction(value)), -i))


def values_around(labels: list[float], data: st.DataObject) -> np.ndarray:
    """Labels, their midpoints, the floats adjacent to both, and values between and outside the labels."""
    some = data.draw(st.lists(st.sampled_from(range(len(labels))), max_size=8))
    means = [labels[i] * 0.5 + labels[i + 1] * 0.5 for i in some if i + 1 < len(labels)]
    between = [
        labels[i] * (1 - part) + labels[i + 1] * part
        for i in some
        if i + 1 < len(labels)
        for part in data.draw(st.lists(st.floats(0, 1), max_size=2))
    ]
    values = np.array([*(labels[i] for i in some), *means, *between, *data.draw(st.lists(REAL, max_size=3))])
    with np.errstate(over="ignore"):
        beside = [np.nextafter(values, math.inf), np.nextafter(values, -math.inf)]
    values = np.concatenate([values, *beside])
    return values[np.isfinite(values)]


# Nearest label.


@settings(deadline=None, max_examples=200)
@given(st.one_of(UNEVEN, grids()), st.data())
def test_the_nearest_label_in_exact_arithmetic_halfway_up(labels, data):
    values = values_around(labels, data)
    found = LabelRounder(np.array(labels)).nearest(values)
    assert found.tolist() == [nearest(labels, value) for value in values.tolist()]


def test_values_outside_the_domain_are_clamped_to_its_ends():
    rounder = LabelRounder(np.array([0.0, 1.0, 3.0]))
    values = np.array([-1e308, -0.1, 0.5, 2.0, np.nextafter(2.0, 0.0), 3.1, 1e308])
    assert rounder.nearest(values).tolist() == [0, 0, 1, 2, 1, 2, 2]
    outside = np.array([-1.7e308, -0.1, 3.1, 1.7e308])
    assert rounder.randomized(outside, no_words).tolist() == [0, 0, 2, 2]


DOMAINS = {
    "one": np.array([5.0]),
    "two": np.array([-1.0, 5.0]),
    "tenths": label_grid("0", "1", "0.1"),
    "integers": label_grid("-1000000", "1000000", "1000"),
    "many": label_grid("0", "100", "0.001"),
    "uneven": np.array([0.0, 1.0, 2.5, 4.0, 400.0]),
    "extremes": np.array([-1.7e308, 0.0, 5e-324, 1e-323, 2e-323, 1.7e308]),
    "tiny": np.array([5e-324, 1e-323, 2e-323, 3e-323]),
    "neighbouring floats": np.nextafter(1.0, [1.0, 2.0]),
}


@pytest.mark.parametrize("labels", DOMAINS.values(), ids=list(DOMAINS))
def test_every_label_is_itself(labels):
    rounder = LabelRounder(labels)
    assert rounder.nearest(labels).tolist() == list(range(len(labels)))
    assert rounder.randomized(labels, no_words).tolist() == list(range(len(labels)))


def test_even_grids_are_predicted_and_others_are_searched():
    """Ensures that the test of exactness covers both code paths."""
    for name, even in {"tenths": True, "integers": True, "many": True, "uneven": False, "extremes": False}.items():
        assert (_Cells(DOMAINS[name])._slope is not None) == even


@settings(deadline=None, max_examples=200)
@given(st.one_of(UNEVEN, grids()), st.data())
def test_cells_are_those_of_a_search(separators, data):
    values = values_around(separators, data)
    expected = np.searchsorted(separators, values, side="right")
    np.testing.assert_array_equal(_Cells(np.array(separators)).find(values), expected)


# Randomized rounding.


def no_words() -> np.ndarray:
    raise AssertionError("a word was asked for")


@settings(deadline=None, max_examples=200)
@given(st.one_of(UNEVEN, grids()), st.data())
def test_a_value_goes_up_for_its_share_of_the_words(labels, data):
    """Words on both sides of the exact threshold, 2^-51 away, show that the actual threshold lies between them."""
    values = values_around(labels, data)
    rounder = LabelRounder(np.array(labels))
    for value in values.tolist():
        clamped = min(max(value, labels[0]), labels[-1])
        below = sum(label <= clamped for label in labels) - 1
        if labels[below] == clamped:
            assert rounder.randomized(np.array([value]), no_words).tolist() == [below]
            continue
        a, b = Fraction(labels[below]), Fraction(labels[below + 1])
        chance = (Fraction(value) - a) / (b - a)
        slack = Fraction(1, 2**51)
        inside = max(math.ceil((chance - slack) * 2**64) - 1, -1)
        outside = math.ceil((chance + slack) * 2**64)
        asked = [(word, 1) for word in (0, inside // 2, inside) if 0 <= word <= inside]
        asked += [(word, 0) for word in (outside, 2**64 - 1) if outside <= word < 2**64]
        for word, up in asked:
            found = rounder.randomized(np.array([value]), lambda word=word: np.array([word], np.uint64))
            assert found.tolist() == [below + up]


def test_between_the_smallest_floats_a_value_goes_to_a_neighbour():
    """The midpoints of such labels are not exact floats and may coincide."""
    least = 5e-324
    rounder = LabelRounder(np.array([3 * least, 5 * least]))
    for word in (0, 2**64 - 1):
        assert rounder.randomized(np.array([4 * least]), lambda w=word: np.full(1, w, np.uint64)).tolist() in ([0], [1])
