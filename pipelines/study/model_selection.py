"""Model selection on noisy labels by cross-validation with a significance test.

Privatized labels may have a hundred times the variance of true labels. The mean squared error on held-out privatized
labels still ranks models of unbiased labels correctly in expectation, because the noise adds the same amount to each.
But the ranking has an error of its own, and the best of many candidates may be one that fits noise. So a candidate is
accepted only if its held-out predictions are significantly correlated with the held-out labels; if none is, the
baseline is predicted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FOLDS = 5
SIGNIFICANT = 2.5
"""Number of standard errors by which the covariance of predictions and labels must exceed 0. Of candidates that are
unrelated to the labels, one in 160 passes."""
Fit = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Fits candidates: takes indices of the records to fit and of the records held out; gives predictions of each candidate
for the records held out, shape (c, h), and for the new records, shape (c, t)."""


def cross_validated(fit: Fit, labels: np.ndarray, baseline: float, seed: int) -> np.ndarray:
    """Predicts new records with the best candidate, averaged over its fits to the folds; shape (t,), float64.

    `fit` fits all candidates to some records. Labels are noisy, shape (n,). The baseline is predicted where no
    candidate is accepted.
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
    """Index of the accepted candidate with the least mean squared error; None if none is accepted.

    Predictions have the shape (c, n), each made without the label that it predicts; labels are noisy, shape (n,). The
    baseline is the constant that candidates must improve on.
    """
    steps, residuals = predictions - baseline, labels - baseline
    products = steps * residuals
    covariances = products.mean(axis=1)
    errors = products.std(axis=1) / np.sqrt(len(labels))
    gains = 2 * covariances - (steps**2).mean(axis=1)
    # Without noise, errors may be 0, too: predictions equal to the baseline must not be accepted.
    accepted = (covariances >= SIGNIFICANT * errors) & (gains > 0)
    return int(np.argmax(np.where(accepted, gains, -np.inf))) if accepted.any() else None
