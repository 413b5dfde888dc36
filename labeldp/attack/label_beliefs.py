"""Beliefs of an adversary about labels: a distribution over the label domain for each record, from its features.

Beliefs are cross-fitted. The records are dealt to folds at random, and those of a fold get beliefs from true labels of
the other folds alone. These are split once more: trees are fitted to three quarters of them, and what the trees miss is
learned from the last quarter. So no belief comes from a model that was trained on the label that it is about.

Numbers. Boosted trees predict the rank of the label, which outliers do not move. The belief about a record is the
distribution of the labels of those records of the last quarter whose predictions are closest to its own.

Classes, and numbers of few different values. Boosted trees give probabilities. They are raised to a power and mixed
with the shares of the classes, as fits the last quarter best.

Every belief has a small part of the distribution of all labels, so that no label is impossible. Needs scikit-learn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ..transforms.progress_log import advance
from .record_features import FeatureMatrix

FOLDS = 5
LEAST_RECORDS = 100
"""Fewer records teach a predictor nothing."""
_HELD_OUT = 4  # one record in four of those that a fold learns from
_BLOCK = 1 << 12  # records whose beliefs are computed at a time
# Records of the distribution of all labels in a belief.
_PRIOR_RECORDS = 2.0
_FEWEST_NEIGHBORS = 40
# Trees of classes grow with their number.
_MOST_CLASSES, _LEAST_OF_CLASS, _FEW_NUMBERS = 30, 5, 10
_POWERS, _SHARES = (0.25, 0.5, 0.75, 1.0, 1.25), (1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
_MOST_TREES, _FEW_TREES, _RECORDS_OF_CLASS = 200, 20, 20


@dataclass(frozen=True, eq=False)
class GuessedLabels:
    """Labels that are guessed, and how close a guess must be.

    Attributes:
      labels: Shape (k,), float64, ascending; of classes, their places.
      tolerance: Largest distance of a right guess from the label; 0 for exact guesses, as of classes.
      classes: True if the labels are places of classes.
    """

    labels: np.ndarray
    tolerance: float
    classes: bool = False

    def places(self, values: np.ndarray) -> np.ndarray:
        """Places of the labels closest to some values, shape (n,); values beyond the domain are clamped to it."""
        # Halves are added: the sum of two labels may be beyond the largest float.
        return np.searchsorted(self.labels[1:] / 2 + self.labels[:-1] / 2, values, side="right")

    def right(self, beliefs: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Tells for which records the best guess is right, shape (n,), bool.

        Beliefs have shape (n, k), places of the true labels (n,). A guess is the middle of a window of width 2 *
        tolerance: the window of the largest belief.
        """
        # Rounded, so that the guess does not hang on the last bit of a sum.
        starts = np.round(self._between(beliefs, *self._windows), 9).argmax(axis=1)
        return (truth >= starts) & (truth < self._windows[1][starts])

    def near(self, beliefs: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Belief that the label is within the tolerance of the true one, shape (n,), for beliefs of shape (n, k)."""
        first, last = (ends[truth] for ends in self._around)
        sums = _cumulated(beliefs)
        rows = np.arange(len(truth))
        return sums[rows, last] - sums[rows, first]

    @staticmethod
    def _between(beliefs: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        sums = _cumulated(beliefs)
        return sums[:, last] - sums[:, first]

    @functools.cached_property
    def _windows(self) -> tuple[np.ndarray, np.ndarray]:
        """For the window that starts at each label, the first label in it and the first one beyond."""
        with np.errstate(over="ignore"):  # infinity is beyond all labels, too
            ends = np.searchsorted(self.labels, self.labels + 2 * self.tolerance, side="right")
        return np.arange(len(ends)), ends

    @functools.cached_property
    def _around(self) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore"):
            low, high = self.labels - self.tolerance, self.labels + self.tolerance
        return np.searchsorted(self.labels, low), np.searchsorted(self.labels, high, side="right")


def _cumulated(beliefs: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((len(beliefs), 1)), np.cumsum(beliefs, axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Beliefs about n records, computed block by block.

    Attributes:
      folds: Fold of each record, shape (n,).
      models: For each fold, a function: indices of some of its records, shape (m,), to their beliefs, shape (m, k).
    """

    folds: np.ndarray
    models: tuple[Callable[[np.ndarray], np.ndarray], ...]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Generates indices of some records, shape (m,), and their beliefs, shape (m, k), until all have been."""
        for fold, model in enumerate(self.models):
            rows = np.flatnonzero(self.folds == fold)
            for start in range(0, len(rows), _BLOCK):
                chosen = rows[start : start + _BLOCK]
                yield chosen, model(chosen)


class Neighbors:
    """Records with a number and a label, among which those with the closest numbers are found.

    Of records with equal numbers, some are found at random; the same ones if the same numbers are asked for again.
    """

    def __init__(self, numbers: np.ndarray, labels: np.ndarray, size: int, seed: int, separate: bool = False):
        """Sorts the records.

        Numbers and places of labels have the shape (n,); `size` records are found, >= 1. With `separate`, numbers are
        names of categories: only equal ones are close.
        """
        self._seed = seed
        # Records with equal numbers are in a random order.
        order = np.random.default_rng(seed).permutation(len(numbers))
        order = order[np.argsort(numbers[order], kind="stable")]
        self._numbers, self._labels = numbers[order], labels[order]
        self._size, self._separate = min(size, len(numbers)), separate

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of the labels of the closest records, shape (m, size), and a mask of those that count."""
        left = np.searchsorted(self._numbers, numbers)
        right = np.searchsorted(self._numbers, numbers, side="right")
        equal, half = right - left, self._size // 2
        # The same for each call: beliefs before and after a release must have the same neighbors.
        chance = (np.random.default_rng(self._seed).random(len(numbers)) * (equal + 1)).astype(np.intp)
        start = np.where(equal >= self._size, left + chance - half, (left + right) // 2 - half)
        start = np.clip(start, 0, len(self._numbers) - self._size)
        inside = np.clip(start, left, np.maximum(right - self._size, left))
        start = np.where((equal >= self._size) | self._separate, inside, start)
        places = start[:, None] + np.arange(self._size)
        counted = places < (right if self._separate else np.full(len(right), len(self._numbers)))[:, None]
        return self._labels[np.minimum(places, len(self._labels) - 1)], counted

    def beliefs(self, numbers: np.ndarray, prior: np.ndarray, prior_records: float) -> np.ndarray:
        """Distribution of the labels of the closest records, shape (m, k), with some records of a prior, shape (k,)."""
        labels, counted = self.find(numbers)
        size, rows = len(prior), np.arange(len(numbers))[:, None]
        cells = (rows * size + labels)[counted]
        counts = np.bincount(cells, minlength=len(numbers) * size).reshape(-1, size)
        return (counts + prior_records * prior) / (counts.sum(axis=1, keepdims=True) + prior_records)


def cross_fitted(
    features: FeatureMatrix,
    truth: np.ndarray,
    guessed: GuessedLabels,
    seed: int,
    progress: Callable[[str], object] = str,
) -> Beliefs:
    """Fits the beliefs of all folds.

    `truth` has the places of the true labels, shape (n,), at least `LEAST_RECORDS`; the seed deals records to folds;
    `progress` gets a line for each fold.
    """
    folds, models = np.random.default_rng(seed).permutation(len(truth)) % FOLDS, []
    for fold in range(FOLDS):
        progress(f"fold {fold + 1} of {FOLDS}")
        others = np.random.default_rng((seed, fold)).permutation(np.flatnonzero(folds != fold))
        held_out, fitted = np.split(others, [len(others) // _HELD_OUT])
        few = len(np.unique(truth[fitted])) <= _FEW_NUMBERS
        fit = _fit_classes if guessed.classes or few else _fit_numbers
        models.append(fit(features, truth, len(guessed.labels), (fitted, held_out), seed))
        advance("learned", 1, FOLDS, "folds")
    return Beliefs(folds, tuple(models))


def cross_fitted_predictions(features: FeatureMatrix, labels: np.ndarray, folds: np.ndarray, seed: int) -> np.ndarray:
    """Predicts labels, shape (n,), by trees with the least squared error in the other folds; shape (n,)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    found = np.empty(len(labels))
    for fold in range(FOLDS):
        own, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        found[own] = _Trees(HistGradientBoostingRegressor, features, labels[others], others, seed).predict(own)
    return found


def label_shares(truth: np.ndarray, size: int) -> np.ndarray:
    """Shares of labels among places, shape (n,), with one record spread over the domain; shape (size,)."""
    return (np.bincount(truth, minlength=size) + 1 / size) / (len(truth) + 1)


_Split = tuple[np.ndarray, np.ndarray]
"""Indices of the records that trees are fitted to, and of those held out."""
_Model = Callable[[np.ndarray], np.ndarray]


def _fit_numbers(features: FeatureMatrix, truth: np.ndarray, size: int, split: _Split, seed: int) -> _Model:
    from sklearn.ensemble import HistGradientBoostingRegressor

    fitted, held_out = split
    ranks = rankdata(truth[fitted]) / len(fitted)
    trees = _Trees(HistGradientBoostingRegressor, features, ranks, fitted, seed)
    number = max(_FEWEST_NEIGHBORS, int(2 * np.sqrt(len(held_out))))
    neighbors = Neighbors(trees.predict(held_out), truth[held_out], number, seed)
    prior = label_shares(truth[np.concatenate(split)], size)
    return lambda rows: neighbors.beliefs(trees.predict(rows), prior, _PRIOR_RECORDS)


def _fit_classes(features: FeatureMatrix, truth: np.ndarray, size: int, split: _Split, seed: int) -> _Model:
    from sklearn.ensemble import HistGradientBoostingClassifier

    fitted, held_out = split
    prior = label_shares(truth[np.concatenate(split)], size)
    counts = np.bincount(truth[fitted], minlength=size)
    kept = np.argsort(-counts, kind="stable")[:_MOST_CLASSES]
    kept = np.sort(kept[counts[kept] >= _LEAST_OF_CLASS])
    rows = fitted[np.isin(truth[fitted], kept)]
    if len(kept) < 2:
        return lambda chosen: np.tile(prior, (len(chosen), 1))
    trees = _Trees(HistGradientBoostingClassifier, features, truth[rows], rows, seed)

    def predicted(chosen: np.ndarray) -> np.ndarray:
        found = np.zeros((len(chosen), size))
        found[:, kept] = trees.probabilities(chosen)
        return found

    power, share = _calibration(predicted(held_out), truth[held_out], prior)
    return lambda chosen: _calibrated(predicted(chosen), prior, power, share)


class _Trees:
    """Boosted trees that stop early, fitted to some records."""

    def __init__(self, kind: Any, features: FeatureMatrix, labels: np.ndarray, rows: np.ndarray, seed: int):
        # Trees refuse a column without any value.
        self._features, self._known = features, np.isfinite(features.values[rows]).any(axis=0)
        # A tenth of the records says when to stop: of classes, some records of each.
        early = len(rows) >= _RECORDS_OF_CLASS * len(np.unique(labels)) or kind.__name__.endswith("Regressor")
        self._model = kind(
            max_iter=_MOST_TREES if early else _FEW_TREES,
            max_leaf_nodes=max(4, min(31, len(rows) // 40)),
            min_samples_leaf=max(5, min(20, len(rows) // 40)),
            categorical_features=features.categories[self._known] if self._known.any() else None,
            early_stopping=early,
            n_iter_no_change=5,
            random_state=seed,
        ).fit(self._columns(rows), labels)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Predicted labels, shape (m,)."""
        return self._model.predict(self._columns(rows))

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, shape (m, classes)."""
        return self._model.predict_proba(self._columns(rows))

    def _columns(self, rows: np.ndarray) -> np.ndarray:
        found = self._features.values[rows][:, self._known]
        return found if found.shape[1] else np.zeros((len(rows), 1))


def _calibration(predicted: np.ndarray, truth: np.ndarray, prior: np.ndarray) -> tuple[float, float]:
    """Power and share of the prior with the largest likelihood of the labels held out."""
    rows = np.arange(len(truth))
    likelihood = {
        (power, share): float(np.log(_calibrated(predicted, prior, power, share)[rows, truth]).sum())
        for power in _POWERS
        for share in _SHARES
    }
    return max(likelihood, key=lambda each: likelihood[each])


def _calibrated(predicted: np.ndarray, prior: np.ndarray, power: float, share: float) -> np.ndarray:
    raised = predicted**power
    return (1 - share) * raised / raised.sum(axis=1, keepdims=True) + share * prior
