"""Models that are tried on a release: ridges, kernels and boosted trees, of what labels differ from their center by.

Targets have noise of a known kind, but no bias, so models of squared loss are right for them, and so are weights by
held-out squared error. Of classes, targets are estimates of their indicators, and models have one output for each.

A kernel model is a ridge on the Nystroem features of a Gaussian kernel for evenly spaced records (Williams and Seeger
2001): the mean of a Gaussian process of as many places. Noise leaves models few parameters, so these places suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

# Penalties as parts of the number of records, for features of variance 1 altogether.
_PENALTIES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LENGTHS = (0.35, 0.7, 1.4)
"""Lengths of a kernel, relative to the root of the mean squared distance of two records."""
_LANDMARKS = 500
_SMALLEST = 1e-7
# Leaves, share of the records that a leaf has at least, and two numbers of rounds.
_SHAPES = ((3, 0.05, (15, 60)), (8, 0.01, (30, 120)), (24, 0.002, (60, 200)))
_RATE, _LEAST_LEAF = 0.1, 20
KINDS = ("ridge", "kernel", "trees")
"""Kinds of models that are tried."""
LIBRARIES_OF_TREES = ("sklearn", "lightgbm", "xgboost")
"""Libraries of boosted trees that models are made of."""


Predictor: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Trained model, which predicts targets, shape (n, r), from the two matrices of features, encoded and raw."""


@dataclass(frozen=True)
class Basis:
    """Features that ridges are linear in.

    Attributes:
      landmarks: Records of a kernel, shape (m, w); None for a linear model.
      length: Squared length of the kernel.
      weights: Weights of the kernel, or of the encoded features, in each feature, shape (m, b).
    """

    landmarks: np.ndarray | None
    length: float
    weights: np.ndarray

    @classmethod
    def linear(cls, encoded: np.ndarray) -> Basis:
        """Encoded features, of variance 1 altogether."""
        return cls(None, 1.0, np.eye(encoded.shape[1]) / np.sqrt(encoded.var(axis=0).sum()))

    @classmethod
    def kernel(cls, encoded: np.ndarray, length: float) -> Basis:
        """Nystroem features of a kernel of this relative length."""
        landmarks = np.unique(encoded[:: -(-len(encoded) // _LANDMARKS)], axis=0)
        squared = length**2 * 2 * float(encoded.var(axis=0).sum())
        values, vectors = np.linalg.eigh(_gaussian(landmarks, landmarks, squared))
        kept = values > _SMALLEST * values[-1]
        return cls(landmarks, squared, vectors[:, kept] / np.sqrt(values[kept]))

    def rows(self, encoded: np.ndarray) -> np.ndarray:
        """Features of n records with a constant in front, shape (n, b + 1)."""
        found = encoded if self.landmarks is None else _gaussian(encoded, self.landmarks, self.length)
        return np.concatenate([np.ones((len(encoded), 1)), found @ self.weights], axis=1)


def _gaussian(first: np.ndarray, second: np.ndarray, squared: float) -> np.ndarray:
    distances = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    return np.exp(np.maximum(distances, 0.0) / (-2 * squared))


@dataclass(frozen=True)
class LinearPredictor:
    """Sum of linear functions: bases and their coefficients, shape (b + 1, r)."""

    terms: tuple[tuple[Basis, np.ndarray], ...]

    def __call__(self, encoded: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Predicts targets."""
        return np.sum([basis.rows(encoded) @ coefficients for basis, coefficients in self.terms], axis=0)


@dataclass(frozen=True)
class TreePredictor:
    """Weighted sum of boosted trees, one regressor for each target, of two classes for the second alone."""

    terms: tuple[tuple[float, tuple[Any, ...]], ...]
    mirrored: bool

    def __call__(self, encoded: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Predicts targets."""
        parts = (
            weight * _columns([model.predict(raw) for model in models], self.mirrored) for weight, models in self.terms
        )
        return np.sum(list(parts), axis=0)


def _columns(found: Sequence[np.ndarray], mirrored: bool) -> np.ndarray:
    return np.stack([-found[0], found[0]] if mirrored else found, axis=1).astype(np.float64)


class Ridges:
    """Ridges on bases, in a few penalties each."""

    def __init__(self, bases: Sequence[Basis], encoded: np.ndarray, targets: np.ndarray):
        """Computes the features of all records."""
        self._bases, self._targets = bases, targets
        self._rows = [basis.rows(encoded) for basis in bases]

    def held_out(self, train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
        """Predictions for records of a mask by models that are trained on others, one array for each setting."""
        return [rows[test] @ fit for rows in self._rows for fit in _ridges(rows[train], self._targets[train])]

    def fit(self, weights: np.ndarray) -> Predictor:
        """Trains a sum of models on all records, with a weight for each setting; those of weight 0 are left out."""
        return LinearPredictor(tuple(
            (basis, np.tensordot(part, _ridges(rows, self._targets), axes=1))
            for basis, rows, part in zip(self._bases, self._rows, np.split(weights, len(self._bases)), strict=True)
            if part.any()
        ))  # fmt: skip


def _ridges(rows: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
    """Coefficients for each penalty, shape (b + 1, r)."""
    from ..mechanisms.core.reproducible import one_blas_thread

    with one_blas_thread():
        means = rows[:, 1:].mean(axis=0)
        gram = rows[:, 1:].T @ rows[:, 1:] - len(rows) * np.outer(means, means)
        moment = rows[:, 1:].T @ (targets - targets.mean(axis=0))
        values, vectors = np.linalg.eigh(gram)
        turned = vectors.T @ moment
        found = []
        for penalty in _PENALTIES:
            slopes = vectors @ (turned / (np.maximum(values, 0.0) + penalty * len(rows))[:, None])
            found.append(np.concatenate([(targets.mean(axis=0) - means @ slopes)[None, :], slopes]))
    return found


class Trees:
    """Boosted trees of a library in six sets of settings."""

    def __init__(self, library: str, raw: np.ndarray, targets: np.ndarray, mirrored: bool):
        """Takes features and targets; `mirrored` if the first of two targets is the negative of the second."""
        self._library, self._raw, self._mirrored = library, raw, mirrored
        self._targets = targets[:, 1:] if mirrored else targets

    def held_out(self, train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
        """As of `Ridges`."""
        found = []
        for leaves, share, rounds in _SHAPES:
            models = self._models(train, leaves, share, rounds[-1])
            stages = [list(_stages(self._library, model, self._raw[test], rounds)) for model in models]
            found += [_columns(parts, self._mirrored) for parts in zip(*stages, strict=True)]
        return found

    def fit(self, weights: np.ndarray) -> Predictor:
        """As of `Ridges`."""
        everything = np.ones(len(self._raw), bool)
        settings = ((leaves, share, number) for leaves, share, rounds in _SHAPES for number in rounds)
        return TreePredictor(tuple(
            (float(weight), self._models(everything, *setting))
            for weight, setting in zip(weights, settings, strict=True)
            if weight
        ), self._mirrored)  # fmt: skip

    def _models(self, train: np.ndarray, leaves: int, share: float, rounds: int) -> tuple[Any, ...]:
        rows = self._raw[train]
        smallest = max(round(share * len(rows)), _LEAST_LEAF)
        make = _REGRESSORS[self._library]
        return tuple(make(leaves, smallest, rounds).fit(rows, targets[train]) for targets in self._targets.T)


def _sklearn(leaves: int, smallest: int, rounds: int) -> Any:
    return import_module("sklearn.ensemble").HistGradientBoostingRegressor(
        learning_rate=_RATE, max_iter=rounds, max_leaf_nodes=leaves, min_samples_leaf=smallest, early_stopping=False,
        random_state=0,
    )  # fmt: skip


def _lightgbm(leaves: int, smallest: int, rounds: int) -> Any:
    return import_module("lightgbm").LGBMRegressor(
        learning_rate=_RATE, n_estimators=rounds, num_leaves=leaves, min_child_samples=smallest, random_state=0,
        deterministic=True, force_row_wise=True, n_jobs=1, verbose=-1,
    )  # fmt: skip


def _xgboost(leaves: int, smallest: int, rounds: int) -> Any:
    # The second derivative of squared loss is 1: the weight of a leaf is its number of records.
    return import_module("xgboost").XGBRegressor(
        learning_rate=_RATE, n_estimators=rounds, max_leaves=leaves, min_child_weight=smallest, random_state=0,
        max_depth=0, grow_policy="lossguide", tree_method="hist", reg_lambda=0, n_jobs=1,
    )  # fmt: skip


_REGRESSORS: dict[str, Callable[[int, int, int], Any]] = {
    "sklearn": _sklearn,
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
}


def _stages(library: str, model: Any, raw: np.ndarray, rounds: Sequence[int]) -> list[np.ndarray]:
    """Predictions after each number of rounds."""
    if library == "lightgbm":
        return [model.predict(raw, num_iteration=number) for number in rounds]
    if library == "xgboost":
        return [model.predict(raw, iteration_range=(0, number)) for number in rounds]
    stages = model.staged_predict(raw)
    return [next(islice(stages, number - 1, None)) for number in np.diff(rounds, prepend=0)]
