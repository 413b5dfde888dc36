"""Loss functions of an output for a label: squared, absolute and Poisson log loss; for classes the zero-one loss.

Source: Ghazi et al. 2022, "Regression with Label Differential Privacy", Section 2. The squared loss is (t - y)^2,
without a factor 1/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .reproducible import log, log_quotient


def _squared(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (outputs - labels) ** 2


def _absolute(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.abs(outputs - labels)


def _poisson(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """t - y log t: infinite at t = 0 for y > 0 and for t < 0, and 0 at t = y = 0."""
    return np.where(outputs < 0, np.inf, outputs - _times_log(labels, np.maximum(outputs, 0.0)))


def _poisson_divergence(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Poisson log loss minus its minimum, which is at t = y: y log(y / t) - y + t, never negative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # y log(y / t) - y + t, without the loss of digits that it has near the label.
        excess = (outputs - labels) / labels - log_quotient(outputs, labels)
        return np.where(labels > 0, labels * np.maximum(excess, 0.0), outputs)


def _zero_one(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (outputs != labels).astype(np.float64)


def _times_log(factors: np.ndarray, arguments: np.ndarray) -> np.ndarray:
    """factors * log(arguments), with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(factors > 0, factors * log(arguments), 0.0)


@dataclass(frozen=True)
class Loss:
    """A loss function g(t, y) of an output t for a label y.

    Attributes:
      name: Name on the command line.
      value: Computes g(outputs, labels), with broadcasting.
      divergence: Computes g(t, y) - g(y, y), which is never negative and has the same minimizers as g.
      mean_optimal: True if the best output for weighted labels is their weighted mean (Bregman losses), False if it is
        their weighted median.
      nonnegative: True if the loss is defined for labels >= 0 only.
    """

    name: str
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    divergence: Callable[[np.ndarray, np.ndarray], np.ndarray]
    mean_optimal: bool
    nonnegative: bool = False

    def check(self, labels: np.ndarray) -> None:
        """Checks that the loss is defined for all labels of a domain.

        Args:
          labels: Shape (k,), the label domain.

        Raises:
          ValueError: If the loss is not defined for one of them.
        """
        if self.nonnegative and np.min(labels) < 0:
            raise ValueError(f"the {self.name} loss needs labels >= 0, but the domain starts at {np.min(labels):g}")


SQUARED = Loss("squared", _squared, _squared, mean_optimal=True)
ABSOLUTE = Loss("absolute", _absolute, _absolute, mean_optimal=False)
POISSON = Loss("poisson", _poisson, _poisson_divergence, mean_optimal=True, nonnegative=True)

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SQUARED, ABSOLUTE, POISSON)}
"""All losses by name."""


ZERO_ONE = Loss("zero_one", _zero_one, _zero_one, mean_optimal=False)
"""Loss of classes: 1 for another class than the label's. It is no loss of numbers, which are hardly ever equal."""


def loss_named(name: str) -> Loss:
    """Looks up a loss in `LOSSES`, or that of classes, `zero_one`.

    Args:
      name: Name of the loss.

    Returns:
      The loss.

    Raises:
      ValueError: If there is none of this name; the message lists the names of `LOSSES`.
    """
    if name == ZERO_ONE.name:
        return ZERO_ONE
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; known: {', '.join(LOSSES)}")
    return LOSSES[name]
