"""Beliefs about labels: guesses against brute force, neighbors, and cross-fitting."""

import numpy as np
import pytest
from labeldp.attack.label_beliefs import FOLDS, GuessedLabels, Neighbors, cross_fitted
from labeldp.attack.reconstruction import Guesses, Reconstruction
from labeldp.attack.record_features import FeatureMatrix


@pytest.mark.parametrize("tolerance", [0.0, 1.0, 2.6, 100.0])
def test_guesses_are_those_of_brute_force(tolerance: float) -> None:
    rng = np.random.default_rng(1)
    labels = np.array([0.0, 1, 2, 3, 5, 8, 13, 20])
    guessed = GuessedLabels(labels, tolerance)
    beliefs, truth = rng.dirichlet(np.full(8, 0.3), 200), rng.integers(0, 8, 200)
    right, near = guessed.right(beliefs, truth), guessed.near(beliefs, truth)
    for belief, place, is_right, own in zip(beliefs, truth, right, near, strict=True):
        windows = [(labels >= low) & (labels <= low + 2 * tolerance) for low in labels]
        best = max(windows, key=lambda window: round(belief[window].sum(), 9))
        assert is_right == best[place]
        assert own == pytest.approx(belief[np.abs(labels - labels[place]) <= tolerance].sum())


def test_places_are_clamped_and_rounded() -> None:
    guessed = GuessedLabels(np.array([0.0, 1.0, 2.0]), 0.0)
    assert guessed.places(np.array([-5, 0.4, 0.6, 1.0, 9.0])).tolist() == [0, 0, 1, 1, 2]


def test_neighbors_are_the_closest() -> None:
    numbers = np.array([5.0, 1.0, 3.0, 2.0, 4.0])
    labels, counted = Neighbors(numbers, np.arange(5), 3, 0).find(np.array([0.0, 3.1, 9.0]))
    assert counted.all()
    assert [sorted(numbers[row]) for row in labels[[0, 2]]] == [[1, 2, 3], [3, 4, 5]]
    assert {3.0, 4.0} <= set(numbers[labels[1]])


def test_equal_numbers_are_drawn_from_all_of_them() -> None:
    """Of 1,000 equal numbers, 40 are found, and no other: each of them by somebody."""
    numbers = np.repeat([0.0, 1.0, 2.0], 1000)
    labels, _ = Neighbors(numbers, np.arange(3000), 40, 0).find(np.ones(4000))
    assert labels.min() >= 1000
    assert labels.max() < 2000
    assert len(np.unique(labels)) == 1000


def test_neighbors_stay_the_same() -> None:
    """What a release adds to a belief is measured against the same belief."""
    neighbors, numbers = Neighbors(np.zeros(3000), np.arange(3000), 40, 0), np.zeros(10)
    first, again = (neighbors.find(numbers)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_categories_have_no_neighbors_but_equal_ones() -> None:
    numbers, labels = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 1, 2, 2, 2])
    neighbors = Neighbors(numbers, labels, 5, 0, separate=True)
    beliefs = neighbors.beliefs(np.array([0, 1, 2, 7]), np.full(3, 1 / 3), 1.0)
    third = 1 / 3
    expected = [[2 + third, third, third], [third, 1 + third, third], [third, third, 3 + third], [third] * 3]
    np.testing.assert_allclose(beliefs, np.array(expected) / np.sum(expected, axis=1, keepdims=True))


@pytest.mark.parametrize("classes", [False, True])
def test_no_belief_knows_the_label_that_it_is_about(classes: bool) -> None:
    """Random labels cannot be guessed from a column of different numbers, which trees could learn by heart.

    Ten labels, 2,000 records: 0.1 plus six standard deviations of 0.0067.
    """
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 10, 2000)
    features = FeatureMatrix.of({"id": rng.permutation(2000).astype(float)}, 2000)
    guessed = GuessedLabels(np.arange(10.0), 0.0, classes)
    beliefs = cross_fitted(features, truth, guessed, seed=0)
    right = np.zeros(2000, bool)
    for rows, own in beliefs.blocks():
        np.testing.assert_allclose(own.sum(axis=1), 1)
        assert own.min() > 0
        right[rows] = guessed.right(own, truth[rows])
    assert right.mean() < 0.1 + 6 * 0.0067
    assert sorted(np.bincount(beliefs.folds)) == [2000 // FOLDS] * FOLDS


def test_few_records_of_many_classes() -> None:
    """Of 12 classes, 100 records teach something, and one class without any record stays possible."""
    truth = np.arange(100) % 12
    guessed = GuessedLabels(np.arange(13.0), 0.0, True)
    beliefs = cross_fitted(FeatureMatrix.of({"f": truth.astype(float)}, 100), truth, guessed, seed=0)
    near = np.concatenate([guessed.near(own, truth[rows]) for rows, own in beliefs.blocks()])
    assert near.mean() > 3 / 12
    assert min(own.min() for _, own in beliefs.blocks()) > 0


@pytest.mark.parametrize("classes", [False, True])
def test_what_features_tell_is_believed(classes: bool) -> None:
    """The label is the feature's half, of which every fifth one is another: at least 0.75 of the labels are guessed."""
    rng = np.random.default_rng(3)
    feature = rng.integers(0, 8, 2000).astype(float)
    truth = np.where(rng.random(2000) < 0.2, rng.integers(0, 4, 2000), feature // 2).astype(int)
    guessed = GuessedLabels(np.arange(4.0), 0.0, classes)
    near = np.zeros(2000)
    for rows, own in cross_fitted(FeatureMatrix.of({"f": feature}, 2000), truth, guessed, seed=0).blocks():
        near[rows] = guessed.near(own, truth[rows])
    # 0.85 of the labels are the most likely one: 0.85^2 + 0.15^2 / 3 is the mean belief of who knows all.
    assert 0.66 < near.mean() < 0.85**2 + 0.15**2 / 3 + 6 * 0.36 / 2000**0.5


def test_what_a_center_tells_contradicts_no_epsilon() -> None:
    """Only what released labels add to features and centers is held against epsilon."""
    few, most = (Guesses(np.arange(10_000) % 10 < share, np.full(10_000, 0.5)) for share in (1, 9))
    assert Reconstruction(few, None, most, most, 0.1).contradiction is None
    added = Reconstruction(few, None, most, few, 0.1).contradiction
    assert added is not None
    assert added.value == pytest.approx(0.8)
