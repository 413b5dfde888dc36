"""Models on noisy labels: they match closed forms, learn from signal, and give the baseline if labels are all noise."""

from typing import Any

import numpy as np
import pytest
from labeldp.study.models import Standardizer, TrainingLabels, linear

RECORDS, FEATURES = 1500, 6


def _task(noise: float, seed: int = 0) -> tuple[np.ndarray, TrainingLabels, np.ndarray, np.ndarray]:
    """Features, noisy labels that depend on two of them, new features, and their noiseless labels."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(2 * RECORDS, FEATURES))
    truth = 3 + features[:, 0] + np.maximum(features[:, 1], 0)
    values = truth[:RECORDS] + np.sqrt(noise) * rng.choice([-1.0, 1.0], RECORDS)
    labels = TrainingLabels(values, float(truth.mean()), float(truth.var()), 1e-4, noise)
    return features[:RECORDS], labels, features[RECORDS:], truth[RECORDS:]


def test_the_baseline_weighs_the_priors_mean_and_the_labels_mean_by_their_precision() -> None:
    values = np.array([0.0, 10.0])
    exact = TrainingLabels(values, 1.0, 4.0, 0.0, 96.0)
    worthless = TrainingLabels(values, 1.0, 4.0, 1e12, 96.0)
    equal = TrainingLabels(values, 1.0, 4.0, 50.0, 96.0)

    assert exact.baseline() == 1.0
    assert worthless.baseline() == pytest.approx(5.0)
    assert equal.baseline() == pytest.approx(3.0)


def test_linear_is_the_posterior_mean_of_its_gaussian_model() -> None:
    """Compared with the conditional mean of the joint Gaussian of training and new labels, without coefficients."""
    features, labels, new, _ = _task(noise=4.0)
    features, new, values = features[:40], new[:5], labels.values[:40]
    labels = TrainingLabels(values, labels.mean, labels.variance, 0.0, labels.noise)
    scale = Standardizer(features)
    rows = np.vstack([scale.transform(features), scale.transform(new)])
    kernel = 0.5 * labels.variance / FEATURES * rows @ rows.T
    among = kernel[:40, :40] + (4.0 + 0.5 * labels.variance) * np.eye(40)
    expected = labels.mean + kernel[40:, :40] @ np.linalg.solve(among, values - labels.mean)

    np.testing.assert_allclose(linear(features, labels, new, 0), expected, rtol=1e-10)


def test_linear_takes_labels_that_are_all_the_same() -> None:
    features, _, new, _ = _task(noise=1.0)
    same = TrainingLabels(np.full(len(features), 4.0), 4.0, 0.0, 0.0, 0.0)

    assert linear(features, same, new, 0).tolist() == [4.0] * len(new)


@pytest.mark.parametrize("name", ["linear", "trees"])
def test_models_learn_through_noise_larger_than_the_signal(name: str) -> None:
    from labeldp.study.models import MODELS

    features, labels, new, truth = _task(noise=9.0)
    predictions = MODELS[name](features, labels, new, 1)

    assert ((predictions - truth) ** 2).mean() < 0.4 * truth.var()


@pytest.mark.parametrize("name", ["linear", "trees"])
def test_missing_features_are_no_obstacle_and_seeds_settle_everything(name: str) -> None:
    from labeldp.study.models import MODELS

    features, labels, new, _ = _task(noise=1.0)
    features[::3, 2] = np.nan
    new[::2, 0] = np.nan
    features[:, 5] = np.nan
    first, again = (MODELS[name](features, labels, new, 8) for _ in range(2))

    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)


def test_standardized_features_have_no_nan_no_outlier_mean_0_and_deviation_1() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(5, 2, size=(1000, 3))
    features[0, 0], features[1, 1], features[:, 2] = 1e9, np.nan, 7.0
    scale: Any = Standardizer(features)
    scaled = scale.transform(features)

    assert np.abs(scaled).max() <= 4
    assert scaled[1, 1] == 0
    assert not scaled[:, 2].any()
    assert scaled[:, 1].mean() == pytest.approx(0, abs=1e-9)
    assert scaled[:, 1].std() == pytest.approx(1, abs=0.01)
