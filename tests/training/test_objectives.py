"""Objectives and weights: derivatives of the losses, the two interfaces of the libraries, and what training gains."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from labeldp.training import LOSSES, block_weights, early_stopping, estimate, evaluation, objective

# Those of numbers; test_class_training has that of classes.
LINEAR = ("squared", "poisson", "logistic")


def loss_of(name: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    base = {"squared": scores**2 / 2, "poisson": np.exp(scores), "logistic": np.log1p(np.exp(scores))}[name]
    return base - y * scores


class Data:
    """Data set as the native interfaces of the libraries have it."""

    def __init__(self, labels: np.ndarray, weights: np.ndarray | None):
        self.labels, self.weights = labels, weights

    def get_label(self) -> np.ndarray:
        return self.labels

    def get_weight(self) -> np.ndarray | None:
        return self.weights


@pytest.mark.parametrize("loss", LINEAR)
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_derivatives_and_interfaces(library: str, loss: str) -> None:
    rng = np.random.default_rng(3)
    scores, labels, weights = rng.normal(size=50), rng.normal(0, 9, 50), rng.uniform(1, 2, 50)
    function = objective(library, loss)
    gradient, hessian = function(labels, scores)
    step = 1e-4
    above, at, below = (loss_of(loss, scores + way * step, labels) for way in (1, 0, -1))
    assert gradient == pytest.approx((above - below) / (2 * step), abs=1e-6)
    assert hessian == pytest.approx((above - 2 * at + below) / step**2, abs=1e-4)
    for data, factor in ((Data(labels, None), 1), (Data(labels, np.array([])), 1), (Data(labels, weights), weights)):
        native = function(scores, data)
        assert native[0] == pytest.approx(gradient * factor)
        assert native[1] == pytest.approx(hessian * factor)
    assert function(labels, scores, sample_weight=weights)[0] == pytest.approx(gradient * weights)


@pytest.mark.parametrize("loss", LINEAR)
def test_gradients_of_released_labels_have_the_mean_of_true_ones(made: Any, loss: str) -> None:
    release = made("unbiased", 1)[1]
    for place, y in enumerate(release.domain):
        z = release.channel.outputs
        gradient, hessian = objective("lightgbm", loss)(release.debiased(z), np.full(len(z), 0.7))
        true, same = objective("lightgbm", loss)(np.array([y]), np.array([0.7]))
        assert release.channel.probabilities[place] @ gradient == pytest.approx(true[0])
        assert hessian.tolist() == pytest.approx([same[0]] * len(z))


def test_extreme_scores_have_finite_derivatives() -> None:
    assert (*LINEAR, "forward") == LOSSES
    for loss in LINEAR:
        for found in objective("xgboost", loss)(np.zeros(2), np.array([-800.0, 800.0])):
            assert np.all(np.isfinite(found))
        assert np.all(objective("xgboost", loss)(np.zeros(2), np.array([-800.0, 800.0]))[1] > 0)


def test_early_stopping_finds_the_best_stage(made: Any, draw: Any) -> None:
    """With the shrunken labels of rr, the naive error stops long before."""
    randomizer, release = made("rr", 3)
    rng = np.random.default_rng(4)
    x = rng.normal(size=40_000)
    places = np.clip(np.rint(5 + 2 * x), 0, 10).astype(int)
    y, z = release.domain[places], draw(randomizer, places, rng)
    stages = [5 + 2 * x * share for share in np.linspace(0.1, 1.5, 15)]
    best = int(np.argmin([np.mean((stage - y) ** 2) for stage in stages]))
    naive = int(np.argmin([np.mean((stage - z) ** 2) for stage in stages]))
    found = early_stopping(iter(stages), z, release)
    assert abs(found.index - best) <= 1 < best - naive
    assert found[1:] == estimate("mean_squared_error", stages[found.index], z, release)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_evaluation_gives_the_corrected_metric(made: Any, draw: Any, library: str) -> None:
    randomizer, release = made("unbiased", 1)
    rng = np.random.default_rng(4)
    z, scores = draw(randomizer, rng.integers(0, 11, 300), rng), rng.normal(size=300)
    for transform, predictions in ((None, scores), (np.exp, np.exp(scores))):
        name, value, *rest = evaluation(library, z, release, transform=transform)(scores, None)
        assert name == "corrected_mean_squared_error"
        assert value == estimate("mean_squared_error", predictions, z, release).value
        assert rest == ([False] if library == "lightgbm" else [])
    with pytest.raises(ValueError, match="is for a validation set of 300 records, not 2"):
        evaluation(library, z, release)(scores[:2], None)


def test_weights_of_releases_have_the_least_variance(made: Any) -> None:
    releases = [made("unbiased", epsilon)[1] for epsilon in (0.5, 1, 4)]
    noise = np.array([release.noise for release in releases])
    assert noise[0] > noise[1] > noise[2]
    weights = block_weights(releases, residual_variance=2.0)
    assert weights.mean() == pytest.approx(1)

    def variance(weights: np.ndarray) -> float:
        return float(weights**2 @ (noise + 2) / weights.sum() ** 2)

    for place in range(3):
        for factor in (0.9, 1.1):
            assert variance(weights * np.where(np.arange(3) == place, factor, 1)) > variance(weights)
    assert block_weights(releases) == pytest.approx(1 / noise * 3 / np.sum(1 / noise))


def test_weights_count_the_records_of_each_release(made: Any) -> None:
    plain = [made("unbiased", epsilon)[1] for epsilon in (1, 4)]
    counted = [replace(each, records=records) for each, records in zip(plain, (100, 900), strict=True)]
    weights = block_weights(counted, 1.0)
    assert (100 * weights[0] + 900 * weights[1]) / 1000 == pytest.approx(1)
    assert weights[1] / weights[0] == pytest.approx((plain[0].noise + 1) / (plain[1].noise + 1))


def test_errors_name_the_argument(made: Any) -> None:
    release = made("unbiased", 1)[1]
    z = release.channel.outputs[:4]
    for call, message in (
        (lambda: objective("catboost"), "library must be one of lightgbm, xgboost, not 'catboost'"),
        (lambda: objective("xgboost", "gamma"), "loss must be one of squared, poisson, logistic, forward, not"),
        (lambda: evaluation("sklearn", z, release), "library must be one of"),
        (lambda: evaluation("xgboost", z + 0.012, release), "is no output of the mechanism"),
        (lambda: evaluation("xgboost", z, release, metric="lift"), "metric must be one of"),
        (lambda: early_stopping([], z, release), "predictions has no stage"),
        (lambda: early_stopping([z], z, release, metric="mean"), "metric must be one of"),
        (lambda: block_weights([]), "there is no release"),
        (lambda: block_weights([release], -1), "residual_variance must be a finite number of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
