"""From an interior-point solution to a table whose rows hold to the rounding of floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import splu

from ..core.alias_table import BITS, TOTAL
from ..core.certificate import exact_biases
from ..core.prior import Prior
from .interior_point import Interior
from .staircase_columns import Columns, Program

# Refinement ends when what rows lack has not fallen for some steps: near the rounding of floats it goes up and down.
_MOST_REFINEMENTS, _PATIENCE = 100, 4


_NEGLIGIBLE = 1e-8


_TIED = 0.2


_RIDGE = 1e-13


_KEPT = 0.1


_ROUNDING = 1e-12


# Of a label that never occurs in the prior, in the weighing of its outputs.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class FeasibleTable:
    """probabilities: (k, m). outputs: (m,). loss: the expected one, labels from -1 to 1."""

    probabilities: np.ndarray
    outputs: np.ndarray
    loss: float


def rebalanced(prior: Prior, outputs: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """Moves outputs until the biases of integer weights are within a limit, up to the rounding of the outputs.

    Biases are computed exactly. Each step is the least change of the outputs, weighted by how often they occur, in
    equations between neighboring labels: their rows are nearly equal at a small epsilon, and their exact differences
    keep what that leaves. Steps end when the largest bias beyond the limit does not fall.

    Args:
      prior: Labels and weights, k of them.
      outputs: Shape (m,), float64.
      weights: Shape (k, m), uint64; every row sums to 2^62.
      limit: The largest bias allowed, in units of the labels, at least 0.

    Returns:
      The outputs, shape (m,), float64.
    """
    share = np.maximum(prior.weights, _LEAST_SHARE) @ (weights / TOTAL)
    signed = weights.astype(np.int64)
    equations = np.concatenate([signed[:1], np.diff(signed, axis=0)]) / TOTAL
    sizes = np.where(share > 0, 1 / np.where(share > 0, share, 1.0), 0.0)
    norms = np.sqrt((equations**2) @ sizes)
    if not np.all(norms > 0):
        return outputs
    scaled = equations / norms[:, None] * np.sqrt(sizes)
    try:
        factors = cho_factor(scaled @ scaled.T)
    except np.linalg.LinAlgError:
        return outputs
    best, least = outputs, np.inf
    for _ in range(_MOST_REFINEMENTS):
        biases = np.array(exact_biases(prior.labels, outputs, weights, BITS), np.float64)
        excess = biases - np.clip(biases, -limit, limit)
        largest = float(np.abs(excess).max())
        if not largest < least:
            break
        best, least = outputs, largest
        if largest == 0:
            break
        lack = -np.diff(excess, prepend=0.0) / norms
        outputs = outputs + np.sqrt(sizes) * (scaled.T @ cho_solve(factors, lack))
    return best


def feasible_tables(program: Program, limit: float, interior: Interior, gap: float) -> Iterator[FeasibleTable]:
    """The solution with its rows mended, in several ways: the columns that are used, those of a height to speak of, and
    all. limit: the largest bias allowed.

    Where the prior has zeros there are many optima, and what is found is a mixture of them, of far more than 2 k
    columns; but those have few outputs, up to rounding. So columns are given one output where the gap allows it.
    """
    columns, most = interior.columns, 2 * len(program.labels)
    allowed = _TIED * gap * program.loss(columns) / most
    for chosen in (interior.used, columns.height > _NEGLIGIBLE * columns.height.max(), columns.height > 0):
        some = columns.chosen(chosen)
        group = np.arange(len(some.start)) if len(some.start) <= most else _groups(program, some, allowed)
        mended = _repaired(program, limit, interior, some, group)
        if mended is not None:
            yield mended


def _groups(program: Program, columns: Columns, allowed: float) -> np.ndarray:
    """(n,): the number of each column's group. One output for a group adds no more than allowed to the loss."""
    mass = columns.height * program.curves(columns.start, columns.stop).mass
    numbers, number = np.empty(len(columns.start), int), -1
    held = mean = added = np.inf
    for place in np.argsort(columns.output).tolist():
        own, output = float(mass[place]), float(columns.output[place])
        share = own / (held + own)
        added += held * share * (output - mean) ** 2
        held, mean = held + own, mean + share * (output - mean)
        if not added <= allowed:
            number, held, mean, added = number + 1, own, output, 0.0
        numbers[place] = number
    return numbers


def _repaired(
    program: Program, limit: float, interior: Interior, columns: Columns, group: np.ndarray
) -> FeasibleTable | None:
    """Heights, the outputs of groups and, where they can, biases changed until the rows hold to the rounding of floats:
    by the smallest changes, relative to heights and to how far biases are from their limit.

    None where rows do not hold then, or a height would vanish.
    """
    k, n, m = len(program.labels), len(columns.start), int(group.max(initial=-1)) + 1
    if n == 0:
        return None
    height, place = columns.height, np.arange(k)
    held = np.bincount(group, height)
    output = np.bincount(group, height * columns.output) / held
    # Where columns meet the places but the first one, as often as they do.
    row = np.concatenate([columns.stop, columns.start - 1, np.full(n, k - 1)])
    column = np.tile(np.arange(n), 3)
    value = np.repeat([1.0, -1.0, program.base], n)
    row, column, value = (part[row >= 0] for part in (row, column, value))
    places = csr_array((value, (row, column)), shape=(k, n))
    # The equations: heights in the sums; heights, outputs and biases in the means.
    parts = [
        (value, row, column),
        (value * output[group][column], k + row, column),
        (value * height[column], k + row, n + group[column]),
        (np.full(k, -1.0), k + place, n + m + place),
        (np.ones(k - 1), k + place[:-1], n + m + place[1:]),
    ]
    value, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    met = csr_array((value, (row, column)), shape=(2 * k, n + m + k))
    sizes = np.concatenate([height, 1 / held, interior.room])
    normal = csr_array((met.data * sizes[met.indices], met.indices, met.indptr), shape=met.shape) @ met.T
    diagonal = normal.diagonal()
    try:
        factors = splu((normal + diags_array(_RIDGE * diagonal + (diagonal == 0))).tocsc())
    except RuntimeError:
        return None
    bias = interior.bias
    best, least, idle = (height, output, bias), np.inf, 0
    for _ in range(_MOST_REFINEMENTS):
        means = places @ (height * output[group]) - bias + np.append(bias[1:], 0.0)
        lack = program.sides[:, 1:].ravel() - np.concatenate([places @ height, means])
        # What a row of sums lacks goes into the mean times an output.
        largest = float(max(np.abs(lack[:k]).max() * np.abs(output).max(), np.abs(lack[k:]).max()))
        if largest < least:
            best, least, idle = (height, output, bias), largest, 0
        else:
            idle += 1
            if idle == _PATIENCE:
                break
        by_height, by_output, by_bias = np.split(sizes * (met.T @ factors.solve(lack)), [n, n + m])
        height, output, bias = height + by_height, output + by_output, bias + by_bias
    height, output, bias = best
    if not np.all(height > _KEPT * columns.height):
        return None
    mended = Columns(columns.start, columns.stop, height, output[group])
    probabilities = program.probabilities(mended, group)
    missed = np.abs(probabilities.sum(axis=1) - 1).max()
    beyond = np.abs(probabilities @ output - program.labels).max() - limit
    if max(missed, beyond) > _ROUNDING * max(1.0, np.abs(output).max()):
        return None
    return FeasibleTable(probabilities, output, program.loss(mended))
