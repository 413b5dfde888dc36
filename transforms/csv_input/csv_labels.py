"""Labels of CSV files that are written as truth values: true is 1 and false is 0, in any case."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

_MISSING = pa.array(pa_csv.ConvertOptions().null_values, pa.string())
_TRUTH = {"true": "1", "false": "0"}


def label_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts labels. Each text is converted by itself, whatever the others are.

    Args:
      texts: Labels of n records as they stand in the file, without spaces around them where they are truth values.

    Returns:
      The numbers, float64; null where the text is one of those that Arrow takes for a missing number.

    Raises:
      pa.ArrowInvalid: If a text is neither a number nor a truth value.
    """
    texts = pc.if_else(pc.is_in(texts, _MISSING), None, texts)  # type: ignore[attr-defined]
    lower = pc.utf8_lower(texts)  # type: ignore[attr-defined]
    for word, number in _TRUTH.items():
        texts = pc.if_else(pc.equal(lower, word), number, texts)  # type: ignore[attr-defined]
    return pc.ascii_trim_whitespace(texts).cast(pa.float64())  # type: ignore[attr-defined]
