"""Models that are trained on a release, as estimators of scikit-learn: the center inside, chosen by released labels.

Models of several kinds and settings are compared by their held-out error on estimates of the true labels (`explained`),
which differs from that on true labels by a constant and noise without bias. Of each kind the best settings are taken,
and of the kinds the average of those that are best together, or none, where the center alone is. The share that it
explains is measured on predictions for records that neither model nor choice has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..mechanisms.analysis.explained import explained_share
from ..mechanisms.core.label_classes import LabelClasses
from ..pipelines.api.feature_frames import FeatureFrame
from ..pipelines.errors import UsageError
from ..pipelines.spec.machine import one_thread_for_fits
from .candidates import KINDS, LENGTHS, LIBRARIES_OF_TREES, Basis, Kind, Predictor, Ridges, Trees
from .class_arrays import on_simplex
from .feature_matrix import FeatureMatrix, ReleasedLabels, columns_of, frame_of, labels_of
from .intervals import Estimate

_FOLDS = 5
_FEWEST = 20
# More records are not predicted all: every fifth one is, by models that are trained on the others.
_MOST_FOLDED = 100_000
_MOST_OF_KERNEL = 20_000
# Share of the prior in the probabilities of classes, so that none is 0.
_SPREAD = 0.01


class _Choice(NamedTuple):
    """Settings of each kind that is chosen; their average is the model. None is the center alone."""

    settings: Mapping[str, int]

    def average(self, predictions: Mapping[str, Sequence[np.ndarray]], rows: Any = np.s_[:]) -> np.ndarray | float:
        """Average of the predictions of the chosen settings, for some of the records."""
        parts = [predictions[kind][setting][rows] for kind, setting in self.settings.items()]
        return sum(parts) / len(parts) if parts else 0.0


class _ReleaseModel(BaseEstimator):
    """Common part of regressor and classifier; see `ReleaseRegressor`."""

    def __init__(self, release: ReleasedLabels, kinds: Sequence[str] = KINDS, library: str = "sklearn"):
        self.release = release
        self.kinds = kinds
        self.library = library

    def fit(self, X: Any, y: Any = None, center: Any = None) -> Any:
        """Chooses and trains a model.

        Args:
          X: Features of n records, as for `Release.fit`.
          y: Released labels, shape (n,); None if they are a column of X.
          center: Center of each record, shape (n,); None if there is none, or X has it or its features.

        Returns:
          The fitted estimator.

        Raises:
          ValueError: If an argument is wrong, or there are fewer than 20 records.
          UsageError: If the library is not installed.
        """
        release = self.release
        self._check()
        z, center = labels_of(release, X, y, center)
        estimates = release.estimates(z, center)
        frame = frame_of(X, self._not_features)
        if len(frame) != len(estimates.labels) or len(frame) < _FEWEST:
            raise ValueError(f"X has {len(frame):,} rows, the labels {len(estimates.labels):,}: at least {_FEWEST}")
        self.matrix_ = FeatureMatrix(columns_of(frame))
        self.around_center_ = release.center_features is not None and {*release.center_features} <= {*frame.names}
        labels, targets = (each.reshape(len(frame), -1) for each in (estimates.labels, release.targets(z, center)))
        self.mean_ = targets.mean(axis=0)
        base, encoded, raw = self._parts(frame)
        targets = targets - base
        with one_thread_for_fits():
            kinds = self._made(encoded, raw, targets)
            held, predictions = _held_out(kinds, len(frame))
            choice, blind = _chosen(predictions, targets[held])
            self.models_: dict[str, Predictor] = {
                kind: kinds[kind].fit(setting) for kind, setting in choice.settings.items()
            }
        self.explained_ = Estimate(np.nan, np.nan)
        # Noise may leave the variance of the labels below 0; models may be right all the same.
        if estimates.variance.value > 0:
            found = explained_share(labels[held], base[held] + blind, estimates.variance)
            self.explained_ = Estimate(found.value, found.error)
        self.n_features_in_ = len(self.matrix_.names)
        self.feature_names_in_ = np.array(self.matrix_.names, object)
        return self

    @property
    def line_(self) -> str:
        """Sentence on the chosen model and what it explains."""
        check_is_fitted(self)
        around = "the center" if self.around_center_ else "the mean"
        chosen = " and ".join(self.models_)
        value, error = (100 * part for part in self.explained_)
        what = f"{chosen} around {around}" if chosen else f"{around} alone"
        if np.isnan(value):
            return f"{what}: what it explains cannot be told from these records"
        digits = ".0f" if error >= 1 else ".1g"
        return f"{what}: explains {value:.0f} % +- {error:{digits}} % of the variance of the true labels"

    def _check(self) -> None:
        wrong = [kind for kind in self.kinds if kind not in KINDS]
        if wrong or not len(self.kinds):
            raise ValueError(f"kinds must be some of {', '.join(KINDS)}, not {self.kinds!r}")
        if self.library not in LIBRARIES_OF_TREES:
            raise ValueError(f"library must be one of {', '.join(LIBRARIES_OF_TREES)}, not {self.library!r}")
        if not find_spec(self.library):
            raise UsageError(f"trees of {self.library} need it: pip install {self.library}")

    @property
    def _not_features(self) -> tuple[str | None, ...]:
        return self.release.label, self.release.center

    def _parts(self, frame: FeatureFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start of the predictions, shape (n, r) or (1, r), and the two matrices of features."""
        encoded, raw = self.matrix_(frame)
        if not self.around_center_:
            return np.broadcast_to(self.mean_, (len(frame), len(self.mean_))), encoded, raw
        base = self.release.predict_center(frame)[:, None]
        return base, encoded, np.concatenate([raw, base], axis=1)

    def _made(self, encoded: np.ndarray, raw: np.ndarray, targets: np.ndarray) -> dict[str, Kind]:
        """Kinds of models, in their order."""
        found: dict[str, Kind] = {}
        if "ridge" in self.kinds:
            found["ridge"] = Ridges([Basis.linear(encoded)], encoded, targets)
        if "kernel" in self.kinds and len(encoded) <= _MOST_OF_KERNEL:
            found["kernel"] = Ridges([Basis.kernel(encoded, length) for length in LENGTHS], encoded, targets)
        if "trees" in self.kinds:
            found["trees"] = Trees(self.library, raw, targets, targets.shape[1] == 2)
        return found

    def _predicted(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        base, encoded, raw = self._parts(frame_of(X, self._not_features))
        parts = [model(encoded, raw) for model in self.models_.values()]
        return base + sum(parts) / len(parts) if parts else np.array(base)


class ReleaseRegressor(RegressorMixin, _ReleaseModel):
    """Regressor that is trained on released labels, and predicts true ones.

    Attributes:
      explained_: Share of the variance of the true labels that it explains, with its standard error; NaN if noise hides
        that variance.
      models_: Chosen models by kind, `ridge`, `kernel` or `trees`; empty if the center, or the mean, is as good.
      around_center_: Whether predictions start from the center, whose features X has.
      line_: Sentence on both.
    """

    def predict(self, X: Any) -> np.ndarray:
        """Predicts labels.

        Args:
          X: Features, a frame with the columns that it was trained on; label and center are ignored.

        Returns:
          Shape (n,), float64, within the range of the domain.

        Raises:
          ValueError: If a feature is missing or has the wrong type.
        """
        domain = self.release.domain
        return np.clip(self._predicted(X)[:, 0], domain[0], domain[-1])


class ReleaseClassifier(ClassifierMixin, _ReleaseModel):
    """Classifier that is trained on released classes, and predicts true ones; attributes as of `ReleaseRegressor`.

    Attributes:
      classes_: Classes in the order of `Release.classes`, in the type of the labels, shape (K,).
    """

    def fit(self, X: Any, y: Any = None, center: Any = None) -> Any:
        """Chooses and trains a model; arguments as of `ReleaseRegressor.fit`."""
        super().fit(X, y, center)
        names = LabelClasses(self.release.classes or ())
        kind = np.asarray(labels_of(self.release, X, y, center)[0]).dtype.kind
        typed = {"b": names.booleans, "i": names.integers, "u": names.integers}.get(kind)
        self.classes_ = np.array(typed or names.values)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predicts probabilities of the classes, shape (n, K), float64; arguments as of `ReleaseRegressor.predict`."""
        shares = on_simplex(self.mean_[None, :])
        shares = (1 - _SPREAD) * shares + _SPREAD / shares.size
        return (1 - _SPREAD) * on_simplex(self._predicted(X)) + _SPREAD * shares

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the most probable class of each record, shape (n,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _held_out(kinds: Mapping[str, Kind], records: int) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Rows of the records that are predicted by models of others, and the predictions of each kind and setting."""
    of_fold = np.arange(records) % _FOLDS
    folds = range(_FOLDS if records <= _MOST_FOLDED else 1)
    parts = {name: [kind.held_out(of_fold != fold, of_fold == fold) for fold in folds] for name, kind in kinds.items()}
    held = np.concatenate([np.flatnonzero(of_fold == fold) for fold in folds])
    return held, {
        name: [np.concatenate(setting) for setting in zip(*found, strict=True)] for name, found in parts.items()
    }


def _chosen(predictions: Mapping[str, Sequence[np.ndarray]], targets: np.ndarray) -> tuple[_Choice, np.ndarray]:
    """The choice by all records, and predictions for each fifth of them by the choice of the others."""
    block = np.arange(len(targets)) * _FOLDS // len(targets)
    blind = np.zeros_like(targets)
    for number in range(_FOLDS):
        inside = block == number
        blind[inside] = _choice(predictions, targets, ~inside).average(predictions, inside)
    return _choice(predictions, targets, np.ones(len(targets), bool)), blind


def _choice(predictions: Mapping[str, Sequence[np.ndarray]], targets: np.ndarray, rows: np.ndarray) -> _Choice:
    """Settings that take most off the squared error of some records, without a constant: (2 t - p) p."""

    def gain(predicted: np.ndarray | float) -> float:
        return float(np.sum((2 * targets[rows] - predicted) * predicted))

    best = {kind: int(np.argmax([gain(each[rows]) for each in settings])) for kind, settings in predictions.items()}
    subsets = chain.from_iterable(combinations(best, size) for size in range(len(best) + 1))
    choices = [_Choice({kind: best[kind] for kind in subset}) for subset in subsets]
    # The first of equal ones, the smallest.
    return max(choices, key=lambda choice: gain(choice.average(predictions, rows)))
