"""Selection distributions of least loss for given bins: the bilinear program, solved directly.

Source: Cai et al. 2024, section 4.2. The probability of an output is a product of a left and a right distribution, so
the privacy constraints are bilinear. The paper's linear programs are in `selection_programs`; this module solves the
bilinear program itself, to a local optimum, from a given start.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from ..core.losses import Loss
from .bin_selection import Selection, inverse_gaps, privacy_loss
from .input_scale import Inputs
from .selection_programs import Layout, pair_costs

# Least probability of the starting point: the program works with logarithms.
_LEAST_START = 1e-9
# The solver satisfies constraints to about 1e-10: the margins below epsilon that are tried in turn.
_MARGINS = (2e-10, 1e-9, 1e-8, 1e-7, 1e-6)


def exact_selection(layout: Layout, inputs: Inputs, epsilon: float, loss: Loss, start: Selection) -> Selection | None:
    """Searches for a local optimum of the expected loss under the exact privacy loss.

    Sequential quadratic programming over the probabilities and the logarithms of the outputs' least probabilities.

    Args:
      layout: Bins, and the probabilities that are variables.
      inputs: The inputs and their weights.
      epsilon: Largest privacy loss.
      loss: Absolute or squared loss.
      start: Selection to start from.

    Returns:
      The selection; None where none was found.
    """
    m, n, bins, cells = layout.m, layout.count, layout.bins, layout.cells
    costs = pair_costs(bins, inputs, loss)[cells]
    left_index, right_index = (index[cells] for index in layout.indices)
    inverse = inverse_gaps(bins)
    # shares[j, e, l, r]: probability that B_l is reported when (l, r) was drawn for the input ends[j, e].
    shares = (bins - layout.ends[cells][..., None])[:, :, None, :] * inverse
    to_right = (inverse > 0) - shares
    upper = (np.arange(m)[:, None] <= np.array(cells)[:, None, None]) & (np.arange(m) > np.array(cells)[:, None, None])
    shares, to_right = shares * upper[:, None], to_right * upper[:, None]

    def sides(variables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.where(index >= 0, variables[index], 0.0) for index in (left_index, right_index))

    def scatter(by_left: np.ndarray, by_right: np.ndarray) -> np.ndarray:
        """Converts derivatives by left and right, (..., cells, m) each, to derivatives by variables, (..., n + m)."""
        flat = np.zeros((n + m + 1, *by_left.shape[:-2]))
        for index, part in ((left_index, by_left), (right_index, by_right)):
            np.add.at(flat, index, np.moveaxis(part, (-2, -1), (0, 1)))
        return np.moveaxis(flat[:-1], 0, -1)

    def objective(variables: np.ndarray) -> tuple[float, np.ndarray]:
        left, right = sides(variables)
        by_left = np.einsum("jlr,jr->jl", costs, right)
        by_right = np.einsum("jlr,jl->jr", costs, left)
        return float((left * by_left).sum()), scatter(by_left, by_right)

    def chances(variables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ln p at every end for every output, (cells, 2, m), and its derivatives (cells, 2, m, n + m)."""
        left, right = sides(variables)
        from_left = np.einsum("jelr,jr->jel", shares, right)
        from_right = np.einsum("jelr,jl->jer", to_right, left)
        chance = np.maximum(left[:, None] * from_left + right[:, None] * from_right, 1e-300)
        count = len(cells)
        by_left, by_right = np.zeros((2, count, 2, m, count, m))
        place, outputs = np.arange(count), np.arange(m)
        by_left[place[:, None], :, outputs, place[:, None], outputs] += np.moveaxis(from_left, 1, 2)
        by_right[place[:, None], :, outputs, place[:, None], outputs] += np.moveaxis(from_right, 1, 2)
        by_right[place, :, :, place, :] += left[:, None, :, None] * shares
        by_left[place, :, :, place, :] += np.swapaxes(right[:, None, None, :] * to_right, -1, -2)
        return np.log(chance), scatter(by_left, by_right) / chance[..., None]

    def slacks(variables: np.ndarray, target: float) -> np.ndarray:
        logs, floors = chances(variables)[0], variables[n:]
        return np.concatenate([(logs - floors).ravel(), (floors + target - logs).ravel()])

    def slack_derivatives(variables: np.ndarray, _: float) -> np.ndarray:
        derivatives = chances(variables)[1].copy()
        derivatives[..., np.arange(m), n + np.arange(m)] -= 1
        flat = derivatives.reshape(-1, n + m)
        return np.concatenate([flat, -flat])

    sums = np.hstack([layout.simplices, np.zeros((len(layout.simplices), m))])
    first = np.maximum(layout.variables(start), _LEAST_START)
    logs = chances(np.append(first, np.zeros(m)))[0]
    least = logs.min(axis=(0, 1))
    point = np.append(first, (least + np.maximum(logs.max(axis=(0, 1)) - epsilon, least)) / 2)
    limits = [(1e-15, 1.0)] * n + [(-80.0, 0.0)] * m
    for margin in _MARGINS:
        answer = minimize(
            objective, point, jac=True, method="SLSQP", bounds=limits, options={"maxiter": 60, "ftol": 1e-10},
            constraints=[
                {"type": "ineq", "fun": slacks, "jac": slack_derivatives, "args": (epsilon - margin,)},
                {"type": "eq", "fun": lambda v: sums @ v - 1, "jac": lambda v: sums},
            ],
        )  # fmt: skip
        made = layout.selection(np.clip(answer.x[:n], 0.0, 1.0))
        excess = float(privacy_loss(made)) - epsilon
        if excess <= 0:
            return made
        if not excess < 1e-5:
            return None
    return None
