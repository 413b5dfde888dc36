"""Release of a label histogram under label DP, as a prior.

Source: Ghazi et al. 2022, Algorithm 3. The noise is discrete, so that the guarantee holds exactly, without floating
point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..core.budget import check_epsilon
from ..core.prior import Prior
from ..core.reproducible import dot
from .count_estimates import estimate_counts, estimate_counts_of_draws
from .discrete_laplace import ByteStream, discrete_laplace

HISTOGRAM_SENSITIVITY = 2
"""The histograms of neighboring datasets differ by one in two cells."""
# Counts that are estimated side by side: more take more memory (some 2 kB each) and hardly less time.
_MOST_COUNTS = 1 << 12


def noisy_prior(labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> Prior:
    """Releases a label histogram under label DP.

    Adds discrete Laplace noise of scale 2 / prior_epsilon to every count (Ghazi et al. 2022, Algorithm 3), then
    estimates the prior from the noised counts. Neighboring datasets have the same size and differ in one label.

    Counts are integers, shape (k,). The same key (32 bytes) and counts give the same prior. Raises ValueError unless
    `prior_epsilon` is in [1e-9, 30].
    """
    return noisy_priors(labels, counts, prior_epsilon, [noise_key])[0]


def noisy_priors(
    labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_keys: Sequence[bytes]
) -> list[Prior]:
    """Simulates several releases of a label histogram: `noisy_prior` with each key, bit for bit.

    Many are estimated in little more time than one.
    """
    records, found = max(int(np.sum(counts)), 1), []
    draws = max(_MOST_COUNTS // len(counts), 1)
    for start in range(0, len(noise_keys), draws):
        noised = [noisy_counts(counts, prior_epsilon, key) for key in noise_keys[start : start + draws]]
        estimates = estimate_counts_of_draws(np.array(noised), records, HISTOGRAM_SENSITIVITY / prior_epsilon)
        found += [Prior(labels, estimate) for estimate in estimates]
    return found


def estimated_prior(labels: np.ndarray, noised: np.ndarray, records: int, prior_epsilon: float) -> Prior:
    """Estimates the prior from a noised histogram; see `count_estimates`. It is post-processing: it costs no budget.

    Noised counts are integers, shape (k,); the number of records is public, and `prior_epsilon` > 0.
    """
    return Prior(labels, estimate_counts(noised, max(records, 1), HISTOGRAM_SENSITIVITY / prior_epsilon))


def noisy_counts(counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> np.ndarray:
    """Releases a histogram of labels, or of cells of them, under label DP: adds discrete Laplace noise to every count.

    Counts are integers, shape (k,); the result has the same shape, int64, and may be negative. The same key (32 bytes)
    and counts give the same result. Raises ValueError unless `prior_epsilon` is in [1e-9, 30].
    """
    check_epsilon(prior_epsilon)
    stream = ByteStream(noise_key, b"prior")
    noise = discrete_laplace(stream, HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), len(counts))
    return np.asarray(counts, np.int64) + noise


def mean_variance(prior: Prior, records: int, prior_epsilon: float) -> float:
    """Bounds the variance of the mean label of a noisy histogram, in squared units of the label.

    Each count has discrete Laplace noise of scale 2 / prior_epsilon, whose variance is below twice the square of the
    scale. The bound is that of the mean of the noised counts, to first order in noise / records. The estimated prior
    has a mean at least as close in simulations, because its tails have no clipped noise (tests).

    There is at least one record. The bound is infinite for a `prior_epsilon` of 0 (no histogram); an infinite one
    stands for a histogram without noise.
    """
    if prior_epsilon == 0:
        return math.inf
    centred = prior.labels - dot(prior.weights, prior.labels)
    return 2 * (2 / prior_epsilon) ** 2 * dot(centred, centred) / records**2
