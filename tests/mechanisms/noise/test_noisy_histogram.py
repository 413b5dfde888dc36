"""Noisy histogram: its noise, its key and its differential privacy."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.noise import noisy_histogram
from labeldp.mechanisms.noise.count_estimates import estimate_counts
from labeldp.mechanisms.noise.discrete_laplace import ByteStream, discrete_laplace
from labeldp.mechanisms.noise.noisy_histogram import noisy_prior, noisy_priors
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance
from opendp.mod import enable_features

KEY = bytes(range(32))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.sampled_from([0.1, 0.5, 1.0, 4.0]))
def test_the_noisy_prior_is_estimated_from_counts_plus_keyed_discrete_noise(counts, epsilon):
    noise = discrete_laplace(ByteStream(KEY, b"prior"), Fraction(2) / Fraction(epsilon), len(counts))
    noised = np.array([count + int(draw) for count, draw in zip(counts, noise, strict=True)])
    labels = np.arange(len(counts), dtype=float)
    prior = noisy_prior(labels, np.array(counts), epsilon, KEY)
    weights = estimate_counts(noised, max(sum(counts), 1), 2 / epsilon)
    np.testing.assert_allclose(prior.weights, weights / weights.sum(), rtol=1e-14)
    np.testing.assert_array_equal(noisy_prior(labels, np.array(counts), epsilon, KEY).weights, prior.weights)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.sampled_from([0.01, 0.5, 4.0]), st.integers(0, 9))
def test_several_draws_have_the_bits_of_each_alone(counts, epsilon, draws):
    keys, labels = [bytes([draw] * 32) for draw in range(draws)], np.arange(float(len(counts)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(noisy_histogram, "_MOST_COUNTS", 4 * len(counts))
        together = noisy_priors(labels, np.array(counts), epsilon, keys)
    alone = [noisy_prior(labels, np.array(counts), epsilon, key) for key in keys]
    assert [prior.weights.tobytes() for prior in together] == [prior.weights.tobytes() for prior in alone]


def test_the_noisy_prior_depends_on_its_key():
    labels, counts = np.arange(5.0), np.full(5, 1000)
    first, second = (noisy_prior(labels, counts, 0.1, bytes([byte] * 32)).weights for byte in (1, 2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.5])
def test_the_noisy_histogram_is_differentially_private(epsilon, monkeypatch):
    """The largest ratio of a noisy histogram's probabilities under neighboring datasets is exactly exp(e1).

    The discrete Laplace of scale s has P(z) proportional to exp(-|z| / s), so the logarithm of the ratio of two
    histograms' probabilities is a rational number, compared here without rounding.
    """
    asked: list[tuple[Fraction, int]] = []

    def spy(stream: ByteStream, scale: Fraction, count: int) -> np.ndarray:
        asked.append((scale, count))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(noisy_histogram, "discrete_laplace", spy)
    records = 2
    noisy_prior(np.arange(3.0), np.array([records, 0, 0]), epsilon, KEY)
    ((scale, cells),) = asked
    assert cells == 3

    def histogram(labels: tuple[int, ...]) -> list[int]:
        return [labels.count(label) for label in range(cells)]

    noisy_histograms = list(itertools.product(range(-2, records + 3), repeat=cells))
    worst = Fraction(0)
    for labels in itertools.product(range(cells), repeat=records):
        for changed, replacement in itertools.product(range(records), range(cells)):
            neighbour = (*labels[:changed], replacement, *labels[changed + 1 :])
            pairs = list(zip(histogram(labels), histogram(neighbour), strict=True))
            for noisy in noisy_histograms:
                log_ratio = sum(
                    (abs(out - there) - abs(out - here) for out, (here, there) in zip(noisy, pairs, strict=True))
                ) / Fraction(scale)
                worst = max(worst, log_ratio)
    assert worst == Fraction(epsilon)


def test_the_noisy_prior_of_many_records_is_close_to_the_truth():
    counts = np.array([600_000, 250_000, 150_000])
    prior = noisy_prior(np.arange(3.0), counts, 0.5, KEY)
    # A draw of scale 4 exceeds 120 with a probability of about 1e-13.
    np.testing.assert_allclose(prior.weights, counts / counts.sum(), atol=400 / counts.sum())


@pytest.mark.parametrize("epsilon", [0.0625, 0.5, 1.0, 3.0])
def test_the_scale_of_the_noise_costs_epsilon_by_opendp(epsilon, monkeypatch):
    """OpenDP's privacy map of the Laplace mechanism on a vector, for the sensitivity 2 of a histogram."""
    scales = []

    def recorded(stream, scale, count):
        scales.append(float(scale))
        return discrete_laplace(stream, scale, count)

    monkeypatch.setattr(noisy_histogram, "discrete_laplace", recorded)
    noisy_prior(np.arange(3.0), np.array([1, 2, 3]), epsilon, KEY)
    enable_features("contrib")
    measurement = make_laplace(vector_domain(atom_domain(T=int)), l1_distance(T=int), scale=scales[0])
    assert measurement.map(2) == pytest.approx(epsilon, rel=1e-15)
