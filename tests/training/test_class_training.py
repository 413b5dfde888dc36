"""Training on released classes: derivatives of the forward loss, copies of records, inversion, and what models gain."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from labeldp.training import (
    block_weights,
    compare,
    doubled_rows,
    estimate,
    evaluation,
    invert,
    objective,
    shares,
    soft_rows,
    start_scores,
)  # fmt: skip

TWO, FIVE = (0.7, 0.3), (0.4, 0.25, 0.2, 0.1, 0.05)


def softmax(scores: np.ndarray) -> np.ndarray:
    if scores.ndim == 1:
        scores = np.stack([0 * scores, scores], axis=1)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class Data:
    """Data set as the native interfaces of the libraries have it."""

    def __init__(self, labels: np.ndarray, weights: np.ndarray | None = None):
        self.labels, self.weights = labels, weights

    def get_label(self) -> np.ndarray:
        return self.labels

    def get_weight(self) -> np.ndarray | None:
        return self.weights


@pytest.mark.parametrize(("weights", "single"), [(TWO, True), (TWO, False), (FIVE, False)])
@pytest.mark.parametrize("mechanism", ["rr", "rr_top_k"])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_derivatives_of_the_forward_loss(
    made_classes: Any, library: str, mechanism: str, weights: Any, single: bool
) -> None:
    """The gradient by differences; the Hessian is the mean of its square over the released classes."""
    release = made_classes(mechanism, 1.5, weights)[1]
    chances = release.channel.probabilities
    rng = np.random.default_rng(3)
    size, classes = 30, len(weights)
    scores = rng.normal(size=size) if single else rng.normal(size=(size, classes))
    labels = rng.choice(release.channel.outputs, size)
    function = objective(library, "forward", release)

    def losses(scores: np.ndarray) -> np.ndarray:
        columns = np.searchsorted(release.channel.outputs, labels)
        return -np.log((softmax(scores) @ chances)[np.arange(size), columns])

    gradient, hessian = function(labels, scores)
    step = 1e-5
    for score in range(1 if single else classes):
        move = step if single else step * np.eye(classes)[score]
        slope = (losses(scores + move) - losses(scores - move)) / (2 * step)
        assert (gradient if single else gradient[:, score]) == pytest.approx(slope, abs=1e-8)
    q = softmax(scores) @ chances
    gradients = [function(np.full(size, output), scores)[0] for output in release.channel.outputs]
    squares = [(g.T**2 * q[:, place]).T for place, g in enumerate(gradients)]
    means = [(g.T * q[:, place]).T for place, g in enumerate(gradients)]
    assert np.abs(np.sum(means, axis=0)).max() < 1e-12
    assert hessian == pytest.approx(np.maximum((1 if single else 2) * np.sum(squares, axis=0), 1e-6))
    heavy = rng.uniform(1, 2, size)
    for native in (function(scores, Data(labels, heavy)), function(labels, scores, sample_weight=heavy)):
        assert native[0] == pytest.approx((gradient.T * heavy).T)
        assert native[1] == pytest.approx((hessian.T * heavy).T)
    assert function(scores, Data(labels, np.array([])))[0] == pytest.approx(gradient)
    extreme = np.where(scores > 0, 800.0, -800.0)
    assert all(np.isfinite(found).all() for found in function(labels, extreme))


def conversions(records: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, probabilities and true classes; about 8 % of the records are of class 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, 3))
    p = 1 / (1 + np.exp(3.2 - 1.2 * x[:, 0] - 0.8 * x[:, 1]))
    return x, p, (rng.uniform(size=records) < p).astype(int)


def grades(records: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, probabilities and true classes of five."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, 3))
    p = softmax(np.stack([1.0 - 0.4 * k + 1.5 * x[:, :2] @ [np.cos(k), np.sin(k)] for k in range(5)], axis=1))
    return x, p, (rng.uniform(size=records)[:, None] > np.cumsum(p, axis=1)).sum(axis=1).clip(0, 4)


@pytest.mark.parametrize("several", [False, True], ids=["2 classes", "5 classes"])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_early_stopping_in_the_library(made_classes: Any, draw: Any, library: str, several: bool) -> None:
    module: Any = pytest.importorskip(library, reason=f"{library} is not installed")
    randomizer, release = made_classes("rr", 1, FIVE if several else TWO)
    x, _, places = grades(20_000) if several else conversions(20_000)
    z = draw(randomizer, places, np.random.default_rng(5)).astype(int)
    kept = np.arange(len(z)) % 2 == 0
    function, stop = objective(library, "forward", release), evaluation(library, z[kept], release)
    start, number = start_scores(z, release), {"num_class": 5} if several else {}
    base = np.tile(start, (10_000, 1)) if several else np.full(10_000, start[0])
    if library == "lightgbm":
        parameters = {"objective": function, "metric": "None", "min_data_in_leaf": 20, "verbose": -1, **number}
        data, held = (module.Dataset(x[rows], z[rows], init_score=base) for rows in (~kept, kept))
        stopping = [module.early_stopping(5, verbose=False)]
        model = module.train(parameters, data, 200, valid_sets=[held], feval=stop, callbacks=stopping)
        best = model.best_score["valid_0"]["forward_loss"]
        scores = base + model.predict(x[kept])
    else:
        data, held = (module.DMatrix(x[rows], z[rows], base_margin=base) for rows in (~kept, kept))
        model = module.train(
            {"base_score": 0, **number}, data, 200, obj=function, custom_metric=stop, evals=[(held, "held")],
            early_stopping_rounds=5, verbose_eval=False,
        )  # fmt: skip
        best = model.best_score
        scores = model.predict(held, output_margin=True, iteration_range=(0, model.best_iteration + 1))
    assert model.best_iteration < 100
    found = softmax(np.asarray(scores, float))
    assert best == pytest.approx(estimate("forward_loss", found, z[kept], release).value, abs=1e-5)


@pytest.mark.parametrize("mechanism", ["rr", "rr_top_k"])
def test_copies_have_the_mean_of_the_true_loss(made_classes: Any, mechanism: str) -> None:
    """Over the outputs of each class, the weighted log loss of its copies is the log loss of the class."""
    release = made_classes(mechanism, 3, (0.4, 0.35, 0.25))[1]
    z = release.channel.outputs.astype(int)
    copies = doubled_rows(np.arange(3)[:, None], z, release)
    assert copies.X[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert copies.y.tolist() == [0, 1, 2] * 3
    assert copies.sample_weight.min() < 0
    losses = np.log([2.0, 3, 5])
    for place in range(3):
        weighted = (copies.sample_weight * losses[copies.y]).reshape(3, 3).sum(axis=1)
        assert release.channel.probabilities[place] @ weighted == pytest.approx(losses[place])


def test_posterior_weights_are_those_of_bayes(made_classes: Any) -> None:
    release = made_classes("rr_top_k", 1, (0.5, 0.45, 0.05))[1]
    p = softmax(np.random.default_rng(1).normal(size=(4, 3)))
    z = [0, 1, 1, 0]
    copies = doubled_rows(pd.DataFrame({"x": range(4)}), z, release, p)
    assert copies.X["x"].tolist() == [row for row in range(4) for _ in range(3)]
    for row, place in itertools.product(range(4), range(3)):
        joint = p[row] * release.channel.probabilities[:, z[row]]
        assert copies.sample_weight[3 * row + place] == pytest.approx(joint[place] / joint.sum())
    start = doubled_rows([[0.0]] * 4, z, release, release.channel.prior)
    everywhere = doubled_rows([[0.0]] * 4, z, release, np.tile(release.channel.prior, (4, 1)))
    assert start.sample_weight.tolist() == everywhere.sample_weight.tolist()


def test_soft_copies_have_the_log_loss_of_the_probabilities() -> None:
    p = softmax(np.random.default_rng(2).normal(size=(4, 3))).astype(np.float32)
    for given in (p, pa.array(list(p)), pa.chunked_array([list(p[:1]), list(p[1:])]), pd.Series(list(p)), p.tolist()):
        copies = soft_rows(pd.DataFrame({"x": range(4)}), given)
        assert copies.X["x"].tolist() == [row for row in range(4) for _ in range(3)]
        assert copies.y.tolist() == [0, 1, 2] * 4
        assert copies.sample_weight.reshape(4, 3) == pytest.approx(p)
    with pytest.raises(ValueError, match="X has 3 rows, not 4 as probabilities"):
        soft_rows([[0]] * 3, p)
    with pytest.raises(ValueError, match=r"probabilities must have shape \(n, K\), not \(4,\)"):
        soft_rows([[0]] * 4, [0.1] * 4)
    with pytest.raises(ValueError, match="row 0 of probabilities"):
        soft_rows([[0]] * 4, 2 * p)


def test_inversion_undoes_the_channel_and_stays_in_the_simplex(made_classes: Any) -> None:
    release = made_classes("rr", 1, FIVE)[1]
    p = softmax(np.random.default_rng(1).normal(size=(50, 5)))
    assert invert(p @ release.channel.probabilities, release) == pytest.approx(p)
    q = softmax(3 * np.random.default_rng(2).normal(size=(200, 5)))
    raw, found = q @ np.linalg.inv(release.channel.probabilities), invert(q, release)
    assert raw.min() < 0 <= found.min()
    assert found.sum(axis=1) == pytest.approx(1)
    # Those on the simplex that are closest: none of many others is closer.
    others = softmax(4 * np.random.default_rng(3).normal(size=(4000, 5)))
    distances = ((raw[:, None] - others) ** 2).sum(axis=2).min(axis=1)
    assert np.all(((raw - found) ** 2).sum(axis=1) <= distances)
    two = made_classes("rr", 1, TWO)[1]
    single = invert(np.array([0.3, 0.5, 0.99]), two)
    assert single == pytest.approx(invert([[0.7, 0.3], [0.5, 0.5], [0.01, 0.99]], two)[:, 1])
    assert single[1:].tolist() == pytest.approx([0.5, 1])


def test_start_scores_are_those_of_the_shares(made_classes: Any) -> None:
    two, five = made_classes("rr", 2, TWO)[1], made_classes("rr", 2, FIVE)[1]
    z = [0] * 70 + [1] * 30
    share = shares(z, two).values[1]
    assert start_scores(z, two) == pytest.approx([np.log(share / (1 - share))])
    # A share below 0 becomes that of a record.
    z = [0] * 999 + [1]
    assert shares(z, two).values[1] < 0
    assert start_scores(z, two) == pytest.approx([np.log(0.001)], rel=1e-3)
    z = [0, 0, 0, 1, 1, 1, 2, 2, 3, 4] * 10
    found = np.exp(start_scores(z, five))
    assert found.sum() == pytest.approx(1)
    assert found.shape == (5,)


def test_weights_of_releases_of_classes(made_classes: Any) -> None:
    releases = [made_classes("rr", epsilon, FIVE)[1] for epsilon in (0.5, 2)]
    noise = np.array([release.noise for release in releases])
    weights = block_weights(releases, 0.5)
    assert weights[1] / weights[0] == pytest.approx((noise[0] + 0.5) / (noise[1] + 0.5))


def test_errors_name_the_argument(made_classes: Any, made: Any) -> None:
    release, numbers = made_classes("rr", 1, FIVE)[1], made("unbiased", 1)[1]
    few = made_classes("rr_top_k", 1, (0.5, 0.45, 0.05))[1]
    function = objective("xgboost", "forward", release)
    z = [0, 1, 2]
    for call, message in (
        (lambda: objective("xgboost", "forward"), "the loss forward needs a release of classes"),
        (lambda: objective("xgboost", "forward", numbers), "the loss forward needs a release of classes"),
        (lambda: objective("xgboost", "logistic", release), "takes debiased labels and no release"),
        (lambda: function(z, np.zeros(3)), r"scores have shape \(3,\), not \(3, 5\): set num_class to 5"),
        (lambda: function([0, 1, 7], np.zeros((3, 5))), "row 2 of z is no place of a class"),
        (lambda: function([0, 0.5, 1], np.zeros((3, 5))), "row 1 of z is no place of a class"),
        (lambda: objective("lightgbm", "forward", few)([2], np.zeros((1, 3))), "row 0 of z is a class that the mechan"),
        (lambda: doubled_rows([[1], [2]], z, release), "X has 2 rows, not 3 as z"),
        (lambda: doubled_rows([[1], [2]], [0, 1], few), "releases 2 of 3 classes"),
        (lambda: doubled_rows([[1]], [0], release, [[1, 0]]), r"predictions must have shape \(1, 5\)"),
        (lambda: doubled_rows([[1]], [0.0], numbers), "are numbers: train on those of Release.debiased"),
        (lambda: invert([[0.5, 0.5]], release), r"probabilities must have shape \(n, 5\) with columns as in"),
        (lambda: invert([[0.5, 0.5, 0]], few), "releases 2 of 3 classes"),
        (lambda: invert([0.5], numbers), "are numbers, without classes"),
        (lambda: start_scores([0.0], numbers), "are numbers, without classes"),
        (lambda: evaluation("xgboost", z, release, metric="lift"), "metric must be one of log_loss"),
        (
            lambda: evaluation("xgboost", z, release)(np.zeros((2, 5)), None),
            "forward_loss is for a validation set of 3",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert evaluation("lightgbm", z, release, metric="log_loss")(np.zeros((3, 5)), None)[0] == "corrected_log_loss"
    assert compare(np.full((3, 5), 0.2), np.full((3, 5), 0.2), z, release).value == 0
