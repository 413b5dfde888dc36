"""Randomized response against OpenDP: the privacy map, and the distribution of samples."""

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.noise.keyed_words import integer_identities, words
from opendp.measurements import make_randomized_response
from opendp.mod import enable_features

from tests.false_alarms import chi_square_bounds

enable_features("contrib")


@pytest.mark.parametrize("labels", [2, 3, 8, 100])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 20.0])
def test_epsilon_is_that_of_the_privacy_map(labels: int, epsilon: float) -> None:
    """OpenDP computes epsilon from the float probability of the truth, with directed rounding.

    The probability of a lie, 1 - p, is off by an ulp of p, which its logarithm turns into a relative error.
    """
    randomizer = solve("rr", Prior(np.arange(float(labels)), np.ones(labels)), epsilon)
    truth = float(randomizer.probabilities()[0, 0])
    theirs = make_randomized_response(list(range(labels)), truth).map(1)
    error = 4 * 2.0**-53 / (1 - truth) + 4 * 2.0**-53
    assert theirs == pytest.approx(randomizer.certificate().epsilon, abs=error)
    assert randomizer.certificate().epsilon <= epsilon


@pytest.mark.parametrize(("labels", "epsilon"), [(2, 1.0), (4, 0.5), (5, 2.0)])
def test_samples_have_the_same_distribution(labels: int, epsilon: float) -> None:
    size = 2000
    randomizer = solve("rr", Prior(np.arange(float(labels)), np.ones(labels)), epsilon)
    theirs = make_randomized_response(list(range(labels)), float(randomizer.probabilities()[0, 0]))
    for label in (0, labels - 1):
        drawn = words(bytes(32), b"opendp", integer_identities("id", np.arange(size) + label * size))
        ours = randomizer.sample(np.full(size, label), drawn).astype(int)
        counts = [np.bincount(draws, minlength=labels) for draws in (ours, [theirs(label) for _ in range(size)])]
        statistic = ((counts[0] - counts[1]) ** 2 / (counts[0] + counts[1])).sum()
        # OpenDP draws new noise in every run.
        assert statistic <= chi_square_bounds(labels - 1)[1]
