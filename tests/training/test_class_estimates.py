"""Metrics of classes: their means by enumerating all outputs, their coverage, and the choice of models."""

import itertools
from typing import Any

import numpy as np
import pytest
from labeldp.training import Estimate, Release, compare, early_stopping, estimate, group_means, shares

TWO, FIVE = (0.7, 0.3), (0.4, 0.25, 0.2, 0.1, 0.05)
RELEASES = [("rr", 0.5, TWO), ("rr", 1, (0.5, 0.3, 0.2)), ("rr_top_k", 3, (0.4, 0.35, 0.25))]
METRICS = ("log_loss", "accuracy", "brier_score", "calibration_slope", "share", "forward_loss")


def names(places: Any) -> list[str]:
    """The classes of the releases of `made_classes`, by their places."""
    return [str(int(place)) for place in places]


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def truth_of(metric: str, p: np.ndarray, places: np.ndarray, release: Release, of: int = 1) -> float:
    """The metric on true classes, by its definition."""
    rows = np.arange(len(places))
    indicators = np.eye(p.shape[1])[places]
    if metric == "log_loss":
        return float(-np.log(p[rows, places]).mean())
    if metric == "accuracy":
        return float(np.mean(p.argmax(axis=1) == places))
    if metric == "brier_score":
        return float(((p - indicators) ** 2).sum(axis=1).mean()) / (2 if p.shape[1] == 2 else 1)
    if metric == "calibration_slope":
        return float(np.polyfit(p[:, of], indicators[:, of], 1)[0])
    if metric == "lift":
        top = np.argsort(-p[:, of], kind="stable")[: len(p) // 10]
        return float(indicators[top, of].mean() / indicators[:, of].mean())
    if metric == "share":
        return float(indicators[:, of].mean())
    chances = release.channel.probabilities
    return float(-np.mean([chances[y] @ np.log(p[row] @ chances) for row, y in enumerate(places)]))


@pytest.mark.parametrize("release_of", RELEASES, ids=str)
def test_estimates_have_the_mean_of_the_true_metric_and_errors_its_variance(made_classes: Any, release_of: Any) -> None:
    """All outputs of four records, each with its probability. The estimated variances are unbiased, too."""
    release = made_classes(*release_of)[1]
    classes = len(release.domain)
    places = np.array([0, 1, classes - 1, 0])
    p = softmax(np.random.default_rng(1).normal(size=(4, classes)))
    other = softmax(np.random.default_rng(2).normal(size=(4, classes)))
    groups = [1, 1, 2, 2]
    found: dict[str, list[Estimate]] = {}
    chances = []
    for drawn in itertools.product(range(classes), repeat=4):
        chances.append(np.prod(release.channel.probabilities[places, drawn]))
        z = names(drawn)
        for metric in METRICS:
            more: dict[str, Any] = {"of_class": "1"} if metric in ("calibration_slope", "share") else {}
            given = None if metric == "share" else p
            found.setdefault(metric, []).append(estimate(metric, given, z, release, **more))
        for metric in ("log_loss", "accuracy", "brier_score", "forward_loss"):
            found.setdefault(f"compare {metric}", []).append(compare(p, other, z, release, metric=metric))
        whole, parts = shares(z, release), shares(z, release, groups=groups)
        assert whole.values.sum() == pytest.approx(1)
        assert parts.values.mean(axis=0) == pytest.approx(whole.values)
        found.setdefault("share of 1", []).append(Estimate(whole.values[1], whole.standard_errors[1]))
        found.setdefault("share in a group", []).append(Estimate(parts.values[1, 0], parts.standard_errors[1, 0]))
    assert sum(chances) == pytest.approx(1)
    for name, estimates in found.items():
        values = np.array([each.value for each in estimates])
        mean = float(np.dot(chances, values))
        metric = name.removeprefix("compare ")
        if name == "share in a group":
            expected = np.mean(places[2:] == 0)
        elif name == "share of 1":
            expected = np.mean(places == 1)
        elif name != metric:
            expected = truth_of(metric, p, places, release) - truth_of(metric, other, places, release)
        else:
            expected = truth_of(metric, p, places, release)
        assert mean == pytest.approx(expected, abs=1e-9), name
        # Variances that come out negative by chance are replaced by larger ones.
        variance = float(np.dot(chances, (values - mean) ** 2))
        squared = float(np.dot(chances, [each.standard_error**2 for each in estimates]))
        assert squared >= variance * (1 - 1e-9), name


@pytest.mark.parametrize("release_of", RELEASES, ids=str)
def test_standard_errors_are_those_of_the_noise(made_classes: Any, draw: Any, release_of: Any) -> None:
    """With many records: the mean variance of the estimate of a record, class by class."""
    randomizer, release = made_classes(*release_of)
    rng = np.random.default_rng(4)
    classes = len(release.domain)
    places = rng.integers(0, classes, 40_000)
    p = softmax(rng.normal(size=(len(places), classes)))
    z = names(draw(randomizer, places, rng))
    for metric in ("log_loss", "accuracy", "brier_score", "forward_loss", "share"):
        variance = 0.0
        for place in range(classes):
            of_class = p[places == place][:40]
            chances = release.channel.probabilities[place]
            values = np.array([[one_record(metric, release, row, z) for z in range(classes)] for row in of_class])
            variance += np.mean(places == place) * np.mean(values**2 @ chances - (values @ chances) ** 2)
        more: dict[str, Any] = {"of_class": "1"} if metric == "share" else {}
        found = estimate(metric, None if metric == "share" else p, z, release, **more).standard_error
        assert found == pytest.approx(np.sqrt(variance / len(places)), rel=0.15), metric


def one_record(metric: str, release: Release, p: np.ndarray, z: int) -> float:
    if metric == "share":
        return estimate(metric, None, [str(z)], release, of_class="1").value
    return estimate(metric, p[None, :], [str(z)], release).value


def log_of(classes: int, records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of true classes, probabilities of a calibrated model, and of one that is halfway to equal ones."""
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(records, 2))
    if classes == 2:
        scores = np.stack([np.zeros(records), -1 + 1.2 * x[:, 0]], axis=1)
    else:
        scores = np.stack([1.0 - 0.4 * k + x @ [np.cos(k), np.sin(k)] for k in range(classes)], axis=1)
    p = softmax(scores)
    places = (rng.uniform(size=records)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    return np.minimum(places, classes - 1), p, softmax(0.5 * scores)


@pytest.mark.parametrize(("epsilon", "weights"), [(1, TWO), (0.5, FIVE)], ids=["2 classes", "5 classes"])
def test_intervals_cover_the_true_metric(made_classes: Any, draw: Any, weights: Any, epsilon: float) -> None:
    """1,000 releases of 2,000 records: 93 to 97 % of nominal 95 % intervals have the metric on true classes."""
    randomizer, release = made_classes("rr", epsilon, weights)
    places, f, g = log_of(len(weights), 2000)
    groups = np.arange(2000) % 4
    truth = {metric: truth_of(metric, f, places, release) for metric in (*METRICS, "lift")}
    truth["group share"] = float(np.mean(places[groups == 2] == 1))
    for name, metric in (("compared", "log_loss"), ("compared by forward loss", "forward_loss")):
        truth[name] = truth_of(metric, f, places, release) - truth_of(metric, g, places, release)
    rng = np.random.default_rng(31)
    covered = dict.fromkeys(truth, 0)
    skipped = 0
    for _ in range(1000):
        z = draw(randomizer, places, rng).astype(int)
        for name, value in truth.items():
            if name == "group share":
                part = shares(z, release, groups=groups)
                found = Estimate(part.values[2, 1], part.standard_errors[2, 1])
            elif name.startswith("compared"):
                found = compare(f, g, z, release, metric="log_loss" if name == "compared" else "forward_loss")
            else:
                more: dict[str, Any] = {"of_class": "1"} if name in ("calibration_slope", "lift", "share") else {}
                try:
                    found = estimate(name, None if name == "share" else f, z, release, **more)
                except ValueError:
                    assert name == "lift"
                    skipped += 1
                    continue
            low, high = found.interval()
            covered[name] += low <= value <= high
    shown = ", ".join(f"{name} {count / 10:.1f}" for name, count in covered.items())
    print(f"coverage, {len(weights)} classes, epsilon {epsilon}, %: {shown}; lift undefined {skipped}")
    assert all(930 <= count <= 970 for count in covered.values()), shown


def test_intervals_for_the_population_cover_its_metric(made_classes: Any, draw: Any) -> None:
    """Records and noise are drawn anew; the noise is small, so that both count."""
    randomizer, release = made_classes("rr", 4, FIVE)
    places, p, _ = log_of(5, 100_000)
    metrics = ("log_loss", "accuracy", "brier_score", "calibration_slope", "share", "forward_loss")
    truth = {metric: truth_of(metric, p, places, release) for metric in metrics}
    rng = np.random.default_rng(23)
    covered = dict.fromkeys((*truth, "group share"), 0)
    for _ in range(1000):
        rows = rng.integers(0, len(p), 1000)
        z = draw(randomizer, places[rows], rng).astype(int)
        for metric, value in truth.items():
            more: dict[str, Any] = {"of_class": "1"} if metric in ("calibration_slope", "share") else {}
            given = None if metric == "share" else p[rows]
            low, high = estimate(metric, given, z, release, target="population", **more).interval()
            covered[metric] += low <= value <= high
        part = shares(z, release, groups=np.arange(1000) % 2, target="population")
        covered["group share"] += abs(part.values[1, 1] - truth["share"]) <= 1.96 * part.standard_errors[1, 1]
    print(f"coverage for the population: {covered} of 1000")
    assert all(930 <= count <= 970 for count in covered.values()), covered


def test_classes_that_are_never_released(made_classes: Any, draw: Any) -> None:
    """Two outputs for three classes: refused, but for the likelihood, and on average under the prior."""
    randomizer, release = made_classes("rr_top_k", 1, (0.5, 0.45, 0.05))
    assert release.channel.outputs.tolist() == [0, 1]
    rng = np.random.default_rng(6)
    places = rng.choice(3, 50_000, p=release.channel.prior)
    z = draw(randomizer, places, rng).astype(int)
    p = softmax(rng.normal(size=(len(z), 3)))
    for call in (
        lambda **more: estimate("log_loss", p, z, release, **more),
        lambda **more: estimate("share", None, z, release, of_class="0", **more),
        lambda **more: compare(p, p[::-1], z, release, **more),
        lambda **more: shares(z, release, **more),
    ):
        with pytest.raises(ValueError, match="mechanism rr_top_k, of epsilon 1, releases 2 of 3 classes: no function"):
            call()
        call(exact=False)
    with pytest.raises(ValueError, match="row 1 of z is a class that the mechanism never releases"):
        release.likelihood([0, 2])
    for found, place in ((estimate("share", None, z, release, of_class="0", exact=False), 0),):
        assert abs(found.value - np.mean(places == place)) < 4 * found.standard_error
    right = np.broadcast_to(release.channel.prior, p.shape)
    forward = compare(right, p, z, release, metric="forward_loss")
    assert forward.value < -4 * forward.standard_error


def test_two_classes_by_the_probability_of_the_second(made_classes: Any) -> None:
    release = made_classes("rr", 1, TWO)[1]
    z, f = [0, 1, 1, 0, 1], np.array([0.1, 0.8, 0.4, 0.5, 0.7])
    both = np.stack([1 - f, f], axis=1)
    for metric in ("log_loss", "accuracy", "brier_score", "calibration_slope", "lift", "forward_loss"):
        assert estimate(metric, f, z, release) == pytest.approx(estimate(metric, both, z, release))
    assert estimate("share", None, z, release) == estimate("share", None, z, release, of_class="1")
    assert estimate("share", None, z, release, of_class=0).value == pytest.approx(
        1 - estimate("share", None, z, release).value
    )
    found = early_stopping([f, both, 1 - f], z, release)
    assert found.index == 0
    assert found[1:] == estimate("forward_loss", f, z, release)


def test_errors_name_the_argument(made_classes: Any, made: Any) -> None:
    release, numbers = made_classes("rr", 1, FIVE)[1], made("unbiased", 1)[1]
    two = made_classes("rr", 1, TWO)[1]
    z, p = [0, 1, 2, 3], np.full((4, 5), 0.2)
    y = numbers.channel.outputs[:2]
    for call, message in (
        (lambda: estimate("mean_squared_error", p, z, release), "metric must be one of log_loss, accuracy, .* for cl"),
        (lambda: estimate("log_loss", y, y, numbers), "metric must be one of mean_squared_error"),
        (lambda: estimate("mean", None, y, numbers, of_class="1"), "are numbers: leave out of_class"),
        (lambda: estimate("log_loss", p[:3], z, release), r"predictions must have shape \(4, 5\) with columns as in"),
        (lambda: estimate("log_loss", p[:, 0], z, release), r"predictions must have shape \(4, 5\) with columns as"),
        (lambda: estimate("log_loss", p[:, :3], [0, 1], two), r"shape \(2, 2\) or \(2,\), the probabilities of the s"),
        (lambda: estimate("log_loss", p * 2, z, release), "row 0 of predictions holds no probabilities of classes"),
        (lambda: estimate("log_loss", p * np.nan, z, release), "row 0 of predictions holds no probabilities"),
        (lambda: estimate("log_loss", np.eye(5)[:4], z, release), "row 0 of predictions has a probability of 0"),
        (lambda: estimate("log_loss", p, z, release, of_class="1"), "log_loss is of all classes: leave out of_class"),
        (lambda: estimate("lift", p, z, release), "of_class is missing: name one of the classes"),
        (lambda: estimate("lift", p, z, release, of_class="cat"), "of_class must be one of the classes of the release"),
        (lambda: estimate("lift", p, z, release, of_class=1, fraction=0), "fraction must be above 0"),
        (lambda: estimate("lift", p, z, release, of_class="4"), "the estimated share of the class is not above 0"),
        (lambda: estimate("calibration_slope", p, z, release, of_class="4"), "all predictions are equal"),
        (lambda: estimate("share", p, z, release, of_class="4"), "the share takes no predictions"),
        (lambda: estimate("log_loss", p, z, release, target="all"), "target must be one of records, population"),
        (lambda: estimate("log_loss", p, z, release, center=z), "have no center: leave out center"),
        (lambda: compare(p, p, z, release, metric="lift"), "metric must be one of log_loss, accuracy, brier_score, f"),
        (lambda: compare(p, p[:2], z, release), r"g must have shape \(4, 5\)"),
        (lambda: shares(y, numbers), "are numbers, without classes: see group_means"),
        (lambda: shares(z, release, groups=[1]), r"groups have shape \(1,\), not \(4,\)"),
        (lambda: group_means(z, z, release), "classes have no mean: see shares"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
