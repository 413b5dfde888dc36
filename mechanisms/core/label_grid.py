"""The public label domain: an even grid from exact decimals, and the checks of any domain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def check_domain(labels: np.ndarray) -> None:
    """Raises ValueError unless labels is a (k,) array, k >= 1, of finite numbers in strictly ascending order."""
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError("the label domain needs at least one label")
    if not np.all(np.isfinite(labels)):
        raise ValueError("labels of the domain must be finite")
    if np.any(labels[1:] <= labels[:-1]):
        raise ValueError("labels of the domain must be strictly ascending")


def label_grid(low: str, high: str, step: str) -> np.ndarray:
    """The domain low, low + step, ..., high, each label correctly rounded from exact arithmetic.

    The arguments are decimal strings, so that 0.1 is a tenth. Returns (k,) float64.
    Raises ValueError when low >= high, step <= 0, or step does not divide the range.
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
    try:
        labels = np.array([float(first + i * stride) for i in range(int(steps) + 1)])
    except OverflowError:
        raise ValueError(f"label_max {high} or label_min {low} is beyond floating point") from None
    check_domain(labels)
    return labels


def _decimal(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {text!r}") from None
