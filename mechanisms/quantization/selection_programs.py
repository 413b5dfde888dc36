"""The selection distributions of least loss for given bins: the linear programs of Theorems 5 and 6, and exactly.

Source: Cai et al., section 4.2. The probability of an output is a product of a left and a right distribution, so the
privacy constraints are bilinear. The paper makes them linear by bounding one factor, o <= q <= u (Theorem 5 with
O(m^3) pairs of constraints; Theorem 6 with more assumptions on q and three bounds), and minimises a linear upper bound
of the error (Theorems 3 and 4). `exact_selection` solves the bilinear program itself, from a start given.

Where the paper pairs every largest with every smallest value of an output, one more variable per output, its floor
s_i, says the same in O(m^2) rows: s_i <= each small value, each large one <= E s_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog, minimize

from ..core.losses import Loss
from .bin_selection import Selection, cell_ends, inverse_gaps, privacy_loss
from .input_scale import Inputs

_FLOOR = 1e-9
"""Where the exact program starts, every probability is at least this: it works with their logarithms."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Which probabilities of a selection over these bins are variables.

    bins: (m,). symmetric: whether the right side is the mirror image of the left one; the bins then are symmetric.
    """

    bins: np.ndarray
    symmetric: bool

    @property
    def m(self) -> int:
        return len(self.bins)

    @cached_property
    def ends(self) -> np.ndarray:
        """(m - 1, 2): the least and the largest input of each cell."""
        return cell_ends(self.bins)[0]

    @cached_property
    def cells(self) -> list[int]:
        """The cells with inputs in them, neighbours of each other."""
        return np.flatnonzero(cell_ends(self.bins)[1]).tolist()

    @cached_property
    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """(m - 1, m) each: the variable behind left[j, i] and behind right[j, i]; -1 where the probability is 0."""
        m, count = self.m, 0
        left, right = np.full((2, m - 1, m), -1)
        for j in self.cells:
            left[j, : j + 1] = np.arange(count, count + j + 1)
            count += j + 1
        if self.symmetric:
            return left, left[::-1, ::-1].copy()
        for j in self.cells:
            right[j, j + 1 :] = np.arange(count, count + m - 1 - j)
            count += m - 1 - j
        return left, right

    @cached_property
    def count(self) -> int:
        """How many variables there are."""
        return 1 + max(int(index.max()) for index in self.indices)

    @cached_property
    def simplices(self) -> np.ndarray:
        """(n, count): a row of ones for the variables of each distribution."""
        sides = self.indices[:1] if self.symmetric else self.indices
        rows = np.zeros((len(self.cells) * len(sides), self.count))
        for row, index in zip(rows, [side[j] for side in sides for j in self.cells], strict=True):
            row[index[index >= 0]] = 1
        return rows

    def selection(self, variables: np.ndarray) -> Selection:
        """The selection of these variables. Cells without inputs get the distribution of the nearest bin."""
        left, right = (np.where(index >= 0, variables[index], 0.0) for index in self.indices)
        for side, nearest in ((left, 0), (right, 1)):
            for j in np.flatnonzero(side.sum(axis=-1) <= 0).tolist():
                side[j, j + nearest] = 1.0
        return Selection(self.bins, left / left.sum(axis=-1, keepdims=True), right / right.sum(axis=-1, keepdims=True))

    def variables(self, selection: Selection) -> np.ndarray:
        """(count,): the variables of a selection over these bins."""
        values = np.zeros(self.count)
        for index, side in zip(self.indices, (selection.left, selection.right), strict=True):
            values[index[index >= 0]] = side[index >= 0]
        return values


def pair_costs(bins: np.ndarray, inputs: Inputs, loss: Loss) -> np.ndarray:
    """(m - 1, m, m): what each cell adds to the expected loss for drawing the pair (l, r), l <= j < r."""
    mass, mean, square = inputs.moments(bins).T[..., None, None]
    low, high = bins[:, None], bins[None, :]
    costs = mean * (low + high) - square - mass * low * high
    scale = 2 * inverse_gaps(bins) if loss.name == "absolute" else np.triu(np.ones((len(bins), len(bins))), 1)
    return costs * scale


def coupled_selection(bins: np.ndarray, inputs: Inputs, epsilon: float, loss: Loss) -> tuple[float, Selection] | None:
    """The best joint distribution of (l, r) in each cell, a linear program without any bounds.

    No selection over these bins has a smaller expected loss than the first value, since a product of distributions is
    a joint one. Its marginals, the second value, start the other programs. None where the bins cannot keep epsilon.
    """
    layout = Layout(bins, False)
    m, ratio, costs = layout.m, np.exp(epsilon), pair_costs(bins, inputs, loss)
    pairs = [(j, a, b) for j in layout.cells for a in range(j + 1) for b in range(j + 1, m)]
    cell, low, high = np.array(pairs).T
    n = len(pairs)
    rows, equal = [], np.zeros((len(layout.cells), n + m))
    for place, j in enumerate(layout.cells):
        equal[place, :n] = cell == j
        for x in layout.ends[j]:
            share = (bins[high] - x) / (bins[high] - bins[low]) * (cell == j)
            chance = np.zeros((m, n))
            np.add.at(chance, (low, np.arange(n)), share)
            np.add.at(chance, (high, np.arange(n)), (cell == j) - share)
            # The variables of the outputs are E times their floors: of the size of probabilities.
            rows.append(np.hstack([chance, -np.eye(m)]))
            rows.append(np.hstack([-ratio * chance, np.eye(m)]))
    found = _solved(np.append(costs[cell, low, high], np.zeros(m)), np.vstack(rows), equal)
    if found is None:
        return None
    left, right = np.zeros((2, m - 1, m))
    np.add.at(left, (cell, low), found[:n])
    np.add.at(right, (cell, high), found[:n])
    return float(costs[cell, low, high] @ found[:n]), layout.selection(layout.variables(Selection(bins, left, right)))


def theorem5_selection(
    layout: Layout, inputs: Inputs, epsilon: float, lower: np.ndarray, upper: np.ndarray
) -> Selection | None:
    """The selection of least bound on the absolute error under the constraints of Theorem 5; None if there is none.

    lower, upper: (count,) the bounds o and u of the variables. The theorem is stated for symmetric bins; with another
    layout its constraints hold for both sides, as Theorem 4 does for the error.
    """
    m, ratio = layout.m, np.exp(epsilon)
    bins, inverse, ends = layout.bins, inverse_gaps(layout.bins), layout.ends
    rows: list[np.ndarray] = []

    def row(output: int, floor: float, index: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray) -> None:
        new = np.zeros(layout.count + m)
        np.add.at(new, index, values)
        new[layout.count + output] += floor
        rows.append(new)

    left, right = layout.indices
    for j in layout.cells:
        low, high = ends[j]
        below, above = np.arange(j + 1), np.arange(j + 1, m)
        for side, near, others, own, far in ((left, low, right, below, above), (right, high, left, above, below)):
            away = ends[j].sum() - near
            for i in own.tolist():
                v, companions = side[j, i], others[j, far]
                gaps = inverse[i, far] + inverse[far, i]
                if bins[i] == near:
                    row(i, -1.0, [v], [1.0])
                elif -1 <= bins[i] <= 1:
                    # At its own bin the probability is q_i(i), the largest of its side.
                    row(i, 0.0, [int(v), int(side[i if side is left else i - 1, i])], [1.0, -1.0])
                else:
                    row(i, -1.0, companions, upper[v] * np.abs(bins[far] - near) * gaps)
                row(i, 1.0, companions, -ratio * lower[v] * np.abs(bins[far] - away) * gaps)
    return _linear_selection(layout, inputs, rows, lower, upper, m)


def theorem6_selection(
    layout: Layout, inputs: Inputs, epsilon: float, upper: float, lower: tuple[float, float]
) -> Selection | None:
    """The selection of least bound on the absolute error under the constraints of Theorem 6; None if there is none.

    For symmetric layouts. upper: u of q_(s-1)(s-1). lower: o of q_(t-1)(1) and of q_t(1); B_s and B_t are the first
    and the last bin within [-1, 1].
    """
    if not layout.symmetric:
        raise ValueError("Theorem 6 is for symmetric bins")
    m, ratio, bins = layout.m, np.exp(epsilon), layout.bins
    left, right = layout.indices
    first, last = layout.cells[0], layout.cells[-1]
    rows: list[np.ndarray] = []

    def row(index: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray) -> None:
        new = np.zeros(layout.count)
        np.add.at(new, index, values)
        rows.append(new)

    for j in layout.cells:
        for i in range(j + 1):
            if j < last:
                row([left[j + 1, i], left[j, i]], [1.0, -1.0])
            if i < j:
                row([left[j, i], left[j, i + 1]], [1.0, -1.0])
        if first < j < last:
            row([left[j + 1, j + 1], left[j, j]], [1.0, -1.0])

    def share(j: int, i: int, x: float) -> tuple[np.ndarray, np.ndarray]:
        """Variables and factors of the sum over r of right_j(r) (B_r - x) / (B_r - B_i)."""
        above = np.arange(j + 1, m)
        return right[j, above], (bins[above] - x) / (bins[above] - bins[i])

    largest = [(index, upper * factor) for index, factor in [share(first, first, -1.0)]]
    if last > first:
        largest.append((np.array([left[first + 1, first + 1]]), np.ones(1)))
    smallest = [(index, lower[1] * factor) for index, factor in [share(last, 0, 1.0)]]
    if last > first:
        index, factor = share(last - 1, 0, float(bins[last]))
        smallest.append((index, lower[0] * factor))
    for top, factor in largest:
        for bottom, share_of_bottom in smallest:
            row(np.append(top, bottom), np.append(factor, -ratio * share_of_bottom))
    for k in range(first + 1, last + 1):
        for r in range(k + 2, m):
            row([right[k, r], right[k - 1, r]], [bins[r] - bins[k + 1], bins[k] - bins[r]])
            if k < last:
                row([right[k + 1, r], right[k, r]], [bins[r] - bins[k + 1], bins[k] - bins[r]])
    least, most = np.zeros(layout.count), np.ones(layout.count)
    most[left[first, first]] = upper
    least[left[last, 0]] = lower[1]
    if last > first:
        least[left[last - 1, 0]] = max(lower[0], least[left[last - 1, 0]])
    return _linear_selection(layout, inputs, rows, least, most, 0)


def _linear_selection(
    layout: Layout, inputs: Inputs, rows: list[np.ndarray], lower: np.ndarray, upper: np.ndarray, extra: int
) -> Selection | None:
    """Least sum of mass_j (zeta_j of the left + zeta_(m - j) of the right), Theorem 4, under rows @ v <= 0."""
    costs = np.zeros(layout.count + extra)
    mass, bins = inputs.moments(layout.bins)[:, 0], layout.bins
    left, right = layout.indices
    for j in layout.cells:
        np.add.at(costs, left[j, : j + 1], mass[j] * (bins[j] - bins[: j + 1]))
        np.add.at(costs, right[j, j + 1 :], mass[j] * (bins[j + 1 :] - bins[j + 1]))
    equal = np.hstack([layout.simplices, np.zeros((len(layout.simplices), extra))])
    limits = np.vstack([np.append(lower, np.zeros(extra)), np.append(upper, np.ones(extra))]).T
    found = _solved(costs, np.vstack(rows), equal, limits)
    return None if found is None else layout.selection(found[: layout.count])


def _solved(
    costs: np.ndarray, rows: np.ndarray, equal: np.ndarray, limits: np.ndarray | None = None
) -> np.ndarray | None:
    """Least costs @ v with rows @ v <= 0, equal @ v = 1 and limits (default [0, 1]); None where infeasible."""
    bounds = (0.0, 1.0) if limits is None else limits
    answer = linprog(costs, rows, np.zeros(len(rows)), equal, np.ones(len(equal)), bounds, method="highs")
    return np.maximum(answer.x, 0.0) if answer.status == 0 else None


def exact_selection(layout: Layout, inputs: Inputs, epsilon: float, loss: Loss, start: Selection) -> Selection | None:
    """A local optimum of the expected loss itself under the privacy loss itself; None where none was found.

    Sequential quadratic programming over the probabilities and the logarithms of the outputs' floors.
    """
    m, n, bins, cells = layout.m, layout.count, layout.bins, layout.cells
    costs = pair_costs(bins, inputs, loss)[cells]
    left_index, right_index = (index[cells] for index in layout.indices)
    inverse = inverse_gaps(bins)
    # shares[j, e, l, r]: how likely B_l is reported when (l, r) was drawn for the input ends[j, e].
    shares = (bins - layout.ends[cells][..., None])[:, :, None, :] * inverse
    to_right = (inverse > 0) - shares
    upper = (np.arange(m)[:, None] <= np.array(cells)[:, None, None]) & (np.arange(m) > np.array(cells)[:, None, None])
    shares, to_right = shares * upper[:, None], to_right * upper[:, None]

    def sides(variables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.where(index >= 0, variables[index], 0.0) for index in (left_index, right_index))

    def scatter(by_left: np.ndarray, by_right: np.ndarray) -> np.ndarray:
        """(..., n + m): derivatives by the entries of left and right, (..., cells, m) each, as ones by variables."""
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
    first = np.maximum(layout.variables(start), _FLOOR)
    logs = chances(np.append(first, np.zeros(m)))[0]
    least = logs.min(axis=(0, 1))
    point = np.append(first, (least + np.maximum(logs.max(axis=(0, 1)) - epsilon, least)) / 2)
    limits = [(1e-15, 1.0)] * n + [(-80.0, 0.0)] * m
    # The solver satisfies constraints to some 1e-10.
    for margin in (2e-10, 1e-9, 1e-8, 1e-7, 1e-6):
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
