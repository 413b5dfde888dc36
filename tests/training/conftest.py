"""Releases in memory for the tests of the kit, and draws of their labels."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.analysis.channel import Channel
from labeldp.mechanisms.analysis.utility import utility
from labeldp.training import Release
from labeldp.training.release import ClassRelease

Made = tuple[Randomizer, Release]


def make(mechanism: str, labels: np.ndarray, weights: np.ndarray, epsilon: float) -> Made:
    """A randomizer and its release, without a center."""
    prior = Prior(labels, weights)
    randomizer = solve(mechanism, prior, epsilon)
    moments = utility(randomizer, prior)
    channel = Channel(labels, randomizer.outputs, randomizer.probabilities(), prior.weights)
    line = (0.0, 1.0) if moments.unbiased else moments.line
    return randomizer, Release("y", None, labels, channel, mechanism, epsilon, line, moments.unbiased)


@pytest.fixture(scope="session")
def made() -> Callable[..., Made]:
    """Function (mechanism, epsilon, labels=11) -> a randomizer of labels from 0 to 10 and its release; kept."""
    kept: dict[tuple[str, float, int], Made] = {}

    def find(mechanism: str, epsilon: float, labels: int = 11) -> Made:
        key = mechanism, epsilon, labels
        if key not in kept:
            grid = np.linspace(0, 10, labels)
            kept[key] = make(mechanism, grid, np.exp(-grid / 3), epsilon)
        return kept[key]

    return find


@pytest.fixture(scope="session")
def draw() -> Callable[[Randomizer, np.ndarray, np.random.Generator], np.ndarray]:
    """Function (randomizer, places of true labels, generator) -> released labels."""

    def sample(randomizer: Randomizer, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return randomizer.sample(places, rng.integers(0, 1 << 64, len(places), dtype=np.uint64))

    return sample


@pytest.fixture(scope="session")
def made_classes() -> Callable[..., Made]:
    """Function (mechanism, epsilon, shares) -> a randomizer of classes and its release; names are their places."""
    kept: dict[tuple[str, float, tuple[float, ...]], Made] = {}

    def find(mechanism: str, epsilon: float, shares: Sequence[float]) -> Made:
        key = mechanism, epsilon, tuple(shares)
        if key not in kept:
            names = tuple(map(str, range(len(shares))))
            prior = Prior(np.arange(len(shares), dtype=float), np.array(shares))
            randomizer = solve(mechanism, prior, epsilon)
            channel = Channel(prior.labels, randomizer.outputs, randomizer.probabilities(), prior.weights)
            kept[key] = (
                randomizer,
                ClassRelease("y", None, prior.labels, channel, mechanism, epsilon, None, False, 0.0, None, names),
            )
        return kept[key]

    return find
