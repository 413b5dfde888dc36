"""Release of a label histogram under label DP, as a prior.

Source: Ghazi et al. 2022, Algorithm 3. The noise is discrete, so that the guarantee holds on a computer.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ..core.budget import check_epsilon
from ..core.prior import Prior
from .discrete_laplace import ByteStream, discrete_laplace

# The counts of two datasets that differ in one label differ by one in two cells.
_HISTOGRAM_SENSITIVITY = 2


def noisy_prior(labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> Prior:
    """The prior released from a histogram: discrete Laplace noise of scale 2 / e1 on each count, clip, normalise.

    Label DP with e1 for datasets of equal size that differ in one label: Ghazi et al. 2022, Algorithm 3.

    labels: (k,). counts: (k,) integers, how many records carry each label. prior_epsilon: e1 > 0.
    noise_key: 32 bytes; the same key and counts give the same prior. Raises ValueError for a bad prior_epsilon.
    """
    check_epsilon(prior_epsilon)
    stream = ByteStream(noise_key, b"prior")
    noise = discrete_laplace(stream, _HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), len(labels))
    return Prior.from_counts(labels, np.asarray(counts, np.int64) + noise)


def mean_variance(prior: Prior, records: int, prior_epsilon: float) -> float:
    """What the noise of a histogram does to the variance of its mean, at most: how well a release knows the mean.

    Each count is off by discrete Laplace noise of scale 2 / e1, whose variance is below twice the scale's square; to
    first order in the noise over n, clipping left out. prior_epsilon: e1 >= 0; infinite without noise.
    """
    if prior_epsilon == 0:
        return math.inf
    centred = prior.labels - prior.weights @ prior.labels
    return 2 * (2 / prior_epsilon) ** 2 * float(centred @ centred) / records**2
