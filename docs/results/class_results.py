"""Compares ways to release classes: test log loss of boosted trees on true labels.

    python docs/results/class_results.py WORK_FOLDER [NAME ...]

Releases: classes of randomized response, trained on with the forward correction (Patrini et al. 2017); LP-2ST, two
stages of label privacy (Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, "Deep learning with label differential
privacy"), with the same correction; the center of classes, whose students are trained on drawn classes, or on
probabilities. The number of rounds of models with the correction is the best by the test error, which is in favor of
these two. All noise is drawn anew for each seed. Conversions are simulated, so their loss is known exactly: excess over
the entropy of the truth, times 1000, and the slope of a logistic regression of the truth on the predicted logit.

WORK_FOLDER/data has the files of run.py, and of `prepare.py DATA_FOLDER WORK_FOLDER/data fashion`; digits come with
scikit-learn. Rows are written as they are computed, and those that are there are kept: interrupt it when there are
enough seeds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from labeldp.mechanisms.center.class_center import (
    PROBABILITY_UNIT,
    ClassCenter,
    center_pays,
    draw_classes,
    released_shares,
)
from labeldp.mechanisms.center.class_partition import MOST_CLASS_SAMPLE
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.noise.keyed_words import KEY_BYTES, integer_identities
from labeldp.mechanisms.release.feature_sample import CenterFeatures, sample_words, smallest
from labeldp.mechanisms.release.label_column import LabelColumn, LabelMeaning
from labeldp.mechanisms.release.label_records import LabelRecords
from labeldp.mechanisms.release.plan import Histogram, passes_of, run_passes
from labeldp.pipelines.spec.feature_choice import CLASS_CENTER_EPSILON, TWO_CLASSES_EPSILON
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from summary import read_rows, write_rows

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEEDS = 5
HELD_OUT = 0.2
CENTERED = ("center itself", "center, drawn", "center, probabilities")
CORRECTED = ("randomized response", "LP-2ST")
DEFAULT = "default"
"""The last of a center where the released histogram says that it pays, else randomized response."""
RELEASES = (*CORRECTED, *CENTERED, DEFAULT)
LEAST = 1e-4
"""Least predicted probability of a class."""
ROUNDS, RATE, LEAVES = 80, 0.2, 16
"""Of the trees that are trained with the forward correction."""
MOST_COPIES = 4
"""Students on probabilities see each record with its likeliest classes, at most so many."""


class Table(NamedTuple):
    """Records with a label.

    Attributes:
      frame: Features.
      classes: Index of the class, shape (n,).
      size: Number of classes K.
      truth: True probabilities, shape (n, K); None for real data.
      lacking: Features that recipients have and the log lacks: models are trained on them, centers made without them.
      tests: Number of test records, the last ones; 0 for a random fifth.
    """

    frame: pd.DataFrame
    classes: np.ndarray
    size: int
    truth: np.ndarray | None = None
    tests: int = 0
    lacking: tuple[str, ...] = ()


def housing(folder: Path, seed: int) -> Table:
    """Reads California housing, prices in quintiles."""
    frame = pd.read_csv(folder / "data" / "housing.csv")
    prices = frame.pop("value").to_numpy()
    return Table(frame, np.searchsorted(np.quantile(prices, [0.2, 0.4, 0.6, 0.8]), prices, side="right"), 5)


def housing_recipients(folder: Path, seed: int) -> Table:
    """Reads California housing, prices in quintiles, whose location recipients alone know."""
    return housing(folder, seed)._replace(lacking=("Latitude", "Longitude"))


def cut(folder: Path, seed: int) -> Table:
    """Reads diamonds, with the quality of their cut."""
    frame = pd.read_csv(folder / "data" / "diamonds.csv")
    names = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
    return Table(frame, np.array([names.index(name) for name in frame.pop("cut")]), len(names))


def weeks(folder: Path, seed: int) -> Table:
    """Reads 60,000 mothers of the census, with weeks worked in four bins."""
    frame = pd.read_csv(folder / "data" / "census_1_52.csv").sample(60_000, random_state=1)
    return Table(frame, np.searchsorted([14, 27, 40], frame.pop("work").to_numpy(), side="right"), 4)


def digits(folder: Path, seed: int) -> Table:
    """Reads the handwritten digits of scikit-learn, 1,797 records of 64 pixels."""
    found = load_digits()
    return Table(pd.DataFrame(found.data, columns=[f"pixel{i}" for i in range(64)]), found.target, 10)


def fashion(folder: Path, seed: int) -> Table:
    """Reads Fashion-MNIST, ten classes of clothes: 20,000 of the 60,000 training images, and all 10,000 test images.

    Pixels are public: the features are their first 32 principal components, which need no label (prepare.py).
    """
    frame = pd.read_csv(folder / "data" / "fashion.csv")[-30_000:]
    return Table(frame, frame.pop("class").to_numpy(), 10, tests=10_000)


def twenty(folder: Path, seed: int) -> Table:
    """Simulates 20 classes whose logits are mostly linear in ten features."""
    random, size, tests = np.random.default_rng([20, seed]), 100_000, 20_000
    x = random.normal(size=(size + tests, 10))
    others = np.stack([np.abs(x[:, 0]) - 0.8, x[:, 1] * x[:, 2], x[:, 3] > 1], axis=1)
    fixed = np.random.default_rng(20)
    logits = x @ fixed.normal(0, 1.1, (10, 20)) + others @ fixed.normal(0, 0.6, (3, 20))
    classes = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)])
    return Table(frame, classes, 20, softmax(logits, axis=1), tests)


def conversions(folder: Path, seed: int) -> Table:
    """Simulates clicks, 2 % of which convert: six numbers, a campaign and a site."""
    random, size, tests = np.random.default_rng([2, seed]), 100_000, 100_000
    fixed = np.random.default_rng(2)
    x = random.normal(size=(size + tests, 6))
    campaign, site = random.zipf(1.6, size + tests) % 20, random.integers(0, 10, size + tests)
    logit = 0.7 * x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, 2] + 0.3 * np.abs(x[:, 3]) + 0.25 * x[:, 0] * x[:, 4]
    logit += fixed.normal(0, 0.5, 20)[campaign] + fixed.normal(0, 0.4, 10)[site]
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if expit(logit + middle).mean() > 0.02 else (middle, high)
    chance = expit(logit + low)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(6)])
    frame["campaign"] = [f"c{each}" for each in campaign]
    frame["site"] = [f"s{each}" for each in site]
    truth = np.stack([1 - chance, chance], axis=1)
    return Table(frame, (random.random(len(x)) < chance).astype(np.int64), 2, truth, tests)


TABLES: dict[str, Callable[[Path, int], Table]] = {
    "housing": housing,
    "housing_recipients": housing_recipients,
    "digits": digits,
    "fashion": fashion,
    "cut": cut,
    "weeks": weeks,
    "twenty": twenty,
    "conversions": conversions,
}


def columns_of(frame: pd.DataFrame) -> dict[str, np.ndarray | Categories]:
    """Features as the center takes them."""
    found: dict[str, np.ndarray | Categories] = {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column):
            found[name] = column.to_numpy(np.float64)
        else:
            codes, values = pd.factorize(column.astype(str), sort=True)
            found[name] = Categories(codes, tuple(values))
    return found


def matrix_of(frame: pd.DataFrame) -> tuple[np.ndarray, list[bool]]:
    """Features as the trees take them, shape (n, d), and which are categories."""
    columns = columns_of(frame)
    parts = [each.codes.astype(np.float64) if isinstance(each, Categories) else each for each in columns.values()]
    return np.stack(parts, axis=1), [isinstance(each, Categories) for each in columns.values()]


def released_center(frame: pd.DataFrame, classes: np.ndarray, size: int, epsilon: float, seed: int) -> ClassCenter:
    """Releases the center of classes, as a job that asks for one does; raises RefusedRelease for too few records."""
    secret, features = bytes([seed + 1] * KEY_BYTES), columns_of(frame)
    named = LabelClasses(tuple(f"class {place}" for place in range(size)))
    column = LabelColumn("class", named.domain, "record", center="probabilities", meaning=LabelMeaning(named))
    identities = integer_identities("record", np.arange(len(frame)))
    records = LabelRecords(column, classes.astype(np.float64), identities)
    sample = smallest(sample_words(secret, identities), features, len(frame), MOST_CLASS_SAMPLE)
    passes = passes_of(column, Histogram(epsilon, None, "rr"), CenterFeatures(tuple(features), cells=True))
    return run_passes(passes, sample, column, secret, lambda *_: iter([(records, features)])).made


def bounded(found: np.ndarray) -> np.ndarray:
    """Probabilities of at least `LEAST` before they are normalized, shape (n, K)."""
    found = np.maximum(found, LEAST)
    return found / found.sum(axis=1, keepdims=True)


def predictor(model: HistGradientBoostingClassifier, size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Function that predicts probabilities of all classes, shape (n, K), also of those that the model has not seen."""

    def predict(tests: np.ndarray) -> np.ndarray:
        found = np.zeros((len(tests), size))
        found[:, model.classes_] = model.predict_proba(tests)
        return bounded(found)

    return predict


def trained(x: np.ndarray, categories: list[bool], classes: np.ndarray, size: int, seed: int):
    """Trains boosted trees of scikit-learn; returns what predicts probabilities, shape (n, K)."""
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=400, early_stopping=True, validation_fraction=0.15, n_iter_no_change=10,
        max_leaf_nodes=LEAVES, categorical_features=categories, random_state=seed,
    )  # fmt: skip
    return predictor(model.fit(x, classes), size)


def student(x: np.ndarray, categories: list[bool], probabilities: np.ndarray, size: int, seed: int):
    """Trains boosted trees on probabilities: copies of records, weighted by their likeliest classes."""
    order = np.argsort(-probabilities, axis=1)[:, : min(size, MOST_COPIES)]
    weights = np.take_along_axis(probabilities, order, axis=1)
    weights = weights / weights.sum(axis=1, keepdims=True)
    model = HistGradientBoostingClassifier(
        learning_rate=0.1, max_iter=150, early_stopping=False, max_leaf_nodes=LEAVES,
        categorical_features=categories, random_state=seed,
    )  # fmt: skip
    model.fit(np.repeat(x, order.shape[1], axis=0), order.ravel(), sample_weight=weights.ravel() + 1e-9)
    return predictor(model, size)


def forward(
    x: np.ndarray, categories: list[bool], likelihoods: np.ndarray, seed: int, tests: np.ndarray, own_rounds: bool
) -> Iterator[np.ndarray]:
    """Trains boosted trees by the likelihood of drawn classes, with the Fisher information as second derivatives.

    `likelihoods[i, c]` is the probability of the class that was drawn for record i if the true one is c. Yields the
    probabilities of test records after each round; with `own_rounds`, those alone with the least noisy loss on a fifth
    of the records, which no model sees.
    """
    size = likelihoods.shape[1]
    held = np.random.default_rng(seed).random(len(x)) < (0.2 if own_rounds else 0.0)
    start = _start(likelihoods)
    logits, best, waited = np.tile(start, (len(x), 1)), np.inf, 0
    found = np.tile(start, (len(tests), 1))
    kept = found.copy()
    for _ in range(ROUNDS):
        chances = softmax(logits, axis=1)
        joint = chances * likelihoods
        posterior = joint / joint.sum(axis=1, keepdims=True)
        gradient = posterior - chances
        # The Fisher information is about the variance of the gradient.
        information = np.maximum((gradient[~held] ** 2).mean(axis=0), 1e-8)
        for one in range(size if size > 2 else 1):
            model = HistGradientBoostingRegressor(
                max_iter=1, learning_rate=1.0, max_leaf_nodes=LEAVES, min_samples_leaf=20, early_stopping=False,
                l2_regularization=1 / information[one], categorical_features=categories, random_state=seed,
            )  # fmt: skip
            model.fit(x[~held], gradient[~held, one] / information[one])
            for scores, records in ((logits, x), (found, tests)):
                step = RATE * (size - 1) / size * model.predict(records)
                scores[:, one] += step
                if size == 2:
                    scores[:, 1] -= step
        if not own_rounds:
            yield bounded(softmax(found, axis=1))
            continue
        loss = -np.log((softmax(logits[held], axis=1) * likelihoods[held]).sum(axis=1)).mean()
        kept, best, waited = (found.copy(), loss, 0) if loss < best - 1e-6 else (kept, best, waited + 1)
        if waited >= 6:
            break
    if own_rounds:
        yield bounded(softmax(kept, axis=1))


def _start(likelihoods: np.ndarray) -> np.ndarray:
    """Logits of the most likely shares of the classes (expectation maximization)."""
    shares = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(200):
        joint = shares * likelihoods
        shares = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.log(np.maximum(shares, 1e-6))


def randomized(classes: np.ndarray, allowed: np.ndarray, epsilon: float, random: np.random.Generator) -> np.ndarray:
    """Draws by randomized response on allowed classes, shape (n, K), bool; returns the likelihoods of the draws.

    A class that is not allowed becomes a uniform one of those that are (RRWithPrior).
    """
    size, place = allowed.sum(axis=1), np.arange(len(classes))
    rest = np.exp(epsilon) + size - 1
    # A class that is allowed stays, or becomes a uniform one, which may be itself.
    stay = (random.random(len(classes)) < (np.exp(epsilon) - 1) / rest) & allowed[place, classes]
    drawn = np.where(stay, classes, (random.random(allowed.shape) * allowed).argmax(axis=1))
    likelihoods = np.where(allowed, (1 / rest)[:, None], (1 / size)[:, None])
    likelihoods[place, drawn] = np.exp(epsilon) / rest
    return np.where(size[:, None] == 1, 1.0, likelihoods)


def rival(
    x: np.ndarray, categories: list[bool], classes: np.ndarray, size: int, epsilon: float, seed: int
) -> np.ndarray:
    """LP-2ST: half of the records by randomized response, the rest by RRWithPrior with a model of the first half.

    Returns the likelihoods of the drawn classes, shape (n, K).
    """
    random = np.random.default_rng([3, seed])
    first = random.random(len(x)) < 0.5
    likelihoods = randomized(classes[first], np.ones((first.sum(), size), bool), epsilon, random)
    (prior,) = forward(x[first], categories, likelihoods, seed, x[~first], own_rounds=True)
    order = np.argsort(-prior, axis=1)
    ranked = np.cumsum(np.take_along_axis(prior, order, axis=1), axis=1)
    count = np.arange(1, size + 1)
    best = (ranked * np.exp(epsilon) / (np.exp(epsilon) + count - 1)).argmax(axis=1)
    allowed = np.zeros(prior.shape, bool)
    np.put_along_axis(allowed, order, count <= best[:, None] + 1, axis=1)
    found = np.empty((len(x), size))
    found[first], found[~first] = likelihoods, randomized(classes[~first], allowed, epsilon, random)
    return found


class Score(NamedTuple):
    """Result of one release.

    Attributes:
      name: Name in `TABLES`.
      release: Kind of release and model.
      epsilon: Budget; infinite for true labels.
      seed: Seed.
      loss: Log loss on test records, or its excess times 1000 for conversions.
      slope: Calibration slope of two classes; 0 for more.
      accuracy: Share of test records whose likeliest class is the true one; NaN in files that were made without it.
    """

    name: str
    release: str
    epsilon: float
    seed: int
    loss: float
    slope: float
    accuracy: float = math.nan


def lost(table: Table, test: np.ndarray, found: np.ndarray) -> float:
    """Log loss on the test records, or its excess times 1000 where the truth of two classes is known."""
    if table.truth is None or table.size != 2:
        return float(-np.log(found[np.arange(len(test)), table.classes[test]]).mean())
    truth = table.truth[test]
    return float((truth * np.log(truth / found)).sum(axis=1).mean() * 1e3)


def judged(table: Table, test: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Loss on the test records, and the calibration slope of two classes whose truth is known."""
    if table.truth is None or table.size != 2:
        return lost(table, test, found), 0.0
    truth = table.truth[test]
    logit = np.log(found[:, 1] / found[:, 0])

    def loss(slope: float) -> float:
        def shifted(shift: float) -> float:
            return float((np.logaddexp(0, slope * logit + shift) - truth[:, 1] * (slope * logit + shift)).mean())

        return float(minimize_scalar(shifted, bounds=(-20, 20), method="bounded").fun)

    slope = float(minimize_scalar(loss, bounds=(0, 5), method="bounded", options={"xatol": 1e-3}).x)
    return lost(table, test, found), slope


def best_of(table: Table, test: np.ndarray, stages: Iterator[np.ndarray]) -> np.ndarray:
    """The stage with the least loss on the test records, before ten that are no better."""
    best, kept, waited = np.inf, np.zeros(0), 0
    for stage in stages:
        loss = lost(table, test, stage)
        best, kept, waited = (loss, stage, 0) if loss < best else (best, kept, waited + 1)
        if waited == 10:
            break
    return kept


def by_center(
    table: Table, x: np.ndarray, categories: list[bool], train: np.ndarray, test: np.ndarray, epsilon: float, seed: int
) -> tuple[dict[str, np.ndarray], bool]:
    """Probabilities of the test records by release around a center; and whether the default makes that center."""
    frame, size = table.frame.drop(columns=list(table.lacking)), table.size
    center = released_center(frame.iloc[train], table.classes[train], size, epsilon, seed)
    assert Fraction(center.epsilon) <= Fraction(epsilon)
    probabilities = center.probabilities(columns_of(frame.iloc[train]))
    drawn = draw_classes(probabilities, np.random.default_rng([4, seed]).integers(0, 1 << 64, len(train), np.uint64))
    shares = released_shares(center.counts, len(train), center.budget.counts)
    most = CLASS_CENTER_EPSILON if size > 2 else TWO_CLASSES_EPSILON
    return {
        CENTERED[0]: center.probabilities(columns_of(frame.iloc[test])) / PROBABILITY_UNIT,
        CENTERED[1]: trained(x[train], categories, drawn, size, seed)(x[test]),
        CENTERED[2]: student(x[train], categories, probabilities / PROBABILITY_UNIT, size, seed)(x[test]),
    }, epsilon <= most and center_pays(shares, center.epsilon)


def scores(name: str, folder: Path, seed: int, known: Mapping[tuple[str, float, int], Score]) -> Iterator[Score]:
    """Scores all releases of one table with one seed, but for those known by release, epsilon and seed."""
    table = TABLES[name](folder, seed)
    if table.tests:
        train, test = np.split(np.arange(len(table.classes)), [len(table.classes) - table.tests])
    else:
        order = np.random.default_rng([seed, 77]).permutation(len(table.classes))
        test, train = np.split(order, [int(HELD_OUT * len(order))])
    x, categories = matrix_of(table.frame)
    classes, size = table.classes[train], table.size

    def scored(release: str, epsilon: float, found: np.ndarray) -> Score:
        accuracy = float((found.argmax(axis=1) == table.classes[test]).mean())
        return Score(name, release, epsilon, seed, *judged(table, test, found), accuracy)

    truth = known.get(("true", np.inf, seed))
    yield truth or scored("true", np.inf, trained(x[train], categories, classes, size, seed)(x[test]))
    own = np.array([column not in table.lacking for column in table.frame])
    for epsilon in EPSILONS:
        found = {release: known[release, epsilon, seed] for release in RELEASES if (release, epsilon, seed) in known}
        if not found.keys() >= {*CORRECTED}:
            every = np.ones((len(train), size), bool)
            log = x[train][:, own], [each for each, has in zip(categories, own, strict=True) if has]
            for release, likelihoods in (
                (CORRECTED[0], randomized(classes, every, epsilon, np.random.default_rng([5, seed]))),
                (CORRECTED[1], rival(*log, classes, size, epsilon, seed)),
            ):
                stages = forward(x[train], categories, likelihoods, seed, x[test], own_rounds=False)
                found[release] = scored(release, epsilon, best_of(table, test, stages))
        if not found.keys() >= {*CENTERED, DEFAULT}:
            predicted, is_default = by_center(table, x, categories, train, test, epsilon, seed)
            found |= {release: scored(release, epsilon, each) for release, each in predicted.items()}
            found[DEFAULT] = found[CENTERED[2] if is_default else CORRECTED[0]]._replace(release=DEFAULT)
        yield from found.values()


def main(folder: Path, names: list[str]) -> None:
    """Scores tables and writes classes_NAME.csv beside this file for each of them."""
    for name in names:
        file = f"classes_{name}"
        known = {each[1:4]: each for each in read_rows(file, Score)}
        scored = (each for seed in range(SEEDS) for each in scores(name, folder, seed, known))
        write_rows(file, chain(known.values(), (each for each in scored if each[1:4] not in known)), Score)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: class_results.py WORK_FOLDER [NAME ...]")
    main(Path(sys.argv[1]), sys.argv[2:] or list(TABLES))
