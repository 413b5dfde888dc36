"""Cross-validation with a significance test.

Noise passes the test at no more than the stated rate, signal passes it, and no model predicts its training records.
"""

import numpy as np
import pytest
from labeldp.study.models import FOLDS, SIGNIFICANT, best_candidate, cross_validated
from scipy import stats

from tests.false_alarms import count_bounds

RECORDS = 400


def _noise(seed: int, candidates: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(candidates, RECORDS)) * 0.01, rng.normal(size=RECORDS) * 50


def test_predictions_of_nothing_pass_as_rarely_as_the_normal_distribution_says() -> None:
    trials = 2000
    passed = sum(best_candidate(*_noise(seed), 0.0) is not None for seed in range(trials))

    chance = float(stats.norm.sf(SIGNIFICANT))
    assert chance == pytest.approx(1 / 160, rel=0.01)
    assert passed <= count_bounds(trials, chance)[1]


def test_of_significant_candidates_the_one_with_the_least_error_is_chosen() -> None:
    rng = np.random.default_rng(1)
    signal = rng.normal(size=RECORDS)
    labels = 7 + signal + rng.normal(size=RECORDS)
    candidates = np.stack([7 + factor * signal for factor in (0.1, 0.5, 0.9, 3.0)])

    errors = ((candidates - labels) ** 2).mean(axis=1)
    assert best_candidate(candidates, labels, 7.0) == errors.argmin() == 2


def test_a_candidate_that_only_follows_the_labels_too_far_does_not_count() -> None:
    """It is significantly correlated with the labels, but its error is larger than the baseline's."""
    signal = np.random.default_rng(2).normal(size=RECORDS)
    assert best_candidate(np.stack([10 * signal]), signal, 0.0) is None


def test_without_noise_the_baseline_itself_does_not_count() -> None:
    assert best_candidate(np.zeros((3, RECORDS)), np.zeros(RECORDS), 0.0) is None


def test_no_record_is_predicted_by_a_fit_that_saw_it() -> None:
    seen: list[set[int]] = []

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert not set(inside) & set(outside)
        assert set(inside) | set(outside) == set(range(RECORDS))
        seen.append(set(outside))
        return np.zeros((1, len(outside))), np.zeros((1, 3))

    cross_validated(fit, np.ones(RECORDS), 5.0, seed=3)

    assert len(seen) == FOLDS
    assert set().union(*seen) == set(range(RECORDS))
    assert sum(map(len, seen)) == RECORDS


def test_the_prediction_is_the_mean_of_the_chosen_candidates_fits() -> None:
    labels = np.random.default_rng(4).normal(size=RECORDS)
    count = 0

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal count
        count += 1
        # The second candidate predicts every label exactly.
        return np.stack([np.zeros(len(outside)), labels[outside]]), np.array([[0.0, 0.0], [count, 10.0 * count]])

    predictions = cross_validated(fit, labels, 0.0, seed=5)

    middle = (FOLDS + 1) / 2
    assert predictions.tolist() == [middle, 10 * middle]


def test_where_nothing_counts_the_baseline_is_the_answer() -> None:
    _, labels = _noise(6)

    def fit(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -labels[None, outside], np.ones((1, 4))

    assert cross_validated(fit, labels, 0.25, seed=7).tolist() == [0.25] * 4
