"""RPWithPrior: the best interval, compared with grids and the paper's Algorithm 1; the lattice, compared with the
continuous density.

The reference values are computed from the paper's formulas and share no code with the mechanism.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import LOSSES, POISSON, SQUARED, Prior
from labeldp.mechanisms.response.rp_with_prior import (
    RPWithPrior,
    best_interval,
    label_cells,
)

TOTAL = 1 << 62
OUTSIDE = pytest.mark.parametrize("outside", ["clamp", "uniform"])


def random_density(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """1 to 12 cells of random or equal widths; densities with ties, zeros or spikes; total mass 1."""
    k = int(rng.integers(1, 13))
    widths = rng.choice([0.25, 1.0, 4.0], k) if rng.random() < 0.5 else rng.random(k) + 0.01
    densities = [rng.random(k), rng.integers(0, 3, k).astype(float), 10 ** rng.uniform(-5, 0, k)][rng.integers(3)]
    densities[rng.integers(k)] += 0.1
    edges = np.append(0.0, np.cumsum(widths)) - rng.choice([0.0, 3.0])
    return edges, densities / (densities @ np.diff(edges))


def value(edges: np.ndarray, densities: np.ndarray, z: float, epsilon: float, low, high) -> np.ndarray:
    """F(A1, A2), elementwise; 0 for A1 > A2."""
    mass = np.append(0.0, np.cumsum(densities * np.diff(edges)))
    inside = np.interp(high, edges, mass) - np.interp(low, edges, mass)
    return np.where(low <= high, 2 * z * inside / (2 * z + np.maximum(high - low, 0) / math.exp(epsilon)), 0.0)


def algorithm_1(edges: np.ndarray, densities: np.ndarray, z: float, epsilon: float) -> float:
    """Computes the F of the paper's Algorithm 1, corrected: line 23 sets f, and equal densities are skipped."""
    n, a, decay = edges.tolist(), densities.tolist(), math.exp(-epsilon)
    best = 0.0
    for i in range(len(a)):
        for j in range(i, len(a)):
            starts, ends = [n[i], n[i + 1]], [n[j], n[j + 1]]
            if a[i] != a[j]:
                between = sum(a[cell] * (n[cell + 1] - n[cell]) for cell in range(i + 1, j))
                h = a[i] * n[i + 1] + between - a[j] * n[j]
                first = (2 * z * a[j] - decay * h) / (decay * (a[j] - a[i]))
                second = (2 * z * a[i] - decay * h) / (decay * (a[j] - a[i]))
                starts += [first] if n[i] < first < n[i + 1] else []
                ends += [second] if n[j] < second < n[j + 1] else []
            for low in starts:
                for high in ends:
                    best = max(best, float(value(edges, densities, z, epsilon, low, high)))
    return best


# Best interval.


@pytest.mark.parametrize("seed", range(20))
def test_no_interval_of_a_dense_grid_is_better(seed):
    """Tests ten random densities per seed, also against Algorithm 1, which considers stationary points, too."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        edges, densities = random_density(rng)
        z, epsilon = float(np.exp(rng.uniform(-4, 2))), float(np.exp(rng.uniform(-3, 2)))
        low, high, found = best_interval(edges, densities, z, epsilon)
        assert edges[0] <= low < high <= edges[-1]
        assert found == pytest.approx(float(value(edges, densities, z, epsilon, low, high)), rel=1e-12)
        grid = np.unique(np.concatenate([np.linspace(edges[0], edges[-1], 150), edges]))
        assert found >= value(edges, densities, z, epsilon, grid[:, None], grid[None, :]).max() * (1 - 1e-12)
        assert found == pytest.approx(algorithm_1(edges, densities, z, epsilon), rel=1e-12)


def test_a_cell_of_higher_density_is_chosen_for_a_small_z_and_all_of_them_for_a_large_one():
    edges, densities = np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.2, 0.5, 0.15])
    assert best_interval(edges, densities, 1e-6, 1.0)[:2] == (1.0, 2.0)
    low, high, found = best_interval(edges, densities, 1e6, 1.0)
    assert (low, high) == (0.0, 4.0)
    assert found == pytest.approx(1.0, rel=1e-5)
    # With z = 1 and E = e, the whole range has F = 2 / (2 + 4 / e).
    assert best_interval(edges, densities, 1.0, 1.0)[2] >= 2 / (2 + 4 / math.e)


def test_a_density_without_mass_gives_an_empty_interval():
    assert best_interval(np.array([1.0, 2.0, 3.0]), np.zeros(2), 1.0, 1.0) == (1.0, 1.0, 0.0)


def test_edges_that_do_not_ascend_are_refused():
    with pytest.raises(ValueError, match="strictly ascending"):
        best_interval(np.array([0.0, 0.0, 1.0]), np.ones(2), 1.0, 1.0)


def test_label_cells_hold_the_labels_masses():
    prior = Prior(np.array([0.0, 1.0, 5.0]), np.array([0.5, 0.25, 0.25]))
    edges, densities = label_cells(prior)
    assert edges.tolist() == [0.0, 0.5, 3.0, 5.0]
    np.testing.assert_allclose(densities * np.diff(edges), prior.weights, rtol=1e-15)
    with pytest.raises(ValueError, match="too close together"):
        label_cells(Prior(np.array([1.0, np.nextafter(1.0, 2.0)]), np.ones(2)))


# Randomizer.


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    """1 to 60 labels, evenly spaced or not, with ties and zero masses."""
    k = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    labels = np.cumsum(rng.choice([0.25, 1.0, 7.5], k) if draw(st.booleans()) else np.ones(k))
    weights = draw(st.sampled_from([rng.random(k), rng.choice([0.0, 1.0, 2.0], k), 10 ** rng.uniform(-9, 0, k)]))
    weights[rng.integers(k)] += 0.1
    return Prior(labels - draw(st.sampled_from([0.0, 0.25])), weights)


@settings(deadline=None, max_examples=100)
@given(
    prior=priors(),
    epsilon=st.floats(0.01, 20),
    outside=st.sampled_from(["clamp", "uniform"]),
    loss=st.sampled_from(list(LOSSES.values())),
    z=st.sampled_from([None, 0.01, 0.5, 3.0]),
    step=st.sampled_from([None, 0.07, 1.0]),
)
def test_the_certificate_holds_and_rows_sum_exactly(prior, epsilon, outside, loss, z, step):
    if loss is POISSON and z is not None and len(prior.labels) > 1 and z >= prior.labels[-1]:
        with pytest.raises(ValueError, match="too large for a loss that needs outputs >= 0"):
            RPWithPrior(z=z, loss=loss).solve(prior, epsilon)
        return
    randomizer = RPWithPrior(z=z, loss=loss, outside=outside, step=step).solve(prior, epsilon)
    certificate = randomizer.certificate()
    assert certificate.epsilon <= epsilon
    rows = randomizer.weights.tolist()
    assert [sum(row) for row in rows] == [TOTAL] * len(prior.labels)
    assert certificate.ratio == max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
    if loss is POISSON and len(prior.labels) > 1:
        assert randomizer.outputs[0] > 0
    assert math.isfinite(randomizer.expected_loss(prior, loss))


@OUTSIDE
def test_probabilities_are_those_of_the_paper(outside):
    """For labels 0..9, all mass on 3..6 and z = 1, I is [2.5, 6.5]; at step 0.5 a neighborhood has four cells."""
    prior = Prior(np.arange(10.0), np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0]))
    randomizer = RPWithPrior(z=1.0, outside=outside, step=0.5).solve(prior, 1.0)
    np.testing.assert_allclose(randomizer.outputs, np.arange(1.75, 7.5, 0.5), rtol=1e-15)
    scale = 2 + 4 / math.e
    for label, row in zip(prior.labels, randomizer.probabilities(), strict=True):
        centre = min(max(label, 2.5), 6.5)
        near = np.abs(randomizer.outputs - centre) < 1
        expected = np.where(near, 0.5 / scale, 0.5 / (math.e * scale))
        if outside == "uniform" and centre != label:
            expected = np.full(12, 1 / 12)
        np.testing.assert_allclose(row, expected, rtol=1e-13)
    assert randomizer.parameters == {"loss": "squared", "outside": outside, "z": 1.0, "step": 0.5}


@pytest.mark.parametrize("step", [0.3, 1.0, 2.5])
def test_neighbourhoods_are_centred_within_half_a_step_of_the_label(step):
    rng = np.random.default_rng(4)
    prior = Prior(np.cumsum(rng.random(40) + 0.1), rng.random(40))
    z, epsilon = 2.0, 2.0
    low, high, _ = best_interval(*label_cells(prior), z, epsilon)
    randomizer = RPWithPrior(z=z, step=step).solve(prior, epsilon)
    inside = randomizer.weights > 2 * randomizer.weights.min()
    centres = (inside * randomizer.outputs).sum(axis=1) / inside.sum(axis=1)
    assert set(inside.sum(axis=1).tolist()) == {round(2 * z / step)}
    # The lattice shortens the interval by less than a step at each end.
    off = np.abs(centres - np.clip(prior.labels, low, high))
    far = (prior.labels >= low + step) & (prior.labels <= high - step)
    assert far.sum() > 5
    assert np.all(off[far] <= step / 2 + 1e-9)
    assert np.all(off < step)


def test_epsilon_is_used_up():
    prior = Prior(np.arange(20.0), np.ones(20))
    for epsilon in (0.01, 1.0, 20.0):
        assert RPWithPrior(z=1.0).solve(prior, epsilon).certificate().epsilon == pytest.approx(epsilon, rel=1e-6)


def test_the_number_of_outputs_is_bounded():
    rng = np.random.default_rng(5)
    for labels in (np.arange(401.0), np.cumsum(10 ** rng.uniform(-4, 2, 300))):
        for z in (None, 1.0, 70.0):
            assert len(RPWithPrior(z=z).solve(Prior(labels, np.ones(len(labels))), 1.0).outputs) <= 1000


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (RPWithPrior(z=0.0), "z must be a positive number"),
        (RPWithPrior(z=math.inf), "z must be a positive number"),
        (RPWithPrior(step=-1.0), "step must be a positive number"),
        (RPWithPrior(step=math.nan), "step must be a positive number"),
        (RPWithPrior(outside="drop"), "outside must be 'clamp' or 'uniform', not 'drop'"),
        (RPWithPrior(z=1.0, step=1e-8), "use a larger step, or a larger z"),
        (RPWithPrior(z=1e-300), "use a larger step, or a larger z"),
        (RPWithPrior(z=5.0, loss=POISSON), "z 5 is too large for a loss that needs outputs >= 0"),
    ],
)
def test_bad_parameters_are_refused(mechanism, message):
    with pytest.raises(ValueError, match=message):
        mechanism.solve(Prior(np.arange(6.0), np.ones(6)), 1.0)


def test_labels_that_the_loss_is_not_defined_for_are_refused():
    with pytest.raises(ValueError, match="the poisson loss needs labels >= 0"):
        RPWithPrior(loss=POISSON).solve(Prior(np.arange(-1.0, 3.0), np.ones(4)), 1.0)


# Lattice and continuous mechanism.


def mean_square(low: float, high: float, label: float) -> float:
    """The integral of (t - y)^2 over t from low to high."""
    return ((high - label) ** 3 - (low - label) ** 3) / 3


def continuous_loss(prior: Prior, epsilon: float, z: float, low: float, high: float, outside: str) -> float:
    """The expected squared loss of (3.12) or (3.17), in closed form."""
    ratio = math.exp(epsilon)
    scale = 2 * z + (high - low) / ratio
    total = 0.0
    for label, weight in zip(prior.labels.tolist(), prior.weights.tolist(), strict=True):
        centre = min(max(label, low), high)
        near = mean_square(centre - z, centre + z, label)
        everywhere = mean_square(low - z, high + z, label)
        if outside == "uniform" and centre != label:
            total += weight * everywhere / (high - low + 2 * z)
        else:
            total += weight * (near + (everywhere - near) / ratio) / scale
    return total


@OUTSIDE
@pytest.mark.parametrize("seed", range(6))
def test_the_lattice_approaches_the_continuous_mechanism(seed, outside):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 12))
    prior = Prior(np.cumsum(rng.random(k) + 0.1), rng.random(k) ** 2)
    epsilon, z = float(rng.uniform(0.2, 4)), float(rng.uniform(0.1, 1))
    low, high, _ = best_interval(*label_cells(prior), z, epsilon)
    limit = continuous_loss(prior, epsilon, z, low, high, outside)
    errors = []
    for step in (z / 2, z / 8, z / 64, z / 512):
        found = RPWithPrior(z=z, outside=outside, step=step).solve(prior, epsilon).expected_loss(prior, SQUARED)
        errors.append(abs(found / limit - 1))
        # Neighborhoods are displaced by up to half a step, the ends of the interval by up to one step.
        assert errors[-1] <= 3 * step / z
    assert errors[-1] <= 2e-3
    default = RPWithPrior(z=z, outside=outside).solve(prior, epsilon).expected_loss(prior, SQUARED)
    assert default == pytest.approx(limit, rel=0.02)


@OUTSIDE
def test_the_probability_of_the_neighbourhood_approaches_that_of_the_paper(outside):
    """The best interval maximizes F of Lemma 3.3: the probability of an output within z, over labels inside I."""
    prior = Prior(np.arange(30.0), np.random.default_rng(1).random(30))
    epsilon, z = 1.5, 2.0
    low, high, _ = best_interval(*label_cells(prior), z, epsilon)
    randomizer = RPWithPrior(z=z, outside=outside, step=1 / 64).solve(prior, epsilon)
    near = np.abs(randomizer.outputs[None, :] - prior.labels[:, None]) <= z
    inside = (low <= prior.labels) & (prior.labels <= high)
    found = (randomizer.probabilities() * near).sum(axis=1)[inside]
    np.testing.assert_allclose(found, 2 * z / (2 * z + (high - low) / math.exp(epsilon)), rtol=0.01)


# Choice of z.


@OUTSIDE
@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_the_z_chosen_is_no_worse_than_a_grid_of_z(loss, outside):
    """Tested to 1 %: the loss is discontinuous where the interval changes, so samples may miss the minimum."""
    rng = np.random.default_rng(3)
    for epsilon in (0.3, 1.0, 4.0):
        prior = Prior(np.arange(1.0, 31.0), rng.random(30) ** 3)
        chosen = RPWithPrior(loss=loss, outside=outside).solve(prior, epsilon).expected_loss(prior, loss)
        others = [
            RPWithPrior(z=z, loss=loss, outside=outside).solve(prior, epsilon).expected_loss(prior, loss)
            for z in np.geomspace(0.05, 28, 40).tolist()
        ]
        floor = float(prior.weights @ loss.value(prior.labels, prior.labels))
        assert chosen - floor <= (min(others) - floor) * 1.01
