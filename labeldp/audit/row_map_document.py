"""Reader of the map of a center from features to rows, for the auditor: encoders, weights and the norm of rows.

A number is standardized, a category has one indicator for each of its places. Components are weighted sums of these, in
integers, and a row is a constant and the components, shortened to an L1 norm of at most A.
"""

from __future__ import annotations

import math
from typing import Any

from .cell_document import read_integers
from .documents import RefusedDocument, read_count, read_member

ROW_UNIT, FEATURE_UNIT, WEIGHT_UNIT = 1 << 8, 1 << 10, 1 << 14
LARGEST_FEATURE = 4
"""Standardized numbers are clipped here."""

_MOST_ENCODED, _MOST_COMPONENTS, _MOST_WEIGHT = 1 << 12, 48, 1 << 26
_MOST_NORM, _MOST_TERM = 1 << 24, 1 << 53


def read_row_map(found: dict[str, Any], name: str) -> tuple[int, list[str]]:
    """Checks `encoders`, `weights` and `norm`; `found` has the name of their owner and a dot before each key.

    Returns the number of components and the names of the features.
    """
    encoders = read_member(found, f"{name}.encoders", list)
    features = [_feature(encoder, name) for encoder in encoders]
    if len(set(features)) < len(encoders):
        raise RefusedDocument(f"{name}.encoders have one name twice")
    width, weights = sum(map(_width, encoders)), read_member(found, f"{name}.weights", list)
    if len(weights) != width or width > _MOST_ENCODED:
        raise RefusedDocument(f"{name}.weights are not one row for each of at most {_MOST_ENCODED} places")
    size = len(weights[0]) if weights and isinstance(weights[0], list) else 0
    if bool(size) != bool(width) or size > _MOST_COMPONENTS:
        raise RefusedDocument(f"{name}.weights do not have 1 to {_MOST_COMPONENTS} components")
    for row in weights:
        read_integers(row, f"{name}.weights", size, -_MOST_WEIGHT, _MOST_WEIGHT)
    _check_terms(encoders, weights, size, name)
    if not ROW_UNIT <= read_count(found, f"{name}.norm") <= _MOST_NORM:
        raise RefusedDocument(f"{name}.norm is not between {ROW_UNIT} and {_MOST_NORM}")
    return size, features


def category_steps(encoder: dict[str, Any]) -> tuple[int, list[int]]:
    """Computes what an indicator of a category adds to its place, and the mean of each indicator in the same units.

    Both are in units of 1 / FEATURE_UNIT. The encoder has shares.
    """
    spread = encoder["spread"]
    return round(FEATURE_UNIT / spread), [round(FEATURE_UNIT * share / spread) for share in encoder["shares"]]


def _feature(encoder: Any, name: str) -> str:
    """Checks one encoder; returns the name of its feature."""
    if not isinstance(encoder, dict) or not isinstance(encoder.get("name"), str):
        raise RefusedDocument(f"{name}.encoders do not all have a name")
    category = "shares" in encoder
    if set(encoder) != ({"name", "values", "shares", "spread"} if category else {"name", "mean", "spread"}):
        raise RefusedDocument(f"{name}.encoders do not all have the members of a number or a category")
    spread = encoder["spread"]
    if not isinstance(spread, float) or not 0 < spread < math.inf:
        raise RefusedDocument(f"a spread of {name}.encoders is not a finite float above 0")
    if not category:
        if not isinstance(encoder["mean"], float) or not math.isfinite(encoder["mean"]):
            raise RefusedDocument(f"a mean of {name}.encoders is not a finite float")
        return encoder["name"]
    values, shares = encoder["values"], encoder["shares"]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RefusedDocument(f"values of {name}.encoders are not texts")
    if not isinstance(shares, list) or not all(isinstance(share, float) and 0 <= share <= 1 for share in shares):
        raise RefusedDocument(f"shares of {name}.encoders are not floats from 0 to 1")
    if (
        not 0 < len(shares) <= _MOST_ENCODED
        or len(set(values)) < len(values)
        or (values and len(values) != len(shares))
    ):
        raise RefusedDocument(f"a category of {name}.encoders has not one share for each value")
    if spread != math.sqrt(sum(share * (1 - share) for share in shares)) or FEATURE_UNIT / spread > _MOST_TERM:
        raise RefusedDocument(f"a spread of {name}.encoders does not follow from the shares, or is too small")
    return encoder["name"]


def _width(encoder: dict[str, Any]) -> int:
    return len(encoder["shares"]) if "shares" in encoder else 1


def _check_terms(encoders: list[dict[str, Any]], weights: list[list[int]], size: int, name: str) -> None:
    """Refuses weights with which a component could exceed 2^53: sums would depend on their order."""
    totals, place = [0] * size, 0
    for encoder in encoders:
        rows = weights[place : place + _width(encoder)]
        place += len(rows)
        step, means = category_steps(encoder) if "shares" in encoder else (LARGEST_FEATURE * FEATURE_UNIT, [0])
        for j in range(size):
            sizes = [abs(row[j]) for row in rows]
            totals[j] += step * max(sizes) + sum(mean * each for mean, each in zip(means, sizes, strict=True))
    if any(total >= _MOST_TERM for total in totals):
        raise RefusedDocument(f"{name}.weights are too large for the spread of the features")
