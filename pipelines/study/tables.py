"""A table of results, for people and for programs: aligned text, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""Values by column: text, numbers, or None for what is not known."""


def table_lines(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The named columns as aligned text: a line of headings, then one per row. Numbers have five digits."""
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
    """All columns of the first row, with every digit; what is not known is empty. At least one row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def json_text(rows: Sequence[Row], **facts: Any) -> str:
    """An object of the facts and of `rows`, one row a line. JSON has no infinity: it is null too."""
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
