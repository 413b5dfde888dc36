"""Areas, normalized entropy and calibration bins: as scikit-learn has them, and their coverage on released classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from labeldp.training import auc, calibration_bins, estimate, group_auc, normalized_entropy, shares
from sklearn.metrics import average_precision_score, roc_auc_score

SCORES = {"roc": roc_auc_score, "precision_recall": average_precision_score}
SHARES = (0.9, 0.1)


def log_of(records: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True classes, probabilities of a model with ties and of a worse one, and weights, some of them 0."""
    random = np.random.default_rng(seed)
    logit = 1.5 * random.normal(size=records) - 2
    truth = (random.random(records) < 1 / (1 + np.exp(-logit))).astype(int)
    f = np.round(1 / (1 + np.exp(-logit)), 2).clip(0.01, 0.99)
    g = 1 / (1 + np.exp(-logit - 2 * random.normal(size=records)))
    return truth, f, g, random.integers(0, 4, records).astype(float)


def names(places: Any) -> list[str]:
    return [str(int(place)) for place in places]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("curve", SCORES)
def test_areas_of_known_classes_are_those_of_scikit_learn(curve, weighted):
    truth, f, g, weights = log_of(500)
    more: dict[str, Any] = {"curve": curve, "weights": weights if weighted else None}
    score = SCORES[curve]
    known = truth.astype(float)
    value, error = auc(f, None, None, probabilities=known, **more)
    assert value == pytest.approx(score(truth, f, sample_weight=more["weights"]))
    assert error > 0  # Of the sample: no noise is left.
    less = auc(f, None, None, probabilities=known, minus=g, **more).value
    assert less == pytest.approx(value - score(truth, g, sample_weight=more["weights"]))
    parts = group_auc(f, None, None, np.arange(500) % 2, probabilities=known, **more)
    own = None if more["weights"] is None else weights[1::2]
    assert parts.values[1] == pytest.approx(score(truth[1::2], f[1::2], sample_weight=own))
    assert parts.records.tolist() == [250, 250]


@pytest.mark.parametrize("curve", SCORES)
@pytest.mark.parametrize("target", ["records", "population"])
def test_intervals_cover_the_area_on_true_classes(made_classes: Any, draw: Any, curve, target):
    """500 releases of 4,000 records: 92 to 98 % of nominal 95 % intervals have the area, and differences of areas."""
    randomizer, release = made_classes("rr", 1, SHARES)
    rng, score = np.random.default_rng(5), SCORES[curve]
    whole, f, g, weights = log_of(200_000, 9)
    population = score(whole, f, sample_weight=weights), score(whole, f) - score(whole, g)
    truth, f, g, weights = log_of(4000)
    covered = [0, 0]
    for seed in range(500):
        if target == "population":
            truth, f, g, weights = log_of(4000, 100 + seed)
        z = names(draw(randomizer, truth, rng))
        found = (
            auc(f, z, release, curve=curve, target=target, weights=weights),
            auc(f, z, release, curve=curve, target=target, minus=g),
        )
        known = population
        if target == "records":
            known = score(truth, f, sample_weight=weights), score(truth, f) - score(truth, g)
        for place, (one, value) in enumerate(zip(found, known, strict=True)):
            low, high = one.interval()
            covered[place] += low <= value <= high
    assert all(460 <= count <= 490 for count in covered), covered


def test_the_expected_area_of_a_centers_probabilities_has_the_error_of_classes_drawn_from_them():
    random = np.random.default_rng(2)
    p = random.beta(1, 6, 3000)
    f = np.clip(p + 0.1 * random.normal(size=3000), 0, 1)
    value, error = auc(f, None, None, probabilities=p)
    drawn = [roc_auc_score(random.random(3000) < p, f) for _ in range(400)]
    assert abs(np.mean(drawn) - value) < 4 * error / np.sqrt(400) + 1e-3
    assert np.std(drawn) == pytest.approx(error, rel=0.15)


def test_normalized_entropy_is_the_ratio_of_the_log_losses(made_classes: Any, draw: Any):
    randomizer, release = made_classes("rr", 2, SHARES)
    truth, f, g, _ = log_of(4000)
    rng = np.random.default_rng(3)
    z = names(draw(randomizer, truth, rng))
    found = normalized_entropy(f, z, release, baseline=g.clip(1e-3, 1 - 1e-3))
    losses = [estimate("log_loss", each, z, release).value for each in (f, g.clip(1e-3, 1 - 1e-3))]
    assert found.value == pytest.approx(losses[0] / losses[1])
    rate = truth.mean()
    known = -np.log(np.where(truth == 1, f, 1 - f)).mean() / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    covered = 0
    for _ in range(500):
        low, high = normalized_entropy(f, names(draw(randomizer, truth, rng)), release).interval()
        covered += low <= known <= high
    assert 460 <= covered <= 490


def test_calibration_bins_are_shares_by_quantiles_of_the_predictions(made_classes: Any, draw: Any):
    randomizer, release = made_classes("rr", 1, (0.5, 0.3, 0.2))
    random = np.random.default_rng(4)
    p = random.dirichlet(np.ones(3), 3000)
    p[:600] = (0.2, 0.2, 0.6)
    places = np.array([random.choice(3, p=row) for row in p])
    z = names(draw(randomizer, places, random))
    found = calibration_bins(p, z, release, bins=10, of_class="2")
    assert found.records.sum() == 3000
    assert len(found.records) <= 10
    assert (np.diff(found.predicted) > 0).all()
    assert np.average(found.values, weights=found.records) == pytest.approx(shares(z, release).values[2])
    # Calibrated by design: each bin within 5 of its standard errors and those of drawing its classes.
    slack = np.sqrt(found.standard_errors**2 + 0.25 / found.records)
    assert (np.abs(found.values - found.predicted) < 5 * slack).all()
    assert len(calibration_bins(np.full((3000, 3), 1 / 3), z, release, of_class="2").records) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"curve": "lorenz"}, "curve must be one of roc, precision_recall"),
        ({"probabilities": [0.5] * 4}, "either z and release, or probabilities"),
        ({"weights": [1, 1, -1, 1]}, "row 2 of weights is below 0"),
        ({"minus": [0.1]}, "minus"),
        ({"target": "all"}, "target must be one of"),
        ({"of_class": "7"}, "of_class"),
    ],
)
def test_wrong_arguments_of_areas_are_named(made_classes: Any, arguments, message):
    release = made_classes("rr", 2, SHARES)[1]
    with pytest.raises(ValueError, match=message):
        auc([0.1, 0.2, 0.3, 0.4], names([0, 1, 0, 1]), release, **arguments)


def test_a_group_without_the_class_has_no_area_and_numbers_have_none(made_classes: Any, made: Any):
    release = made_classes("rr", 2, SHARES)[1]
    found = group_auc([0.1, 0.2, 0.3, 0.4], names([0, 0, 0, 1]), release, [1, 1, 2, 2])
    assert np.isnan(found.values[0])
    assert np.isfinite(found.values[1])
    with pytest.raises(ValueError, match="not above 0"):
        auc([0.1, 0.2], names([0, 0]), release)
    with pytest.raises(ValueError, match="numbers, without classes"):
        auc([0.1], [1.0], made("unbiased", 1)[1])
    with pytest.raises(ValueError, match="groups have shape"):
        group_auc([0.1, 0.2, 0.3, 0.4], names([0, 1, 0, 1]), release, [1, 2])
    with pytest.raises(ValueError, match="curve must be"):
        group_auc([0.1, 0.2], names([0, 1]), release, [1, 1], curve="lorenz")
