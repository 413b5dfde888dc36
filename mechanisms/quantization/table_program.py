"""Linear program over the probability tables of given outputs, and the repair of its rows.

Source: Badanidiyuru et al. 2023, Algorithm 1, for any outputs. Privacy needs no pairs of rows: q_c <= M[y, c] <= E q_c,
with one least probability q_c for each output, states the same in 2 k m rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import reproducible
from ..core.integer_weights import EPSILON_MARGIN
from ..core.linear_program import Columns, Program, optimum
from ..core.losses import Loss
from .input_scale import Inputs

LARGEST_EPSILON = 12.0
"""Largest epsilon of the program: above it, exp(epsilon) exceeds the precision of floats, and privacy costs little."""
# Relative amounts by which epsilon is lowered in turn until the repaired table satisfies it.
_MARGINS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
# Feasibility tolerance of HiGHS.
_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Table:
    """Probability table of least loss for given outputs.

    Attributes:
      probabilities: Shape (k, m).
      loss: Expected loss.
      slopes: Derivatives of the loss by the outputs, shape (m,).
    """

    probabilities: np.ndarray
    loss: float
    slopes: np.ndarray


def best_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> Table | None:
    """Solves for the unbiased epsilon-DP probabilities of least expected loss; None where the outputs allow none.

    The rows hold to about 1e-9; `repair_rows` makes them exact. Outputs, shape (m,), ascend; epsilon is at most 12.
    """
    k, m = len(inputs.values), len(outputs)
    ratio = float(reproducible.exp(epsilon))
    values = loss.value(outputs[None, :], inputs.values[:, None])
    # Variables: M[y, c] by label, then E q_c, which is about as large as the probabilities.
    n = k * m
    costs = np.append((inputs.weights[:, None] * values).ravel(), np.zeros(m))
    targets = np.append(np.ones(k), inputs.values)
    columns = _columns(k, outputs, ratio)
    found = optimum(Program(costs, columns, 2 * n, targets, np.zeros(n + m), np.full(n + m, np.inf), _TOLERANCE))
    if found is None:
        return None
    probabilities = np.maximum(found.variables[:n].reshape(k, m), 0.0)
    prices = found.prices[-k:]
    if loss.name == "absolute":
        slopes = np.sign(outputs[None, :] - inputs.values[:, None])
    else:
        slopes = 2 * (outputs[None, :] - inputs.values[:, None])
    by_output = ((inputs.weights[:, None] * slopes - prices[:, None]) * probabilities).sum(axis=0)
    return Table(probabilities, reproducible.dot(costs[:n], probabilities.ravel()), by_output)


def _columns(k: int, outputs: np.ndarray, ratio: float) -> Columns:
    """Returns the columns of the rows M - E q <= 0, E q - E M <= 0, the sums of M, and its means."""
    m = len(outputs)
    n = k * m
    place = np.arange(n, dtype=np.int32)
    label = place // m
    rows = np.stack([place, n + place, 2 * n + label, 2 * n + k + label], axis=1)
    values = np.empty((k, m, 4))
    values[..., :3], values[..., 3] = (1.0, -ratio, 1.0), outputs
    of_output = np.arange(2 * n, dtype=np.int32).reshape(2 * k, m).T
    starts = np.append(4 * np.arange(n, dtype=np.int32), 4 * n + 2 * k * np.arange(m + 1, dtype=np.int32))
    signs = np.tile(np.repeat([-1.0, 1.0], k), m)
    return Columns(starts, np.append(rows, of_output), np.append(values, signs))


def repair_rows(probabilities: np.ndarray, outputs: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Corrects rows until they sum to 1 and have the given means within rounding, by the smallest relative change.

    Probabilities that are nearly right and the result have shape (k, m), the means (k,).
    """
    scale = np.max(np.abs(outputs))
    points = outputs / scale
    targets = means[:, None] / scale
    for _ in range(4):
        mass = probabilities.sum(axis=1, keepdims=True)
        mean = (probabilities * points).sum(axis=1, keepdims=True) / mass
        # Weighted by the row, 1 and the distance from its mean are orthogonal: two equations of one unknown each.
        away = points - mean
        spread = (probabilities * away**2).sum(axis=1, keepdims=True)
        slope = np.where(spread > 0, (targets - mean) / np.where(spread > 0, spread, 1.0), 0.0)
        probabilities = probabilities * (1 / mass + slope * away)
    return probabilities


def log_ratio(probabilities: np.ndarray) -> float:
    """Computes the privacy loss of a table (k, m): the largest ln(M[y, c] / M[z, c]) of one output.

    Infinite where an output is possible for some rows only.
    """
    most, least = probabilities.max(axis=0), probabilities.min(axis=0)
    used = most > 0
    if np.any(least[used] <= 0):
        return np.inf
    return float(reproducible.log((most[used] / least[used]).max()))


def feasible_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> np.ndarray | None:
    """Solves for the best table, repairs its rows, and lowers epsilon slightly until the result satisfies it.

    The result has shape (k, m); None where none was found. The outputs ascend.
    """
    target = min(epsilon, LARGEST_EPSILON)
    for margin in _MARGINS:
        table = best_table(inputs, outputs, target * (1 - margin), loss)
        if table is None:
            return None
        # Outputs of negligible probability are artifacts of the program's tolerance.
        kept = np.where(table.probabilities.max(axis=0) > 1e-9, table.probabilities, 0.0)
        found = repair_rows(kept, outputs, inputs.values)
        if found.min() >= 0 and log_ratio(found) <= epsilon - EPSILON_MARGIN:
            return found
    return None
