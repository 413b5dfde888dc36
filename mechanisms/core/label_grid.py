"""Public label domain: an evenly spaced grid from exact decimals, validation of any domain, and the working grid.

A mechanism is solved on the working grid: the declared labels, or for a finer grid a coarser one over the same range.
More labels cost time, and around a center the histogram of their residuals has more cells, but they gain next to
nothing, because labels are rounded to the grid at random and without bias. With s steps of length h = L / s over the
range L, rounding adds a variance of at most h^2 / 4. At every label y, the variance of every unbiased epsilon-DP
mechanism is at least

    (L / 2)^2 / (e^epsilon + e^-epsilon - 2) = L^2 / (16 sinh(epsilon / 2)^2)

by the bound of Hammersley, Chapman and Robbins: one end of the range is L / 2 or more away from y, the means of its
output and of that of y differ by as much, and two distributions whose probabilities have ratios between e^-epsilon and
e^epsilon have a chi-squared divergence of at most e^epsilon + e^-epsilon - 2. So rounding adds at most a hundredth of
the variance if s is at least 20 sinh(epsilon / 2). The rule depends on the declared labels and on epsilon alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .budget import check_epsilon
from .reproducible import expm1

MOST = 1e100
"""Largest magnitude of a label: squares of errors are then finite floats, at any epsilon."""

MOST_LABELS = 1 << 20
"""Largest number of labels of a declared grid."""

MOST_UNEVEN = 1 << 12
"""Largest number of labels that are not evenly spaced: they are all used, and more take minutes or gigabytes."""

# Steps of a working grid, at most: 512 up to an epsilon of 6.5, then twice 20 sinh(epsilon / 2), so that half as many
# are enough. From epsilon 7.9 on, 1,024, for the sake of the time to solve.
_FEW_STEPS, _MANY_STEPS = 512, 1024

# Relative to the label range: labels of a grid are rounded decimals.
_SPACING_TOLERANCE = 1e-9


def check_domain(labels: np.ndarray) -> None:
    """Raises ValueError unless labels, shape (k,), k >= 1, are at most `MOST` in magnitude and strictly ascending."""
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
    if steps >= MOST_LABELS:
        raise ValueError(f"label_step {step} makes {int(steps) + 1} labels; at most {MOST_LABELS} are allowed")
    if max(abs(first), abs(last)) > MOST:
        raise ValueError(f"label_max {high} or label_min {low} is above {MOST:g} in magnitude: scale the labels down")
    # Quotients of integers are rounded correctly.
    unit = math.lcm(first.denominator, stride.denominator)
    start, distance = int(first * unit), int(stride * unit)
    labels = np.array([(start + i * distance) / unit for i in range(int(steps) + 1)])
    check_domain(labels)
    return labels


def is_even(labels: np.ndarray) -> bool:
    """True if ascending labels are evenly spaced, up to the rounding of decimals; also True for a single label."""
    even = np.linspace(labels[0], labels[-1], len(labels))
    return bool(np.max(np.abs(labels - even)) <= _SPACING_TOLERANCE * (labels[-1] - labels[0]))


@dataclass(frozen=True)
class DeclaredGrid:
    """Label grid as it was declared, where the working grid is a coarser one over the same range.

    `labels` is the number of declared labels, `epsilon` the one that the working grid was chosen for.
    """

    labels: int
    epsilon: float


def working_grid(labels: np.ndarray, epsilon: float) -> tuple[np.ndarray, DeclaredGrid | None]:
    """Chooses the labels that a mechanism is solved for, by a public rule.

    A grid of at most 512 steps is used as it is, and one of at most 1,024 at an epsilon from 7.9 on. Of a finer one,
    every m-th label is used, for the smallest m that divides the number of its steps and leaves at most 512 of them, or
    1,024. If less than half as many remain, the range is divided into 512 or 1,024 steps of equal length. In between,
    from epsilon 6.5 on, the number is 2 ceil(20 sinh(epsilon / 2)).

    The declared domain has shape (k,), float64, strictly ascending. The labels to use have shape (at most 1025,) for an
    even domain; the declared grid comes with them, None if all labels are used. Raises ValueError if epsilon is out of
    range, there are more than 2^20 labels, or more than 4,096 that are not evenly spaced.
    """
    steps = len(labels) - 1
    if steps <= _FEW_STEPS:
        return labels, None
    check_epsilon(epsilon)
    most = _most_steps(epsilon)
    if steps <= most:
        return labels, None
    if len(labels) > MOST_LABELS:
        raise ValueError(f"{len(labels):,} labels; at most {MOST_LABELS:,} are allowed")
    if not is_even(labels):
        if len(labels) > MOST_UNEVEN:
            raise ValueError(
                f"{len(labels):,} labels that are not evenly spaced, of which at most {MOST_UNEVEN:,} are supported: "
                "leave some out"
            )
        return labels, None
    declared = DeclaredGrid(len(labels), epsilon)
    for number in range(most, most // 2, -1):
        if steps % number == 0:
            return labels[:: steps // number], declared
    low, high = Fraction(float(labels[0])), Fraction(float(labels[-1]))
    return np.array([float(low + (high - low) * i / most) for i in range(most + 1)]), declared


def _most_steps(epsilon: float) -> int:
    growth = float(expm1(epsilon / 2))
    # 20 sinh(x) = 10 (e^x - e^-x), and e^x = growth + 1.
    enough = math.ceil(10 * (growth + growth / (growth + 1)))
    return min(max(2 * enough, _FEW_STEPS), _MANY_STEPS)


def _decimal(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {text!r}") from None
