"""Linear programs for the selection distributions of given bins: the joint program, and those of Theorems 5 and 6.

Source: Cai et al. 2024, section 4.2. The probability of an output is a product of a left and a right distribution, so
the privacy constraints are bilinear. The paper makes them linear by bounding one factor, o <= q <= u (Theorem 5 with
O(m^3) pairs of constraints; Theorem 6 with more assumptions on q and three bounds), and minimizes a linear upper bound
of the error (Theorems 3 and 4). `exact_selection` solves the bilinear program itself.

The paper pairs every largest with every smallest value of an output. Here one more variable for each output, its least
probability s_i, states the same in O(m^2) rows: s_i <= each small value, each large one <= E s_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core import reproducible
from ..core.linear_program import Columns, Program, optimum
from ..core.losses import Loss
from .bin_selection import Selection, cell_ends, inverse_gaps
from .input_scale import Inputs


@dataclass(frozen=True, eq=False)
class Layout:
    """Assignment of a selection's probabilities to the variables of a program.

    Attributes:
      bins: Shape (m,), ascending.
      symmetric: Whether the right side mirrors the left one; the bins are then symmetric.
    """

    bins: np.ndarray
    symmetric: bool

    @property
    def m(self) -> int:
        """Number of bins."""
        return len(self.bins)

    @cached_property
    def ends(self) -> np.ndarray:
        """Smallest and largest input of each cell, shape (m - 1, 2)."""
        return cell_ends(self.bins)[0]

    @cached_property
    def cells(self) -> list[int]:
        """Cells with inputs in them, which are contiguous."""
        return np.flatnonzero(cell_ends(self.bins)[1]).tolist()

    @cached_property
    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Variables of left[j, i] and of right[j, i], shape (m - 1, m) each; -1 where the probability is 0."""
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
        """Number of variables."""
        return 1 + max(int(index.max()) for index in self.indices)

    @cached_property
    def simplices(self) -> np.ndarray:
        """A row of ones for the variables of each distribution, shape (n, count)."""
        sides = self.indices[:1] if self.symmetric else self.indices
        rows = np.zeros((len(self.cells) * len(sides), self.count))
        for row, index in zip(rows, [side[j] for side in sides for j in self.cells], strict=True):
            row[index[index >= 0]] = 1
        return rows

    def selection(self, variables: np.ndarray) -> Selection:
        """Builds the selection of given variables, shape (count,).

        In cells without inputs, the nearest bin has probability 1.
        """
        left, right = (np.where(index >= 0, variables[index], 0.0) for index in self.indices)
        for side, nearest in ((left, 0), (right, 1)):
            for j in np.flatnonzero(side.sum(axis=-1) <= 0).tolist():
                side[j, j + nearest] = 1.0
        return Selection(self.bins, left / left.sum(axis=-1, keepdims=True), right / right.sum(axis=-1, keepdims=True))

    def variables(self, selection: Selection) -> np.ndarray:
        """Reads the variables of a selection over these bins; shape (count,)."""
        values = np.zeros(self.count)
        for index, side in zip(self.indices, (selection.left, selection.right), strict=True):
            values[index[index >= 0]] = side[index >= 0]
        return values


def pair_costs(bins: np.ndarray, inputs: Inputs, loss: Loss) -> np.ndarray:
    """Expected loss that each cell adds for drawing the pair (l, r), l <= j < r; shape (m - 1, m, m)."""
    mass, mean, square = inputs.moments(bins).T[..., None, None]
    low, high = bins[:, None], bins[None, :]
    costs = mean * (low + high) - square - mass * low * high
    scale = 2 * inverse_gaps(bins) if loss.name == "absolute" else np.triu(np.ones((len(bins), len(bins))), 1)
    return costs * scale


def coupled_selection(bins: np.ndarray, inputs: Inputs, epsilon: float, loss: Loss) -> tuple[float, Selection] | None:
    """Solves for the best joint distribution of (l, r) in each cell, a linear program without bounds.

    A product of distributions is a joint one, so no selection over these bins has a smaller expected loss. The
    marginals of the joint distribution are a start for the other programs.

    The result is the lower bound on the loss, and the selection of the marginals; None where the bins cannot satisfy
    epsilon.
    """
    layout = Layout(bins, False)
    m, ratio, costs = layout.m, float(reproducible.exp(epsilon)), pair_costs(bins, inputs, loss)
    pairs = [(j, a, b) for j in layout.cells for a in range(j + 1) for b in range(j + 1, m)]
    cell, low, high = np.array(pairs).T
    n = len(pairs)
    place, output, cells = np.arange(n), np.arange(m), np.array(layout.cells)
    own = cell == cells[:, None]
    equal = np.hstack([own, np.zeros((len(cells), m))])
    # chances[j, e, i]: probability of output i at the end e of the cell, by the pairs.
    shares = (bins[high] - layout.ends[cells][..., None]) / (bins[high] - bins[low]) * own[:, None]
    chances = np.zeros((len(cells), 2, m, n))
    chances[..., low, place], chances[..., high, place] = shares, own[:, None] - shares
    # The variables of the outputs are E times their least probabilities: of similar size as the others.
    rows = np.zeros((len(cells), 2, 2, m, n + m))
    rows[:, :, 0, :, :n], rows[:, :, 1, :, :n] = chances, -ratio * chances
    rows[:, :, 0, output, n + output], rows[:, :, 1, output, n + output] = -1.0, 1.0
    found = _solve_linear_program(np.append(costs[cell, low, high], np.zeros(m)), rows.reshape(-1, n + m), equal)
    if found is None:
        return None
    left, right = np.zeros((2, m - 1, m))
    np.add.at(left, (cell, low), found[:n])
    np.add.at(right, (cell, high), found[:n])
    return reproducible.dot(costs[cell, low, high], found[:n]), layout.selection(
        layout.variables(Selection(bins, left, right))
    )


def theorem5_selection(
    layout: Layout, inputs: Inputs, epsilon: float, lower: np.ndarray, upper: np.ndarray
) -> Selection | None:
    """Solves for the selection of least bound on the absolute error under the constraints of Theorem 5.

    The theorem is stated for symmetric bins. With another layout its constraints hold for both sides, as Theorem 4 does
    for the error.

    The bounds o and u of the variables have shape (count,). None where the program is infeasible.
    """
    m, ratio = layout.m, float(reproducible.exp(epsilon))
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
    """Solves for the selection of least bound on the absolute error under the constraints of Theorem 6.

    B_s and B_t are the first and the last bin within [-1, 1]. `upper` is the bound u of q_(s-1)(s-1); `lower` has the
    bounds o of q_(t-1)(1) and of q_t(1). None where the program is infeasible. Raises ValueError if the layout is not
    symmetric.
    """
    if not layout.symmetric:
        raise ValueError("Theorem 6 is for symmetric bins")
    m, ratio, bins = layout.m, float(reproducible.exp(epsilon)), layout.bins
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
    """Minimizes the sum of mass_j (zeta_j of the left + zeta_(m - j) of the right), Theorem 4, under rows @ v <= 0."""
    costs = np.zeros(layout.count + extra)
    mass, bins = inputs.moments(layout.bins)[:, 0], layout.bins
    left, right = layout.indices
    for j in layout.cells:
        np.add.at(costs, left[j, : j + 1], mass[j] * (bins[j] - bins[: j + 1]))
        np.add.at(costs, right[j, j + 1 :], mass[j] * (bins[j + 1 :] - bins[j + 1]))
    equal = np.hstack([layout.simplices, np.zeros((len(layout.simplices), extra))])
    limits = np.vstack([np.append(lower, np.zeros(extra)), np.append(upper, np.ones(extra))]).T
    found = _solve_linear_program(costs, np.vstack(rows), equal, limits)
    return None if found is None else layout.selection(found[: layout.count])


def _solve_linear_program(
    costs: np.ndarray, rows: np.ndarray, equal: np.ndarray, limits: np.ndarray | None = None
) -> np.ndarray | None:
    """Minimizes costs @ v with rows @ v <= 0, equal @ v = 1 and limits (default [0, 1]); None where infeasible."""
    least, most = (np.zeros(len(costs)), np.ones(len(costs))) if limits is None else limits.T.copy()
    columns = Columns.of_dense(np.vstack([rows, equal]))
    found = optimum(Program(costs, columns, len(rows), np.ones(len(equal)), least, most))
    return None if found is None else np.maximum(found.variables, 0.0)
