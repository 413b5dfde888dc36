"""Labels of CSV files that are written as truth values: true is 1 and false is 0, in any case."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

_MISSING = pa.array(pa_csv.ConvertOptions().null_values, pa.string())
_TRUTH = {"true": "1", "false": "0"}

Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)


def with_truth_numbers(texts: Texts) -> Texts:
    """Replaces truth values among labels by texts of numbers, and texts of missing numbers by nulls.

    Each text is replaced by itself, whatever the others are. It has no spaces around it where it is a truth value.
    """
    texts = pc.if_else(pc.is_in(texts, _MISSING), None, texts)  # type: ignore[attr-defined]
    lower = pc.utf8_lower(texts)  # type: ignore[attr-defined]
    for word, number in _TRUTH.items():
        texts = pc.if_else(pc.equal(lower, word), number, texts)  # type: ignore[attr-defined]
    return texts
