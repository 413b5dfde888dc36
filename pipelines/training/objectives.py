"""Objectives for boosted trees on released labels: losses whose gradient is linear in the label.

For b(s) - y s with the score s of a record, the gradient b'(s) - y has the right mean if y is replaced by an unbiased
label z, and the Hessian b''(s) does not depend on the label at all: it is that of true labels, and the Fisher
information. So training minimizes a loss whose expectation is the loss on true labels. Labels may be negative, or lie
outside of [0, 1], where the libraries' own objectives of these losses refuse them or change them.

    squared     b = s^2 / 2           prediction s
    poisson     b = exp(s)            prediction exp(s)
    logistic    b = log(1 + exp(s))   prediction 1 / (1 + exp(-s))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LIBRARIES = ("lightgbm", "xgboost")
"""Libraries whose custom objectives and metrics the kit makes."""

# exp of a larger score is beyond what float32, in which the libraries keep gradients, can hold.
_LARGEST_SCORE = 80.0


def _squared(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return scores, np.ones_like(scores)


def _poisson(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means = np.exp(np.minimum(scores, _LARGEST_SCORE))
    return means, means


def _logistic(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Without overflow for scores far below 0.
    chances = 0.5 * (1 + np.tanh(scores / 2))
    return chances, chances * (1 - chances)


_DERIVATIVES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "squared": _squared,
    "poisson": _poisson,
    "logistic": _logistic,
}
LOSSES = tuple(_DERIVATIVES)
"""Names of the losses that `objective` knows."""

# The library keeps Hessians above 0: a record whose Hessian is 0 has no weight in a leaf.
_SMALLEST_HESSIAN = 1e-6


def objective(library: str, loss: str = "squared") -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Makes a custom objective for debiased labels.

    Labels of the data set are those of `Release.debiased`. Around a center, start the scores from it: `init_score` of
    LightGBM, `base_margin` of XGBoost, and add it to predictions; for the squared loss it is the center itself, for the
    others its logarithm or logit.

    Poisson and logistic loss have no minimum where the mean of the debiased labels of a leaf is outside of the range of
    predictions, as noise makes it. Bound the steps with `max_delta_step`, about 0.7, and use leaves of many records.

    Weights of the data set multiply gradients and Hessians. They must not be functions of the released labels:
    `block_weights` are not.

    Args:
      library: `lightgbm` or `xgboost`. The function works for its native interface, called with scores and data set,
        and for its scikit-learn interface, called with labels and scores.
      loss: `squared`, `poisson` or `logistic`.

    Returns:
      A function that returns gradient and Hessian, shape (n,) each, float64.

    Raises:
      ValueError: If the library or the loss is unknown.
    """
    check_library(library)
    if loss not in _DERIVATIVES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}")
    derivatives = _DERIVATIVES[loss]

    def gradients(labels: Any, scores: Any, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        if hasattr(scores, "get_label"):
            labels, scores, sample_weight = scores.get_label(), labels, scores.get_weight()
        means, hessian = derivatives(np.asarray(scores, np.float64))
        gradient = means - np.asarray(labels, np.float64)
        hessian = np.maximum(hessian, _SMALLEST_HESSIAN)
        # XGBoost has an empty array where there are no weights.
        if sample_weight is None or not len(sample_weight):
            return gradient, hessian
        return gradient * sample_weight, hessian * sample_weight

    return gradients


def check_library(library: str) -> None:
    """Raises ValueError if the kit makes no functions for a library."""
    if library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(LIBRARIES)}, not {library!r}")
