"""Randomized quantization by selection: draws a bin on each side of the input, then one of the two without bias.

Source: Cai et al. 2024, "Privacy-Aware Randomized Quantization via Linear Programming", Algorithm 1 and section 4.1.
For an input x in the cell [B_j, B_j+1), draw l <= j from left_j and r > j from right_j; report B_l with probability
(B_r - x) / (B_r - B_l), else B_r. This is unbiased for all distributions. Inputs lie in [-1, 1].

Within a cell the probability of an output is linear in x, and it may jump at the bins. So its largest and smallest
values over all of [-1, 1] are among its one-sided limits at the ends of the cells, and the privacy loss is exact.

Bins ascend, shape (..., m), and single inputs have shape (n,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import reproducible
from ..core.losses import Loss
from .input_scale import Inputs


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


def private_losses(selections: Selection, epsilon: float, inputs: Inputs, loss: Loss, limits: np.ndarray) -> np.ndarray:
    """Computes the expected losses of the selections that satisfy epsilon and whose loss is below their limit.

    The result is infinite for the other selections; shape (n,). The privacy loss, which takes longer to compute, is
    computed only for losses below `limits`, shape (n,).
    """
    found = expected_loss(selections, inputs, loss)
    below = np.flatnonzero(found < limits)
    private = below[privacy_loss(selections[below]) <= epsilon]
    losses = np.full(len(found), np.inf)
    losses[private] = found[private]
    return losses
