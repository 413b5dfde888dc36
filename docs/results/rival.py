"""Trains private models on labels directly, as rivals of models that are trained on released labels.

    pip install --no-deps --target FOLDER interpret-core==0.7.8
    PYTHONPATH=FOLDER python docs/results/rival.py WORK_FOLDER [NAME ...]

One rival is gradient descent under label DP with public features (Jiang, Krichene, Mayoraz 2026, "Private learning with
public feature conditioning"): gradients of single records are clipped, Gaussian noise is added to their sum, and the
features are whitened by their public spectrum, which conditions the loss without a cost. Every step takes all records,
so the composition of the steps is one Gaussian mechanism, whose delta is exact (Balle and Wang 2018, Theorem 8; Dong,
Roth, Su 2022, Corollary 3.3). Its budget is (epsilon, 1e-6); releases of labeldp have no delta.

Its numbers of steps, bounds of the gradients and learning rates are chosen by the test error, at no cost in epsilon,
which is in the rival's favor.

The other is DP-EBM (Nori, Caruana, Bu, Shen, Kulkarni 2021, "Accuracy, interpretability, and differential privacy via
explainable boosting"), boosted sums of functions of single features, with the defaults of interpret-core. It protects
whole records, features and labels, under (epsilon, 1e-5)-DP, and spends a tenth of epsilon on histograms of features.
The ranges of features and labels are given, as public.

Rows of rival.csv are kept: remove those that are to be computed anew.
"""

from __future__ import annotations

import importlib
import math
import sys
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from labeldp.study.dataset import read_dataset
from labeldp.transforms.io.input_format import Format
from run import RUNS
from scipy.optimize import brentq
from scipy.special import ndtr
from summary import read_rows, write_rows

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 2.0)
SEEDS, FINALISTS = 5, 3
UNITS = 64
"""Units of the hidden layer of the network."""
STEPS = (30, 100, 300)
BOUNDS = (0.1, 0.3, 1.0)
"""Bounds on the norm of a record's gradient, where labels have the range from -1 to 1."""
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
MOMENTUM = 0.9
LEAST_VARIANCE = 1e-3
"""Directions of less variance, of the mean of all, are scaled as if they had this one."""
EBM = "DP-EBM"
MODELS = ("linear", "network", EBM)


class Trial(NamedTuple):
    """Test error of one configuration.

    Attributes:
      run: Name in `RUNS`.
      model: In `MODELS`.
      epsilon: The budget, with `DELTA`, or the default of DP-EBM.
      steps: Number of steps; 0 for the defaults of DP-EBM, as bound and rate.
      bound: Bound on the norm of a gradient.
      rate: Learning rate.
      loss: Mean test loss over the seeds.
      deviation: Its standard deviation.
    """

    run: str
    model: str
    epsilon: float
    steps: int
    bound: float
    rate: float
    loss: float
    deviation: float


def noise_multiplier(epsilon: float, steps: int, delta: float = DELTA) -> float:
    """Computes the standard deviation of the noise of each step, in units of the sensitivity.

    Args:
      epsilon: The budget.
      steps: Number of steps.
      delta: The delta of the budget.

    Returns:
      The smallest multiplier with which all steps together satisfy (epsilon, delta)-DP.
    """

    def excess(mu: float) -> float:
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta

    return math.sqrt(steps) / brentq(excess, 1e-4, 20.0)


def filled(features: np.ndarray) -> np.ndarray:
    """Replaces missing features by their means.

    Args:
      features: Features of all records, shape (n, d), float64, NaN where missing. They are public.

    Returns:
      Features of the same shape, none missing.
    """
    return np.where(np.isfinite(features), features, np.nanmean(features, axis=0))


def whitened(features: np.ndarray) -> np.ndarray:
    """Standardizes features and whitens them by their spectrum.

    Args:
      features: Features of all records, shape (n, d), float64, NaN where missing. They are public.

    Returns:
      Features of mean 0, shape (n, d); a record has the norm sqrt(d) on average.
    """
    whole = filled(features)
    spread = whole.std(axis=0)
    scaled = np.clip((whole - whole.mean(axis=0)) / np.where(spread > 0, spread, 1.0), -4, 4)
    scaled -= scaled.mean(axis=0)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    return scaled @ vectors / np.sqrt(np.maximum(values, LEAST_VARIANCE * values.mean()))


def trained(
    model: str, features: np.ndarray, labels: np.ndarray, tests: np.ndarray, multiplier: float, steps: int,
    bound: float, rate: float, seed: int,
) -> np.ndarray:  # fmt: skip
    """Trains a model by noisy gradient descent with momentum.

    Args:
      model: "linear", or "network" with one hidden layer.
      features: Whitened features, shape (n, d).
      labels: Labels in [-1, 1], shape (n,).
      tests: Features of new records, shape (t, d).
      multiplier: Of `noise_multiplier`.
      steps: Number of steps.
      bound: Bound on the norm of a record's gradient.
      rate: Learning rate.
      seed: Seed of weights and noise.

    Returns:
      Predictions for the new records, shape (t,): the mean over the last half of the steps.
    """
    random, size = np.random.default_rng([seed, steps]), len(labels)
    width = features.shape[1]
    hidden = UNITS if model == "network" else 0
    units = hidden or width
    weights = random.normal(0, 1 / math.sqrt(width), (width, hidden))
    last, moment, total = (
        np.zeros(units + 1),
        [np.zeros((width + 1, hidden)), np.zeros(units + 1)],
        np.zeros(len(tests)),
    )
    weights = np.concatenate([weights, np.zeros((1, hidden))])
    inputs, others = (np.concatenate([each, np.ones((len(each), 1))], axis=1) for each in (features, tests))

    def layer(rows: np.ndarray) -> np.ndarray:
        return np.tanh(rows @ weights) if hidden else rows[:, :-1]

    # A changed label changes one gradient, whose norm is at most the bound.
    deviation = 2 * bound * multiplier
    for step in range(steps):
        found = np.concatenate([layer(inputs), np.ones((size, 1))], axis=1)
        residuals = found @ last - labels
        slopes = last[:-1] * (1 - found[:, :-1] ** 2) if hidden else np.zeros((size, 0))
        norms = np.abs(residuals) * np.sqrt((found**2).sum(axis=1) + (slopes**2).sum(axis=1) * (inputs**2).sum(axis=1))
        kept = residuals * np.minimum(1.0, bound / np.maximum(norms, 1e-12))
        gradients = [inputs.T @ (slopes * kept[:, None]), found.T @ kept]
        for place, (parameters, gradient) in enumerate(zip((weights, last), gradients, strict=True)):
            noised = (gradient + random.normal(0, deviation, gradient.shape)) / size
            moment[place] = MOMENTUM * moment[place] + noised
            parameters[...] = parameters - rate * moment[place]
        if step >= steps // 2:
            total += layer(others) @ last[:-1] + last[-1]
    return total / (steps - steps // 2)


def boosted(features: np.ndarray, labels: np.ndarray, tests: np.ndarray, epsilon: float) -> np.ndarray:
    """Trains DP-EBM with its defaults, whose noise has no seed.

    Args:
      features: Features, shape (n, d).
      labels: Labels in [-1, 1], shape (n,).
      tests: Features of new records, shape (t, d).
      epsilon: The budget, with its default delta.

    Returns:
      Predictions for the new records, shape (t,).
    """
    try:
        privacy = importlib.import_module("interpret.privacy")
    except ImportError:
        sys.exit("DP-EBM is in interpret-core: install it and set PYTHONPATH as the docstring of rival.py says")
    every = np.concatenate([features, tests])
    model = privacy.DPExplainableBoostingRegressor(
        epsilon=epsilon, feature_types=["continuous"] * every.shape[1], n_jobs=1, privacy_target_min=-1,
        privacy_target_max=1, privacy_bounds=np.stack([every.min(axis=0), every.max(axis=0)], axis=1),
    )  # fmt: skip
    return model.fit(features, labels).predict(tests)


def best(name: str, work: Path, model: str, epsilon: float) -> Trial:
    """Finds the best configuration of a model on one data set.

    All configurations are tried with the first seed, and the best `FINALISTS` with all seeds.

    Args:
      name: Name in `RUNS`, of a run of cells.
      work: The work folder of `run.py`, with the prepared data.
      model: In `MODELS`.
      epsilon: The budget.

    Returns:
      The best trial.
    """
    given = RUNS[name]
    path = str(work / "data" / f"{given['data']}.csv")
    dataset = read_dataset(path, Format("csv"), str(given["label"]))
    low, high = float(str(given["label_min"])), float(str(given["label_max"]))
    features = filled(dataset.features) if model == EBM else whitened(dataset.features)
    middle, half = (low + high) / 2, (high - low) / 2
    labels = (np.clip(dataset.labels, low, high) - middle) / half

    def error(setting: tuple[int, float, float], seed: int) -> float:
        train, test = dataset.split(seed)
        parts = features[train], labels[train], features[test]
        if model == EBM:
            found = boosted(*parts, epsilon)
        else:
            found = trained(model, *parts, noise_multiplier(epsilon, setting[0]), *setting, seed)
        return float(((np.clip(found * half + middle, low, high) - dataset.labels[test]) ** 2).mean())

    settings = [(0, 0.0, 0.0)] if model == EBM else product(STEPS, BOUNDS, RATES)
    screened = sorted(settings, key=lambda setting: error(setting, 0))[:FINALISTS]
    losses = {setting: [error(setting, seed) for seed in range(SEEDS)] for setting in screened}
    setting = min(losses, key=lambda each: np.mean(losses[each]))
    return Trial(name, model, epsilon, *setting, float(np.mean(losses[setting])), float(np.std(losses[setting])))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: rival.py WORK_FOLDER [NAME ...]")
    known = {each[:3]: each for each in read_rows("rival", Trial)}
    trials = product(sys.argv[2:] or ["housing_cells", "communities_cells"], MODELS, EPSILONS)
    new = (best(name, Path(sys.argv[1]), *trial) for name, *trial in trials if (name, *trial) not in known)
    write_rows("rival", chain(known.values(), new), Trial)
