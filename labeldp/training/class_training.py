"""Training of class probabilities on released classes, with libraries that know nothing of the noise.

Two corrections of losses, for targets h = P^-1 of the channel P and class probabilities p of a record:

    debiased    sum over c of h[z, c] (-log p_c)        unbiased: its mean over the noise is the loss on true classes
    forward     -log (sum over c of p_c P[c, z])        the likelihood of the released class, bounded (`objectives`)

The first is the log loss on K copies of the record, weighted by h, some of them below 0. Its sum over the copies is log
sum exp(s) - sum over c of h[z, c] s_c in the scores s, because the h of a record add up to 1: convex, with the Hessian
of true classes. It has no lower bound, so a model that can tell single records apart follows the noise without end. The
second is the loss of a mixture, which expectation maximization minimizes by log losses with weights of at least 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .class_arrays import class_probabilities, on_simplex
from .class_estimates import shares
from .release import Release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class DoubledRows(NamedTuple):
    """Copies of n records for an estimator that takes weights: one for each of the K classes.

    Attributes:
      X: Features, n K rows in the type that was given: the K copies of each record one after the other.
      y: Place of the class of each copy in `Release.classes`, shape (n K,), integers.
      sample_weight: Weights, shape (n K,), float64; those of a record add up to 1.
    """

    X: Any
    y: np.ndarray
    sample_weight: np.ndarray


def doubled_rows(X: Any, z: ArrayLike, release: Release, predictions: ArrayLike | None = None) -> DoubledRows:
    """Copies each record for each class, so that the weighted log loss is that on true classes, but for the noise.

    Without predictions, weights are the targets of `Release.debiased`, some below 0. Estimators must take them, and
    keep the copies of a record together: no early stopping or resampling by rows.

    With predictions, weights are the posterior p_c P[c, z] / sum over k of p_k P[k, z] of the true class: the step of
    expectation maximization. Training, predicting and weighting again, from the prior of the channel on, maximizes the
    likelihood of the released classes, with weights of at least 0.

    Args:
      X: Features of n records: an array, a sparse matrix of rows, or a pandas DataFrame.
      z: Released classes, shape (n,), as released.
      release: The release, of classes.
      predictions: None, or class probabilities, shape (n, K) or (K,), with columns as in `Release.classes`; of two
        classes those of the second may be given alone, shape (n,). Start with `release.channel.prior`.

    Returns:
      The copies; train on them as `model.fit(X, y, sample_weight=sample_weight)`.

    Raises:
      ValueError: If labels are numbers, an argument is wrong, or, without predictions, the channel has no inverse.
    """
    release = release.of_classes(": train on those of Release.debiased")
    classes = len(release.domain)
    if predictions is None:
        weights = release.debiased(z)
    else:
        likelihood = release.likelihood(z)
        given = np.asarray(predictions, np.float64)
        if given.shape == (classes,) and (classes > 2 or len(likelihood) != classes):
            given = np.broadcast_to(given, likelihood.shape)
        weights = class_probabilities(given, len(likelihood), classes, "predictions") * likelihood
        weights /= weights.sum(axis=1, keepdims=True)
    return _copies(X, weights, "z")


def soft_rows(X: Any, probabilities: ArrayLike) -> DoubledRows:
    """Copies each record for each class, with its probability as the weight: for classes drawn from a center.

    The weighted log loss of the copies is the mean log loss of classes that are drawn from the probabilities, without
    the noise of the draws. Estimators that take probabilities as targets need no copies.

    Args:
      X: Features of n records, as for `doubled_rows`.
      probabilities: Column of probabilities of the release, shape (n, K), or n lists of K numbers.

    Returns:
      The copies; train on them as `model.fit(X, y, sample_weight=sample_weight)`. y are places in the list of classes.

    Raises:
      ValueError: If rows are no probabilities, or X has another number of them.
    """
    name = next((each for each in ("to_pylist", "tolist", "to_list") if hasattr(probabilities, each)), None)
    found = np.asarray(getattr(probabilities, name)() if name else probabilities, np.float64)
    if found.ndim != 2:
        raise ValueError(f"probabilities must have shape (n, K), not {found.shape}")
    weights = class_probabilities(found, len(found), found.shape[1], "probabilities")
    return _copies(X, weights, "probabilities")


def _copies(X: Any, weights: np.ndarray, name: str) -> DoubledRows:
    records, classes = weights.shape
    rows = np.repeat(np.arange(records), classes)
    features = X if hasattr(X, "shape") else np.asarray(X)
    if features.shape[0] != records:
        raise ValueError(f"X has {features.shape[0]:,} rows, not {records:,} as {name}")
    copies = features.iloc[rows] if hasattr(features, "iloc") else features[rows]
    return DoubledRows(copies, np.tile(np.arange(classes), records), weights.ravel())


def invert(probabilities: ArrayLike, release: Release) -> np.ndarray:
    """Turns probabilities of released classes into those of true classes.

    A model that was trained on released classes as if they were true, in any library, predicts q = p P. Then p = q
    P^-1, and the closest probabilities to it, because errors of the model may put it outside of their range.

    Args:
      probabilities: Predicted probabilities of the released classes, shape (n, K), with columns as in
        `Release.classes`: train on `Release.class_places`, because libraries sort names. Of two classes, those of the
        second may be given alone, shape (n,).
      release: The release, of classes.

    Returns:
      Probabilities of the true classes, of the same shape, float64.

    Raises:
      ValueError: If labels are numbers, rows are no probabilities, or the channel has no inverse.
    """
    inverse = release.inverse
    q = class_probabilities(probabilities, None, len(inverse), "probabilities")
    found = on_simplex(q @ inverse)
    return found[:, 1] if np.ndim(probabilities) == 1 else found


def start_scores(z: ArrayLike, release: Release) -> np.ndarray:
    """Scores of the estimated shares of the classes, which boosted trees start from.

    LightGBM and XGBoost start from their own averages only with their own objectives. Shares are those of `shares`,
    made probabilities, of at least one record.

    Args:
      z: Released classes, shape (n,), as released.
      release: The release, of classes.

    Returns:
      The logit of the second of two classes, shape (1,), or the logarithms of the K shares, shape (K,).

    Raises:
      ValueError: If labels are numbers, a row is no released class, or the channel has no inverse.
    """
    found = shares(z, release)
    probabilities = np.maximum(on_simplex(found.values[None, :])[0], 1 / max(int(found.records), 2))
    logarithms = np.log(probabilities / probabilities.sum())
    return logarithms[1:] - logarithms[:1] if len(logarithms) == 2 else logarithms
