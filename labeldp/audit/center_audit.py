"""Second implementation of centers: the noised numbers of a linear center and of its cells.

The labels enter a linear center through its noised sums, and its cells through a noised histogram of the residuals and
noised sums of the residuals, clipped to a range, of each cell. Their scales, epsilons and bounds are checked here, with
the standard library only; `center_replay` checks that all else follows from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .cell_document import Cells, read_cells, read_integers
from .documents import RefusedDocument, printable, read_count, read_member, read_nonnegative
from .row_map_document import ROW_UNIT, read_row_map

REPLAYED = "replayed     with the program's own code: "
"""Start of the line of a report about what `center_replay` has checked."""

COEFFICIENT_UNIT = 1 << 16
"""Coefficients are integer multiples of 1 / COEFFICIENT_UNIT."""

_MOST_SAMPLE, _MOST_LABELS, _MOST_COEFFICIENT = 1 << 14, 1 << 20, 1 << 36
_LEAST_SIGNAL = 1e-30
_KEYS = ("encoders", "weights", "norm", "epsilon", "gram", "sampled", "signal", "records", "labels", "sums")
# Noise beyond this multiple of its scale has a probability of e^-40 for each sum.
_MOST_NOISE = 40


def read_linear_center(mechanism: dict[str, Any]) -> dict[str, Any] | None:
    """Reads the linear center of a mechanism file and checks its bounds.

    The result has its members, with `center.linear.` before each key, and `center.linear.features`, the names of its
    features; `center.linear.cells` is read, and None without cells. The result is None if the file has no center, or
    one that is a column of the input. Raises RefusedDocument if a member is missing, has the wrong type or another
    length than the rest, or is out of bounds.
    """
    center = mechanism.get("center")
    if not isinstance(center, dict) or "linear" not in center:
        return None
    stated = read_member(center, "linear", dict)
    if set(stated) - {"cells"} != {*_KEYS, "coefficients"}:
        raise RefusedDocument("center.linear has not exactly the members of a linear center")
    found = {f"center.linear.{key}": value for key, value in stated.items()}
    size, found["center.linear.features"] = read_row_map(found, "center.linear")
    encoders = found["center.linear.encoders"]
    if not 1 <= read_count(found, "center.linear.sampled") <= _MOST_SAMPLE:
        raise RefusedDocument(f"center.linear.sampled is not between 1 and {_MOST_SAMPLE}")
    if not read_count(found, "center.linear.records"):
        raise RefusedDocument("center.linear.records is 0")
    if not 2 <= read_count(found, "center.linear.labels") <= _MOST_LABELS:
        raise RefusedDocument(f"center.linear.labels is not between 2 and {_MOST_LABELS}")
    if found["center.linear.labels"] != len(read_member(center, "domain", list)):
        raise RefusedDocument("center.linear.labels is not the number of labels of center.domain")
    if (size > 0) != (read_nonnegative(found, "center.linear.epsilon") > 0):
        raise RefusedDocument("center.linear has components without an epsilon, or an epsilon without components")
    signal = read_member(found, "center.linear.signal", list)
    if len(signal) != size or not all(isinstance(value, float) and _LEAST_SIGNAL <= value <= 1 for value in signal):
        raise RefusedDocument("center.linear.signal is not one float from 1e-30 to 1 for each component")
    _check_gram(found, size + 1)
    most, name = 1 << 128, "center.linear.coefficients"
    read_integers(found["center.linear.sums"], "center.linear.sums", size + 1 if size else 0, -most, most)
    read_integers(found[name], name, size + 1, -_MOST_COEFFICIENT, _MOST_COEFFICIENT)
    if "cells" in stated and not found["center.linear.sums"]:
        raise RefusedDocument("center.linear has cells, but no sums that they were made from")
    cells = read_cells(stated["cells"], encoders, found["center.linear.labels"]) if "cells" in stated else None
    return {**found, "center.linear.cells": cells}


def center_sum_problems(mechanism: dict[str, Any]) -> Iterator[str]:
    """Checks the noised numbers of a linear center and of its cells.

    Yields one line for each failed check; none without a linear center. Raises RefusedDocument as `read_linear_center`
    does.
    """
    linear = read_linear_center(mechanism)
    if linear is None:
        return
    if mechanism["center"].get("column") in linear["center.linear.features"]:
        yield "the center column is a feature of the linear center: it would predict itself"
    sums, norm, steps = (linear[f"center.linear.{key}"] for key in ("sums", "norm", "labels"))
    if sums:
        noise = (len(sums).bit_length() + _MOST_NOISE) * _noise_scale(linear)
        most = linear["center.linear.records"] * (steps - 1)
        if abs(sums[0]) > most * ROW_UNIT + noise or sum(map(abs, sums)) > most * norm + len(sums) * noise:
            yield "center.linear.sums are larger than those of any labels with their noise"
    if linear["center.linear.cells"] is not None:
        yield from _cell_problems(linear["center.linear.cells"], linear["center.linear.records"])


def _cell_problems(cells: Cells, most: int) -> Iterator[str]:
    """Checks the noised numbers of cells of at most so many records."""
    records = sum(cells.records)
    if records > most:
        yield "center.linear.cells.records are more than center.linear.records"
    noise = (len(cells.counts).bit_length() + _MOST_NOISE) * 2 / cells.histogram_epsilon
    if min(cells.counts) < -noise or max(cells.counts) > records + noise:
        yield "center.linear.cells.counts are not those of any labels with their noise"
    if cells.sums:
        low, high = cells.ends
        noise = (len(cells.sums).bit_length() + _MOST_NOISE) * (high - low) / cells.sums_epsilon
        if any(
            not low * count - noise <= total <= high * count + noise
            for total, count in zip(cells.sums, cells.records, strict=True)
        ):
            yield "center.linear.cells.sums are larger than those of any labels with their noise"


def center_line(mechanism: dict[str, Any]) -> str:
    """Describes the center of a mechanism file in a line of a report, with another one for its cells.

    Empty without a center. Raises RefusedDocument as `read_linear_center` does.
    """
    if "center" not in mechanism:
        return ""
    linear, column = read_linear_center(mechanism), printable(mechanism["center"]["column"])
    if linear is None:
        return f"center       column '{column}' of the input; it must not have seen these labels, which is not checked"
    sums, labels, norm = (linear[f"center.linear.{key}"] for key in ("sums", "labels", "norm"))
    if not sums:
        return f"center       column '{column}': one label for all records, without any sum of labels"
    epsilon, features = linear["center.linear.epsilon"], len(linear["center.linear.features"])
    return (
        f"center       column '{column}', linear in {features} features: {len(sums)} sums, "
        f"of sensitivity 2 ({labels} - 1) {norm} = {2 * (labels - 1) * norm}, with noise of scale "
        f"{float(_noise_scale(linear))!r} for epsilon {epsilon!r}{_cells_line(linear['center.linear.cells'])}"
    )


def linear_replay_line(linear: dict[str, Any]) -> str:
    """Line of a report about what was replayed of a linear center, of `read_linear_center`; empty without sums."""
    sums, cells = linear["center.linear.sums"], linear["center.linear.cells"]
    if not sums:
        return ""
    parts = f"coefficients from {len(sums)} sums"
    if cells is not None and cells.sums:
        parts += f", range and {len(cells.leaves)} trees from the histogram and {len(cells.sums)} sums of cells"
    elif cells is not None:
        parts += ", and from the histogram that no sums of cells are released"
    return f"{REPLAYED}{parts}"


def _cells_line(cells: Cells | None) -> str:
    """Line break and line of a report about the cells of a center; empty without cells."""
    if cells is None:
        return ""
    histogram = f"the histogram of the residuals has epsilon {float(cells.histogram_epsilon)!r}"
    if not cells.sums:
        return f"\ncells        {len(cells.records)} cells of features, of which no sum was released; {histogram}"
    (low, high), epsilon = cells.ends, cells.sums_epsilon
    return (
        f"\ncells        {len(cells.records)} cells of features: sums of residuals clipped to {low}..{high} steps, of "
        f"sensitivity {high - low}, with noise of scale {float((high - low) / epsilon)!r} for epsilon "
        f"{float(epsilon)!r}; {histogram}; {len(cells.leaves)} trees"
    )


def _noise_scale(linear: dict[str, Any]) -> Fraction:
    """Scale of the discrete Laplace noise of each sum of a linear center with components, of `read_linear_center`.

    It is 2 (k - 1) A / epsilon for k labels and rows of L1 norm at most A.
    """
    labels, norm, epsilon = (linear[f"center.linear.{key}"] for key in ("labels", "norm", "epsilon"))
    return 2 * (labels - 1) * norm / Fraction(epsilon)


def _check_gram(found: dict[str, Any], size: int) -> None:
    gram, most = read_member(found, "center.linear.gram", list), found["center.linear.sampled"]
    most *= found["center.linear.norm"] ** 2
    if len(gram) != size:
        raise RefusedDocument("center.linear.gram is not a square matrix")
    for row in gram:
        read_integers(row, "center.linear.gram", size, -most, most)
    if gram[0][0] < 1 or any(gram[i][i] < 0 for i in range(size)):
        raise RefusedDocument("center.linear.gram has a diagonal that no rows have")
    if any(
        gram[i][j] != gram[j][i] or gram[i][j] ** 2 > gram[i][i] * gram[j][j]
        for i, j in itertools.combinations(range(size), 2)
    ):
        raise RefusedDocument("center.linear.gram is not a matrix of inner products")
