"""Simulates labels that come late: what models lose by waiting, by releasing early, and by two releases.

    python docs/results/late_labels.py

Conversions and values, 0 until they come, arrive with an exponential or a lognormal delay; features predict label and
delay, and the truth moves from day to day. A label is final at day 30. All ways to release spend one epsilon a record:

    wait           the final labels, all of epsilon; records of the last 30 days have no label yet
    early          the labels of day 1, all of epsilon; a missing one counts as 0
    drop           the labels of day 1, all of epsilon; records without one are left out (values only: all conversions
                   that are known are 1)
    two, s         both: labels of day 1 for the share s of epsilon, and final ones for the rest
    halves, s      each record once, with all of epsilon: a random share s of them at day 1, the others when final (in
                   the first world only)

A model is boosted trees around the default center, trained on the released labels. It is needed either now, for records
of today, where `wait` has records that are 31 to 60 days old and the others also those of the last 30 days; or for
records of the same time, once all labels are final. Where there are early and final labels of the older records, their
models say what early labels miss:

    final          the model of the final labels alone
    level          the model of recent early labels, times the ratio of the means of final and early labels
    ratio          the same, with the ratio of both models at each record
    mean           mean of `final` and `level`
    flagged        one model of the final labels of the older and the early labels of the recent records, with a feature
                   that tells them apart
    feature        the final labels released around a center that has the model of the early ones as a feature
    average        trees on one label a record, the average of both released ones by the squares of their epsilons,
                   about the inverse of their variances

Writes late_labels.csv beside this file, one row a seed, and the tables of docs/guides/late_labels.md. The error is the
mean squared error to the true expectation divided by its variance; for conversions the excess log loss divided by that
of the best constant. 0 is the truth, 1 says nothing. Some hours on one core; cells that are in the file are kept.
"""

from __future__ import annotations

import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from labeldp import privatize
from scipy.special import expit, logit
from scipy.stats import gamma, lognorm
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "guides" / "late_labels.md"
SEEDS = 5
RECORDS = 30_000
"""Records of 30 days."""
TESTS = 20_000
EPSILONS = (1.0, 2.0)
SHARES = (0.25, 0.5)
"""Shares of epsilon for early labels."""
HALF = 0.5
"""Share of the records whose early labels are released, if each record is released once."""
KINDS = ("conversions", "values")
DELAYS = ("exponential", "lognormal")
WORLDS = (
    ("conversions", "exponential", 0.25),
    ("conversions", "exponential", 0.5),
    ("conversions", "exponential", 0.0),
    ("conversions", "lognormal", 0.5),
    ("values", "exponential", 0.25),
)
"""Kinds of labels and delays, and angles in radians by which the truth turns in 30 days."""
LARGEST = 50
"""Largest value."""
FINAL = 30.0
"""Age in days at which a label is final."""
LEAST = 1e-3
"""Least predicted probability or value."""
MOST_LATE = 10.0
"""Largest ratio of final and early labels by which values are corrected."""
ONE_RELEASE = (("wait", "0", "final"), ("early", "1", "early"), ("drop", "1", "early"))
TWO_RELEASES = (
    ("two", "0.25", "ratio"),
    ("two", "0.5", "ratio"),
    ("halves", "0.5", "ratio"),
    ("two", "0.5", "mean"),
    ("two", "0.25", "flagged"),
    ("two", "0.5", "flagged"),
)
BOTH_LABELS = (
    ("wait", "0", "final"),
    *(("two", share, model) for share in ("0.25", "0.5") for model in ("final", "feature", "average")),
)
"""Columns of the tables: release, share and model."""
Model = Callable[[pd.DataFrame], np.ndarray]


@dataclass(frozen=True, eq=False)
class Log:
    """Records of 30 days.

    Attributes:
      frame: Features.
      early: Labels of day 1, shape (n,), 0 where missing.
      final: Labels of day 30, shape (n,), 0 where there is none.
      known: Records whose label came within a day, shape (n,), bool.
      truth: Expected final label given features, shape (n,).
    """

    frame: pd.DataFrame
    early: np.ndarray
    final: np.ndarray
    known: np.ndarray
    truth: np.ndarray

    def part(self, chosen: np.ndarray) -> Log:
        """Selects records of a mask, shape (n,), bool."""
        columns = (self.early[chosen], self.final[chosen], self.known[chosen], self.truth[chosen])
        return Log(self.frame[chosen].reset_index(drop=True), *columns)


@dataclass(frozen=True)
class World:
    """Simulated records and how labels come late.

    Attributes:
      kind: One of `KINDS`.
      delay: One of `DELAYS`.
      speed: Angle in radians by which the truth turns in 30 days.
    """

    kind: str
    delay: str
    speed: float

    def log(self, oldest: float, newest: float, records: int, random: np.random.Generator) -> Log:
        """Draws records that are between `oldest` and `newest` days old today."""
        x = random.normal(size=(records, 6))
        site = random.integers(0, 10, records)
        angle = -random.uniform(newest, oldest, records) / 30 * self.speed
        now, then = 0.9 * x[:, 0] - 0.7 * x[:, 1], 0.9 * x[:, 3] + 0.7 * x[:, 4]
        score = np.cos(angle) * now + np.sin(angle) * then + 0.4 * np.abs(x[:, 2]) + 0.4 * x[:, 0] * x[:, 5]
        effect = np.linspace(-1, 1, 10)[site]
        chance = expit(score + 0.4 * effect - 2.2)
        scale = np.exp(0.6 * x[:, 2] + 0.4 * effect - 0.3 * x[:, 0])
        delay, arrives = self._delays(scale, random)
        converts, size = random.random(records) < chance, np.ones(records)
        expected = np.ones(records)
        if self.kind == "values":
            each = 5 * np.exp(0.4 * x[:, 0] + 0.3 * x[:, 5] + 0.2 * effect)
            size = np.clip(np.round(random.gamma(2, each)), 1, LARGEST)
            expected = 2 * each * gamma.cdf(LARGEST, 3, scale=each) + LARGEST * gamma.sf(LARGEST, 2, scale=each)
        final = np.where(converts & (delay <= FINAL), size, 0.0)
        known = converts & (delay <= 1)
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(6)])
        frame["site"] = [f"s{one}" for one in site]
        return Log(frame, np.where(known, size, 0.0), final, known, chance * arrives * expected)

    def _delays(self, scale: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Delays in days, and the chances that a label comes before it is final; shape (n,)."""
        if self.delay == "exponential":
            return random.exponential(4 * scale), -np.expm1(-FINAL / (4 * scale))
        return random.lognormal(np.log(3 * scale), 1.5), lognorm.cdf(FINAL, 1.5, scale=3 * scale)


def error(kind: str, found: np.ndarray, truth: np.ndarray) -> float:
    """Error of predictions: 0 for the truth, 1 for the best constant."""
    if kind == "values":
        found = np.clip(found, 0, LARGEST)
        return float(((found - truth) ** 2).mean() / truth.var())

    def excess(chance: np.ndarray | float) -> float:
        losses = truth * np.log(truth / chance) + (1 - truth) * np.log((1 - truth) / (1 - chance))
        return float(losses.mean())

    return excess(np.clip(found, LEAST, 1 - LEAST)) / excess(truth.mean())


def matrix(frame: pd.DataFrame) -> np.ndarray:
    """Features as the trees take them, shape (n, d)."""
    return frame.assign(site=frame["site"].str[1:].astype(float)).to_numpy(np.float64)


def trained(kind: str, frame: pd.DataFrame, labels: np.ndarray, center: np.ndarray | None, seed: int) -> Model:
    """Boosted trees on labels, of values on what the center misses; of classes `labels` may be probabilities."""
    x = matrix(frame)
    parameters: dict[str, Any] = {"max_leaf_nodes": 8, "learning_rate": 0.1, "random_state": seed}
    if kind == "values":
        model = HistGradientBoostingRegressor(max_iter=100, early_stopping=True, min_samples_leaf=200, **parameters)
        model.fit(x, labels - (0 if center is None else center))
        return lambda new: model.predict(matrix(new))
    if np.isin(labels, (0, 1)).all():
        model = HistGradientBoostingClassifier(max_iter=100, early_stopping=True, min_samples_leaf=40, **parameters)
        model.fit(x, labels)
        return lambda new: model.predict_proba(matrix(new))[:, 1]
    model = HistGradientBoostingRegressor(max_iter=100, early_stopping=False, min_samples_leaf=40, **parameters)
    model.fit(x, _logit(labels))
    return lambda new: expit(model.predict(matrix(new)))


class Released(NamedTuple):
    """A release and the model trained on it.

    Attributes:
      model: Predicts from features.
      labels: Released labels, shape (n,); of conversions the probabilities from which they were drawn.
    """

    model: Model
    labels: np.ndarray


def released(kind: str, frame: pd.DataFrame, labels: np.ndarray, epsilon: float, seed: int) -> Released:
    """Releases labels by the defaults, and trains on them."""
    domain = {"label_min": 0, "label_max": LARGEST, "label_step": 1}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = privatize(
            frame.assign(label=labels.astype(np.int64)), label="label", epsilon=epsilon,
            **({"label_classes": [0, 1]} if kind == "conversions" else domain),
            noise_key_file=Path(folder, "noise.key"), ledger=Path(folder, "ledger.jsonl"),
        )  # fmt: skip
    own = found.frame["label"].to_numpy(np.float64)
    if kind == "conversions":
        # Trees on the probabilities of the center, from which the classes were drawn.
        chances = own if found.center is None else found.center[:, 1]
        return Released(trained(kind, frame, chances, None, seed), chances)
    trees = trained(kind, frame, own, found.center, seed)
    if found.center is None:
        return Released(trees, own)
    return Released(lambda new: found.predict_center(new) + trees(new), own)


def at_level(kind: str, model: Model, early: float, final: float) -> Model:
    """A model of early labels, moved to the mean of the final ones."""
    early, final = max(early, LEAST), max(final, LEAST)
    if kind == "values":
        return lambda new: model(new) * np.clip(final / early, 1, MOST_LATE)
    return lambda new: expit(_logit(model(new)) + float(_logit(final) - _logit(early)))


def by_ratio(kind: str, model: Model, early: Model, final: Model) -> Model:
    """A model of early labels, corrected at each record by the models of older early and final labels."""
    if kind == "values":
        return lambda new: (
            model(new) * np.clip(np.maximum(final(new), LEAST) / np.maximum(early(new), LEAST), 1, MOST_LATE)
        )
    return lambda new: expit(_logit(model(new)) + _logit(final(new)) - _logit(early(new)))


def _logit(chance: Any) -> np.ndarray:
    return logit(np.clip(chance, LEAST, 1 - LEAST))


class Score(NamedTuple):
    """Error of one model.

    Attributes:
      needed: "now", for records of today, or "day 30", for records of the same time once all labels are final.
      kind: One of `KINDS`.
      delay: One of `DELAYS`.
      speed: Angle of the drift in 30 days, in radians.
      records: Records of 30 days.
      epsilon: Budget of a record.
      release: Way to release; "true" for true labels.
      share: Share of epsilon or of the records for early labels.
      model: How labels become a model.
      seed: Seed.
      error: See `error`.
    """

    needed: str
    kind: str
    delay: str
    speed: float
    records: int
    epsilon: float
    release: str
    share: float
    model: str
    seed: int
    error: float


class Scorer:
    """Releases the records of one world and scores models of them."""

    def __init__(self, world: World, records: int, seed: int):
        self.world, self.records, self.seed = world, records, seed
        random = np.random.default_rng([seed, KINDS.index(world.kind), DELAYS.index(world.delay)])
        self.old, self.new = world.log(60, 30, records, random), world.log(30, 0, records, random)
        self.today = world.log(0, 0, TESTS, random)
        self.coin = random.random((2, records))

    def scores(self) -> Iterator[Score]:
        """Scores models of true labels, and all ways to release."""
        for name, log in (("older", self.old), ("recent", self.new)):
            model = trained(self.world.kind, log.frame, log.final, None, self.seed)
            yield self._score("now", np.inf, "true", 0, name, model)
        for epsilon in EPSILONS:
            yield from self._one_release(epsilon)
            for share in SHARES:
                yield from self._two_releases(epsilon, share)
            if self.world == World(*WORLDS[0]):
                yield from self._halves(epsilon, HALF)

    def _one_release(self, epsilon: float) -> Iterator[Score]:
        """Scores releases of final, of early and of known labels."""
        wait, early = self._release(self.old, "final", epsilon), self._release(self.new, "early", epsilon)
        yield self._score("now", epsilon, "wait", 0, "final", wait.model)
        yield self._score("now", epsilon, "early", 1, "early", early.model)
        if self.world.kind == "values":
            known = self.new.part(self.new.known)
            yield self._score("now", epsilon, "drop", 1, "early", self._release(known, "early", epsilon).model)
        if not self.world.speed:
            yield self._score("day 30", epsilon, "wait", 0, "final", wait.model)

    def _two_releases(self, epsilon: float, share: float) -> Iterator[Score]:
        """Scores two releases of the same records."""
        first, rest = epsilon * share, epsilon * (1 - share)
        early = self._release(self.old, "early", first)
        final, recent = self._release(self.old, "final", rest), self._release(self.new, "early", first)
        yield from self._corrected(epsilon, "two", share, early, final, recent)
        if not self.world.speed:
            yield from self._combined(epsilon, share, early, final)

    def _combined(self, epsilon: float, share: float, early: Released, final: Released) -> Iterator[Score]:
        """Scores models of records that have both labels."""
        yield self._score("day 30", epsilon, "two", share, "final", final.model)
        frame, kind = self.old.frame, self.world.kind

        def with_model(new: pd.DataFrame) -> pd.DataFrame:
            return new.assign(early=early.model(new))

        both = released(kind, with_model(frame), self.old.final, epsilon * (1 - share), self.seed)
        yield self._score("day 30", epsilon, "two", share, "feature", lambda new: both.model(with_model(new)))
        weight = share**2 / (share**2 + (1 - share) ** 2)
        labels = weight * early.labels + (1 - weight) * final.labels
        model = trained(kind, frame, labels, None, self.seed)
        yield self._score("day 30", epsilon, "two", share, "average", model)

    def _halves(self, epsilon: float, share: float) -> Iterator[Score]:
        """Scores releases of early labels of some records, and of final ones of the others."""
        first = self.coin < share
        early = self._release(self.old.part(first[0]), "early", epsilon)
        final = self._release(self.old.part(~first[0]), "final", epsilon)
        recent = self._release(self.new.part(first[1]), "early", epsilon)
        yield from self._corrected(epsilon, "halves", share, early, final, recent)
        if not self.world.speed:
            yield self._score("day 30", epsilon, "halves", share, "final", final.model)

    def _corrected(
        self, epsilon: float, release: str, share: float, early: Released, final: Released, recent: Released
    ) -> Iterator[Score]:
        """Scores models of recent early labels that those of older records correct."""
        kind = self.world.kind
        sample = self.old.frame[:10_000]
        means = (float(one.model(sample).mean()) for one in (early, final))
        level = at_level(kind, recent.model, *means)
        models = {
            "final": final.model,
            "level": level,
            "ratio": by_ratio(kind, recent.model, early.model, final.model),
            "mean": lambda new: (final.model(new) + level(new)) / 2,
        }
        for name, model in models.items():
            yield self._score("now", epsilon, release, share, name, model)
        if release == "two":
            frames = [self.old.frame.assign(early=0.0), self.new.frame.assign(early=1.0)]
            labels = np.concatenate([final.labels, recent.labels])
            pooled = trained(kind, pd.concat(frames, ignore_index=True), labels, None, self.seed)
            yield self._score("now", epsilon, release, share, "flagged", lambda new: pooled(new.assign(early=0.0)))

    def _release(self, log: Log, labels: str, epsilon: float) -> Released:
        return released(self.world.kind, log.frame, getattr(log, labels), epsilon, self.seed)

    def _score(self, needed: str, epsilon: float, release: str, share: float, name: str, model: Model) -> Score:
        world = self.world
        found = error(world.kind, model(self.today.frame), self.today.truth)
        cell = (needed, world.kind, world.delay, world.speed, self.records, epsilon)
        return Score(*cell, release, share, name, self.seed, found)


def tables() -> dict[str, str]:
    """Makes the tables of the guide: mean and standard deviation over seeds, from late_labels.csv."""
    found: dict[tuple[str, ...], list[float]] = {}
    for row in read_rows("late_labels", Score):
        speed, epsilon, share = (f"{each:.5g}" for each in (row.speed, row.epsilon, row.share))
        key = (row.needed, row.kind, row.delay, speed, epsilon, row.release, share, row.model)
        found.setdefault(key, []).append(row.error)

    def cell(*key: str) -> str:
        errors = found.get(key)
        return "-" if errors is None else f"{statistics.mean(errors):.2f} ± {statistics.stdev(errors):.2f}"

    now, later = [], []
    for (kind, delay, speed), epsilon in product(WORLDS, EPSILONS):
        world = kind, delay, f"{speed:.5g}"
        names, heads = (*world, f"{epsilon:.5g}"), [kind, delay, f"{speed:g}", f"{epsilon:g}"]
        true = [cell("now", *world, "inf", "true", "0", name) for name in ("older", "recent")]
        one = [cell("now", *names, *each) for each in ONE_RELEASE]
        seeds = f"{len(found.get(('now', *names, *ONE_RELEASE[0]), []))}"
        now.append([*heads, seeds, *true, *one, *(cell("now", *names, *each) for each in TWO_RELEASES)])
        both = [cell("day 30", *names, *each) for each in BOTH_LABELS]
        if speed == 0 and set(both) != {"-"}:
            later.append([*heads[:2], heads[3], *both])
    heading = ["labels", "delay", "drift", "epsilon", "seeds", "true, older", "true, recent", "wait", "early", "drop"]
    titles = [f"{release}, {share}: {model}" for release, share, model in TWO_RELEASES]
    of_both = ["wait", *(f"two, {share}: {model}" for _, share, model in BOTH_LABELS[1:])]
    return {
        "now": table([*heading, *titles], now),
        "day 30": table(["labels", "delay", "epsilon", *of_both], later),
    }


def main(records: int = RECORDS, seeds: int = SEEDS) -> None:
    """Scores all worlds and writes late_labels.csv; cells that are there already are kept."""
    for (kind, delay, speed), seed in product(WORLDS, range(seeds)):
        known = read_rows("late_labels", Score)
        if (kind, delay, speed, seed) not in {(row.kind, row.delay, row.speed, row.seed) for row in known}:
            scores = list(Scorer(World(kind, delay, speed), records, seed).scores())
            write_rows("late_labels", [*known, *scores], Score)
    replace_blocks(PAGE, tables())


if __name__ == "__main__":
    main()
