"""Models that are trained on privatized labels: linear, trees and a network.

All minimise squared error: then the noise of unbiased labels averages out (Badanidiyuru et al. 2023, Theorem 5). How
much of it there is follows from what was released, the randomizer and the noised histogram; models take their
regularisation from that, or choose it on held-out privatized labels. No model sees a true label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .model_selection import cross_validated

# Of a label's variance, how much features explain, before anything is known.
_EXPLAINED = 0.5


# Standardised features beyond this are outliers, and would steer a linear model.
_FARTHEST = 4.0


_LEARNING_RATE = 0.1


_ITERATIONS = (3, 6, 12, 25, 50, 100, 160)


_COLUMNS_PER_SPLIT = 0.5


# Labels, or as many noisy ones as say no less: with fewer, large trees are never the best.
_FOR_LARGE_TREES = 5000


@dataclass(frozen=True, eq=False)
class TrainingLabels:
    """Labels to train on, with what was released of their distribution.

    values: (n,) float64. mean, variance: of a true label under the released prior. mean_variance: of the error that
    the mean has because of the prior's noise. noise: the mean over the prior of Var(M(y)), 0 for true labels.
    """

    values: np.ndarray
    mean: float
    variance: float
    mean_variance: float
    noise: float

    def baseline(self) -> float:
        """The best guess without features: the prior's mean and that of the values, weighed by their precisions."""
        variance = (self.variance + self.noise) / len(self.values)
        total = variance + self.mean_variance
        share = self.mean_variance / total if total > 0 else 0.0
        return float(self.mean + share * (self.values.mean() - self.mean))


Predict = Callable[[np.ndarray, TrainingLabels, np.ndarray, int], np.ndarray]
"""(features (n, d), labels, new features (t, d), seed) -> predictions (t,). Features are NaN where missing."""


def linear(features: np.ndarray, labels: TrainingLabels, new: np.ndarray, seed: int) -> np.ndarray:
    """Bayesian linear regression: the posterior mean when features explain about half of a label's variance.

    Coefficients of standardised features are a priori independent and normal, with half the label's variance in total;
    the intercept is normal around the prior's mean. The noise is the randomizer's and the other half. So there is
    nothing to choose, and at small epsilon predictions go to the prior's mean by themselves.
    """
    scale = Standardised(features)
    inputs = scale.of(features)
    noise = labels.noise + (1 - _EXPLAINED) * labels.variance
    baseline = labels.baseline()
    if labels.variance == 0:
        return np.full(len(new), baseline)
    precision = np.full(inputs.shape[1], inputs.any(axis=0).sum() / (_EXPLAINED * labels.variance))
    normal = inputs.T @ inputs / noise + np.diag(precision)
    coefficients = np.linalg.solve(normal, inputs.T @ (labels.values - baseline) / noise)
    return baseline + scale.of(new) @ coefficients


def trees(features: np.ndarray, labels: TrainingLabels, new: np.ndarray, seed: int) -> np.ndarray:
    """Gradient-boosted trees, from stumps to 31 leaves, each at several numbers of iterations.

    Leaves are shrunk by the ratio of noise to a label's variance, which is what a leaf's mean deserves; the size of the
    trees and the number of iterations are chosen on held-out privatized labels.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    baseline, records = labels.baseline(), len(labels.values)
    shrinkage = labels.noise / labels.variance if labels.variance > 0 else 0.0
    wide = max(20, records // 16)
    sizes = [(2, wide), (4, wide), (8, max(20, min(200, records // 40)))]
    if records / (1 + shrinkage) >= _FOR_LARGE_TREES:
        sizes.append((31, 20))

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held_out, fresh = [], []
        known = np.isfinite(features[inside]).any(axis=0)
        # The model begins with the mean of what it is given; the baseline is a better guess.
        offset = baseline - labels.values[inside].mean()
        for leaves, smallest in sizes:
            model = HistGradientBoostingRegressor(
                learning_rate=_LEARNING_RATE,
                max_iter=_ITERATIONS[-1],
                max_leaf_nodes=leaves,
                min_samples_leaf=smallest,
                l2_regularization=shrinkage,
                max_features=_COLUMNS_PER_SPLIT,
                early_stopping=False,  # pyright: ignore[reportArgumentType]
                random_state=seed,
            ).fit(features[inside][:, known], labels.values[inside])
            for stages, rows in ((held_out, features[outside][:, known]), (fresh, new[:, known])):
                stages += [
                    prediction + offset
                    for iteration, prediction in enumerate(model.staged_predict(rows), start=1)
                    if iteration in _ITERATIONS
                ]
        return np.stack(held_out), np.stack(fresh)

    # Evaluations fan out over cells; and one thread adds floats in one order.
    with threadpool_limits(limits=1):
        return cross_validated(fit, labels.values, baseline, seed)


def network(features: np.ndarray, labels: TrainingLabels, new: np.ndarray, seed: int) -> np.ndarray:
    """Three fully connected layers, stopped at the epoch that is best on held-out privatized labels."""
    from .network import fit_network

    scale = Standardised(features)
    inputs, fresh = scale.of(features), scale.of(new)
    baseline = labels.baseline()
    unit = float(np.sqrt(labels.variance)) or 1.0

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        targets = (labels.values[inside] - baseline) / unit
        held_out, predicted = fit_network(inputs[inside], targets, (inputs[outside], fresh), seed)
        return baseline + unit * held_out, baseline + unit * predicted

    return cross_validated(fit, labels.values, baseline, seed)


MODELS: dict[str, Predict] = {"linear": linear, "trees": trees, "network": network}
"""By name."""


class Standardised:
    """Features with mean 0 and deviation 1; missing ones are 0, outliers brought in to 4."""

    def __init__(self, features: np.ndarray):
        """features: (n, d), NaN where missing."""
        known = np.isfinite(features)
        counts = np.maximum(known.sum(axis=0), 1)
        self._mean = np.where(known, features, 0.0).sum(axis=0) / counts
        deviations = np.where(known, features - self._mean, 0.0)
        spread = np.sqrt((deviations**2).sum(axis=0) / counts)
        self._spread = np.where(spread > 0, spread, 1.0)

    def of(self, features: np.ndarray) -> np.ndarray:
        """(n, d) float64 without NaN."""
        scaled = (features - self._mean) / self._spread
        return np.clip(np.where(np.isfinite(features), scaled, 0.0), -_FARTHEST, _FARTHEST)
