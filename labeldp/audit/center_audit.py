"""Second implementation of centers: the noised numbers of a linear center and of its cells.

The labels enter a linear center through its noised sums, and its cells through a noised histogram of the residuals and
noised sums of the residuals, clipped to a range, of each cell. Their scales, epsilons and bounds are checked here, with
the standard library only; `center_replay` checks that all else follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from .center_document import ROW_UNIT, Cells, LinearCenter, read_linear_center
from .documents import printable
from .marginal_sums import marginal_line, marginal_problems

REPLAYED = "replayed     with the program's own code: "
"""Start of the line of a report about what `center_replay` has checked."""

# Noise beyond this multiple of its scale has a probability of e^-40 for each sum.
_MOST_NOISE = 40


def center_sum_problems(mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Checks the noised numbers of a linear center and of its cells.

    Yields one line for each failed check; none without a linear center. Raises RefusedDocument as `read_linear_center`
    does.
    """
    linear = read_linear_center(mechanism)
    if linear is None:
        return
    if mechanism["center"].get("column") in linear.features:
        yield "the center column is a feature of the linear center: it would predict itself"
    if sums := linear.sums:
        noise = (len(sums).bit_length() + _MOST_NOISE) * _noise_scale(linear)
        most = linear.records * (linear.labels - 1)
        if abs(sums[0]) > most * ROW_UNIT + noise or sum(map(abs, sums)) > most * linear.norm + len(sums) * noise:
            yield "center.linear.sums are larger than those of any labels with their noise"
    if linear.cells is not None:
        yield from _cell_problems(linear.cells, linear.records)
    if linear.marginals is not None:
        yield from marginal_problems(linear.marginals, linear.records)


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


def center_line(mechanism: Mapping[str, Any]) -> str:
    """Describes the center of a mechanism file in a line of a report, with another one for its cells.

    Empty without a center. Raises RefusedDocument as `read_linear_center` does.
    """
    if "center" not in mechanism:
        return ""
    linear, column = read_linear_center(mechanism), printable(mechanism["center"]["column"])
    if linear is None:
        return f"center       column '{column}' of the input; it must not have seen these labels, which is not checked"
    if linear.marginals is not None:
        return marginal_line(column, linear.marginals)
    if not linear.sums:
        return f"center       column '{column}': one label for all records, without any sum of labels"
    labels, norm = linear.labels, linear.norm
    return (
        f"center       column '{column}', linear in {len(linear.features)} features: {len(linear.sums)} sums, "
        f"of sensitivity 2 ({labels} - 1) {norm} = {2 * (labels - 1) * norm}, with noise of scale "
        f"{float(_noise_scale(linear))!r} for epsilon {linear.epsilon!r}{_cells_line(linear.cells)}"
    )


def linear_replay_line(linear: LinearCenter) -> str:
    """Line of a report about what was replayed of a linear center; empty without sums."""
    cells = linear.cells
    if linear.marginals is not None:
        return f"{REPLAYED}range and effects from the histogram and {len(linear.marginals.sums)} marginal sums"
    if not linear.sums:
        return ""
    parts = f"coefficients from {len(linear.sums)} sums"
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


def _noise_scale(linear: LinearCenter) -> Fraction:
    """Scale of the discrete Laplace noise of each sum: 2 (k - 1) A / epsilon for k labels and rows of norm A."""
    return 2 * (linear.labels - 1) * linear.norm / Fraction(linear.epsilon)
