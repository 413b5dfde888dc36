"""Label grid: exact decimals, correctly rounded, and refusal of invalid grids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, label_grid


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
