"""Corrected metrics: their means and errors by enumerating all outputs, their coverage, and the choice of models."""

import itertools
from typing import Any

import numpy as np
import pytest
from labeldp.training import Estimate, Release, compare, estimate, group_means

EXACT = [("unbiased", 0.5), ("unbiased", 2), ("rr", 1), ("laplace", 1)]
F, G = np.array([2.2, 7.5, 4.0]), np.array([3.0, 6.0, 4.5])
PLACES = np.array([1, 3, 2])


def mean_and_deviation(release: Release, places: np.ndarray, function: Any) -> tuple[float, float]:
    """Mean and standard deviation of a function of the released labels of a few records, over all outputs."""
    chances, values = [], []
    outputs = range(len(release.channel.outputs))
    for drawn in itertools.product(outputs, repeat=len(places)):
        chances.append(np.prod(release.channel.probabilities[places, drawn]))
        values.append(function(release.channel.outputs[[*drawn]]))
    mean = float(np.dot(chances, values))
    return mean, float(np.sqrt(np.dot(chances, (np.array(values) - mean) ** 2)))


def slope(f: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(f, y, 1)[0])


@pytest.mark.parametrize(("mechanism", "epsilon"), EXACT)
def test_estimates_have_the_mean_of_the_true_metric(made: Any, mechanism: str, epsilon: float) -> None:
    """All outputs of three records with five labels, each with its probability."""
    release = made(mechanism, epsilon, 5)[1]
    y = release.domain[PLACES]
    truth = {
        "mean_squared_error": np.mean((F - y) ** 2),
        "mean_absolute_error": np.mean(np.abs(F - y)),
        "calibration_slope": slope(F, y),
        "mean": y.mean(),
    }
    for metric, value in truth.items():
        given = None if metric == "mean" else F
        mean, _ = mean_and_deviation(release, PLACES, lambda z, m=metric, f=given: estimate(m, f, z, release).value)
        assert mean == pytest.approx(value, abs=1e-8), metric
    for metric, value in (
        ("mean_squared_error", np.mean((F - y) ** 2 - (G - y) ** 2)),
        ("mean_absolute_error", np.mean(np.abs(F - y) - np.abs(G - y))),
    ):
        mean, _ = mean_and_deviation(release, PLACES, lambda z, m=metric: compare(F, G, z, release, metric=m).value)
        assert mean == pytest.approx(value, abs=1e-8), metric
    mean, _ = mean_and_deviation(release, PLACES, lambda z: group_means(z, [1, 2, 1], release).values[0])
    assert mean == pytest.approx((y[0] + y[2]) / 2, abs=1e-8)


@pytest.mark.parametrize(("mechanism", "epsilon"), EXACT)
def test_standard_errors_are_those_of_the_noise(made: Any, draw: Any, mechanism: str, epsilon: float) -> None:
    """The mean of the squared standard error over many records is the variance, computed label by label."""
    randomizer, release = made(mechanism, epsilon, 5)
    rng = np.random.default_rng(1)
    places = rng.integers(0, 5, 40_000)
    y, f = release.domain[places], rng.uniform(0, 10, len(places))
    z = draw(randomizer, places, rng)
    for metric, given in (("mean", None), ("mean_squared_error", f), ("mean_absolute_error", f)):
        variance = 0.0
        for place in range(5):
            of_label = f[places == place][:50]
            # The estimate of a single record, for each output.
            values = np.array([
                [
                    one_record(metric, release, None if given is None else value, output)
                    for output in release.channel.outputs
                ]
                for value in of_label
            ])  # fmt: skip
            chances = release.channel.probabilities[place]
            variance += np.mean(y == release.domain[place]) * np.mean(values**2 @ chances - (values @ chances) ** 2)
        found = estimate(metric, given, z, release).standard_error
        assert found == pytest.approx(np.sqrt(variance / len(places)), rel=0.1), metric


def one_record(metric: str, release: Release, prediction: float | None, z: float) -> float:
    return estimate(metric, None if prediction is None else [prediction], [z], release).value


def log_of(release: Release, records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of true labels, predictions of a calibrated model, and those of a worse one."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=records)
    places = np.clip(np.rint(2.5 + 1.5 * x + rng.normal(size=records)), 0, 10).astype(int)
    return places, 2.6 + 1.35 * x, 2.6 + 0.7 * x


COVERED = [
    *itertools.product(
        ["mean", "group", "mean_squared_error", "mean_absolute_error", "calibration_slope", "lift", "compared"],
        [("unbiased", 0.5), ("rr", 1)],
    )
]


@pytest.mark.parametrize(("statistic", "release_of"), COVERED, ids=str)
def test_intervals_cover_the_true_metric(made: Any, draw: Any, statistic: str, release_of: tuple[str, float]) -> None:
    """1,000 releases of 2,000 records: 93 to 97 % of nominal 95 % intervals have the metric on true labels."""
    randomizer, release = made(*release_of)
    places, f, g = log_of(release, 2000)
    y = release.domain[places]
    groups = np.arange(2000) % 4
    top = np.argsort(-f, kind="stable")[:200]
    truth = {
        "mean": y.mean(),
        "group": y[groups == 2].mean(),
        "mean_squared_error": np.mean((f - y) ** 2),
        "mean_absolute_error": np.mean(np.abs(f - y)),
        "calibration_slope": slope(f, y),
        "lift": y[top].mean() / y.mean(),
        "compared": np.mean((f - y) ** 2 - (g - y) ** 2),
    }[statistic]
    rng = np.random.default_rng(17)
    covered = 0
    for _ in range(1000):
        z = draw(randomizer, places, rng)
        if statistic == "compared":
            found = compare(f, g, z, release)
        elif statistic == "group":
            means = group_means(z, groups, release)
            found = Estimate(means.values[2], means.standard_errors[2])
        else:
            found = estimate(statistic, None if statistic == "mean" else f, z, release)
        low, high = found.interval()
        covered += low <= truth <= high
    print(f"coverage of {statistic}, {release_of}: {covered / 10} %")
    assert 930 <= covered <= 970


@pytest.mark.parametrize("statistic", ["mean_squared_error", "mean_absolute_error", "calibration_slope", "lift"])
def test_intervals_for_the_population_cover_its_metric(made: Any, draw: Any, statistic: str) -> None:
    """Records and noise are drawn anew; the noise is small, so that both count."""
    randomizer, release = made("unbiased", 4)
    places, f, _ = log_of(release, 200_000)
    y = release.domain[places]
    top = f >= np.quantile(f, 0.9)
    truth = {
        "mean_squared_error": np.mean((f - y) ** 2),
        "mean_absolute_error": np.mean(np.abs(f - y)),
        "calibration_slope": slope(f, y),
        "lift": y[top].mean() / y.mean(),
    }[statistic]
    rng = np.random.default_rng(23)
    covered = 0
    for _ in range(1000):
        rows = rng.integers(0, len(f), 1000)
        found = estimate(statistic, f[rows], draw(randomizer, places[rows], rng), release, target="population")
        low, high = found.interval()
        covered += low <= truth <= high
    print(f"coverage of {statistic} of the population: {covered / 10} %")
    assert 930 <= covered <= 970


def test_metrics_around_a_center_are_those_of_the_residuals(made: Any, draw: Any) -> None:
    """A release around a center whose residuals are -5 to 5: predictions and labels move with the center."""
    randomizer, plain = made("unbiased", 2)
    channel = plain.channel
    moved = type(channel)(channel.labels - 5, channel.outputs - 5, channel.probabilities, channel.prior)
    release = Release("y", "c", np.linspace(0, 100, 101), moved, "unbiased", 2, (0.0, 1.0), True)
    places, f, g = log_of(plain, 600)
    rng = np.random.default_rng(4)
    z, center = draw(randomizer, places, rng), rng.integers(5, 96, 600).astype(float)
    shift = center - 5
    for metric in ("mean_squared_error", "mean_absolute_error"):
        around = estimate(metric, f + shift, z + shift, release, center=center)
        assert around == pytest.approx(estimate(metric, f, z, plain))
        differences = compare(f + shift, g + shift, z + shift, release, center=center, metric=metric)
        assert differences == pytest.approx(compare(f, g, z, plain, metric=metric))
    mean = estimate("mean", None, z + shift, release, center=center)
    assert mean.value == pytest.approx(estimate("mean", None, z, plain).value + shift.mean())
    assert mean.standard_error == pytest.approx(estimate("mean", None, z, plain).standard_error)
    y = plain.domain[places] + shift
    found = estimate("calibration_slope", f + shift, z + shift, release, center=center)
    assert abs(found.value - slope(f + shift, y)) < 4 * found.standard_error


@pytest.fixture(scope="module")
def clipped(made: Any) -> Release:
    """A release around a center: residuals from -10 to 10, clipped to -5 to 5."""
    channel = made("unbiased", 2)[1].channel
    residuals = np.arange(-10.0, 11)
    weights = np.exp(-np.abs(residuals - 1) / 3)
    weights /= weights.sum()
    ends = np.clip(residuals, -5, 5).astype(int) + 5
    prior = np.bincount(ends, weights)
    own = type(channel)(channel.labels - 5, channel.outputs - 5, channel.probabilities, prior, (residuals, weights))
    share = float(weights[np.abs(residuals) > 5].sum())
    return Release("y", "c", np.linspace(0, 100, 101), own, "unbiased", 2, (0.0, 1.0), True, share)


@pytest.mark.parametrize("clipping", ["ends", "average"])
def test_clipped_residuals_have_the_mean_of_the_histogram(clipped: Release, clipping: str) -> None:
    """Residuals follow the histogram, each with its mean over the noise: sums over all of it have no bias."""
    channel = clipped.channel
    assert channel.whole is not None
    residuals, weights = channel.whole
    center, u = 40.0, 1.7
    metrics = {
        "mean": center + residuals,
        "mean_squared_error": (u - residuals) ** 2,
        "mean_absolute_error": np.abs(u - residuals),
    }
    places = np.clip(residuals, -5, 5).astype(int) + 5
    # Weights for clipped residuals have the less bias, the more records there are.
    records = 100_000
    for metric, true in metrics.items():
        given = None if metric == "mean" else np.full(records, center + u)
        values = np.array([
            estimate(
                metric, given, np.full(records, center + output), clipped, center=np.full(records, center),
                clipping=clipping,
            ).value
            for output in channel.outputs
        ])  # fmt: skip
        means = (channel.probabilities @ values)[places]
        assert weights @ means == pytest.approx(weights @ true, rel=1e-3), metric
        # Inside of the range, `average` is off by the mean excess.
        inside = np.abs(residuals) < 5
        error = np.abs(means - true)[inside].max()
        excess = float(weights @ (true - true[np.searchsorted(residuals, np.clip(residuals, -5, 5))]))
        assert error == pytest.approx(0 if clipping == "ends" else excess, abs=0.1 * excess)


def test_predictions_of_clipped_residuals(clipped: Release, made: Any, draw: Any) -> None:
    """A model that predicts which residuals are clipped: `ends` covers the difference of two models, `average` not."""
    randomizer, _ = made("unbiased", 2)
    assert clipped.channel.whole is not None
    rng = np.random.default_rng(3)
    residuals = rng.choice(clipped.channel.whole[0], 4000, p=clipped.channel.whole[1])
    center = rng.integers(20, 81, 4000).astype(float)
    places = np.clip(residuals, -5, 5).astype(int) + 5
    f = center + 0.5 * np.clip(residuals, -5, 5)
    truth = np.mean((f - center - residuals) ** 2 - residuals**2)
    covered = {"ends": 0, "average": 0}
    for _ in range(300):
        z = center + draw(randomizer, places, rng) - 5
        for clipping in covered:
            low, high = compare(f, center, z, clipped, center=center, clipping=clipping).interval()
            covered[clipping] += int(low <= truth <= high)
    print(f"coverage of a difference with {clipped.clipped:.0%} clipped: {covered} of 300")
    assert covered["ends"] >= 273 > covered["average"]


def test_biased_labels_are_refused_unless_asked(made: Any, draw: Any) -> None:
    randomizer, release = made("rr_on_bins", 2)
    rng = np.random.default_rng(6)
    # The labels follow the prior, for which the correction is right on average.
    places = rng.choice(11, 50_000, p=release.channel.prior)
    y, z = release.domain[places], draw(randomizer, places, rng)
    f = 0.5 * y + 1
    for call in (
        lambda **more: estimate("mean", None, z, release, **more),
        lambda **more: estimate("mean_squared_error", f, z, release, **more),
        lambda **more: estimate("mean_absolute_error", f, z, release, **more),
        lambda **more: compare(f, f + 1, z, release, **more),
    ):
        with pytest.raises(
            ValueError, match="no function of the labels of mechanism rr_on_bins, of epsilon 2, estimates"
        ):
            call()
        call(exact=False)
    with pytest.raises(ValueError, match="no function of the labels"):
        group_means(z, places % 2, release)
    found = estimate("mean", None, z, release, exact=False)
    assert abs(found.value - y.mean()) < 4 * found.standard_error
    # A constant prediction needs no more than the mean of the squared label.
    squared = estimate("mean_squared_error", np.full(len(y), 3.0), z, release, exact=False)
    assert squared.value == pytest.approx(np.mean((3.0 - y) ** 2), rel=0.1)


def test_errors_name_the_argument(made: Any) -> None:
    release = made("unbiased", 1)[1]
    z = release.channel.outputs[:4]
    f = np.arange(4.0)
    for call, message in (
        (lambda: estimate("rmse", f, z, release), "metric must be one of mean_squared_error"),
        (lambda: estimate("mean", f, z, release), "the mean takes no predictions"),
        (lambda: estimate("lift", f[:3], z, release), r"predictions has shape \(3,\), not \(4,\)"),
        (lambda: estimate("lift", [1, 2, np.nan, 3], z, release), "row 2 of predictions is missing"),
        (lambda: estimate("calibration_slope", f * 0, z, release), "all predictions are equal"),
        (lambda: estimate("lift", f, z, release, fraction=1), "fraction must be above 0 and below 1"),
        (lambda: estimate("lift", f, z, release), "the estimated mean of the labels is not above 0"),
        (lambda: estimate("mean", None, z, release, target="all"), "target must be one of records, population"),
        (lambda: estimate("mean", None, z, release, clipping="no"), "clipping must be one of ends, average"),
        (lambda: compare(f, f, z, release, metric="lift"), "metric must be one of mean_squared_error, mean_abs"),
        (lambda: compare(f, f[:2], z, release), r"g has shape \(2,\), not \(4,\)"),
        (lambda: group_means(z, [1, 2], release), r"groups have shape \(2,\), not \(4,\)"),
        (lambda: estimate("mean", None, z, release).interval(1), "level must be above 0 and below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
