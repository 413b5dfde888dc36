"""Label grid: exact decimals, correctly rounded, refusal of invalid grids, and the grid that mechanisms use."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import SQUARED, Prior, label_grid, solve
from labeldp.mechanisms.core.label_grid import DeclaredGrid, is_even, working_grid


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


@pytest.mark.parametrize("labels", [2, 53, 428, 513])
def test_domains_of_a_few_hundred_labels_are_used_as_they_are(labels):
    domain = even(0, labels - 1, 0)
    for epsilon in (0.01, 1, 30):
        used, declared = working_grid(domain, epsilon)
        assert used is domain
        assert declared is None


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
