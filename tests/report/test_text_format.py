"""Numbers and tables as text: short for people, at full precision as CSV and JSON."""

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.pipelines.cli.text_format import csv_text, json_text, table_lines
from labeldp.report import number_text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (number_text.number, 0.0, "0"),
        (number_text.number, -12.3456, "\u221212.35"),
        (number_text.number, 10316.7, "10,317"),
        (number_text.number, 1e-12, "1e\u221212"),
        (number_text.number, float("inf"), "infinite"),
        (number_text.exact, 1234.5, "1,234.5"),
        (number_text.exact, 300000000.0, "300,000,000"),
        (number_text.exact, -0.1, "\u22120.1"),
        (number_text.percent, 0.7189, "71.9%"),
        (number_text.percent, 1.0, "100%"),
        (number_text.percent, 1 - 1e-9, "99.9+%"),
        (number_text.percent, 0.0, "0%"),
        (number_text.whole_percent, 0.655, "66%"),
        (number_text.whole_percent, 0.004, "<1%"),
        (number_text.whole_percent, 0.997, ">99%"),
        (number_text.whole_percent, 0.0, "0%"),
        (number_text.whole_percent, 1.0, "100%"),
    ],
)
def test_numbers_for_people(function: Any, value: float, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.9999999999, "1"), (1.00001, "1.001"), (0.93907, "0.9391"), (2.7182818, "2.719")]
)
def test_bounds_are_rounded_up(value: float, text: str) -> None:
    assert number_text.upper_bound(value) == text
    assert float(text) >= value


ROWS = [
    {"mechanism": "rr", "epsilon": 0.5, "outputs": 401, "loss": 34049.123456, "why": None},
    {"mechanism": "bias_limited:bias=0.2", "epsilon": 1.0, "outputs": None, "loss": None, "why": "no, not, never"},
]


def test_text_is_aligned_and_short() -> None:
    assert table_lines(ROWS, ["mechanism", "epsilon", "outputs", "loss", "why"]) == [
        "mechanism              epsilon  outputs   loss  why",
        "rr                         0.5      401  34049  -",
        "bias_limited:bias=0.2        1        -      -  no, not, never",
    ]


def test_only_the_columns_asked_for() -> None:
    assert table_lines(ROWS, ["outputs"]) == ["outputs", "    401", "      -"]


values = st.one_of(st.floats(allow_nan=False), st.integers(), st.text("ab, \"'\né", min_size=1))


@given(st.lists(st.fixed_dictionaries({"a": values, "b": values}), min_size=1, max_size=4))
def test_csv_keeps_every_digit_and_character(rows: list[dict[str, Any]]) -> None:
    read = list(csv.DictReader(io.StringIO(csv_text(rows), newline="")))

    assert list(read[0]) == list(rows[0])
    assert [[type(row[name])(line[name]) for name in row] for row, line in zip(rows, read, strict=True)] == [
        list(row.values()) for row in rows
    ]


def test_csv_leaves_what_is_not_known_empty() -> None:
    assert csv_text(ROWS).splitlines()[1:] == [
        "rr,0.5,401,34049.123456,",
        'bias_limited:bias=0.2,1.0,,,"no, not, never"',
    ]


def test_json_is_strict_and_whole() -> None:
    rows = [*ROWS, {"loss": math.inf}, {"loss": math.nan}]

    document = json.loads(json_text(rows, prior="p.csv", spent=math.inf), parse_constant=pytest.fail)

    assert document == {"prior": "p.csv", "spent": None, "rows": [*ROWS, {"loss": None}, {"loss": None}]}
