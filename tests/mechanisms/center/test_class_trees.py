"""Trees of class counts: the metric of the counts, and what is and is not learned."""

from __future__ import annotations

import numpy as np
import pytest
from labeldp.mechanisms.center.class_logit import LOGIT_UNIT
from labeldp.mechanisms.center.class_trees import CellCounts, boost_classes
from labeldp.mechanisms.center.logit_fit import exact_product, minimized, row_maxima, row_sums, softmax


def drawn(seed: int, effect: float, classes: int = 3) -> tuple[np.ndarray, CellCounts, np.ndarray]:
    """Codes, noised counts of cells, and the truth: the logit of class 0 depends on the first column."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 64, (4000, 5)).astype(np.uint8)
    logits = np.zeros((4000, classes))
    logits[:, 0] = effect * np.where(codes[:, 0] >= 32, 1, -1)
    cells = (codes[:, 0] // 4).astype(np.int64) * 16 + codes[:, 1] // 4
    cells = np.unique(cells, return_inverse=True)[1]
    labels = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    size = int(cells.max()) + 1
    counts = np.bincount(cells * classes + labels, minlength=size * classes).reshape(size, classes)
    noise = random.integers(-2, 3, (size, classes))
    noise[:, -1] = -noise[:, :-1].sum(axis=1)
    return codes, CellCounts(cells, (counts + noise).astype(np.float64), 2.0), logits


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_an_effect_is_learned(classes):
    codes, targets, truth = drawn(1, 1.2, classes)
    flat = np.zeros_like(truth)
    trees, better = boost_classes(codes, targets, flat, [flat] * 3)
    assert not better
    assert len(trees.leaves)
    found = softmax(trees.predict(codes) / LOGIT_UNIT)
    assert np.abs(found - softmax(truth)).mean() < 0.06


def test_noise_has_no_trees_or_small_ones():
    codes, targets, truth = drawn(2, 0.0)
    flat = np.zeros_like(truth)
    trees, _ = boost_classes(codes, targets, flat, [flat] * 3)
    assert np.abs(softmax(trees.predict(codes) / LOGIT_UNIT) - 1 / 3).mean() < 0.03


def test_better_logits_of_the_folds_take_the_place_of_the_given_ones():
    codes, targets, truth = drawn(3, 1.2)
    trees, better = boost_classes(codes, targets, np.zeros_like(truth), [truth] * 3)
    assert better
    assert np.abs(trees.predict(codes)).mean() < 0.4 * LOGIT_UNIT


def test_whitened_residuals_solve_the_covariance_of_counts_and_noise():
    _, targets, _ = drawn(4, 1.0)
    random = np.random.default_rng(5)
    shares = random.dirichlet(np.ones(3), len(targets.counts))
    residuals = targets.residuals(shares)
    found = targets.whitened(residuals, shares)
    projection = np.eye(3) - 1 / 3
    for cell in range(20):
        p, n = shares[cell], targets.records[cell]
        covariance = n * (np.diag(p) - np.outer(p, p)) + targets.spread * projection
        assert covariance @ found[cell] == pytest.approx(residuals[cell], abs=1e-9)
        assert found[cell].sum() == pytest.approx(0, abs=1e-9)
    # The variance of the noise of one count.
    assert targets.spread * projection[0, 0] == pytest.approx(targets.noise)


def test_exact_products_do_not_depend_on_the_order_of_sums():
    random = np.random.default_rng(6)
    whole = random.integers(-5000, 5000, (40, 3000)).astype(np.float64)
    values = random.normal(size=(3000, 4)) * 1e-3
    order = random.permutation(3000)
    found = exact_product(whole, values)
    assert (found == exact_product(whole[:, order], values[order])).all()
    assert found == pytest.approx(whole @ values, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 8, 9, 128])
def test_sums_and_maxima_of_rows_have_the_bits_of_numpys(classes):
    random = np.random.default_rng(7)
    values = random.normal(size=(500, classes)) * 10.0 ** random.integers(-9, 9, (500, classes))
    for each in (values, np.asfortranarray(values), values[::2]):
        assert row_sums(each).tobytes() == np.add.reduce(each, axis=1).tobytes()
        assert row_maxima(each).tobytes() == each.max(axis=1).tobytes()


def test_the_minimizer_finds_the_minimum_of_a_quadratic_and_of_rosenbrocks_function():
    scale = np.array([1.0, 10.0, 1000.0])
    found = minimized(lambda w: (float((scale * (w - 2) ** 2).sum()), 2 * scale * (w - 2)), np.zeros(3), np.ones(3), 60)
    assert found == pytest.approx(np.full(3, 2.0), abs=1e-3)

    def banana(w: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = w
        inner = b - a * a
        return float(100 * inner**2 + (1 - a) ** 2), np.array([-400 * a * inner - 2 * (1 - a), 200 * inner])

    assert minimized(banana, np.array([-1.2, 1.0]), np.ones(2), 300) == pytest.approx(np.ones(2), abs=0.05)
