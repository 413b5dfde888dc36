"""Features that reveal a label by themselves: how well all of them predict it, and each column alone.

Label DP protects a label from what is released of it, and features are released as they are. If features depend on the
label, noise on the label can protect arbitrarily little (Busa-Fekete et al. 2023, "Label differential privacy and
private training data release", ICML). Nothing but the true labels can show this, so only the labels party can ask.

A column alone predicts the label of a record by those of the records with the closest values, in the other folds: this
finds any smooth or stepwise function of the column, whatever its name is. Of categories, and of few different numbers,
only equal values are close. A number alone also predicts a label that is a number by the best monotone function, which
finds a label of heavy tails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from ...mechanisms.center.feature_rows import Categories, Columns
from .label_beliefs import (
    FOLDS,
    Beliefs,
    GuessedLabels,
    Neighbors,
    cross_fitted,
    cross_fitted_predictions,
    label_shares,
)
from .record_features import FeatureMatrix

NEARLY_THE_LABEL = 0.95
"""Part of the labels that a column explains from which on it is named as nearly the label."""
CERTAIN = 0.95
"""Belief in the true label from which on it counts as determined."""
# Records of the closest values, of equal ones, and of the prior.
_CLOSE, _EQUAL, _PRIOR_RECORDS = 30, 200, 1.0
_FEW_VALUES = 200


@dataclass(frozen=True)
class Prediction:
    """Quality of a prediction of labels without any released label.

    Attributes:
      explained: Part of the variance that predictions explain (R2); of classes, of the entropy. At most 1.
      determined: Share of the records whose label is believed in with 95 % or more, within the tolerance.
      area: Area under the ROC curve of two classes; None for all other labels.
    """

    explained: float
    determined: float
    area: float | None = None


@dataclass(frozen=True)
class Leaks:
    """Predictions of a label from features, together and alone.

    Attributes:
      without: Prediction without any feature.
      features: Prediction from all features together.
      columns: Prediction from each column alone, the best first.
    """

    without: Prediction
    features: Prediction
    columns: dict[str, Prediction]

    @property
    def named(self) -> list[str]:
        """Columns that are nearly the label."""
        return [name for name, each in self.columns.items() if each.explained >= NEARLY_THE_LABEL]


def find_leaks(
    columns: Columns, truth: np.ndarray, guessed: GuessedLabels, seed: int, progress: Callable[[str], object]
) -> Leaks:
    """Predicts labels from all columns together and from each alone.

    `truth` has the places of the true labels, shape (n,); `progress` gets lines about the work.
    """
    matrix = FeatureMatrix.of(columns, len(truth))
    together = cross_fitted(matrix, truth, guessed, seed, lambda step: progress(f"learning from features: {step}"))
    if not guessed.classes:
        predictions = cross_fitted_predictions(matrix, guessed.labels[truth], together.folds, seed)
        together = dataclasses.replace(together, predictions=predictions)
    found = {}
    for number, (name, column) in enumerate(columns.items(), start=1):
        progress(f"column {number} of {len(columns)}")
        found[name] = _measure(_beliefs_of_column(column, truth, guessed, seed), truth, guessed)
    order = sorted(found, key=lambda name: (-found[name].explained, name))
    return Leaks(
        _measure(_no_beliefs(truth, guessed, seed), truth, guessed),
        _measure(together, truth, guessed),
        {name: found[name] for name in order},
    )


def _folds(truth: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(truth)) % FOLDS


def _no_beliefs(truth: np.ndarray, guessed: GuessedLabels, seed: int) -> Beliefs:
    """Beliefs that are the shares of the labels in the other folds."""
    folds = _folds(truth, seed)
    shares = [label_shares(truth[folds != fold], len(guessed.labels)) for fold in range(FOLDS)]
    models = tuple(lambda rows, own=own: np.tile(own, (len(rows), 1)) for own in shares)
    return Beliefs(folds, models)


def _beliefs_of_column(
    column: np.ndarray | Categories, truth: np.ndarray, guessed: GuessedLabels, seed: int
) -> Beliefs:
    """Beliefs by the closest values of one column in the other folds."""
    folds, categories = _folds(truth, seed), isinstance(column, Categories)
    numbers = column.codes if isinstance(column, Categories) else column
    separate = categories or len(np.unique(numbers)) <= _FEW_VALUES
    models, size = [], _EQUAL if separate else _CLOSE
    for fold in range(FOLDS):
        others = np.flatnonzero(folds != fold)
        neighbors = Neighbors(numbers[others], truth[others], size, seed, separate)
        shares = label_shares(truth[others], len(guessed.labels))
        models.append(lambda rows, own=neighbors, prior=shares: own.beliefs(numbers[rows], prior, _PRIOR_RECORDS))
    monotone = None
    if not (categories or guessed.classes):
        monotone = _monotone(np.asarray(column), guessed.labels[truth], folds)
    return Beliefs(folds, tuple(models), monotone)


def _monotone(numbers: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Predicts labels by the best monotone function of a number in the other folds, shape (n,)."""
    from sklearn.isotonic import IsotonicRegression

    known, found = np.isfinite(numbers), np.empty(len(labels))
    for fold in range(FOLDS):
        own, others = folds == fold, folds != fold
        found[own] = labels[others & ~known].mean() if (others & ~known).any() else labels[others].mean()
        own, others = own & known, others & known
        if own.any() and others.any():
            model = IsotonicRegression(increasing=_rises(numbers[others], labels[others]), out_of_bounds="clip")
            found[own] = model.fit(numbers[others], labels[others]).predict(numbers[own])
    return found


def _rises(numbers: np.ndarray, labels: np.ndarray) -> bool:
    """True unless labels fall with the ranks of the numbers."""
    ranks = rankdata(numbers) - (len(numbers) + 1) / 2
    return float(ranks @ (rankdata(labels) - labels.size / 2)) >= 0


def _measure(beliefs: Beliefs, truth: np.ndarray, guessed: GuessedLabels) -> Prediction:
    near, means = np.zeros(len(truth)), np.zeros(len(truth))
    for rows, own in beliefs.blocks():
        near[rows] = guessed.near(own, truth[rows])
        # Of classes the place of the true one is what counts, of numbers the mean.
        means[rows] = own[np.arange(len(rows)), truth[rows]] if guessed.classes else own @ guessed.labels
    determined = float((near >= CERTAIN).mean())
    if guessed.classes:
        return Prediction(_entropy_explained(means, truth, guessed), determined, _area(beliefs, truth, guessed))
    labels = guessed.labels[truth]
    if labels.std() == 0:
        return Prediction(0.0, determined)
    errors = [((labels - each) ** 2).mean() for each in (means, beliefs.predictions) if each is not None]
    return Prediction(float(1 - min(errors) / labels.var()), determined)


def _entropy_explained(chances: np.ndarray, truth: np.ndarray, guessed: GuessedLabels) -> float:
    """Part of the entropy of the classes that the log loss of beliefs in the true ones is below it."""
    shares = label_shares(truth, len(guessed.labels))
    entropy = float(-np.log(shares[truth]).mean())
    return 1 - float(-np.log(chances).mean()) / entropy if entropy > 0 else 0.0


def _area(beliefs: Beliefs, truth: np.ndarray, guessed: GuessedLabels) -> float | None:
    if len(guessed.labels) != 2 or len(np.unique(truth)) != 2:
        return None
    from sklearn.metrics import roc_auc_score

    scores = np.zeros(len(truth))
    for rows, own in beliefs.blocks():
        scores[rows] = own[:, 1]
    return float(roc_auc_score(truth, scores))
