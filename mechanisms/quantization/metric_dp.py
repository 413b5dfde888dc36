"""Metric DP for vectors: every coordinate quantized by itself, under a privacy loss that grows with the distance.

Source: Chaudhuri, Guo, Rabbat 2022, Lemma 6; Cai et al., section 5. A table M over inputs x satisfies epsilon-metric
DP with the distance (x - x')^2 if M[x, c] <= exp(epsilon (x - x')^2) M[x', c]. Quantizing every coordinate of two
vectors with it costs at most the sum over coordinates, epsilon times their squared Euclidean distance: epsilon B^2 for
vectors of a set of diameter B.

It is a property of a finite grid of inputs, and depends on it: on a grid of step h, chaining neighbours shows that it
is the same as |ln M[x, c] - ln M[x', c]| <= epsilon h |x - x'| at neighbours, and as h goes to 0 only constant tables
are left. So coordinates are rounded to the grid before the vectors are compared, and B is the diameter of the rounded
vectors. Over an interval no selection mechanism has it: its probabilities change within a cell.
"""

from __future__ import annotations

import highspy
import numpy as np

from ..core.losses import ABSOLUTE, Loss
from .quantizer import mended

_MARGINS = (1e-8, 1e-7, 1e-6, 1e-5)


def metric_epsilon(probabilities: np.ndarray, inputs: np.ndarray) -> float:
    """The least epsilon with which a table (k, m) is metric DP for the squared distance of its inputs (k,), ascending.

    Infinite where an output is possible for some inputs only. O(k^2 m).
    """
    used = probabilities.max(axis=0) > 0
    if np.any(probabilities[:, used] <= 0):
        return np.inf
    logs = np.log(probabilities[:, used])
    worst = 0.0
    for place in range(1, len(inputs)):
        loss = np.abs(logs[place:] - logs[:-place]).max(axis=1)
        worst = max(worst, float((loss / (inputs[place:] - inputs[:-place]) ** 2).max()))
    return worst


def vector_epsilon(probabilities: np.ndarray, inputs: np.ndarray, diameter: float) -> float:
    """The epsilon-DP of quantizing vectors coordinate by coordinate: metric_epsilon * diameter^2.

    diameter: the largest Euclidean distance of two vectors whose coordinates are among the inputs.
    """
    return metric_epsilon(probabilities, inputs) * diameter**2


def metric_quantizer(
    inputs: np.ndarray, outputs: np.ndarray, epsilon: float, weights: np.ndarray, loss: Loss = ABSOLUTE
) -> np.ndarray:
    """(k, m): the unbiased table of least expected loss under metric DP with the squared distance.

    inputs: (k,) ascending. outputs: (m,) ascending, reaching beyond the inputs. epsilon: per squared distance.
    weights: (k,), how likely the inputs are. Constraints between neighbours imply the others, since the squared
    distance of two inputs is never less than the sum over the steps between them.
    Raises ValueError where these outputs allow no such table.
    """
    inputs, outputs, weights = (np.asarray(array, float) for array in (inputs, outputs, weights))
    for margin in _MARGINS:
        table = _solved(inputs, outputs, epsilon * (1 - margin), weights, loss)
        if table is None:
            break
        table = mended(table, outputs, inputs)
        if table.min() > 0 and metric_epsilon(table, inputs) <= epsilon:
            return table
    raise ValueError(f"no unbiased table over these outputs is metric DP with epsilon {epsilon:g}")


def _solved(
    inputs: np.ndarray, outputs: np.ndarray, epsilon: float, weights: np.ndarray, loss: Loss
) -> np.ndarray | None:
    k, m = len(inputs), len(outputs)
    values = (weights[:, None] * loss.value(outputs[None, :], inputs[:, None])).ravel()
    ratios = np.repeat(np.exp(epsilon * np.diff(inputs) ** 2), m)
    place = np.arange(k * m)
    here, there = place[:-m], place[m:]
    rows = np.concatenate([np.stack([here, there], 1).ravel(), np.stack([there, here], 1).ravel(), place, place])
    factors = np.stack([np.ones_like(ratios), -ratios], axis=1).ravel()
    factors = np.concatenate([factors, factors, np.ones(k * m), np.tile(outputs, k)])
    n = len(here)
    starts = np.append(np.arange(2 * n) * 2, 4 * n + np.arange(2 * k) * m)
    upper = np.concatenate([np.zeros(2 * n), np.ones(k), inputs])
    lower = np.concatenate([np.full(2 * n, -highspy.kHighsInf), np.ones(k), inputs])
    highs = highspy.Highs()
    for option, setting in (
        ("output_flag", False),
        ("primal_feasibility_tolerance", 1e-10),
        ("dual_feasibility_tolerance", 1e-10),
    ):
        highs.setOptionValue(option, setting)
    empty = np.zeros(0, np.int32)
    # No probability is 0: neighbours would be, too, and the table's logarithms are compared.
    least = np.full(k * m, 1e-12)
    highs.addCols(k * m, values, least, np.ones(k * m), 0, np.zeros(k * m, np.int32), empty, np.zeros(0))
    highs.addRows(len(upper), lower, upper, len(rows), starts.astype(np.int32), rows.astype(np.int32), factors)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(highs.getSolution().col_value).reshape(k, m)
