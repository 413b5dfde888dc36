"""Weights of several releases in one model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .release import Release


def block_weights(releases: Sequence[Release], residual_variance: float = 0.0) -> np.ndarray:
    """Weights of the records of several releases, such as days with different epsilons, for training on all of them.

    The debiased labels of release b differ from the best model by its noise v_b and by what the features do not tell,
    s^2. Least squares has the least variance with weights proportional to 1 / (v_b + s^2). A weight depends on public
    facts of its release only, so it adds no bias. v_b is `Release.noise`, the mean over its prior.

    Args:
      releases: The releases, one or more.
      residual_variance: s^2, in squared units of the label, >= 0, for example the estimated mean squared error of a
        first model. 0 gives the weights for averages of several releases of the same records.

    Returns:
      Weight of each record of each release, shape (len(releases),), float64. Their mean is 1: over the records if all
      releases state their number, else over the releases.

    Raises:
      ValueError: If there is no release, a release has no debiasing line, the variance is negative, or there is neither
        noise nor variance.
    """
    if not releases:
        raise ValueError("there is no release")
    if not 0 <= residual_variance < math.inf:
        raise ValueError(f"residual_variance must be a finite number of at least 0, not {residual_variance!r}")
    variances = np.array([release.noise for release in releases]) + residual_variance
    if not np.all(variances > 0):
        raise ValueError("a release without noise needs a residual_variance above 0")
    counts = [release.records for release in releases]
    shares = np.array([1 if None in counts else count for count in counts], np.float64)
    weights = 1 / variances
    return weights * (shares.sum() / (shares @ weights))
