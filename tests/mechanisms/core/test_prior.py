"""Prior: validation, normalization and text formats."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, label_grid, solve

# Distribution.


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
        ('{"labels": ["a"], "weights": [1]}', "of numbers"),
    ],
)
def test_a_text_that_is_no_prior_is_refused_naming_the_line(text, message):
    with pytest.raises(ValueError, match=message):
        Prior.from_text(text)


@pytest.mark.parametrize("first", ["0,6O", "0,60,1", "0", "zero,60"])
def test_a_first_line_that_holds_a_number_is_not_taken_for_a_header(first):
    """If such a line were skipped as a header, the prior would silently lack a label."""
    with pytest.raises(ValueError, match="line 1"):
        Prior.from_text(f"{first}\n1,25\n2,15")


def test_a_prior_survives_json():
    prior = Prior(label_grid("0", "1", "0.1"), np.arange(11))
    document = json.dumps({"labels": prior.labels.tolist(), "weights": prior.weights.tolist()})
    again = Prior.from_text(document)
    np.testing.assert_array_equal(again.labels, prior.labels)
    np.testing.assert_allclose(again.weights, prior.weights, rtol=1e-15)
