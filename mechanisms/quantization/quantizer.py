"""The best unbiased mechanism with m outputs: a linear program over probability matrices, the outputs searched.

Source: Badanidiyuru et al. 2023, Algorithm 1, with the outputs fixed instead of a fine grid. The selection mechanisms
of Cai et al. 2024 are among the matrices it chooses from, and so is MVU.

Privacy needs no pairs of rows: q_c <= M[y, c] <= E q_c with one floor q_c per output says the same in 2 k m rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import highspy
import numpy as np
from scipy.optimize import minimize

from ..core.integer_weights import EPSILON_MARGIN
from ..core.label_rounding import RANDOMIZED
from ..core.losses import ABSOLUTE, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .input_scale import Inputs, check, nearest_outer, solved

_LARGEST_EPSILON = 12.0
"""Above this, the program's coefficients exp(epsilon) leave floating point; its solution is nearly free by then."""


_COARSE = 41


_INFEASIBLE = 1e30


_FEW = 6
"""Up to this many parameters are searched without derivatives, too."""


_INNER = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""How far the inner outputs reach where the search starts."""


_MARGINS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


@dataclass(frozen=True, eq=False)
class Table:
    """Probabilities (k, m) of the least loss for outputs (m,), with the loss and its derivatives by the outputs."""

    probabilities: np.ndarray
    loss: float
    slopes: np.ndarray


def best_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> Table | None:
    """The unbiased epsilon-DP probabilities of least expected loss; None where these outputs allow none.

    Holds to about 1e-9: `mended` makes it exact. epsilon: at most 12.
    """
    k, m = len(inputs.values), len(outputs)
    ratio = np.exp(epsilon)
    values = loss.value(outputs[None, :], inputs.values[:, None])
    highs = highspy.Highs()
    for option, setting in (
        ("output_flag", False),
        ("primal_feasibility_tolerance", 1e-10),
        ("dual_feasibility_tolerance", 1e-10),
        ("small_matrix_value", 1e-12),
    ):
        highs.setOptionValue(option, setting)
    # Variables: M[y, c] by label, then E q_c, which is about as large as the probabilities.
    costs = np.append((inputs.weights[:, None] * values).ravel(), np.zeros(m))
    place = np.arange(k * m)
    ceiling = k * m + place % m
    infinite, count = highspy.kHighsInf, 2 * k * m + 2 * k
    rows = np.concatenate(
        [
            np.stack([place, ceiling], axis=1).ravel(),
            np.stack([place, ceiling], axis=1).ravel(),
            place,
            place,
        ]
    )
    factors = np.concatenate(
        [
            np.tile([1.0, -1.0], k * m),
            np.tile([-ratio, 1.0], k * m),
            np.ones(k * m),
            np.tile(outputs, k),
        ]
    )
    starts = np.append(np.arange(2 * k * m) * 2, 4 * k * m + np.arange(2 * k) * m)
    lower = np.concatenate([np.full(2 * k * m, -infinite), np.ones(k), inputs.values])
    upper = np.concatenate([np.zeros(2 * k * m), np.ones(k), inputs.values])
    n = len(costs)
    empty = np.zeros(0, np.int32)
    highs.addCols(n, costs, np.zeros(n), np.full(n, infinite), 0, np.zeros(n, np.int32), empty, np.zeros(0))
    highs.addRows(count, lower, upper, len(rows), starts.astype(np.int32), rows.astype(np.int32), factors)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    probabilities = np.maximum(np.array(solution.col_value)[: k * m].reshape(k, m), 0.0)
    prices = np.array(solution.row_dual)[-k:]
    if loss.name == "absolute":
        slopes = np.sign(outputs[None, :] - inputs.values[:, None])
    else:
        slopes = 2 * (outputs[None, :] - inputs.values[:, None])
    by_output = ((inputs.weights[:, None] * slopes - prices[:, None]) * probabilities).sum(axis=0)
    return Table(probabilities, float(costs[: k * m] @ probabilities.ravel()), by_output)


def mended(probabilities: np.ndarray, outputs: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The rows corrected until they sum to 1 and have these means within rounding: the smallest relative change.

    probabilities: (k, m), nearly right. outputs: (m,). means: (k,).
    """
    scale = np.max(np.abs(outputs))
    points = outputs / scale
    for _ in range(4):
        short = np.stack([1 - probabilities.sum(axis=1), means / scale - probabilities @ points], axis=1)
        first, second = probabilities @ points, probabilities @ points**2
        mass = probabilities.sum(axis=1)
        normal = np.stack([np.stack([mass, first], axis=1), np.stack([first, second], axis=1)], axis=1)
        factors = np.linalg.solve(normal, short[..., None])[..., 0]
        probabilities = probabilities * (1 + factors[:, :1] + factors[:, 1:] * points)
    return probabilities


def log_ratio(probabilities: np.ndarray) -> float:
    """The privacy loss of a table of probabilities: the largest ln(M[y, c] / M[z, c]) of one output."""
    most, least = probabilities.max(axis=0), probabilities.min(axis=0)
    used = most > 0
    if np.any(least[used] <= 0):
        return np.inf
    return float(np.log(most[used] / least[used]).max())


def finished_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> np.ndarray | None:
    """(k, m): the best table, unbiased and of rows that sum to 1 within rounding, that keeps epsilon less a hair."""
    target = min(epsilon, _LARGEST_EPSILON)
    for margin in _MARGINS:
        table = best_table(inputs, outputs, target * (1 - margin), loss)
        if table is None:
            return None
        # Outputs of next to no probability are only the program's tolerance.
        kept = np.where(table.probabilities.max(axis=0) > 1e-9, table.probabilities, 0.0)
        found = mended(kept, outputs, inputs.values)
        if found.min() >= 0 and log_ratio(found) <= epsilon - EPSILON_MARGIN:
            return found
    return None


def coarse(inputs: Inputs, count: int) -> Inputs:
    """At most count inputs, evenly chosen with both ends, each with the weight of the inputs nearest to it."""
    k = len(inputs.values)
    if k <= count:
        return inputs
    chosen = inputs.values[np.unique(np.linspace(0, k - 1, count).round().astype(int))]
    middles = (chosen[1:] + chosen[:-1]) / 2
    return Inputs(chosen, np.bincount(np.searchsorted(middles, inputs.values), inputs.weights, len(chosen)))


def searched_outputs(inputs: Inputs, m: int, epsilon: float, loss: Loss, symmetric: bool, reach: float) -> np.ndarray:
    """(m,): the outputs of least expected loss that were found within reach, on a coarse grid of the inputs.

    Symmetric outputs first; then, unless symmetric, every output by itself. The program's prices give the derivative
    of its optimum by every output (the envelope theorem).
    """
    target, least = min(epsilon, _LARGEST_EPSILON), nearest_outer(epsilon)
    # A little further than the nearest possible, where the program has a single solution.
    nearest, farthest = least * (1 + 1e-6), least * max(reach, 1 + 1e-6)
    grid = coarse(inputs, _COARSE)
    half = m // 2

    def mirrored(distances: np.ndarray) -> np.ndarray:
        return np.concatenate([-distances[::-1], np.zeros(m % 2), distances])

    def mirrored_value(distances: np.ndarray) -> tuple[float, np.ndarray]:
        loss_there, slopes = free_value(mirrored(distances))
        return loss_there, slopes[-half:] - slopes[:half][::-1]

    def free_value(outputs: np.ndarray) -> tuple[float, np.ndarray]:
        table = best_table(grid, outputs, target, loss)
        return (_INFEASIBLE, np.zeros(m)) if table is None else (table.loss, table.slopes)

    starts, best_of_outer = [], []
    for outer in sorted({1.0, min(1.25, reach), min(1.6, reach), reach}):
        tried = []
        for inner in _INNER:
            start = np.append(np.linspace(inner / max(half - 1, 1), inner, half - 1), outer * least)
            start[-1] = np.clip(start[-1], nearest, farthest)
            tried.append((mirrored_value(start)[0], len(starts) + len(tried), start))
        starts += tried
        best_of_outer.append(min(tried, key=lambda start: start[0])[:2])
    # The best ones, and the best one of every extent: the loss has several local minima.
    chosen = {place for _, place in best_of_outer} | {
        place for _, place, _ in sorted(starts, key=lambda start: start[0])[:4]
    }
    bounds = np.array([(0.0, farthest)] * (half - 1) + [(nearest, farthest)])
    best = _least(mirrored_value, [starts[place][2] for place in sorted(chosen)], bounds)
    outputs = mirrored(best)
    if symmetric or m == 2:
        return outputs
    centre = float(grid.weights @ grid.values)
    shifted = outputs + np.where(np.arange(m) % (m - 1) > 0, centre, 0.0)
    bounds = np.array([(-farthest, farthest)] * m)
    both = [outputs] if centre == 0 else [outputs, shifted]
    return _least(free_value, both, bounds)


def _least(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], starts: list[np.ndarray], bounds: np.ndarray
) -> np.ndarray:
    """Along the derivatives from every start, then, from the best two, without them: the optimum has kinks.

    value: a point's loss and its derivatives. bounds: (d, 2).
    """
    seen: list[tuple[float, np.ndarray]] = []

    def remembered(point: np.ndarray) -> tuple[float, np.ndarray]:
        found = value(point)
        seen.append((found[0], point.copy()))
        return found

    bests = []
    for start in starts:
        seen.clear()
        minimize(remembered, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30, "maxfun": 50})
        bests.append(min(seen, key=lambda one: one[0]))
    bests.sort(key=lambda one: one[0])
    if bounds.shape[0] <= _FEW:
        for _, start in bests[:2]:
            seen.clear()
            simplex = np.clip(np.vstack([start, start - 0.03 * np.eye(len(start))]), *bounds.T)
            options = {"initial_simplex": simplex, "maxfev": 30 * len(start), "xatol": 1e-4, "fatol": 1e-7}
            minimize(lambda point: remembered(point)[0], start, method="Nelder-Mead", bounds=bounds, options=options)
            bests.append(min(seen, key=lambda one: one[0]))
    return min(bests, key=lambda one: one[0])[1]


@dataclass(frozen=True)
class Quantizer:
    """The unbiased epsilon-DP mechanism of least expected loss with m outputs.

    outputs: m. values: the outputs themselves, ascending, in the label's unit; searched where empty. symmetric: whether
    the searched outputs lie symmetrically around the middle of the label range. reach: the searched outputs lie within
    reach * coth(epsilon / 2) halves of the label range from its middle; none can do with less than 1, and without a
    limit the absolute loss would send two of them to infinity. loss: absolute or squared.
    """

    name: ClassVar[str] = "quantizer"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    values: tuple[float, ...] = ()
    symmetric: bool = False
    reach: float = 2.0
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """About a second for m = 4 and some hundreds of labels. Given its outputs it is optimal within 1e-7.

        Raises ValueError for a parameter out of range, or outputs that allow no unbiased mechanism under epsilon.
        """
        given = np.array(self.values, float)
        check(epsilon, len(given) if len(given) else self.outputs, self.loss)
        if not np.all(np.isfinite(given)) or np.any(np.diff(given) <= 0):
            raise ValueError("values must be finite and ascending")
        if not 1 <= self.reach < np.inf:
            raise ValueError(f"reach must be at least 1 and finite, not {self.reach:g}")
        parameters: dict[str, object] = {"outputs": len(given) if len(given) else self.outputs}
        labels = prior.labels

        def scaled(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
            if len(given):
                outputs = (given - (labels[0] / 2 + labels[-1] / 2)) / (labels[-1] / 2 - labels[0] / 2)
            else:
                outputs = searched_outputs(inputs, self.outputs, epsilon, self.loss, self.symmetric, self.reach)
            table = finished_table(inputs, outputs, epsilon, self.loss)
            if table is None:
                raise ValueError(f"no unbiased mechanism with these outputs keeps epsilon {epsilon:g}")
            return outputs, table

        return solved(prior, epsilon, self.name, parameters, scaled)
