"""Axis ticks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("markupsafe", reason="the extra evaluation is not installed")

from labeldp.pipelines.reporting.plot_axes import ticks


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
