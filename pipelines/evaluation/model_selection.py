"""Choosing among models on noisy labels alone: cross-validation with a gate.

Privatized labels may have a hundred times the variance of true ones. The mean squared error on held-out privatized
labels still ranks models of unbiased labels rightly on average, since the noise adds the same to each; but with an
error of its own, and the best of many candidates is then one that fits noise. So a candidate counts only where its
held-out predictions follow the held-out labels significantly; where none does, the baseline is the answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FOLDS = 5


SIGNIFICANT = 2.5
"""Standard errors by which the covariance of predictions and labels must be above 0: of candidates that predict
nothing, one in 160 passes."""


Fit = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def cross_validated(fit: Fit, labels: np.ndarray, baseline: float, seed: int) -> np.ndarray:
    """Predictions for new records: of the best candidate, averaged over its fits to the folds, or the baseline.

    fit: (records to fit, records held out) -> predictions of each candidate for those held out, (c, h), and for the new
    records, (c, t). labels: (n,), noisy. baseline: what to predict when no candidate is worth anything.
    Returns (t,) float64.
    """
    folds = np.random.default_rng(seed).permutation(len(labels)) % FOLDS
    outsides = [np.flatnonzero(folds == fold) for fold in range(FOLDS)]
    fits = [fit(np.flatnonzero(folds != fold), outside) for fold, outside in enumerate(outsides)]
    held_out = np.empty((len(fits[0][0]), len(labels)))
    for outside, (predicted, _) in zip(outsides, fits, strict=True):
        held_out[:, outside] = predicted
    new = np.mean([predicted for _, predicted in fits], axis=0)
    chosen = best_candidate(held_out, labels, baseline)
    return np.full(new.shape[1], baseline) if chosen is None else new[chosen]


def best_candidate(predictions: np.ndarray, labels: np.ndarray, baseline: float) -> int | None:
    """Which candidate has the least mean squared error among those that are significantly better than nothing.

    predictions: (c, n), each made without the label that it predicts. labels: (n,). Returns None where none is.
    """
    steps, residuals = predictions - baseline, labels - baseline
    products = steps * residuals
    covariances = products.mean(axis=1)
    errors = products.std(axis=1) / np.sqrt(len(labels))
    gains = 2 * covariances - (steps**2).mean(axis=1)
    # Without noise, errors may be 0 as well; predictions that are all the baseline gain nothing.
    counts = (covariances >= SIGNIFICANT * errors) & (gains > 0)
    return int(np.argmax(np.where(counts, gains, -np.inf))) if counts.any() else None
