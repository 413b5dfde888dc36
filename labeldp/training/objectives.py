"""Objectives for boosted trees on released labels: losses that are linear in the label, and the likelihood of classes.

Numbers. For b(s) - y s with the score s of a record, the gradient b'(s) - y has the right mean if y is replaced by an
unbiased label z, and the Hessian b''(s) does not depend on the label at all: it is that of true labels, and the Fisher
information. So training minimizes a loss whose expectation is the loss on true labels. Labels may be negative, or lie
outside of [0, 1], where the libraries' own objectives of these losses refuse them or change them.

    squared     b = s^2 / 2           prediction s
    poisson     b = exp(s)            prediction exp(s)
    logistic    b = log(1 + exp(s))   prediction 1 / (1 + exp(-s))

Classes. The forward loss -log q_z with q = p P is the negative log likelihood of the released class z, for class
probabilities p, the softmax of the scores, and the channel P. The true probabilities minimize its mean (Patrini et al.
2017, Theorem 2); it is bounded, and needs no inverse. With dq_z / ds_c = p_c (P[c, z] - q_z),

    gradient    p_c - p_c P[c, z] / q_z
    Hessian     p_c^2 (sum over z of P[c, z]^2 / q_z - 1)

The Hessian is the mean of the squared gradient over z, the Fisher information, which is never negative; the second
derivative is, where z contradicts p, and trees that divide by it are worse. For K scores it is doubled, as XGBoost does
for softmax, because the scores of a record change together. For one score of two classes,

    gradient    -p (1 - p) (P[1, z] - P[0, z]) / q_z
    Hessian     (p (1 - p))^2 sum over z of (P[1, z] - P[0, z])^2 / q_z
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .class_arrays import score_probabilities
from .release import ClassRelease, Release

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
FORWARD = "forward"
LOSSES = (*_DERIVATIVES, FORWARD)
"""Names of the losses that `objective` knows: three for numbers, one for classes."""

# The library keeps Hessians above 0: a record whose Hessian is 0 has no weight in a leaf.
_SMALLEST_HESSIAN = 1e-6


def objective(
    library: str, loss: str = "squared", release: Release | None = None
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Makes a custom objective for released labels.

    Numbers. Labels of the data set are those of `Release.debiased`. Around a center, start the scores from it:
    `init_score` of LightGBM, `base_margin` of XGBoost, and add it to predictions; for the squared loss it is the center
    itself, for the others its logarithm or logit.

    Poisson and logistic loss have no minimum where the mean of the debiased labels of a leaf is outside of the range of
    predictions, as noise makes it. Bound the steps with `max_delta_step`, about 0.7, and use leaves of many records.

    Classes. Labels of the data set are those of `Release.class_places`, with the loss `forward`. Scores have shape (n,)
    for the logit of the second of two classes, or (n, K) with the parameter `num_class` of the library; start them from
    `start_scores`, because neither library does so for a custom objective. Leaves need many records, and steps a bound,
    here too. `min_child_weight` and `min_sum_hessian_in_leaf` are in units of what released labels tell: the Hessians
    of records are small at a small epsilon.

    Weights of the data set multiply gradients and Hessians. They must not be functions of the released labels:
    `block_weights` are not.

    Args:
      library: `lightgbm` or `xgboost`. The function works for its native interface, called with scores and data set,
        and for its scikit-learn interface, called with labels and scores.
      loss: `squared`, `poisson` or `logistic` for numbers, or `forward` for classes.
      release: The release, for `forward` alone.

    Returns:
      A function that returns gradient and Hessian, of the shape of the scores, float64.

    Raises:
      ValueError: If the library or the loss is unknown, or it does not go with the release; later, if labels of the
        data set are not places of classes that the mechanism releases.
    """
    check_library(library)
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}")
    if loss == FORWARD:
        if not isinstance(release, ClassRelease):
            raise ValueError("the loss forward needs a release of classes: objective(library, 'forward', release)")
        derivatives = _forward(release)
    elif release is not None:
        raise ValueError(f"the loss {loss} takes debiased labels and no release; that of classes is forward")
    else:
        derivatives = _linear(_DERIVATIVES[loss])

    def gradients(labels: Any, scores: Any, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        if hasattr(scores, "get_label"):
            labels, scores, sample_weight = scores.get_label(), labels, scores.get_weight()
        gradient, hessian = derivatives(np.asarray(labels, np.float64), np.asarray(scores, np.float64))
        hessian = np.maximum(hessian, _SMALLEST_HESSIAN)
        # XGBoost has an empty array where there are no weights.
        if sample_weight is None or not len(sample_weight):
            return gradient, hessian
        weights = np.asarray(sample_weight).reshape(-1, *[1] * (gradient.ndim - 1))
        return gradient * weights, hessian * weights

    return gradients


_Derivatives = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _linear(mean_and_hessian: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> _Derivatives:
    def derivatives(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means, hessian = mean_and_hessian(scores)
        return means - labels, hessian

    return derivatives


def _forward(release: Release) -> _Derivatives:
    """Derivatives of the forward loss by scores, for labels that are places of released classes."""
    chances = release.channel.probabilities

    def derivatives(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        classes = len(chances)
        if scores.shape != (len(labels), classes) and not (classes == 2 and scores.ndim == 1):
            raise ValueError(
                f"scores have shape {scores.shape}, not ({len(labels)}, {classes}): set num_class to {classes}"
            )
        outputs = release.outputs_of(labels)
        p = score_probabilities(scores)
        q = p @ chances
        drawn, likely = chances[:, outputs].T, q[np.arange(len(q)), outputs]
        if scores.ndim == 1:
            spread, step = chances[1] - chances[0], p[:, 0] * p[:, 1]
            return -step * spread[outputs] / likely, step**2 * (1 / q @ spread**2)
        information = (1 / q) @ (chances**2).T - 1
        return p - p * drawn / likely[:, None], 2 * p**2 * np.maximum(information, 0)

    return derivatives


def check_library(library: str) -> None:
    """Raises ValueError if the kit makes no functions for a library."""
    if library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(LIBRARIES)}, not {library!r}")
