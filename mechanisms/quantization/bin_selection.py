"""Randomized quantization by selection: draws a bin on each side of the input, then one of the two without bias.

Source: Cai et al. 2024, "Privacy-Aware Randomized Quantization via Linear Programming", Algorithm 1 and section 4.1.
For an input x in the cell [B_j, B_j+1), draw l <= j from left_j and r > j from right_j; report B_l with probability
(B_r - x) / (B_r - B_l), else B_r. This is unbiased for all distributions. Inputs lie in [-1, 1].

Within a cell the probability of an output is linear in x, and it may jump at the bins. So its largest and smallest
values over all of [-1, 1] are among its one-sided limits at the ends of the cells, and the privacy loss is exact.
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

        Args:
          bins: Shape (..., m), symmetric around 0.
          left: Shape (..., m - 1, m).

        Returns:
          The selection.
        """
        return cls(bins, left, left[..., ::-1, ::-1])

    def __getitem__(self, index: int) -> Selection:
        """Selects one of many."""
        return Selection(self.bins[index], self.left[index], self.right[index])


def channel(selection: Selection, inputs: np.ndarray) -> np.ndarray:
    """Computes the probability of each bin for each input.

    Args:
      selection: One selection.
      inputs: Shape (n,), in [-1, 1].

    Returns:
      Shape (n, m).
    """
    cells = cells_of(selection.bins, inputs)
    return outcomes(selection.bins, selection.left[cells], selection.right[cells], inputs[:, None])[:, 0]


def cells_of(bins: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Finds the cell of each input. An input on a bin belongs to the cell above, except on the last bin.

    Args:
      bins: Shape (m,), ascending.
      inputs: Shape (n,).

    Returns:
      Shape (n,), integers in [0, m - 1).
    """
    return np.clip(np.searchsorted(bins, inputs, side="right") - 1, 0, len(bins) - 2)


def outcomes(bins: np.ndarray, left: np.ndarray, right: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Computes the probability of each bin, given the distributions of each input.

    Args:
      bins: Shape (..., m).
      left: Distributions, shape (..., n, m).
      right: Distributions, shape (..., n, m).
      inputs: Shape (..., n, e): e inputs for each of the n pairs of distributions.

    Returns:
      Shape (..., n, e, m).
    """
    inverse = inverse_gaps(bins)[..., None, :, :]
    above = bins[..., None, None, :] - inputs[..., None]
    to_left = reproducible.stacked_matmul(right[..., None, :] * above, np.swapaxes(inverse, -1, -2))
    to_right = reproducible.stacked_matmul(left[..., None, :] * -above, inverse)
    return left[..., None, :] * to_left + right[..., None, :] * to_right


def inverse_gaps(bins: np.ndarray) -> np.ndarray:
    """Computes 1 / (B_r - B_l) for l < r, and 0 elsewhere.

    Args:
      bins: Shape (..., m), ascending.

    Returns:
      Shape (..., m, m).
    """
    gaps = bins[..., None, :] - bins[..., :, None]
    upper = np.triu(np.ones(gaps.shape[-2:], bool), 1)
    return np.where(upper, 1 / np.where(upper, gaps, 1.0), 0.0)


def cell_ends(bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes the smallest and the largest input of each cell. The largest stands for the limit from below.

    Args:
      bins: Shape (..., m), ascending.

    Returns:
      The ends, shape (..., m - 1, 2), and whether the cell has inputs in [-1, 1], shape (..., m - 1).
    """
    below, above = bins[..., :-1], bins[..., 1:]
    low, high = np.maximum(below, -1.0), np.minimum(above, 1.0)
    return np.stack([low, high], axis=-1), (low < high) | ((below == 1.0) & (above > 1.0))


def extremes(selection: Selection) -> tuple[np.ndarray, np.ndarray]:
    """Computes the infimum and the supremum of every output's probability over the inputs in [-1, 1].

    Args:
      selection: One or many selections.

    Returns:
      Infimum and supremum, shape (..., m) each.
    """
    ends, used = cell_ends(selection.bins)
    limits = outcomes(selection.bins, selection.left, selection.right, ends)
    # Rounding may leave -1e-17 where an end is a bin.
    limits = np.maximum(limits, 0.0)
    least = np.where(used[..., None, None], limits, np.inf).min(axis=(-3, -2))
    most = np.where(used[..., None, None], limits, -np.inf).max(axis=(-3, -2))
    return least, most


def privacy_loss(selection: Selection) -> np.ndarray:
    """Computes the least epsilon over all inputs in [-1, 1], on a grid or not.

    Args:
      selection: One or many selections whose bins include the inputs: B_1 <= -1 and 1 <= B_m.

    Returns:
      Shape (...); infinite where no epsilon holds.
    """
    least, most = extremes(selection)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where(most > 0, most / least, 1.0)
    return reproducible.log(ratios.max(axis=-1))


def expected_loss(selection: Selection, inputs: Inputs, loss: Loss) -> np.ndarray:
    """Computes the mean absolute or squared error. Cost O(m^3), for any number of inputs.

    Given l and r, the absolute error is 2 (B_r - x)(x - B_l) / (B_r - B_l) and the squared one (B_r - x)(x - B_l). Both
    are quadratic in x, so the mass and two moments of the inputs in each cell determine the mean.

    Args:
      selection: One or many selections.
      inputs: The inputs and their weights.
      loss: Absolute or squared loss.

    Returns:
      Shape (...).
    """
    bins = selection.bins
    mass, mean, square = np.moveaxis(inputs.moments(bins)[..., None], -2, 0)
    gaps = inverse_gaps(bins)
    scale = 2 * gaps if loss.name == "absolute" else (gaps > 0).astype(float)
    across = np.swapaxes(scale, -1, -2)
    weight = reproducible.stacked_matmul(selection.right, across)
    moment = reproducible.stacked_matmul(selection.right * bins[..., None, :], across)
    below = bins[..., None, :]
    terms = mean * (below * weight + moment) - square * weight - mass * below * moment
    return (selection.left * terms).sum(axis=(-1, -2))
