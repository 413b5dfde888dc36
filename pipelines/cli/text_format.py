"""Tables as text: aligned for readers, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""Values by column: text, numbers, or None for an unknown value."""


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
