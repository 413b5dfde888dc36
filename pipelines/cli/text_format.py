"""Numbers and tables as text for readers: labels, probabilities, proven bounds; aligned tables, CSV and JSON.

Probabilities are in [0, 1].
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

Row = Mapping[str, Any]
"""Values by column: text, numbers, or None for an unknown value."""


def number(value: float) -> str:
    """Formats any float but NaN to four significant digits; "infinite" for an infinite one.

    The text has thousands separators and a typographic minus sign.
    """
    if value == 0 or not math.isfinite(value):
        return {0.0: "0"}.get(value, "infinite")
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def exact(value: float) -> str:
    """Formats a finite label without rounding it, in up to 15 significant digits.

    The text has thousands separators and a typographic minus sign.
    """
    return f"{value:,.15g}".replace("-", "\u2212")


def label_range(first: float, last: float) -> str:
    """Formats a range of labels: both ends, or the label itself where they are equal."""
    return exact(first) if first == last else f"{exact(first)} to {exact(last)}"


def percent(share: float) -> str:
    """Formats a probability in percent to three significant digits; "100%" and "0%" stand for exactly 1 and 0."""
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9+"
    return f"{text}%".replace("-", "\u2212")


def whole_percent(share: float) -> str:
    """Formats a probability in whole percent, where there is no space for `percent`.

    "100%" and "0%" stand for exactly 1 and 0.
    """
    text = f"{100 * share:.0f}%"
    if text == "0%" and share > 0:
        return "<1%"
    return ">99%" if text == "100%" and share < 1 else text


def upper_bound(value: float | Fraction) -> str:
    """Formats a proven, finite upper bound to four significant digits, rounded up: a number that is not below it."""
    fraction = Fraction(value)
    rounded = Context(prec=4, rounding=ROUND_CEILING).divide(Decimal(fraction.numerator), Decimal(fraction.denominator))
    return f"{float(rounded):.4g}"


def all_digits(value: float) -> str:
    """Shortest text from which any float but NaN can be read back without loss; "infinite" for an infinite one."""
    return repr(value) if math.isfinite(value) else "infinite"


def clipped(text: str, max_length: int) -> str:
    """Shortens a text that a user chose, such as a column name, to its beginning and an ellipsis.

    At most `max_length` characters are kept, >= 1.
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "\u2026"


def table_lines(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Formats columns as aligned text, with five significant digits of a float.

    A line of headings comes first, then one for each row. `columns` are the names of those to show, in order.
    """
    numeric = {name for name in columns if any(_is_number(row[name]) for row in rows)}
    cells = [list(columns), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    return [
        "  ".join(
            text.rjust(width) if name in numeric else text.ljust(width)
            for name, text, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]


def csv_text(rows: Sequence[Row]) -> str:
    """Formats a table as CSV with a header and all digits; unknown values are empty.

    There is at least one row; the first gives the columns.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def json_text(rows: Sequence[Row], **facts: Any) -> str:
    """Formats a table as a JSON object, one row a line; `facts` are its members besides `rows`.

    JSON has no infinity and no NaN: they become null, like unknown values.
    """
    head = [f"{json.dumps(name)}: {json.dumps(_finite(value))}" for name, value in facts.items()]
    body = [json.dumps({name: _finite(value) for name, value in row.items()}, allow_nan=False) for row in rows]
    inner = ",\n    ".join(body)
    return "{\n  " + ",\n  ".join([*head, f'"rows": [\n    {inner}\n  ]']) + "\n}\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
