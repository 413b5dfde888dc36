"""Measures the figures of docs/guides/training.md.

    python docs/results/training.py [targets] [copies] [losses] [conversions] [clipping]

Prints Markdown tables, of all parts without arguments; about ten minutes on one core. Libraries that are not installed
are left out: LightGBM, XGBoost and PyTorch are in no extra of labeldp.

    targets       which losses of libraries take debiased labels and targets, that may lie outside of their range
    copies        which classifiers of scikit-learn take the negative weights of `doubled_rows`
    losses        excess log loss of trees on debiased labels, clipped ones, and classes with the forward loss
    conversions   the ways to train on rare classes
    clipping      standard errors by the two corrections of clipped residuals
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from labeldp import LabelPrivatizer, ReleaseWarning
from labeldp.training import Release, doubled_rows, estimate, invert, objective, start_scores
from scipy.special import expit

SEEDS = 5
# Two groups of records, whose predictions must be the means of their debiased labels.
GROUPS = np.arange(40_000) % 2
FEATURES = np.stack([1 - GROUPS, GROUPS], axis=1).astype(np.float64)
BOTH = np.eye(2)
CLOSE = 0.02
"""Distance of a right prediction to the mean: the libraries stop before their optimum."""


def released(labels: np.ndarray, **parameters: Any) -> tuple[Any, Release]:
    """Labels released in memory under a new key, and their release."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ReleaseWarning)
        files = {"noise_key_file": Path(folder, "noise.key"), "ledger": Path(folder, "ledger.jsonl")}
        around = {"center": parameters.pop("centers")} if "centers" in parameters else {}
        privatizer = LabelPrivatizer(**parameters, **files)
        return privatizer.fit_transform(labels, **around), Release.from_privatizer(privatizer)


def rows(*columns: str) -> Callable[..., None]:
    """Prints the head of a table; the result prints a row."""

    def row(*cells: Any) -> None:
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)

    row(*columns)
    row(*("---" for _ in columns))
    return row


def verdict_on(fit: Callable[[np.ndarray], np.ndarray], labels: np.ndarray) -> str:
    """Result of training a library on labels: right, refused, or the wrong predictions."""
    wanted = np.stack([labels[group == GROUPS].mean(axis=0) for group in (0, 1)])
    clipped = np.stack([labels.clip(0, 1)[group == GROUPS].mean(axis=0) for group in (0, 1)])
    positive = np.stack([(labels > 0)[group == GROUPS].mean(axis=0) for group in (0, 1)])
    try:
        found = np.asarray(fit(labels), np.float64).reshape(wanted.shape)
    except Exception as error:
        return f"refused: {reason(error)}"
    for name, values in (
        ("right", wanted),
        ("clips labels to [0, 1]", clipped),
        ("takes labels above 0 as 1", positive),
    ):
        if np.abs(found - values).max() < CLOSE:
            return name
    return f"wrong: {found.ravel().round(2).tolist()} for {wanted.ravel().round(2).tolist()}"


def reason(error: Exception) -> str:
    """First line of a message, without the time and the place in the code that XGBoost states."""
    return re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", str(error).strip().splitlines()[0])[:80]


def lightgbm_fit(loss: str) -> Callable[[np.ndarray], np.ndarray]:
    """Predictions of LightGBM for the two groups."""

    def fit(labels: np.ndarray) -> np.ndarray:
        module = import_module("lightgbm")
        data = module.Dataset(FEATURES, labels)
        return module.train({"objective": loss, "verbose": -1, "max_delta_step": 0.7}, data, 100).predict(BOTH)

    return fit


def xgboost_fit(loss: str) -> Callable[[np.ndarray], np.ndarray]:
    """Predictions of XGBoost for the two groups."""

    def fit(labels: np.ndarray) -> np.ndarray:
        module = import_module("xgboost")
        model = module.train({"objective": loss, "verbosity": 0}, module.DMatrix(FEATURES, labels), 100)
        return model.predict(module.DMatrix(BOTH))

    return fit


def sklearn_fit(module: str, name: str, **parameters: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Predictions of an estimator of scikit-learn for the two groups."""

    def fit(labels: np.ndarray) -> np.ndarray:
        model = getattr(import_module(f"sklearn.{module}"), name)(**parameters).fit(FEATURES, labels)
        return model.predict(BOTH)

    return fit


def keras_fit(loss: str, activation: str) -> Callable[[np.ndarray], np.ndarray]:
    """Predictions of a layer of Keras for the two groups."""

    def fit(labels: np.ndarray) -> np.ndarray:
        keras = import_module("keras")
        units = 1 if labels.ndim == 1 else labels.shape[1]
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation)])
        model.compile(keras.optimizers.Adam(0.1), getattr(keras.losses, loss)())
        model.fit(FEATURES, labels, batch_size=len(labels), epochs=150, shuffle=False, verbose=0)
        return model.predict(BOTH, verbose=0)

    return fit


def torch_fit(loss: str, inverse: str, **parameters: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Predictions of a layer of PyTorch for the two groups."""

    def fit(labels: np.ndarray) -> np.ndarray:
        torch = import_module("torch")
        x, y = (torch.tensor(values, dtype=torch.float32) for values in (FEATURES, labels))
        model = torch.nn.Linear(2, 1 if labels.ndim == 1 else labels.shape[1])
        optimizer, function = torch.optim.Adam(model.parameters(), 0.1), getattr(torch.nn, loss)(**parameters)
        for _ in range(150):
            optimizer.zero_grad()
            scores = model(x)
            function(scores[:, 0] if labels.ndim == 1 else scores, y).backward()
            optimizer.step()
        with torch.no_grad():
            scores = model(torch.eye(2))
        found = {"": lambda: scores, "exp": scores.exp, "sigmoid": scores.sigmoid, "softmax": lambda: scores.softmax(1)}
        return found[inverse]().numpy()

    return fit


def targets() -> None:
    """Losses of libraries on debiased labels: of 0 and 1, of counts, and of three classes."""
    rng = np.random.default_rng(1)
    labels = rng.binomial(2, np.where(GROUPS, 0.6, 0.3)) / 2
    binary, release = released(labels, label_values=[0, 0.5, 1], epsilon=1, mechanism="rr")
    counts, _ = released(
        np.minimum(rng.poisson(1 + GROUPS), 10),
        label_min=0,
        label_max=10,
        label_step=1,
        epsilon=2,
        mechanism="unbiased",
    )
    classes, of_three = released(
        rng.choice(3, len(GROUPS), p=[0.5, 0.3, 0.2]), label_classes=[0, 1, 2], epsilon=1, mechanism="rr"
    )
    given = {"logistic": release.debiased(binary), "poisson": counts, "classes": of_three.debiased(classes)}
    given["squared"] = given["logistic"]
    checks: list[tuple[str, str, str, Callable[[np.ndarray], np.ndarray]]] = [
        ("lightgbm", "squared", "`regression`", lightgbm_fit("regression")),
        ("lightgbm", "poisson", "`poisson`", lightgbm_fit("poisson")),
        ("lightgbm", "logistic", "`cross_entropy`", lightgbm_fit("cross_entropy")),
        ("lightgbm", "logistic", "`binary`", lightgbm_fit("binary")),
        ("xgboost", "squared", "`reg:squarederror`", xgboost_fit("reg:squarederror")),
        ("xgboost", "poisson", "`count:poisson`", xgboost_fit("count:poisson")),
        ("xgboost", "logistic", "`binary:logistic`", xgboost_fit("binary:logistic")),
        ("xgboost", "logistic", "`reg:logistic`", xgboost_fit("reg:logistic")),
        (
            "sklearn", "squared", "`HistGradientBoostingRegressor`",
            sklearn_fit("ensemble", "HistGradientBoostingRegressor"),
        ),
        (
            "sklearn", "poisson", "`HistGradientBoostingRegressor(loss=\"poisson\")`",
            sklearn_fit("ensemble", "HistGradientBoostingRegressor", loss="poisson"),
        ),
        ("sklearn", "poisson", "`PoissonRegressor`", sklearn_fit("linear_model", "PoissonRegressor")),
        (
            "sklearn", "logistic", "`HistGradientBoostingClassifier`",
            sklearn_fit("ensemble", "HistGradientBoostingClassifier"),
        ),
        ("sklearn", "logistic", "`LogisticRegression`", sklearn_fit("linear_model", "LogisticRegression")),
        ("sklearn", "classes", "`LogisticRegression`", sklearn_fit("linear_model", "LogisticRegression")),
        ("keras", "squared", "`MeanSquaredError`", keras_fit("MeanSquaredError", "linear")),
        ("keras", "poisson", "`Poisson`", keras_fit("Poisson", "exponential")),
        ("keras", "logistic", "`BinaryCrossentropy`", keras_fit("BinaryCrossentropy", "sigmoid")),
        ("keras", "classes", "`CategoricalCrossentropy`", keras_fit("CategoricalCrossentropy", "softmax")),
        ("torch", "squared", "`MSELoss`", torch_fit("MSELoss", "")),
        ("torch", "poisson", "`PoissonNLLLoss`", torch_fit("PoissonNLLLoss", "exp")),
        ("torch", "logistic", "`BCEWithLogitsLoss`", torch_fit("BCEWithLogitsLoss", "sigmoid")),
        ("torch", "classes", "`CrossEntropyLoss`", torch_fit("CrossEntropyLoss", "softmax")),
    ]  # fmt: skip
    print("\nLosses on debiased labels, which lie outside of their range\n")
    row = rows("Library", "Labels for", "Loss", "Result")
    for library, found in groupby(checks, lambda check: check[0]):
        # TensorFlow and PyTorch cannot be loaded into one process.
        child = os.fork() if find_spec(library) else None
        if child == 0:
            for _, kind, loss, fit in found:
                row(f"{library} {import_module(library).__version__}", kind, loss, verdict_on(fit, given[kind]))
            os._exit(0)
        if child is not None:
            os.waitpid(child, 0)


CLASSIFIERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "HistGradientBoostingClassifier(early_stopping=False)": (
        "ensemble", "HistGradientBoostingClassifier", {"early_stopping": False},
    ),
    "GradientBoostingClassifier()": ("ensemble", "GradientBoostingClassifier", {}),
    "ExtraTreesClassifier(min_samples_leaf=1000)": (
        "ensemble", "ExtraTreesClassifier", {"n_estimators": 10, "min_samples_leaf": 1000},
    ),
    "RandomForestClassifier(min_samples_leaf=1000)": (
        "ensemble", "RandomForestClassifier", {"n_estimators": 10, "min_samples_leaf": 1000},
    ),
    "AdaBoostClassifier()": ("ensemble", "AdaBoostClassifier", {}),
    **{
        f'LogisticRegression(C=inf, solver="{solver}")': (
            "linear_model", "LogisticRegression", {"C": np.inf, "solver": solver, "max_iter": 300},
        )
        for solver in ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga")
    },
    'SGDClassifier(loss="log_loss")': ("linear_model", "SGDClassifier", {"loss": "log_loss", "alpha": 1e-6}),
    "MLPClassifier(alpha=0)": ("neural_network", "MLPClassifier", {"alpha": 0, "max_iter": 20}),
    "GaussianNB()": ("naive_bayes", "GaussianNB", {}),
}  # fmt: skip


def copies() -> None:
    """Classifiers of scikit-learn on the copies of `doubled_rows`, for two and three classes at epsilon 1."""
    if not find_spec("sklearn"):
        return
    rng = np.random.default_rng(1)
    makes = {}
    for classes in (2, 3):
        chances = np.array([[6, 3, 1], [2, 4, 4]])[GROUPS, :classes]
        chances = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
        places = (rng.uniform(size=len(GROUPS))[:, None] > chances).sum(axis=1)
        z, release = released(places, label_classes=list(range(classes)), epsilon=1, mechanism="rr")
        targets = release.debiased(z)
        wanted = np.stack([targets[group == GROUPS].mean(axis=0) for group in (0, 1)])
        makes[classes] = doubled_rows(FEATURES, z, release), wanted
    print("\nClassifiers of scikit-learn on copies of the records with negative weights\n")
    row = rows("Classifier", "2 classes", "3 classes")
    for name, (module, estimator, parameters) in CLASSIFIERS.items():
        results = []
        for copied, wanted in makes.values():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = getattr(import_module(f"sklearn.{module}"), estimator)(**parameters)
                    model.fit(copied.X, copied.y, sample_weight=copied.sample_weight)
                    off = float(np.abs(model.predict_proba(BOTH) - wanted).max())
                results.append("right" if off < CLOSE else f"wrong, by {off:.2f}")
            except Exception as error:
                results.append(f"refused: {reason(error)}")
        row(f"`{name}`", *results)


def conversion_log(records: int, intercept: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, probabilities of class 1, and labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, 6))
    scores = intercept + 0.9 * x[:, 0] + 0.6 * np.abs(x[:, 1]) - 0.5 * x[:, 2] * (x[:, 3] > 0)
    p = expit(scores)
    return x, p, (rng.uniform(size=records) < p).astype(int)


def excess(p: np.ndarray, found: np.ndarray) -> float:
    """Mean excess of the log loss of found probabilities over that of the true ones."""
    found = np.clip(found, 1e-5, 1 - 1e-5)
    return float(np.mean(p * np.log(p / found) + (1 - p) * np.log((1 - p) / (1 - found))))


TREES = {"num_leaves": 8, "min_data_in_leaf": 1000, "min_sum_hessian_in_leaf": 0, "learning_rate": 0.1, "verbose": -1}
ROUNDS = 40
ROUNDS_OF_EM = {1: 80, 2: 20, 3: 20}
"""Rounds of expectation maximization by epsilon, after which it has converged."""


def boosted(
    x: np.ndarray, labels: np.ndarray, loss: Any, start: float = 0.0, **more: Any
) -> Callable[[Any], np.ndarray]:
    """Trees of LightGBM; the result predicts scores for custom losses and probabilities for others."""
    module = import_module("lightgbm")
    base = np.full(len(labels), start) if callable(loss) else None
    data = module.Dataset(x, labels, init_score=base)
    model = module.train({"objective": loss, **TREES, **more}, data, ROUNDS)
    return lambda given: start + model.predict(given)


def score(title: str, maker: Callable[[int], Iterator[tuple[str, float]]], scale: float) -> None:
    """Prints means over the seeds and standard deviations of named excess losses."""
    results: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        for name, value in maker(seed):
            results.setdefault(name, []).append(value)
    print(f"\n{title}\n")
    row = rows("Labels and loss", "Excess log loss", "Standard deviation")
    for name, values in results.items():
        row(name, f"{np.mean(values) * scale:.3g}", f"{np.std(values, ddof=1) * scale:.2g}")


def loss_results(seed: int) -> Iterator[tuple[str, float]]:
    """Excess log losses of trees on 40,000 labels at epsilon 1."""
    x, p, y = conversion_log(40_000, -1.5, seed)
    new, true, _ = conversion_log(40_000, -1.5, 100 + seed)
    yield "one prediction, the mean", excess(true, np.full(len(true), p.mean()))
    z, release = released(y, label_values=[0, 1], epsilon=1, mechanism="unbiased")
    labels, function = release.debiased(z), objective("lightgbm", "logistic")
    clipped = boosted(x, labels.clip(0, 1), "cross_entropy")(new)
    yield "`unbiased`, clipped to [0, 1], `cross_entropy`", excess(true, clipped)
    yield "`unbiased`, `binary`", excess(true, boosted(x, labels, "binary")(new))
    start = float(np.log(labels.mean() / (1 - labels.mean())))
    found = boosted(x, labels, function, start, max_delta_step=0.7)(new)
    yield "`unbiased`, `logistic` of `objective`", excess(true, expit(found))
    z, release = released(y, label_classes=[0, 1], epsilon=1, mechanism="rr")
    function, start = objective("lightgbm", "forward", release), float(start_scores(z, release)[0])
    found = boosted(x, z, function, start, max_delta_step=0.7)(new)
    yield "classes, `forward` of `objective`", excess(true, expit(found))
    yield "true labels, `binary`", excess(true, boosted(x, y, "binary")(new))


def conversion_results(epsilon: float, seed: int) -> Iterator[tuple[str, float]]:
    """Excess log losses on 100,000 records with 2 % conversions."""
    linear = import_module("sklearn.linear_model")
    x, p, y = conversion_log(100_000, -4.9, seed)
    new, true, _ = conversion_log(50_000, -4.9, 100 + seed)
    yield "one prediction, the mean", excess(true, np.full(len(true), p.mean()))
    z, release = released(y, label_classes=[0, 1], epsilon=epsilon, mechanism="rr")
    naive = boosted(x, z, "binary")(new)
    yield "trees, naive", excess(true, naive)
    yield "trees, naive, then `invert`", excess(true, invert(naive, release))
    start = float(start_scores(z, release)[0])
    for loss, labels, facts in (("logistic", release.debiased(z)[:, 1], None), ("forward", z, release)):
        function = objective("lightgbm", loss, facts)
        found = boosted(x, labels, function, start, max_delta_step=0.7)(new)
        yield f"trees, `{loss}` of `objective`", excess(true, expit(found))

    def fit(*data: Any) -> Any:
        return linear.LogisticRegression().fit(*data)

    model = fit(*doubled_rows(x, z, release))
    yield "linear, `doubled_rows`", excess(true, model.predict_proba(new)[:, 1])
    weighted = doubled_rows(x, z, release, release.channel.prior)
    for _ in range(ROUNDS_OF_EM[epsilon]):
        model = fit(*weighted)
        weighted = doubled_rows(x, z, release, model.predict_proba(x))
    yield "linear, `doubled_rows` with predictions", excess(true, model.predict_proba(new)[:, 1])
    yield "linear, true labels", excess(true, fit(x, y).predict_proba(new)[:, 1])
    yield "trees, true labels", excess(true, boosted(x, y, "binary")(new))


def losses() -> None:
    """Trees of LightGBM on labels 0 and 1 at epsilon 1."""
    if find_spec("lightgbm"):
        score(f"Trees of LightGBM on 40,000 labels 0 and 1 at epsilon 1, {SEEDS} seeds", loss_results, 1)


def conversions() -> None:
    """Ways to train on rare classes, at three epsilons."""
    if find_spec("lightgbm") and find_spec("sklearn"):
        for epsilon in ROUNDS_OF_EM:
            title = f"100,000 records, 2 % conversions, epsilon {epsilon}, {SEEDS} seeds, excess x 1000"
            score(title, partial(conversion_results, epsilon), 1000)


def clipping() -> None:
    """Standard errors with the correction of clipped residuals by their mean, divided by those by the ends."""
    print('\nStandard errors with clipping="average" divided by those with "ends", epsilon 2\n')
    metrics = ("mean_squared_error", "mean_absolute_error", "mean")
    row = rows("Labels of the grid", "Share clipped", *metrics)
    for size in (21, 51, 101, 201, 401):
        rng = np.random.default_rng(size)
        centers = rng.uniform(0, size - 1, 20_000).round()
        labels = (centers + size / 12 * rng.standard_t(4, len(centers))).round().clip(0, size - 1)
        z, release = released(
            labels, label_min=0, label_max=size - 1, label_step=1, epsilon=2, mechanism="unbiased",
            center_column="center", centers=centers,
        )  # fmt: skip
        ratios = []
        for metric in metrics:
            given = None if metric == "mean" else 0.9 * centers + 0.05 * size
            average, ends = (
                estimate(metric, given, z, release, center=centers, clipping=way).standard_error
                for way in ("average", "ends")
            )
            ratios.append(f"{average / ends:.2f}")
        row(size, f"{release.clipped:.1%}", *ratios)


PARTS = {"targets": targets, "copies": copies, "losses": losses, "conversions": conversions, "clipping": clipping}


def chosen(names: list[str]) -> Iterator[Callable[[], None]]:
    """Parts by name, all without names."""
    for name in names or PARTS:
        if name not in PARTS:
            raise SystemExit(f"{name} is none of {', '.join(PARTS)}")
        yield PARTS[name]


if __name__ == "__main__":
    for part in chosen(sys.argv[1:]):
        part()
