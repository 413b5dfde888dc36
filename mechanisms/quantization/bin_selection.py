"""Randomized quantization by selection: draws a bin on each side of the input, then one of the two without bias.

Source: Cai et al. 2024, "Privacy-Aware Randomized Quantization via Linear Programming", Algorithm 1 and section 4.1.
For an input x in the cell [B_j, B_j+1), draw l <= j from left_j and r > j from right_j; report B_l with probability
(B_r - x) / (B_r - B_l), else B_r. This is unbiased for all distributions. Inputs lie in [-1, 1].

Within a cell the probability of an output is linear in x, and it may jump at the bins. So its largest and smallest
values over all of [-1, 1] are among its one-sided limits at the ends of the cells, and the privacy loss is exact.

The best selection distributions for given bins are those of section 4.2. The probability of an output is a product of a
left and a right distribution, so the privacy constraints are bilinear. The paper makes them linear by bounding one
factor, o <= q <= u (Theorem 5 with O(m^3) pairs of constraints; Theorem 6 with more assumptions on q and three bounds),
and minimizes a linear upper bound of the error (Theorems 3 and 4). `exact_selection` solves the bilinear program
itself. The paper pairs every largest with every smallest value of an output. Here one more variable for each output,
its least probability s_i, states the same in O(m^2) rows: s_i <= each small value, each large one <= E s_i.

Bins ascend, shape (..., m), and single inputs have shape (n,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core import reproducible
from ..core.losses import Loss
from .input_scale import Inputs
from .linear_program import Columns, Program, optimum


@dataclass(frozen=True, eq=False)
class Selection:
    """Bins and selection distributions. Leading axes hold many selections at once.

    Attributes:
      bins: Shape (..., m), ascending.
      left: Shape (..., m - 1, m); left[j] is a distribution over the bins 0..j, for inputs in the cell
        [bins[j], bins[j + 1]).
      right: Shape (..., m - 1, m); right[j] is a distribution over the bins j + 1..m - 1, for the same inputs.
    """

    bins: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def symmetric(cls, bins: np.ndarray, left: np.ndarray) -> Selection:
        """Builds a selection whose right side mirrors the left: right_j(r) = left_(m - j)(m + 1 - r), counted from 1.

        The bins are symmetric around 0; `left` has shape (..., m - 1, m).
        """
        return cls(bins, left, left[..., ::-1, ::-1])

    def __getitem__(self, index: int | np.ndarray) -> Selection:
        """Selects one of many, or some of them."""
        return Selection(self.bins[index], self.left[index], self.right[index])


def channel(selection: Selection, inputs: np.ndarray) -> np.ndarray:
    """Probability of each bin for each input in [-1, 1]; shape (n, m)."""
    cells = cells_of(selection.bins, inputs)
    return outcomes(selection.bins, selection.left[cells], selection.right[cells], inputs[:, None])[:, 0]


def cells_of(bins: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Cell of each input, integers in [0, m - 1), shape (n,), for bins of shape (m,).

    An input on a bin belongs to the cell above, except on the last bin.
    """
    return np.clip(np.searchsorted(bins, inputs, side="right") - 1, 0, len(bins) - 2)


def outcomes(bins: np.ndarray, left: np.ndarray, right: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Probability of each bin, given the distributions of each input; shape (..., n, e, m).

    `left` and `right` have shape (..., n, m), `inputs` (..., n, e): e inputs for each of the n pairs of distributions.
    """
    inverse = inverse_gaps(bins)[..., None, :, :]
    above = bins[..., None, None, :] - inputs[..., None]
    to_left = reproducible.stacked_matmul(right[..., None, :] * above, np.swapaxes(inverse, -1, -2))
    to_right = reproducible.stacked_matmul(left[..., None, :] * -above, inverse)
    return left[..., None, :] * to_left + right[..., None, :] * to_right


def inverse_gaps(bins: np.ndarray) -> np.ndarray:
    """Computes 1 / (B_r - B_l) for l < r, and 0 elsewhere; shape (..., m, m)."""
    gaps = bins[..., None, :] - bins[..., :, None]
    upper = np.triu(np.ones(gaps.shape[-2:], bool), 1)
    return np.where(upper, 1 / np.where(upper, gaps, 1.0), 0.0)


def cell_ends(bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes the smallest and the largest input of each cell. The largest stands for the limit from below.

    The ends have shape (..., m - 1, 2). The second result, shape (..., m - 1), says whether the cell has inputs in [-1,
    1].
    """
    below, above = bins[..., :-1], bins[..., 1:]
    low, high = np.maximum(below, -1.0), np.minimum(above, 1.0)
    return np.stack([low, high], axis=-1), (low < high) | ((below == 1.0) & (above > 1.0))


def extremes(selection: Selection) -> tuple[np.ndarray, np.ndarray]:
    """Infimum and supremum of every output's probability over the inputs in [-1, 1], shape (..., m) each."""
    bins, left, right = _leading(selection.bins, 1), _leading(selection.left, 2), _leading(selection.right, 2)
    ends, used = cell_ends(selection.bins)
    ends, used = _leading(ends, 2), _leading(used, 1)
    least, most = np.full(bins.shape, np.inf), np.full(bins.shape, -np.inf)
    for j in range(len(left)):
        low, high = bins[: j + 1], bins[j + 1 :]
        from_left, from_right = left[j, : j + 1, None], right[j, j + 1 :, None]
        inverse = 1 / (high - low[:, None])[:, :, None]
        to_left = _sum_of_products(from_right * (high[:, None] - ends[j]), np.swapaxes(inverse, 0, 1))
        to_right = _sum_of_products(from_left * (ends[j] - low[:, None]), inverse)
        limits = np.concatenate([from_left * to_left, from_right * to_right])
        # Rounding may leave -1e-17 or -0.0 where an end is a bin.
        limits = np.maximum(limits, 0.0) + 0.0
        least = np.minimum(least, np.where(used[j], limits, np.inf).min(axis=1))
        most = np.maximum(most, np.where(used[j], limits, -np.inf).max(axis=1))
    return np.moveaxis(least, 0, -1), np.moveaxis(most, 0, -1)


def _leading(values: np.ndarray, axes: int) -> np.ndarray:
    """Moves the last axes to the front. numpy's inner loops then run over many selections, not over a few bins."""
    if values.ndim == axes:
        return values
    return np.ascontiguousarray(np.moveaxis(values, range(-axes, 0), range(axes)))


def _sum_of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Adds up a[i] * b[i] in ascending order: the bits depend neither on the shapes nor on the CPU."""
    total = a[0] * b[0]
    for one, other in zip(a[1:], b[1:], strict=True):
        total += one * other
    return total


def privacy_loss(selection: Selection) -> np.ndarray:
    """Computes the least epsilon over all inputs in [-1, 1], on a grid or not; infinite where no epsilon holds.

    The bins include the inputs: B_1 <= -1 and 1 <= B_m.
    """
    least, most = extremes(selection)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where(most > 0, most / least, 1.0)
    return reproducible.log(ratios.max(axis=-1))


def expected_loss(selection: Selection, inputs: Inputs, loss: Loss) -> np.ndarray:
    """Computes the mean absolute or squared error. Cost O(m^3), for any number of inputs.

    Given l and r, the absolute error is 2 (B_r - x)(x - B_l) / (B_r - B_l) and the squared one (B_r - x)(x - B_l). Both
    are quadratic in x, so the mass and two moments of the inputs in each cell determine the mean.
    """
    bins, left, right = _leading(selection.bins, 1), _leading(selection.left, 2), _leading(selection.right, 2)
    terms = np.zeros(left.shape)
    for j, (mass, mean, square) in enumerate(_leading(inputs.moments(selection.bins), 2)):
        low, high, drawn = bins[: j + 1], bins[j + 1 :], right[j, j + 1 :]
        gaps = high[:, None] - low
        scale = 2 * (1 / gaps) if loss.name == "absolute" else np.ones(gaps.shape)
        weight, moment = _sum_of_products(drawn[:, None], scale), _sum_of_products((drawn * high)[:, None], scale)
        terms[j, : j + 1] = left[j, : j + 1] * (mean * (low * weight + moment) - square * weight - mass * low * moment)
    return np.ascontiguousarray(np.moveaxis(terms, (0, 1), (-2, -1))).sum(axis=(-1, -2))


def private_losses(selections: Selection, epsilon: float, inputs: Inputs, loss: Loss) -> np.ndarray:
    """Computes the expected losses of the selections that satisfy epsilon, infinite for the others; shape (n,)."""
    return np.where(privacy_loss(selections) <= epsilon, expected_loss(selections, inputs, loss), np.inf)


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
