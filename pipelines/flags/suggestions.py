"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

_SIMILARITY = 0.6


def did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """Text to append to an error message: "; did you mean X?", or nothing if no known name is similar.

    `before` precedes the suggested name, such as two dashes.
    """
    # Loaded for errors alone: help must appear at once.
    import difflib

    by_folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, 1, _SIMILARITY)
    return f"; did you mean {before}{by_folded[close[0]]}?" if close else ""
