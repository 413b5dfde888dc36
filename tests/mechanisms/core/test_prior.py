"""The prior, its domain and its budget: validation, exact grids, and the differential privacy of the histogram."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, label_grid, solve, split_budget
from labeldp.mechanisms.core.budget import check_epsilon
from labeldp.mechanisms.core.exact_bounds import round_down, round_up
from labeldp.mechanisms.noise import noisy_histogram
from labeldp.mechanisms.noise.discrete_laplace import ByteStream, discrete_laplace
from labeldp.mechanisms.noise.noisy_histogram import noisy_prior

KEY = bytes(range(32))
EPSILON = st.floats(2e-9, 30.0)


# The distribution.


def test_weights_are_normalised_and_frozen():
    prior = Prior(np.array([0, 1, 2]), np.array([6, 2, 2]))
    np.testing.assert_allclose(prior.weights, [0.6, 0.2, 0.2], rtol=1e-15)
    assert prior.labels.dtype == prior.weights.dtype == np.float64
    for array in (prior.labels, prior.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_prior_does_not_alias_what_it_was_given():
    labels, weights = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    prior = Prior(labels, weights)
    labels[0] = weights[0] = 9.0
    assert prior.labels.tolist() == [0.0, 1.0]
    assert prior.weights.tolist() == [0.5, 0.5]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1.7e308), min_size=1, max_size=50).filter(any))
def test_any_finite_weights_are_normalised_without_overflow(weights):
    prior = Prior(np.arange(len(weights)), np.array(weights))
    assert prior.weights.sum() == pytest.approx(1, rel=1e-14)
    assert np.all(prior.weights >= 0)


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        ([], [], "at least one label"),
        (3.0, 1.0, "at least one label"),
        ([[0.0, 1.0]], [[0.5, 0.5]], "at least one label"),
        ([0.0, math.nan], [1, 1], "finite"),
        ([0.0, math.inf], [1, 1], "finite"),
        ([0.0, 0.0], [1, 1], "ascending"),
        ([-0.0, 0.0], [1, 1], "ascending"),
        ([1.0, 0.0], [1, 1], "ascending"),
        ([0.0, 1.0], [1], "2 labels need as many weights, not 1"),
        ([0.0, 1.0], [[1, 1]], "as many weights"),
        ([0.0, 1.0], [1, -1e-300], "not negative"),
        ([0.0, 1.0], [1, math.nan], "finite"),
        ([0.0, 1.0], [1, math.inf], "finite"),
        ([0.0, 1.0], [0, 0], "positive"),
    ],
)
def test_a_bad_prior_is_refused(labels, weights, message):
    with pytest.raises(ValueError, match=message):
        Prior(np.array(labels), np.array(weights))


def test_negative_counts_become_zero():
    prior = Prior.from_counts(np.arange(4), np.array([-5, 3, 0, 1]))
    np.testing.assert_allclose(prior.weights, [0, 0.75, 0, 0.25])


@pytest.mark.parametrize("counts", [[0, 0, 0], [-1, -7, 0], [-1.5, -1e-9, -3]])
def test_a_histogram_without_positive_counts_gives_the_uniform_prior(counts):
    np.testing.assert_allclose(Prior.from_counts(np.arange(3), np.array(counts)).weights, [1 / 3] * 3)


# Text.


@pytest.mark.parametrize(
    "text",
    [
        "0,6\n1,2.5\n2,1.5\n",
        "label,weight\n0,6\n1,2.5\n2,1.5",
        "label,weight\r\n 0 , 6 \r\n\r\n1,2.5\r\n2,15e-1\r\n",
        "2,1.5\n0,6\n1,2.5",
        '{"labels": [0, 1, 2], "weights": [6, 2.5, 1.5]}',
        '\n {"weights": [0.6, 0.25, 0.15], "labels": [0.0, 1.0, 2.0], "note": "x"}',
    ],
)
def test_a_prior_is_read_from_csv_and_json(text):
    prior = Prior.from_text(text)
    assert prior.labels.tolist() == [0, 1, 2]
    np.testing.assert_allclose(prior.weights, [0.6, 0.25, 0.15], rtol=1e-15)


def test_the_noisy_prior_of_a_mechanism_file_is_read():
    prior = Prior(np.arange(3.0), np.array([0.5, 0.3, 0.2]))
    text = solve("rr_on_bins", prior, 1.0).to_json(prior={"weights": prior.weights.tolist(), "epsilon": 0.1})
    again = Prior.from_text(text)
    np.testing.assert_array_equal(again.labels, prior.labels)
    np.testing.assert_allclose(again.weights, prior.weights, rtol=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,weight\n0,1\n1;2", "line 3"),
        ("0,1\n1,x", "line 2"),
        ("0,1\n1", "line 2"),
        ("0,1\n1,2,3", "line 2"),
        ("0,1\n\n0,2", "line 3 repeats"),
        ("0,1\n-0,2", "line 2 repeats"),
        ("", "no line"),
        ("label,weight\n", "no line"),
        ("0,1\n1,-1", "negative"),
        ("0,1\nnan,1", "finite"),
        ("{", "lists labels and weights"),
        ("{}", "lists labels and weights"),
        ('{"labels": [0]}', "lists labels and weights"),
        ('{"labels": [0], "weights": null}', "weights"),
        ('{"labels": [0], "prior": [1]}', "lists labels and weights"),
        ('{"labels": {"a": 1}, "weights": [1]}', "lists labels and weights"),
        ('{"labels": [0, 1], "weights": [1]}', "as many weights"),
        ('{"labels": [0, 1], "weights": [1, NaN]}', "finite"),
        ('{"labels": ["a"], "weights": [1]}', "float"),
    ],
)
def test_a_text_that_is_no_prior_is_refused_naming_the_line(text, message):
    with pytest.raises(ValueError, match=message):
        Prior.from_text(text)


@pytest.mark.parametrize("first", ["0,6O", "0,60,1", "0", "zero,60"])
def test_a_first_line_that_holds_a_number_is_not_taken_for_a_header(first):
    """Else the prior would silently lose a label."""
    with pytest.raises(ValueError, match="line 1"):
        Prior.from_text(f"{first}\n1,25\n2,15")


# The domain.


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4), st.integers(1, 300), st.integers(0, 8))
def test_a_label_grid_holds_the_correctly_rounded_multiples(first, step, steps, digits):
    def decimal(units: int) -> str:
        return f"{units}e-{digits}"

    last = first + steps * step
    grid = label_grid(decimal(first), decimal(last), decimal(step))
    # Reading a decimal is correctly rounded.
    assert grid.tolist() == [float(decimal(first + i * step)) for i in range(steps + 1)]
    assert np.all(np.diff(grid) > 0)


def test_three_tenths_are_a_label_of_the_grid_of_tenths():
    grid = label_grid("0", "1", "0.1")
    assert grid.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert grid[3] == 0.3 != 3 * 0.1


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
    ],
)
def test_a_bad_grid_is_refused_naming_the_flag(low, high, step, message):
    with pytest.raises(ValueError, match=message):
        label_grid(low, high, step)


# The budget.


@pytest.mark.parametrize("epsilon", [0, 0.0, -0.0, -1.0, 9e-10, 30.000001, math.inf, -math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be between"):
        check_epsilon(epsilon)
    with pytest.raises(ValueError, match="epsilon must be between"):
        split_budget(epsilon, 10, 1000)


def test_the_rule_is_the_root_of_labels_over_records():
    assert split_budget(3.0, 100, 10_000) == (pytest.approx(0.1, abs=2**-24), pytest.approx(2.9, abs=2**-24))


def test_the_histogram_gets_no_more_than_half():
    assert split_budget(0.5, 100, 400) == (0.25, 0.25)
    assert split_budget(1.0, 400, 100) == (0.5, 0.5)


@settings(deadline=None)
@given(EPSILON, st.integers(1, 10**5), st.integers(1, 10**12))
def test_the_split_follows_the_rule_and_never_exceeds_epsilon(epsilon, labels, records):
    first, second = split_budget(epsilon, labels, records)
    rule = min(math.sqrt(labels / records), epsilon / 2)
    assert 0 < first <= rule
    assert first == rule or first > rule - 2**-24
    assert Fraction(first) + Fraction(second) <= Fraction(epsilon)
    assert Fraction(first) + Fraction(math.nextafter(second, math.inf)) > Fraction(epsilon)


@settings(deadline=None)
@given(EPSILON, st.floats(1e-9, 30.0))
def test_a_given_prior_epsilon_is_taken_as_it_is(epsilon, prior_epsilon):
    assume(epsilon - prior_epsilon >= 1.1e-9)
    first, second = split_budget(epsilon, 10, 1000, prior_epsilon)
    assert first == prior_epsilon
    assert Fraction(first) + Fraction(second) <= Fraction(epsilon)
    assert Fraction(first) + Fraction(math.nextafter(second, math.inf)) > Fraction(epsilon)


@pytest.mark.parametrize("prior_epsilon", [0.0, -0.5, 1.0, 1.5, 1e-10, math.nan, math.inf, math.nextafter(1.0, 0.0)])
def test_a_prior_epsilon_that_leaves_nothing_is_refused(prior_epsilon):
    with pytest.raises(ValueError, match="prior_epsilon"):
        split_budget(1.0, 10, 1000, prior_epsilon)


FRACTION = st.one_of(
    st.fractions(-(10**9), 10**9),
    st.fractions().map(lambda exact: exact / 10**30),
    st.floats(-1e300, 1e300).map(Fraction),
)


@settings(deadline=None)
@given(FRACTION)
def test_rounding_down_and_up_enclose_tightly(exact):
    below, above = round_down(exact), round_up(exact)
    assert Fraction(below) <= exact < Fraction(math.nextafter(below, math.inf))
    assert Fraction(math.nextafter(above, -math.inf)) < exact <= Fraction(above)
    assert round_down(-exact) == -above


@given(st.floats(-1e300, 1e300))
def test_a_float_rounds_to_itself(value):
    assert round_down(Fraction(value)) == round_up(Fraction(value)) == value


# The noised histogram.


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.sampled_from([0.1, 0.5, 1.0, 4.0]))
def test_the_noisy_prior_is_counts_plus_keyed_discrete_noise_clipped(counts, epsilon):
    noise = discrete_laplace(ByteStream(KEY, b"prior"), Fraction(2) / Fraction(epsilon), len(counts))
    noisy = [max(count + int(draw), 0) for count, draw in zip(counts, noise, strict=True)]
    weights = noisy if any(noisy) else [1] * len(counts)
    labels = np.arange(len(counts), dtype=float)
    prior = noisy_prior(labels, np.array(counts), epsilon, KEY)
    np.testing.assert_allclose(prior.weights, np.array(weights) / sum(weights), rtol=1e-14)
    np.testing.assert_array_equal(noisy_prior(labels, np.array(counts), epsilon, KEY).weights, prior.weights)


def test_the_noisy_prior_depends_on_its_key():
    labels, counts = np.arange(5.0), np.full(5, 1000)
    first, second = (noisy_prior(labels, counts, 0.1, bytes([byte] * 32)).weights for byte in (1, 2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.5])
def test_the_noised_histogram_is_differentially_private(epsilon, monkeypatch):
    """Over every noisy histogram, neighbours' probabilities differ by at most exp(e1), and by exactly that somewhere.

    The discrete Laplace of scale s has P(z) proportional to exp(-|z| / s), so the logarithm of the ratio of two
    histograms' probabilities is a rational number, compared here without rounding.
    """
    asked: list[tuple[Fraction, int]] = []

    def spy(stream: ByteStream, scale: Fraction, count: int) -> np.ndarray:
        asked.append((scale, count))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(noisy_histogram, "discrete_laplace", spy)
    records = 2
    noisy_prior(np.arange(3.0), np.array([records, 0, 0]), epsilon, KEY)
    ((scale, cells),) = asked
    assert cells == 3

    def histogram(labels: tuple[int, ...]) -> list[int]:
        return [labels.count(label) for label in range(cells)]

    noisy_histograms = list(itertools.product(range(-2, records + 3), repeat=cells))
    worst = Fraction(0)
    for labels in itertools.product(range(cells), repeat=records):
        for changed, replacement in itertools.product(range(records), range(cells)):
            neighbour = (*labels[:changed], replacement, *labels[changed + 1 :])
            pairs = list(zip(histogram(labels), histogram(neighbour), strict=True))
            for noisy in noisy_histograms:
                log_ratio = sum(
                    (abs(out - there) - abs(out - here) for out, (here, there) in zip(noisy, pairs, strict=True))
                ) / Fraction(scale)
                worst = max(worst, log_ratio)
    assert worst == Fraction(epsilon)


def test_the_noisy_prior_of_many_records_is_close_to_the_truth():
    counts = np.array([600_000, 250_000, 150_000])
    prior = noisy_prior(np.arange(3.0), counts, 0.5, KEY)
    # A draw of scale 4 exceeds 120 once in 1e13.
    np.testing.assert_allclose(prior.weights, counts / counts.sum(), atol=400 / counts.sum())


def test_a_prior_survives_json():
    prior = Prior(label_grid("0", "1", "0.1"), np.arange(11))
    document = json.dumps({"labels": prior.labels.tolist(), "weights": prior.weights.tolist()})
    again = Prior.from_text(document)
    np.testing.assert_array_equal(again.labels, prior.labels)
    np.testing.assert_allclose(again.weights, prior.weights, rtol=1e-15)
