"""Models trained on privatized labels, linear and trees, and their selection by cross-validation.

All minimize squared error, for which the noise of unbiased labels averages out (Badanidiyuru et al. 2023, Theorem 5).
The size of the noise follows from the released randomizer and noised histogram. Models derive their regularization from
it, or select it on held-out privatized labels. No model sees a true label.

Each model is a function of features, shape (n, d), float64, NaN where missing, of n labels, of features of t new
records, shape (t, d), and of a seed >= 0. It returns predictions for the new records, shape (t,), float64.

Selection. Privatized labels may have a hundred times the variance of true labels. The mean squared error on held-out
privatized labels still ranks models of unbiased labels correctly in expectation, because the noise adds the same amount
to each. But the ranking has an error of its own, and the best of many candidates may be one that fits noise. So a
candidate is accepted only if its held-out predictions are significantly correlated with the held-out labels; if none
is, the baseline is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Part of a label's variance that features explain a priori.
_EXPLAINED = 0.5
# Shares that are compared by their likelihood.
_SHARES = np.concatenate([[0.0], np.geomspace(1e-6, 0.9, 49)])
# Directions of the features with a smaller variance than the largest times this are rounding errors.
_NEGLIGIBLE = 1e-9
# Standardized features are clipped here: outliers would dominate a linear model.
_LARGEST_FEATURE = 4.0
_LEARNING_RATE = 0.1
_ITERATIONS = (3, 6, 12, 25, 50, 100, 160)
_COLUMNS_PER_SPLIT = 0.5
# Effective sample size from which large trees are candidates; with fewer records they are never the best.
_FOR_LARGE_TREES = 5000

FOLDS = 5
SIGNIFICANT = 2.5
"""Number of standard errors by which the covariance of predictions and labels must exceed 0. Of candidates that are
unrelated to the labels, one in 160 passes."""
Fit = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Fits candidates: takes indices of the records to fit and of the records held out; gives predictions of each candidate
for the records held out, shape (c, h), and for the new records, shape (c, t)."""


@dataclass(frozen=True, eq=False)
class TrainingLabels:
    """Labels to train on, with released facts about their distribution.

    Attributes:
      values: Privatized labels, shape (n,), float64.
      mean: Mean of a true label under the released prior.
      variance: Variance of a true label under the released prior.
      mean_variance: Variance of the error of `mean` due to the noise of the prior.
      noise: Mean over the prior of Var(M(y)); 0 for true labels.
      residuals: True if the values are labels minus a center. The prediction 0 is then the center alone.
    """

    values: np.ndarray
    mean: float
    variance: float
    mean_variance: float
    noise: float
    residuals: bool = False

    def baseline(self) -> float:
        """Best prediction without features.

        It is the mean of the prior and the mean of the values, weighted by their precisions. For residuals, it is
        shrunk toward 0, the mean around a good center, by the ratio of its variance to its square (James and Stein
        1961).
        """
        variance = (self.variance + self.noise) / len(self.values)
        total = variance + self.mean_variance
        share = self.mean_variance / total if total > 0 else 0.0
        mean = float(self.mean + share * (self.values.mean() - self.mean))
        if self.residuals:
            error = share * variance
            return mean * (1 - error / mean**2) if mean**2 > error else 0.0
        return mean


Model = Callable[[np.ndarray, TrainingLabels, np.ndarray, int], np.ndarray]
"""Takes features, shape (n, d), labels, new features, shape (t, d), and a seed; gives predictions, shape (t,). Features
are NaN where missing."""


def linear(features: np.ndarray, labels: TrainingLabels, new: np.ndarray, seed: int) -> np.ndarray:
    """Predicts by Bayesian linear regression.

    Coefficients of standardized features are a priori independent and normal; together they explain half of a label's
    variance. The noise is that of the randomizer and the other half. There is no hyperparameter to select, and
    predictions tend to the baseline as epsilon decreases. A center already explains most of what is linear: of released
    residuals, features explain the share with the largest marginal likelihood.

    The seed is ignored: the result is the posterior mean.
    """
    scale = Standardizer(features)
    inputs = scale.transform(features)
    noise = labels.noise + (1 - _EXPLAINED) * labels.variance
    baseline = labels.baseline()
    if labels.variance == 0:
        return np.full(len(new), baseline)
    ratio = _EXPLAINED * labels.variance / noise
    if labels.residuals:
        ratio = _signal_to_noise(inputs, labels.values - baseline)
        if ratio == 0:
            return np.full(len(new), baseline)
    precision = np.full(inputs.shape[1], inputs.any(axis=0).sum() / ratio)
    normal = inputs.T @ inputs + np.diag(precision)
    coefficients = np.linalg.solve(normal, inputs.T @ (labels.values - baseline))
    return baseline + scale.transform(new) @ coefficients


def _signal_to_noise(inputs: np.ndarray, values: np.ndarray) -> float:
    """The ratio of what features explain of the values' variance to the rest with the largest marginal likelihood.

    For n values of which d coefficients, a priori independent and normal, explain r times the variance s of the rest,
    the likelihood is that of a normal distribution of covariance s (I + r / d X X^T). It is maximized over s as well:
    the variance of the rest need not be known.
    """
    scales, axes = np.linalg.eigh(inputs.T @ inputs)
    known = scales > _NEGLIGIBLE * scales[-1]
    scales = scales[known]
    squares = (axes[:, known].T @ (inputs.T @ values)) ** 2 / scales
    ratios = _SHARES / (1 - _SHARES)
    growth = 1 + ratios[:, None] * scales / inputs.any(axis=0).sum()
    rest = (values**2).sum() - squares.sum() + (squares / growth).sum(axis=1)
    likelihood = -len(values) * np.log(rest) - np.log(growth).sum(axis=1)
    return float(ratios[np.argmax(likelihood)])


def trees(features: np.ndarray, labels: TrainingLabels, new: np.ndarray, seed: int) -> np.ndarray:
    """Predicts by gradient-boosted trees of 2 to 31 leaves, at 3 to 160 iterations.

    Leaves are shrunk by the ratio of the noise to a label's variance. The size of the trees and the number of
    iterations are selected on held-out privatized labels. The seed is that of folds and trees.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    baseline, records = labels.baseline(), len(labels.values)
    shrinkage = labels.noise / labels.variance if labels.variance > 0 else 0.0
    wide = max(20, records // 16)
    sizes = [(2, wide), (4, wide), (8, max(20, min(200, records // 40)))]
    if records / (1 + shrinkage) >= _FOR_LARGE_TREES:
        sizes.append((31, 20))

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held_out, fresh = [], []
        known = np.isfinite(features[inside]).any(axis=0)
        # Boosting starts from the mean of its labels; the baseline is a better start.
        offset = baseline - labels.values[inside].mean()
        for leaves, smallest in sizes:
            model = HistGradientBoostingRegressor(
                learning_rate=_LEARNING_RATE,
                max_iter=_ITERATIONS[-1],
                max_leaf_nodes=leaves,
                min_samples_leaf=smallest,
                l2_regularization=shrinkage,
                max_features=_COLUMNS_PER_SPLIT,
                early_stopping=False,
                random_state=seed,
            ).fit(features[inside][:, known], labels.values[inside])
            for stages, rows in ((held_out, features[outside][:, known]), (fresh, new[:, known])):
                stages += [
                    prediction + offset
                    for iteration, prediction in enumerate(model.staged_predict(rows), start=1)
                    if iteration in _ITERATIONS
                ]
        return np.stack(held_out), np.stack(fresh)

    return cross_validated(fit, labels.values, baseline, seed)


MODELS: dict[str, Model] = {"linear": linear, "trees": trees}
"""Models by name."""


class Standardizer:
    """Scales features to mean 0 and standard deviation 1, clips them to [-4, 4] and replaces missing ones by 0."""

    def __init__(self, features: np.ndarray):
        """Computes means and standard deviations of features, shape (n, d), float64, NaN where missing."""
        known = np.isfinite(features)
        counts = np.maximum(known.sum(axis=0), 1)
        self._mean = np.where(known, features, 0.0).sum(axis=0) / counts
        deviations = np.where(known, features - self._mean, 0.0)
        spread = np.sqrt((deviations**2).sum(axis=0) / counts)
        self._spread = np.where(spread > 0, spread, 1.0)

    def transform(self, features: np.ndarray) -> np.ndarray:
        """Scales features by the means and standard deviations of the constructor; the result has no NaN."""
        scaled = (features - self._mean) / self._spread
        return np.clip(np.where(np.isfinite(features), scaled, 0.0), -_LARGEST_FEATURE, _LARGEST_FEATURE)


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
