"""Public label domain: an evenly spaced grid from exact decimals, and validation of any domain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

MOST = 1e100
"""Largest magnitude of a label: squares of errors are then finite floats, at any epsilon."""


def check_domain(labels: np.ndarray) -> None:
    """Validates a label domain.

    Args:
      labels: Shape (k,) with k >= 1; at most `MOST` in magnitude and strictly ascending.

    Raises:
      ValueError: If `labels` is anything else.
    """
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError("the label domain needs at least one label")
    if not np.all(np.isfinite(labels)):
        raise ValueError("labels of the domain must be finite")
    if np.any(np.abs(labels) > MOST):
        raise ValueError(f"labels of the domain must be at most {MOST:g} in magnitude: scale the labels down")
    if np.any(labels[1:] <= labels[:-1]):
        raise ValueError("labels of the domain must be strictly ascending")


def label_grid(low: str, high: str, step: str) -> np.ndarray:
    """Builds the label grid low, low + step, ..., high.

    The bounds are decimal strings, so that 0.1 is exactly one tenth. Labels are computed exactly, then rounded.

    Args:
      low: Smallest label, a decimal.
      high: Largest label, a decimal above `low`.
      step: Spacing of the grid, a positive decimal that divides high - low.

    Returns:
      Shape (k,), float64, each label correctly rounded; k is at most 2^20.

    Raises:
      ValueError: If an argument is not a number, the bounds are not ascending, the step is not positive or does not
        divide the range, or the grid has too many labels.
    """
    first, last, stride = _decimal("label_min", low), _decimal("label_max", high), _decimal("label_step", step)
    if first >= last:
        raise ValueError(f"label_min must be below label_max, but {low} >= {high}")
    if stride <= 0:
        raise ValueError(f"label_step must be positive, not {step}")
    steps = (last - first) / stride
    if steps.denominator != 1:
        raise ValueError(f"label_step {step} does not divide the range from {low} to {high}")
    if steps >= 1 << 20:
        raise ValueError(f"label_step {step} makes {int(steps) + 1} labels; at most {1 << 20} are allowed")
    if max(abs(first), abs(last)) > MOST:
        raise ValueError(f"label_max {high} or label_min {low} is above {MOST:g} in magnitude: scale the labels down")
    labels = np.array([float(first + i * stride) for i in range(int(steps) + 1)])
    check_domain(labels)
    return labels


def _decimal(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {text!r}") from None
