"""Rounding to the domain: exactly to the nearest label, or unbiased at random to one of the two adjacent labels."""

import bisect
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import label_grid
from labeldp.mechanisms.core.label_rounding import LabelRounder, _Cells
from labeldp.mechanisms.noise.keyed_words import words
from labeldp.mechanisms.noise.record_identities import row_identities

KEY = bytes(range(32))

LEAST = 2.0**-1020
"""Of smaller labels the half may be no float."""
REAL = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: 0.0 if abs(value) < LEAST else value)
UNEVEN = st.lists(REAL, min_size=1, max_size=20, unique=True).map(sorted)


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


@settings(deadline=None)
@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=30, unique=True).map(sorted),
    st.lists(st.integers(-8200, 8200), max_size=30),
)
def test_of_integers_in_eighths_the_nearest_halfway_up(labels, eighths):
    values = np.array(eighths, np.float64) / 8
    found = LabelRounder(np.array(labels, np.float64)).nearest(values)
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


@pytest.mark.parametrize("labels", DOMAINS.values(), ids=list(DOMAINS))
def test_of_no_value_there_is_no_label(labels):
    assert LabelRounder(labels).nearest(np.array([])).shape == (0,)
    assert LabelRounder(labels).randomized(np.array([]), no_words).shape == (0,)


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


def word_of(unit: float) -> int:
    """Returns the least word whose 53 leading bits, read as a fraction, are at least `unit`."""
    return math.ceil(unit * 2.0**53) << 11


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


@pytest.mark.parametrize("eighths", range(1, 8))
def test_over_all_leading_bits_the_mean_is_exact(eighths):
    """Of 2^12 evenly spaced words, exactly the expected share rounds up."""
    drawn = np.arange(1 << 12, dtype=np.uint64) << np.uint64(52)
    value = 2.0 + eighths / 8 * 4
    indices = LabelRounder(np.array([0.0, 2.0, 6.0])).randomized(np.full(1 << 12, value), lambda: drawn)
    assert np.array([0.0, 2.0, 6.0])[indices].mean() == value


@pytest.mark.parametrize("labels", [label_grid("0", "52", "1"), np.array([0.0, 1.0, 2.5, 40.0])], ids=["even", "not"])
def test_under_keyed_words_the_mean_is_the_value(labels):
    """Rounds each value a thousand times. The mean of n roundings in a gap g has an error above g t / sqrt(n) with a
    probability of at most 2 exp(-2 t^2), by Hoeffding's inequality; t = 3.2 gives 3e-9 per value."""
    rng = np.random.default_rng(4)
    values = np.repeat(rng.uniform(labels[0], labels[-1], 200), 1000)
    drawn = words(KEY, b"rounding", row_identities("a", np.arange(len(values))))
    indices = LabelRounder(labels).randomized(values, lambda: drawn)
    below = np.searchsorted(labels, values, side="right") - 1
    assert set((indices - below).tolist()) == {0, 1}
    gaps = (labels[below + 1] - labels[below]).reshape(200, 1000)[:, 0]
    errors = (labels[indices] - values).reshape(200, 1000).mean(axis=1)
    assert np.all(np.abs(errors) <= gaps * 3.2 / math.sqrt(1000))


def test_a_value_between_goes_both_ways_and_no_further():
    values = np.array([0.5, 2.0, 2.5, 39.9])
    rounder = LabelRounder(np.array([0.0, 1.0, 3.0, 40.0]))
    low, high = (rounder.randomized(values, lambda w=w: np.full(4, w, np.uint64)) for w in (0, 2**64 - 1))
    assert (low.tolist(), high.tolist()) == ([1, 2, 2, 3], [0, 1, 1, 2])


def test_values_are_left_as_they_are():
    values = np.array([-5.0, 0.25, 7.0])
    LabelRounder(np.array([0.0, 1.0])).randomized(values, lambda: np.zeros(3, np.uint64))
    assert values.tolist() == [-5.0, 0.25, 7.0]


def test_between_the_smallest_floats_a_value_goes_to_a_neighbour():
    """The midpoints of such labels are not exact floats and may coincide."""
    least = 5e-324
    rounder = LabelRounder(np.array([3 * least, 5 * least]))
    for word in (0, 2**64 - 1):
        assert rounder.randomized(np.array([4 * least]), lambda w=word: np.full(1, w, np.uint64)).tolist() in ([0], [1])
