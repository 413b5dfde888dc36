"""Axes: round ticks, linear and logarithmic."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.report.svg_plot import Axis, log_ticks, ticks


@settings(deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8))
@example(1.0, 4e8 + 1, 2)
def test_ticks_are_round_and_within(low: float, width: float, most: int) -> None:
    high = low + width
    if (high - low) < 1e-9 * abs(low):
        return
    found = ticks(low, high, most)

    assert 1 <= len(found) <= most + 1
    slack = 1e-6 * (high - low)
    assert low - slack <= found[0]
    assert found[-1] <= high + slack
    steps = np.diff(found)
    if len(steps):
        leading = f"{steps[0]:.3e}"[:3]
        assert leading in ("1.0", "2.0", "5.0")
        assert steps == pytest.approx(np.full(len(steps), steps[0]), rel=1e-3)


@settings(deadline=None)
@given(st.floats(1e-12, 1e12), st.floats(8, 1e12), st.integers(1, 8))
@example(1.1, 8.0, 1)
@example(1e-300, 1e300, 3)
def test_logarithmic_ticks_are_round_and_within(low: float, ratio: float, most: int) -> None:
    high = low * ratio
    found = log_ticks(low, high, most)

    assert 1 <= len(found) <= most
    assert low <= found[0]
    assert found[-1] <= high
    assert sorted(set(found)) == found
    assert {f"{value:.5e}"[:7] for value in found} <= {f"{digit}.00000" for digit in (1, 2, 3, 5, 7)}


def test_ticks_at_the_values_come_first() -> None:
    choices = [[name for _, name in choice] for choice in Axis(0.05, 8, log=True, marks=[0.05, 0.3, 8]).choices()]
    assert choices[0] == ["0.05", "0.3", "8"]
    assert len(choices[-1]) == 1
