"""Features that reveal a label by themselves: how well all of them predict it, and each column alone.

Label DP protects a label from what is released of it, and features are released as they are. If features depend on the
label, noise on the label can protect arbitrarily little (Busa-Fekete et al. 2023, "Label differential privacy and
private training data release", ICML). Nothing but the true labels can show this, so only the labels party can ask.

A column alone predicts the label of a record by those of the records with the closest values, in the other folds: this
finds any smooth or stepwise function of the column, whatever its name is. Of categories, and of few different numbers,
only equal values are close. A number alone also predicts a label that is a number by the best monotone function, which
finds a label of heavy tails. A column of numbers as text is both.

One huge label has nearly all of the variance, and no other record predicts it. So R2 is computed twice: of the labels,
and of labels moved into their usual range. The larger one counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from ..mechanisms.center.feature_rows import Categories, Columns
from ..pipelines.spec.machine import one_thread_for_fits
from ..transforms.progress_log import advance
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
MUCH = 0.05
"""Share of the labels that the values of a column tell from which on it is named."""
CERTAIN = 0.95
"""Belief in the true label from which on it counts as determined."""
# Records of the closest values, of equal ones, and of the prior.
_CLOSE, _EQUAL, _PRIOR_RECORDS = 30, 200, 1.0
_FEW_VALUES = 200
# Values with these shares of one label tell it: of a label that most records have, all records must agree.
_NEARLY_ALL, _COMMON = 0.99, 0.9
_CHANCE = 1e-6  # that values without any relation to the labels tell some


@dataclass(frozen=True)
class Prediction:
    """Quality of a prediction of labels without any released label.

    Attributes:
      explained: Part of the variance that predictions explain (R2), of the labels or of those moved into their usual
        range, whichever is larger; of classes, part of the entropy. At most 1; 0 if all labels are equal; NaN if it
        cannot be computed.
      determined: Share of the records whose label is believed in with 95 % or more, within the tolerance.
      area: Area under the ROC curve of two classes; None for all other labels.
      told: Share of the records whose values of a column have one label, by more than chance.
    """

    explained: float
    determined: float
    area: float | None = None
    told: float = 0.0


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

    @property
    def telling(self) -> list[str]:
        """Columns that tell many labels exactly, and are not nearly the label."""
        return [name for name, each in self.columns.items() if each.told >= MUCH and name not in self.named]

    @property
    def unknown(self) -> list[str]:
        """Columns of which cannot be computed how much they explain."""
        return [name for name, each in self.columns.items() if math.isnan(each.explained)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """One thread, and no warnings of numpy and scikit-learn, which have paths.

    Features may be any floats. A figure that is not finite is no pass, so that warnings say nothing more.
    """
    with one_thread_for_fits(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@_quiet()
def find_leaks(
    columns: Columns, truth: np.ndarray, guessed: GuessedLabels, seed: int, progress: Callable[[str], object]
) -> Leaks:
    """Predicts labels from all columns together and from each alone.

    `truth` has the places of the true labels, shape (n,); `progress` gets lines about the work.
    """
    scales, folds = _scales(truth, guessed), np.random.default_rng(seed).permutation(len(truth)) % FOLDS
    matrix = FeatureMatrix.of(columns, len(truth))
    together = cross_fitted(matrix, truth, guessed, seed, lambda step: progress(f"learning from features: {step}"))
    predictions = [cross_fitted_predictions(matrix, scale[truth], together.folds, seed) for scale in scales]
    features = _measure(together, truth, guessed, scales, predictions)
    return Leaks(
        _measure(_no_beliefs(truth, guessed, folds), truth, guessed, scales, ()),
        features,
        alone(columns, truth, guessed, seed, progress),
    )


@_quiet()
def alone(
    columns: Columns, truth: np.ndarray, guessed: GuessedLabels, seed: int, progress: Callable[[str], object]
) -> dict[str, Prediction]:
    """Predicts labels from each column alone, the best first, as `find_leaks`."""
    scales, folds = _scales(truth, guessed), np.random.default_rng(seed).permutation(len(truth)) % FOLDS
    found: dict[str, Prediction] = {}
    for number, (name, column) in enumerate(columns.items(), start=1):
        progress(f"column {number} of {len(columns)}")
        advance("tried", 1, len(columns), "columns")
        forms = []
        for form in _forms(column):
            numbers = None if isinstance(form, Categories) else np.asarray(form)
            predictions = [] if numbers is None else [_monotone(numbers, scale[truth], folds) for scale in scales]
            beliefs = _beliefs_of_column(form, truth, guessed, folds, seed)
            prediction = _measure(beliefs, truth, guessed, scales, predictions)
            forms.append(dataclasses.replace(prediction, told=_told(form, truth)))
        found[name] = dataclasses.replace(max(forms, key=_rank), told=max(form.told for form in forms))
    order = sorted(found, key=lambda name: (-_rank(found[name]), name))
    return {name: found[name] for name in order}


def _told(column: np.ndarray | Categories, truth: np.ndarray) -> float:
    """Share of the records whose value has one label, in all records with it or with it and the next numbers.

    By chance, no record of columns that do not depend on the labels counts.
    """
    numbers = column.codes if isinstance(column, Categories) else np.asarray(column)
    values, groups = np.unique(numbers, return_inverse=True)
    order = np.lexsort((truth, groups))
    # Records by value and label: sizes of equal pairs, of which the largest one of each value counts.
    pairs, sizes = np.unique(np.stack([groups, truth])[:, order], axis=1, return_counts=True)
    largest = np.lexsort((-sizes, pairs[0]))[np.searchsorted(pairs[0], np.arange(len(values)))]
    labels, most, counts = pairs[1][largest], sizes[largest], np.bincount(groups)
    shares = (np.bincount(truth) / len(truth))[labels]
    pure = most >= np.where(shares <= _COMMON, _NEARLY_ALL, 1.0) * counts
    runs = np.arange(len(values))
    if not isinstance(column, Categories):
        pure &= (most == counts) | (counts >= _EQUAL)
        # Next to each other, values with the same label are one.
        runs = np.cumsum(np.append(True, (labels[1:] != labels[:-1]) | ~pure[1:] | ~pure[:-1])) - 1
    lengths = np.bincount(runs, counts)[runs]
    likely = lengths * np.log(shares) > math.log(_CHANCE / len(truth))
    return float(counts[pure & ~likely].sum() / len(truth))


def _forms(column: np.ndarray | Categories) -> Iterator[np.ndarray | Categories]:
    """The column, and its numbers if it has texts of numbers alone, as of CSV files with values such as 1e300."""
    yield column
    if isinstance(column, Categories):
        try:
            numbers = np.array([*map(float, column.values), np.nan])
        except ValueError:
            return
        yield numbers[column.codes]


def _scales(truth: np.ndarray, guessed: GuessedLabels) -> list[np.ndarray]:
    """Label domains by which R2 is computed, shape (k,) each, in [-1, 1]; none for classes and for equal labels.

    The first has the labels up to a factor, in the second they are moved into their usual range.
    """
    if guessed.classes:
        return []
    labels = guessed.labels[truth]
    ranges = dict.fromkeys([(float(labels.min()), float(labels.max())), _usual_range(labels)])
    # The factor does not change R2, and squares of large labels stay finite.
    return [np.clip(guessed.labels, low, high) / max(abs(low), abs(high)) for low, high in ranges if low < high]


def _usual_range(labels: np.ndarray) -> tuple[float, float]:
    """Range of labels, shape (n,), from the 1 % to the 99 % quantile.

    If most labels are equal, as without a sale, it is the range of that label and of the quantiles of the others.
    """
    middle = float(np.sort(labels)[len(labels) // 2])
    others = labels[labels != middle]
    if 0 < len(others) <= len(labels) / 2:
        ends = (*label_quantiles(others), middle)
        return min(ends), max(ends)
    return label_quantiles(labels)


def label_quantiles(labels: np.ndarray) -> tuple[float, float]:
    """The 1 % and the 99 % quantile of labels, shape (n,): labels themselves, which no single one can move far."""
    low, high = np.quantile(labels, 0.01, method="higher"), np.quantile(labels, 0.99, method="lower")
    return float(low), float(high)


def _rank(prediction: Prediction) -> float:
    """The explained share as a sort key: infinite if it could not be computed."""
    return math.inf if math.isnan(prediction.explained) else prediction.explained


def _no_beliefs(truth: np.ndarray, guessed: GuessedLabels, folds: np.ndarray) -> Beliefs:
    """Beliefs that are the shares of the labels in the other folds."""
    shares = [label_shares(truth[folds != fold], len(guessed.labels)) for fold in range(FOLDS)]
    models = tuple(lambda rows, own=own: np.tile(own, (len(rows), 1)) for own in shares)
    return Beliefs(folds, models)


def _beliefs_of_column(
    column: np.ndarray | Categories, truth: np.ndarray, guessed: GuessedLabels, folds: np.ndarray, seed: int
) -> Beliefs:
    """Beliefs by the closest values of one column in the other folds."""
    categories = isinstance(column, Categories)
    numbers = column.codes if isinstance(column, Categories) else column
    separate = categories or len(np.unique(numbers)) <= _FEW_VALUES
    models, size = [], _EQUAL if separate else _CLOSE
    for fold in range(FOLDS):
        others = np.flatnonzero(folds != fold)
        neighbors = Neighbors(numbers[others], truth[others], size, seed, separate)
        shares = label_shares(truth[others], len(guessed.labels))
        models.append(lambda rows, own=neighbors, prior=shares: own.beliefs(numbers[rows], prior, _PRIOR_RECORDS))
    return Beliefs(folds, tuple(models))


def _monotone(numbers: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Predicts labels by the best monotone function of a number in the other folds, shape (n,)."""
    from sklearn.isotonic import IsotonicRegression

    known, found = np.isfinite(numbers), np.empty(len(labels))
    # Places of the values in their order: scikit-learn takes values that are very close for equal, and slopes between
    # any floats may not be finite.
    numbers = np.unique(numbers, return_inverse=True)[1].astype(np.float64)
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


def _measure(
    beliefs: Beliefs,
    truth: np.ndarray,
    guessed: GuessedLabels,
    scales: Sequence[np.ndarray],
    predictions: Sequence[np.ndarray],
) -> Prediction:
    """Measures beliefs, and predictions with the least squared error of the labels of each scale, if there are any."""
    near, chances, means = np.zeros(len(truth)), np.zeros(len(truth)), np.zeros((len(scales), len(truth)))
    for rows, own in beliefs.blocks():
        near[rows], chances[rows] = guessed.near(own, truth[rows]), own[np.arange(len(rows)), truth[rows]]
        for scale, found in zip(scales, means, strict=True):
            found[rows] = own @ scale
    determined = float((near >= CERTAIN).mean())
    if guessed.classes:
        return Prediction(_entropy_explained(chances, truth), determined, _area(beliefs, truth, guessed))
    if not scales:
        return Prediction(0.0, determined)
    explained = [
        1 - float(((scale[truth] - each) ** 2).mean() / scale[truth].var())
        for predicted in filter(len, (means, predictions))
        for scale, each in zip(scales, predicted, strict=True)
    ]
    # One that is not finite may hide a copy of the label.
    return Prediction(max(explained) if all(map(math.isfinite, explained)) else math.nan, determined)


def _entropy_explained(chances: np.ndarray, truth: np.ndarray) -> float:
    """Part of the entropy of the classes that the log loss of beliefs in the true ones is below it; 0 of one class."""
    shares = np.bincount(truth) / len(truth)
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
