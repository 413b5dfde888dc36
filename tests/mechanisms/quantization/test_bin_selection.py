"""Selection mechanisms: unbiasedness, and a privacy loss that no input of a dense grid exceeds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, SQUARED
from labeldp.mechanisms.quantization.bin_selection import Selection, channel, expected_loss, privacy_loss
from labeldp.mechanisms.quantization.erm import exponential_selection
from labeldp.mechanisms.quantization.input_scale import Inputs
from labeldp.mechanisms.quantization.rqm import geometric_selection, uniform_bins


@st.composite
def selections(draw) -> Selection:
    """Arbitrary bins that extend beyond [-1, 1] at both ends, with arbitrary selection distributions."""
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    m = draw(st.integers(2, 7))
    inner = np.sort(generator.uniform(-1.5, 1.5, m - 2))
    bins = np.concatenate([[-1.6 - generator.exponential()], inner, [1.6 + generator.exponential()]])
    left, right = np.zeros((2, m - 1, m))
    for j in range(m - 1):
        left[j, : j + 1] = generator.dirichlet(np.ones(j + 1))
        right[j, j + 1 :] = generator.dirichlet(np.ones(m - 1 - j))
    return Selection(bins, left, right)


def dense(bins: np.ndarray, count: int = 4001) -> np.ndarray:
    """Inputs in [-1, 1]: a fine grid, every bin and the floats next to it."""
    near = np.concatenate([bins, np.nextafter(bins, -9), np.nextafter(bins, 9)])
    return np.sort(np.concatenate([np.linspace(-1, 1, count), near[np.abs(near) <= 1]]))


def loss_of(table: np.ndarray) -> float:
    return float(np.log(table.max(axis=0) / table.min(axis=0)).max())


@settings(deadline=None, max_examples=60)
@given(selections())
def test_rows_are_distributions_without_bias(selection):
    inputs = dense(selection.bins, 201)
    table = channel(selection, inputs)
    assert table.min() >= -1e-15
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-13)
    np.testing.assert_allclose(table @ selection.bins, inputs, atol=1e-13)


@settings(deadline=None, max_examples=60)
@given(selections())
def test_the_privacy_loss_is_that_of_a_dense_grid(selection):
    brute = loss_of(channel(selection, dense(selection.bins)))
    assert brute == pytest.approx(float(privacy_loss(selection)), abs=1e-9)


def test_a_bin_at_the_end_of_the_labels_counts():
    # x = 1 lies in the cell [1, 2), where the last draw is between one of -3, -1, 1 on the left and 2 on the right.
    selection = geometric_selection(np.array([-3.0, -1, 1, 3]), np.array(0.5))
    brute = loss_of(channel(selection, dense(selection.bins)))
    assert brute == pytest.approx(float(privacy_loss(selection)), abs=1e-9)


def test_bins_that_end_at_the_labels_keep_no_epsilon():
    assert privacy_loss(geometric_selection(np.array([-1.0, 0, 1]), np.array(0.5))) == np.inf


@settings(deadline=None, max_examples=40)
@given(selections(), st.sampled_from([ABSOLUTE, SQUARED]))
def test_the_expected_loss_is_that_of_the_channel(selection, loss):
    values = np.linspace(-1, 1, 57)
    weights = np.arange(1.0, 58) / np.arange(1, 58).sum()
    brute = weights @ (channel(selection, values) * loss.value(selection.bins, values[:, None])).sum(axis=1)
    assert float(expected_loss(selection, Inputs(values, weights), loss)) == pytest.approx(brute, rel=1e-10)


@pytest.mark.parametrize("m", [2, 3, 4, 9])
def test_selection_distributions_sum_to_one(m):
    bins = uniform_bins(np.array([1.5, 4.0]), m)
    for selection in (
        geometric_selection(bins, np.array([0.1, 0.9])),
        exponential_selection(bins, np.array([0.1, 9.0])),
    ):
        for side in (selection.left, selection.right):
            np.testing.assert_allclose(side.sum(axis=-1), 1, atol=1e-15)
        place = np.arange(m)
        assert not selection.left[:, place > np.arange(m - 1)[:, None]].any()
        assert not selection.right[:, place <= np.arange(m - 1)[:, None]].any()


def test_geometric_selection_is_the_nearest_selected_bin():
    selection = geometric_selection(np.linspace(-3, 3, 6), np.array(0.3))
    np.testing.assert_allclose(selection.left[3], [0.7**3, 0.3 * 0.49, 0.3 * 0.7, 0.3, 0, 0], rtol=1e-14)


def test_the_published_hyperparameters_keep_their_epsilon():
    """Cai et al.: bins and q of RQM at e = 1 and 1.5 from Tables 4 and 5, errors from Table 1."""
    bins = uniform_bins(np.array([2.7, 2.6]), 4)
    selection = geometric_selection(bins, np.array([0.22, 0.498]))
    np.testing.assert_allclose(privacy_loss(selection), [1.0, 1.5], atol=2e-3)
    values = np.linspace(-1, 1, 2001)
    errors = expected_loss(selection, Inputs(values, np.full(2001, 1 / 2001)), ABSOLUTE)
    np.testing.assert_allclose(errors, [1.993, 1.310], rtol=4e-3)
