"""Least-squares lines."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.lists(st.integers(0, 10**7), min_size=2, max_size=9, unique=True)


@pytest.fixture
def fit(benchmark: Any) -> Any:
    return benchmark("regression").fit


def test_what_numpy_finds(fit: Any) -> None:
    @given(SIZES, st.data())
    def check(sizes: list[int], data: st.DataObject) -> None:
        seconds = data.draw(st.lists(st.floats(0, 1000), min_size=len(sizes), max_size=len(sizes)))
        line = fit(sizes, seconds)
        slope, fixed = np.polyfit(sizes, seconds, 1)
        residuals = np.array(seconds) - fixed - slope * np.array(sizes)

        scale = max(seconds) + 1e-9
        assert line.fixed_seconds == pytest.approx(fixed, rel=1e-6, abs=1e-6 * scale * max(sizes))
        assert line.fixed_seconds + line.seconds_per_record * max(sizes) == pytest.approx(
            fixed + slope * max(sizes), abs=1e-6 * scale
        )
        if np.var(seconds) > 1e-6 * scale**2:
            assert line.r_squared == pytest.approx(1 - np.var(residuals) / np.var(seconds), abs=1e-5)

    check()


def test_one_size_is_no_line(fit: Any) -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fit([1000, 1000, 1000], [1.0, 1.1, 1.2])
