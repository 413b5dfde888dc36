"""The share of epsilon that a linear center gets: it follows from n, epsilon and the features."""

import itertools

import numpy as np
import pytest
from labeldp.mechanisms.center import linear_center
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center

EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)


@pytest.fixture(scope="module")
def sample() -> dict[str, np.ndarray]:
    """Eight features, some of them correlated."""
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(4000, 8))
    numbers[:, 4:] += numbers[:, :4]
    return {f"x{place}": column for place, column in enumerate(numbers.T)}


def test_the_share_falls_with_epsilon_and_leaves_the_labels_most_of_a_large_one(sample: dict[str, np.ndarray]) -> None:
    """At a large epsilon, a model learns from the labels themselves what the center missed."""
    shares = [design_center(sample, 16_000, epsilon, 64).epsilon / epsilon for epsilon in EPSILONS]

    assert all(later <= earlier + 1e-6 for earlier, later in itertools.pairwise(shares))
    assert shares[0] > 0.5
    assert 0 < shares[-1] <= 0.04


def test_more_records_need_a_smaller_share(sample: dict[str, np.ndarray]) -> None:
    shares = [design_center(sample, records, 0.5, 64).epsilon for records in (2_000, 20_000, 200_000)]

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1] > 0


def test_of_shares_that_are_close_to_the_best_the_largest_is_taken(
    sample: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = design_center(sample, 16_000, 0.3, 64).epsilon
    monkeypatch.setattr(linear_center, "CLOSE", 1.0)
    assert chosen > design_center(sample, 16_000, 0.3, 64).epsilon


def test_the_a_priori_noise_of_labels_falls_as_that_of_the_best_mechanisms_does() -> None:
    """Against the closed forms: two outputs at the ends at small epsilon, staircase noise at large epsilon."""
    for epsilon in (0.01, 0.5, 1.0):
        found = linear_center._learned(1e12, 1.0, 1, epsilon)
        assert found == pytest.approx(1 / 4 / np.tanh(epsilon / 2) ** 2, rel=1e-6)
    for epsilon in (4.0, 8.0, 20.0):
        decay = np.exp(-epsilon)
        stairs = (2 ** (-2 / 3) * decay ** (2 / 3) * (1 + decay) ** (2 / 3) + decay) / (1 - decay) ** 2
        assert linear_center._learned(1e12, 1.0, 1, epsilon) == pytest.approx(stairs, rel=1e-6)


def test_positions_are_the_indices_before_they_are_rounded(sample: dict[str, np.ndarray]) -> None:
    design = design_center(sample, 4000, 1.0, 64)
    center = LinearCenter(design, 30, (0,) * design.map.size, (7 << 16, *(3 << 16 for _ in design.signal)))
    positions, indices = center.positions(sample), center.indices(sample)

    assert np.abs(positions - indices).max() <= 0.5
    np.testing.assert_array_equal(np.floor(positions + 0.5), indices)
    assert (positions.min(), positions.max()) == (0, 29), "they are clipped to the domain, too"
    assert len(np.unique(positions)) > 1000
