"""Models that are trained on a release, as estimators of scikit-learn: the center inside, weighed by released labels.

Models of several kinds and settings are compared by their held-out error on released labels, which differs from that on
true labels by a constant and noise without bias. Where noise is large it does not tell the best of them, so none is
chosen: the model is their mean, with weights exp(gain / (4 s^2)), where gain is what a model takes off the sum of
squared errors of the center, and s^2 the noise (Leung and Barron 2006: for this temperature the mean is worse than the
best of m models by no more than 4 s^2 log m / n, whatever they are). Kinds, and the center alone, have equal weights
beforehand. Models that differ little share the weight, and little noise leaves all of it to the best.

The share that it explains is measured on predictions for records that neither models nor weights have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from labeldp import LabelClasses, UsageError
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..pipelines.api.feature_frames import FeatureFrame
from ..pipelines.spec.machine import one_thread_for_fits
from .candidates import KINDS, LENGTHS, LIBRARIES_OF_TREES, Basis, Predictor, Ridges, Trees
from .class_arrays import on_simplex
from .feature_matrix import FeatureMatrix, ReleasedLabels, columns_of, frame_of, labels_of, stated_share
from .intervals import Estimate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from ..pipelines.api.feature_frames import Frame

_FOLDS = 5
_FEWEST = 20
# More records are not predicted all: every fifth one is, by models that are trained on the others.
_MOST_FOLDED = 100_000
_MOST_OF_KERNEL = 20_000
# Share of the prior in the probabilities of classes, so that none is 0.
_SPREAD = 0.01
# Noise of the weights, in variances of a target; weights that are left out; weights of kinds that are not named.
_TEMPERATURE, _NEGLIGIBLE, _MINOR = 4.0, 1e-3, 0.05


class _ReleaseModel(BaseEstimator):
    """Common part of regressor and classifier; see `ReleaseRegressor`."""

    def __init__(self, release: ReleasedLabels, kinds: Sequence[str] = KINDS, library: str = "sklearn"):
        self.release = release
        self.kinds = kinds
        self.library = library

    def fit(self, X: Frame, y: ArrayLike | None = None, center: ArrayLike | None = None) -> Self:
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
            weights, blind = _weighed(predictions, targets[held])
            self.models_: dict[str, Predictor] = {kind: kinds[kind].fit(part) for kind, part in weights.items()}
        self.weights_ = {kind: float(part.sum()) for kind, part in weights.items()}
        self.explained_ = stated_share(estimates, labels[held], base[held] + blind) or Estimate(np.nan, np.nan)
        self.n_features_in_ = len(self.matrix_.names)
        self.feature_names_in_ = np.array(self.matrix_.names, object)
        return self

    @property
    def line_(self) -> str:
        """Sentence on the chosen model and what it explains."""
        check_is_fitted(self)
        around = "the center" if self.around_center_ else "the mean"
        chosen = " and ".join(kind for kind, weight in self.weights_.items() if weight > _MINOR)
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

    def _made(self, encoded: np.ndarray, raw: np.ndarray, targets: np.ndarray) -> dict[str, Ridges | Trees]:
        """Kinds of models, in their order."""
        found: dict[str, Ridges | Trees] = {}
        if "ridge" in self.kinds:
            found["ridge"] = Ridges([Basis.linear(encoded)], encoded, targets)
        if "kernel" in self.kinds and len(encoded) <= _MOST_OF_KERNEL:
            found["kernel"] = Ridges([Basis.kernel(encoded, length) for length in LENGTHS], encoded, targets)
        if "trees" in self.kinds:
            found["trees"] = Trees(self.library, raw, targets, targets.shape[1] == 2)
        return found

    def _predicted(self, X: Frame) -> np.ndarray:
        check_is_fitted(self)
        base, encoded, raw = self._parts(frame_of(X, self._not_features))
        return base + sum((model(encoded, raw) for model in self.models_.values()), np.zeros(base.shape))


class ReleaseRegressor(RegressorMixin, _ReleaseModel):
    """Regressor that is trained on released labels, and predicts true ones.

    Attributes:
      explained_: Share of the variance of the true labels that it explains, with its standard error; NaN if noise hides
        that variance.
      models_: Models by kind, `ridge`, `kernel` or `trees`, without those of negligible weight. What they predict is
        added to the center, or the mean.
      weights_: Weight of each kind; what is missing to 1 is that of the center, or the mean, alone.
      around_center_: Whether predictions start from the center, whose features X has.
      line_: Sentence on both.
    """

    def predict(self, X: Frame) -> np.ndarray:
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

    def fit(self, X: Frame, y: ArrayLike | None = None, center: ArrayLike | None = None) -> Self:
        """Chooses and trains a model; arguments as of `ReleaseRegressor.fit`."""
        super().fit(X, y, center)
        names = LabelClasses(self.release.classes or ())
        kind = np.asarray(labels_of(self.release, X, y, center)[0]).dtype.kind
        typed = {"b": names.booleans, "i": names.integers, "u": names.integers}.get(kind)
        self.classes_ = np.array(typed or names.values)
        return self

    def predict_proba(self, X: Frame) -> np.ndarray:
        """Predicts probabilities of the classes, shape (n, K), float64; arguments as of `ReleaseRegressor.predict`."""
        shares = on_simplex(self.mean_[None, :])
        shares = (1 - _SPREAD) * shares + _SPREAD / shares.size
        return (1 - _SPREAD) * on_simplex(self._predicted(X)) + _SPREAD * shares

    def predict(self, X: Frame) -> np.ndarray:
        """Predicts the most probable class of each record, shape (n,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _held_out(kinds: Mapping[str, Ridges | Trees], records: int) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Rows of the records that are predicted by models of others, and the predictions of each kind and setting."""
    of_fold = np.arange(records) % _FOLDS
    folds = range(_FOLDS if records <= _MOST_FOLDED else 1)
    parts = {name: [kind.held_out(of_fold != fold, of_fold == fold) for fold in folds] for name, kind in kinds.items()}
    held = np.concatenate([np.flatnonzero(of_fold == fold) for fold in folds])
    return held, {
        name: [np.concatenate(setting) for setting in zip(*found, strict=True)] for name, found in parts.items()
    }


def _weighed(
    predictions: Mapping[str, Sequence[np.ndarray]], targets: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Weights of the settings of each kind by all records, and predictions for each fifth by the weights of others."""
    block = np.arange(len(targets)) * _FOLDS // len(targets)
    blind = np.zeros_like(targets)
    for number in range(_FOLDS):
        inside = block == number
        for kind, weights in _weights(predictions, targets, ~inside).items():
            blind[inside] += sum(
                weight * part[inside] for weight, part in zip(weights, predictions[kind], strict=True) if weight
            )
    return _weights(predictions, targets, np.ones(len(targets), bool)), blind


def _weights(
    predictions: Mapping[str, Sequence[np.ndarray]], targets: np.ndarray, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Weights of the settings of each kind by some records; what is missing to 1 is that of the prediction 0."""
    t = targets[rows]
    # Noise of all classes together is no larger than in its largest direction.
    noise = max(float(np.linalg.eigvalsh(t.T @ t / len(t))[-1]), 1e-300)
    logs = {
        kind: np.array([np.sum((2 * t - part[rows]) * part[rows]) for part in settings]) / (_TEMPERATURE * noise)
        - np.log(len(settings))
        for kind, settings in predictions.items()
    }
    largest = max(0.0, *(float(part.max()) for part in logs.values()))
    powers = {kind: np.exp(part - largest) for kind, part in logs.items()}
    total = np.exp(-largest) + sum(part.sum() for part in powers.values())
    kept = {kind: np.where(part > _NEGLIGIBLE * total, part / total, 0.0) for kind, part in powers.items()}
    return {kind: part for kind, part in kept.items() if part.any()}
