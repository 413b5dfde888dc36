"""The biased variant: one of the two bins drawn by the exponential mechanism instead of without bias.

Source: Cai et al., section 5. The score of a bin is minus its distance from the input, so of B_l <= x < B_r the right
one is reported with probability 1 / (1 + exp(rate (B_l + B_r - 2 x))). That is monotone in x within a cell, as the
unbiased probability is: so the privacy loss is again exact at the one-sided limits.
"""

from __future__ import annotations

import numpy as np

from .bin_selection import Selection, cell_ends, cells_of


def biased_channel(selection: Selection, inputs: np.ndarray, rate: float) -> np.ndarray:
    """(n, m): the probability of each bin for each of the (n,) inputs in [-1, 1], for one selection.

    rate >= 0: 0 takes either bin with probability 1/2, infinity the nearer one.
    """
    cells = cells_of(selection.bins, inputs)
    return _biased(selection.bins, selection.left[cells], selection.right[cells], inputs[:, None], rate)[:, 0]


def biased_privacy_loss(selection: Selection, rate: float) -> float:
    """The least epsilon of the biased variant over all inputs in [-1, 1]; infinite where none holds."""
    ends, used = cell_ends(selection.bins)
    limits = _biased(selection.bins, selection.left, selection.right, ends, rate)[used]
    # Within a cell every left bin's probability falls with the input and every right bin's rises.
    most, least = limits.max(axis=(0, 1)), limits.min(axis=(0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(most > 0, np.log(most) - np.log(least), 0.0).max())


def _biased(bins: np.ndarray, left: np.ndarray, right: np.ndarray, inputs: np.ndarray, rate: float) -> np.ndarray:
    """(n, e, m) for left and right (n, m) and inputs (n, e)."""
    if not 0 <= rate < np.inf:
        raise ValueError(f"rate must be at least 0 and finite, not {rate:g}")
    nearer = rate * (bins[:, None] + bins[None, :] - 2 * inputs[..., None, None])
    to_right = 0.5 * (1 - np.tanh(nearer / 2))
    pairs = left[:, None, :, None] * right[:, None, None, :]
    return (pairs * (1 - to_right)).sum(axis=-1) + (pairs * to_right).sum(axis=-2)
