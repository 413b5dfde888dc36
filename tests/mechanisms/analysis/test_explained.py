"""Explained shares are estimated without bias, and their standard errors are those of the estimates."""

from collections.abc import Callable

import numpy as np
import pytest
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.analysis.channel import Channel
from labeldp.mechanisms.analysis.explained import (
    EstimatedLabels,
    estimated_classes,
    estimated_labels,
    explained_share,
    label_bias,
    label_weights,
    measure,
    share_by_position,
    steady_weights,
)
from labeldp.mechanisms.analysis.utility import clipped_utility, utility
from labeldp.mechanisms.center.feature_rows import Categories

RECORDS, DRAWS = 2000, 200


def places(randomizer: Randomizer, of_labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    words = rng.integers(0, 1 << 64, len(of_labels), dtype=np.uint64)
    return np.searchsorted(randomizer.outputs, randomizer.sample(of_labels, words))


def numbers(mechanism: str, of_labels: np.ndarray, rng: np.random.Generator) -> EstimatedLabels:
    """Estimates of labels from 0 to 10, of which these are the places."""
    labels = np.arange(11.0)
    prior = Prior(labels, np.bincount(of_labels, minlength=11))
    randomizer = solve(mechanism, prior, 1.0)
    moments = utility(randomizer, prior)
    channel = Channel(labels, randomizer.outputs, randomizer.probabilities(), prior.weights)
    line = (0.0, 1.0) if moments.unbiased else moments.line
    return estimated_labels(channel, line, places(randomizer, of_labels, rng))


def classes(_: str, of_labels: np.ndarray, rng: np.random.Generator) -> EstimatedLabels:
    prior = Prior(np.arange(3.0), np.bincount(of_labels, minlength=3))
    randomizer = solve("rr", prior, 1.0)
    channel = Channel(prior.labels, randomizer.outputs, randomizer.probabilities(), prior.weights)
    return estimated_classes(channel, places(randomizer, of_labels, rng))


Kind = Callable[[str, np.ndarray, np.random.Generator], EstimatedLabels]


@pytest.mark.parametrize(("kind", "mechanism"), [(numbers, "unbiased"), (numbers, "rr"), (classes, "rr")])
def test_share_of_given_predictions(kind: Kind, mechanism: str) -> None:
    """The mean over draws is the true share, and two standard errors hold it in nine of ten or more."""
    rng = np.random.default_rng(1)
    score = rng.normal(size=RECORDS)
    noisy = score + rng.normal(size=RECORDS)
    if kind is numbers:
        of_labels = np.clip(np.rint(5 + 1.5 * noisy), 0, 10).astype(int)
        truth, given = of_labels[:, None].astype(float), (4.7 + 1.5 * score)[:, None]
    else:
        of_labels = np.digitize(noisy, [-1, 1])
        truth = np.eye(3)[of_labels]
        given = np.stack([0.5 - 0.2 * score, np.full(RECORDS, 0.3), 0.2 + 0.2 * score], axis=1)
    variance = truth.var(axis=0).sum()
    true = 1 - ((truth - given) ** 2).mean(axis=0).sum() / variance
    found = []
    for _ in range(DRAWS):
        estimates = kind(mechanism, of_labels, rng)
        found.append(explained_share(estimates.labels, given.reshape(estimates.labels.shape), estimates.variance))
    values, errors, least = np.array(found).T
    assert np.mean(least <= true) >= 0.95
    # The ratio of two estimates is right to first order in the relative error of the variance.
    assert abs(np.mean(values) - true) < 4 * np.std(values) / np.sqrt(DRAWS) + 0.03 * true
    # 0.9 is 3 standard deviations of the number of hits below 95 %.
    assert np.mean(np.abs(values - true) <= 2 * errors) >= 0.9


def test_ridge_is_measured_on_records_that_it_has_not_seen() -> None:
    """Features without a relation to the label explain nothing, up to two standard errors; others what they do."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(4000, 30))
    columns = {f"f{i}": column for i, column in enumerate(features.T)}
    blind = np.clip(np.rint(5 + 2 * rng.normal(size=4000)), 0, 10).astype(int)
    seeing = np.clip(np.rint(5 + 1.5 * features[:, 0] + 1.5 * rng.normal(size=4000)), 0, 10).astype(int)
    for of_labels, true in ((blind, 0.0), (seeing, 0.5)):
        found = measure(numbers("unbiased", of_labels, rng), columns)
        assert found is not None
        assert found.seen == 30
        assert abs(found.share.value - true) <= 3 * found.share.error


def test_frequent_values_of_a_category_are_seen() -> None:
    """Whatever their order, and beside any number of rare ones; values that nearly all differ are no feature."""
    rng, size = np.random.default_rng(3), 20_000
    values = tuple(f"v{i}" for i in range(400))
    codes = np.where(rng.random(size) < 0.1, rng.integers(0, 400, size), rng.geometric(0.05, size) - 1)
    effects = rng.normal(size=400)
    of_labels = np.clip(np.rint(5 + 1.5 * effects[codes] + 1.5 * rng.normal(size=size)), 0, 10).astype(int)
    estimates, shares = numbers("unbiased", of_labels, rng), []
    ids = Categories(np.arange(size), tuple(map(str, range(size))))
    for order in (np.arange(400), rng.permutation(400)):
        inverse = np.argsort(order)
        column = Categories(inverse[codes], tuple(values[place] for place in order))
        found = measure(estimates, {"id": ids, "category": column, "same": Categories(np.zeros(size, int), ("a",))})
        assert found is not None
        assert found.seen == 1
        shares.append(found.share)
    assert shares[0] == shares[1]
    of_levels = np.bincount(codes, of_labels) / np.maximum(np.bincount(codes), 1)
    # A tenth of the records have mostly rare values, whose effects are not seen.
    true = of_levels[codes].var() / of_labels.var()
    assert abs(shares[0].value - 0.95 * true) <= 2 * shares[0].error + 0.05 * true


@pytest.mark.parametrize(("mechanism", "parameters"), [("rr_on_bins", {}), ("rr", {}), ("bias_limited", {"bias": 0.3})])
def test_estimates_of_biased_labels_rise_with_true_ones(mechanism: str, parameters: dict[str, float]) -> None:
    """What a linear model explains is neither larger nor smaller by them."""
    prior = Prior(np.arange(21.0), 1 / np.arange(1.0, 22))
    randomizer = solve(mechanism, prior, 1.0, **parameters)
    channel = Channel(prior.labels, randomizer.outputs, randomizer.probabilities(), prior.weights)
    means = channel.probabilities @ label_weights(channel, None, 1000)
    off = prior.labels - prior.weights @ prior.labels
    assert prior.weights @ (off * means) == pytest.approx(prior.weights @ off**2)


@pytest.mark.parametrize("mechanism", ["unbiased", "bias_limited", "rr_on_bins"])
@pytest.mark.parametrize("records", [30, 30_000])
def test_what_clipping_takes_off_is_corrected_once(mechanism: str, records: int) -> None:
    """Estimates of clipped residuals rise no faster than these, and risk less than those without this correction."""
    whole = Prior(np.arange(-10.0, 11), np.exp(-np.abs(np.arange(-10.0, 11)) / 3))
    ends = np.clip(whole.labels, -4, 4)
    prior = Prior(np.arange(-4.0, 5), np.bincount((ends + 4).astype(int), whole.weights))
    parameters = {"bias": 0.3} if mechanism == "bias_limited" else {}
    randomizer = solve(mechanism, prior, 1.0, **parameters)
    channel = Channel(
        prior.labels, randomizer.outputs, randomizer.probabilities(), prior.weights, (whole.labels, whole.weights)
    )
    line = (0.0, 1.0) if mechanism == "unbiased" else clipped_utility(randomizer, whole).line
    weights = label_weights(channel, line, records)
    means = (channel.probabilities @ weights)[(ends + 4).astype(int)]
    spread = whole.weights * whole.labels
    assert 0.5 * (records > 30) < spread @ means / (spread @ whole.labels) < 1

    def risk(weights: np.ndarray) -> float:
        variance = float(prior.weights @ channel.covariance(weights, weights))
        return label_bias(channel, weights) ** 2 + variance / records

    assert channel.line is not None
    without = (channel.outputs - channel.line[0]) / channel.line[1]
    apart = without + channel.weights(channel.excess(*channel.beyond[:2]), records)
    # Weights are the best ones under a prior of which a twentieth is spread.
    assert risk(weights) < 1.03 * min(risk(without), risk(apart))

    # A feature that moves all residuals by a step moves those with less noise by a step, or as the others.
    steady = steady_weights(channel, weights, records)
    noise = [channel.prior @ channel.covariance(each, each) for each in (steady, weights)]
    assert noise[0] <= noise[1]
    after = np.clip(whole.labels + 1, -4, 4)

    def moved(weights: np.ndarray) -> float:
        means = channel.probabilities @ weights
        return float(whole.weights @ (means[(after + 4).astype(int)] - means[(ends + 4).astype(int)]))

    assert abs(moved(steady) - 1) <= max(0.1, abs(moved(weights) - 1))


@pytest.mark.parametrize(("kind", "mechanism"), [(numbers, "unbiased"), (numbers, "rr_on_bins"), (classes, "rr")])
def test_positions_that_tell_labels(kind: Kind, mechanism: str) -> None:
    """Sorted records, also in each of two files, are told; those of which positions tell a quarter never are.

    Estimates by rr_on_bins have a bias, so that they tell less, or more, of labels that are sorted.
    """
    rng, records = np.random.default_rng(3), 10_000
    positions, within = np.arange(records) / records, np.arange(records) % 5000 / 5000
    some = rng.normal(size=records) + 2 * (positions - 0.5)
    truth = np.argsort(np.argsort(some)) * 11 // records if kind is numbers else np.digitize(some, [-1, 1])
    by_rank = np.sort(truth)
    halves = np.concatenate([by_rank[::2], by_rank[1::2]])
    for sorted_truth in (by_rank, halves):
        share = share_by_position(kind(mechanism, sorted_truth, rng), [within, positions])
        assert share is not None
        assert mechanism == "rr_on_bins" or 0.7 < share < 1.3
    for _ in range(20):
        assert share_by_position(kind(mechanism, truth, rng), [within, positions]) is None
