"""Tables: aligned and shortened as text, at full precision as CSV and JSON."""

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.pipelines.study.tables import csv_text, json_text, table_lines

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
