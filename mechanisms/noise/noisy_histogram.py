"""Release of a label histogram under label DP, as a prior.

Source: Ghazi et al. 2022, Algorithm 3. The noise is discrete, so that the guarantee holds exactly, without floating
point.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ..core.budget import check_epsilon
from ..core.prior import Prior
from .discrete_laplace import ByteStream, discrete_laplace

# The histograms of neighboring datasets differ by one in two cells.
_HISTOGRAM_SENSITIVITY = 2


def noisy_prior(labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> Prior:
    """Releases a label histogram under label DP.

    Adds discrete Laplace noise of scale 2 / prior_epsilon to every count, clips at zero and normalizes (Ghazi et al.
    2022, Algorithm 3). Neighboring datasets have the same size and differ in one label.

    Args:
      labels: Label domain, shape (k,).
      counts: Records per label, shape (k,), integers.
      prior_epsilon: Budget of the histogram, in [1e-9, 30].
      noise_key: 32 bytes; the same key and counts give the same prior.

    Returns:
      The noisy prior.

    Raises:
      ValueError: If `prior_epsilon` is out of range.
    """
    check_epsilon(prior_epsilon)
    stream = ByteStream(noise_key, b"prior")
    noise = discrete_laplace(stream, _HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), len(labels))
    return Prior.from_counts(labels, np.asarray(counts, np.int64) + noise)


def mean_variance(prior: Prior, records: int, prior_epsilon: float) -> float:
    """Bounds the variance of the mean label of a noisy histogram.

    Each count has discrete Laplace noise of scale 2 / prior_epsilon, whose variance is below twice the square of the
    scale. The bound is of first order in noise / records and ignores clipping.

    Args:
      prior: Prior over the label domain.
      records: Number of records, >= 1.
      prior_epsilon: Budget of the histogram, >= 0; 0 for no histogram, infinite for a histogram without noise.

    Returns:
      The variance of the mean, in squared units of the label; infinite if `prior_epsilon` is 0.
    """
    if prior_epsilon == 0:
        return math.inf
    centred = prior.labels - prior.weights @ prior.labels
    return 2 * (2 / prior_epsilon) ** 2 * float(centred @ centred) / records**2
