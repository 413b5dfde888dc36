"""Formatting of numbers."""

from typing import Any

import pytest
from labeldp.pipelines.charts import number_format


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (number_format.number, 0.0, "0"),
        (number_format.number, -12.3456, "\u221212.35"),
        (number_format.number, 10316.7, "10,317"),
        (number_format.number, 1e-12, "1e\u221212"),
        (number_format.number, float("inf"), "infinite"),
        (number_format.exact, 1234.5, "1,234.5"),
        (number_format.exact, 300000000.0, "300,000,000"),
        (number_format.exact, -0.1, "\u22120.1"),
        (number_format.percent, 0.7189, "71.9%"),
        (number_format.percent, 1.0, "100%"),
        (number_format.percent, 1 - 1e-9, "99.9+%"),
        (number_format.percent, 0.0, "0%"),
        (number_format.whole_percent, 0.655, "66%"),
        (number_format.whole_percent, 0.004, "<1%"),
        (number_format.whole_percent, 0.997, ">99%"),
        (number_format.whole_percent, 0.0, "0%"),
        (number_format.whole_percent, 1.0, "100%"),
    ],
)
def test_numbers_for_people(function: Any, value: float, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.9999999999, "1"), (1.00001, "1.001"), (0.93907, "0.9391"), (2.7182818, "2.719")]
)
def test_bounds_are_rounded_up(value: float, text: str) -> None:
    assert number_format.upper_bound(value) == text
    assert float(text) >= value
