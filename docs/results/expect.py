"""Simulates what a model loses by training on released labels, for logs of 1,000 to 100 million records.

    python docs/results/expect.py

Writes expect.csv and expect.svg beside this file and the tables of docs/expect.md; some minutes on one core. `make
results` calls this script.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import (
    MOST_SAMPLE,
    LinearCenter,
    design_center,
    moment_sums,
    noised_sums,
)
from labeldp.mechanisms.core.randomizer import variances
from labeldp.mechanisms.registry import AUTO, default_rounding, mechanism_named
from labeldp.mechanisms.release.conclude import solved
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.plan import Histogram
from labeldp.report.charts import Line, lines_chart
from labeldp.study.dataset import Dataset, select_records
from labeldp.study.evaluation_cell import (
    CELL_CENTER,
    CLEAN,
    LINEAR_CENTER,
    Cell,
    Task,
    score_cell,
    seed_secret,
)
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.release_passes import summarize
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "expect.md"

DOMAIN = tuple(float(label) for label in range(53))
NUMBERS = 10
SHARES = (0.4, 0.25, 0.2, 0.1, 0.05)
"""Shares of the values of the category."""
PARAMETERS = NUMBERS + len(SHARES)
"""Parameters of a linear model: a constant, 10 coefficients, and one for each value of the category but one."""
LINEAR, OTHER = 0.5, 0.25
"""Shares of the label's variance that features explain linearly and otherwise; noise is the rest."""
SPREAD = 10.0
"""Standard deviation of a label, before it is rounded and clamped."""
CLAMPED_SPREAD = 9.8
"""The same of the labels."""
EXPLAINED = {"linear": LINEAR, "trees": LINEAR + OTHER}
"""Share of the variance that a model can explain, by model."""

RELEASES = {
    "default": (AUTO, LINEAR_CENTER),
    "--for log_features": (AUTO, CELL_CENTER),
    "--for labels": ("rr_on_bins", None),
    "--mechanism unbiased --center none": ("unbiased", None),
}
"""Mechanism and center of each release, by its flags."""
DEFAULT, OF_CELLS = "default", "--for log_features"
EPSILONS = (0.5, 1.0, 2.0)
SEEDS, MORE_SEEDS = 3, 12
"""Number of seeds; the larger one for linear models of mechanisms that are not chosen by `auto`, which takes time."""
TRAINED = {"linear": 10**6, "trees": 10**5}
"""Largest number of records of models that are trained on drawn records."""
ALL_EPSILONS = 10**5
"""Largest number of records on which linear models are trained at every epsilon; all other models at `ONE` alone."""
ONE = 1.0
ALL_RELEASES = 10**4
"""Largest number of records on which trees are trained on labels without a center."""
TESTS = {"linear": 200_000, "trees": 4_000}
"""Test records; the predictions of all stages of all trees take time."""
RECORDS = tuple(10**power for power in range(3, 9))
POPULATION = 10**5
"""Records that stand for a larger log: each of them is that many times in it."""
CHECKED = (10**5, 10**6)
"""Numbers of records for which drawn records and the formula are compared."""


class Simulated(Dataset):
    """Dataset whose last records are the test records: their number does not depend on that of the others."""

    tests: int

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Splits the records.

        Args:
          seed: Ignored: each seed has a dataset of its own.

        Returns:
          Indices of the training records and of the test records.
        """
        return np.split(np.arange(len(self.labels)), [len(self.labels) - self.tests])


def simulate(records: int, tests: int, seed: int) -> Simulated:
    """Draws records with a known truth.

    The label is a linear function of ten normal numbers and a category, plus squares, an absolute value and a product,
    which no linear function explains, plus noise; it is rounded to a grid of 53 labels, at whose ends 1.5 % lie.

    Args:
      records: Number of training records.
      tests: Number of test records.
      seed: Seed of the records.

    Returns:
      The records, the test records last.
    """
    random = np.random.default_rng([seed, records])
    size = records + tests
    x = random.normal(size=(size, NUMBERS))
    codes = random.choice(len(SHARES), size, p=SHARES)
    slopes = 0.8 ** np.arange(NUMBERS)
    effects = np.linspace(1, -1, len(SHARES))
    effects -= np.array(SHARES) @ effects
    linear = x @ slopes + effects[codes]
    linear /= math.sqrt((slopes**2).sum() + np.array(SHARES) @ effects**2)
    bend = (np.abs(x[:, 3]) - math.sqrt(2 / math.pi)) / math.sqrt(1 - 2 / math.pi)
    other = (x[:, 0] * x[:, 1] + (x[:, 2] ** 2 - 1) / math.sqrt(2) + bend) / math.sqrt(3)
    noise = random.normal(size=size)
    exact = math.sqrt(LINEAR) * linear + math.sqrt(OTHER) * other + math.sqrt(1 - LINEAR - OTHER) * noise
    labels = np.clip(np.rint(DOMAIN[-1] / 2 + SPREAD * exact), DOMAIN[0], DOMAIN[-1])
    values = tuple("abcde")
    numbers = [f"x{place}" for place in range(NUMBERS)]
    features = np.concatenate([x, codes[:, None] == np.arange(len(SHARES))], axis=1)
    columns = {**dict(zip(numbers, x.T, strict=True)), "group": Categories(codes, values)}
    names = [*numbers, *(f"group={value}" for value in values)]
    found = Simulated.from_arrays(names, features, labels, columns)
    assert isinstance(found, Simulated)
    object.__setattr__(found, "tests", tests)
    return found


class Loss(NamedTuple):
    """Loss of a model by training on released labels, as a share of the label's variance.

    Attributes:
      release: Name in `RELEASES`.
      model: Name of the model.
      records: Number of training records.
      epsilon: The whole budget.
      source: "trained" for drawn records, "formula" for the asymptotic error.
      lost: Mean of the excess over the error of the same model of as many true labels.
      deviation: Standard deviation of the excess over seeds; 0 for the formula.
      seeds: Number of seeds.
      clean: Error of the model of true labels.
    """

    release: str
    model: str
    records: int
    epsilon: float
    source: str
    lost: float
    deviation: float
    seeds: int
    clean: float


def trained(model: str, records: int) -> list[Loss]:
    """Trains a model on simulated releases and on true labels, and compares their test errors.

    Args:
      model: Name of the model.
      records: Number of training records.

    Returns:
      A row for each release and epsilon.
    """
    task = Task("y", DOMAIN)
    everything = model == "linear" and records <= ALL_EPSILONS
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    errors = []
    for seed in range(MORE_SEEDS if everything else SEEDS):
        dataset = simulate(records, TESTS[model], seed)
        variance = float(dataset.labels.var())
        clean = score_cell(Cell(CLEAN, None, seed, model), task, dataset).test_loss
        assert clean is not None
        errors.append(clean / variance)
        for name, (mechanism, center) in RELEASES.items():
            made = center is not None
            if (made and seed >= SEEDS) or (not made and model == "trees" and records > ALL_RELEASES):
                continue
            for epsilon in EPSILONS if everything else (ONE,):
                score = score_cell(Cell(mechanism, epsilon, seed, model, center), task, dataset)
                # A center refuses records that are too few for the mean of all labels to say anything.
                if score.test_loss is not None:
                    found[name, epsilon].append((score.test_loss - clean) / variance)
    clean = float(np.mean(errors))
    return [
        Loss(name, model, records, epsilon, "trained", float(np.mean(each)), float(np.std(each)), len(each), clean)
        for (name, epsilon), each in found.items()
    ]


def expected(name: str, records: int, epsilon: float, population: Dataset, seed: int = 0) -> Loss:
    """Computes the error of least squares on released labels from moments, without drawing the labels.

    Each record of the population stands for many. Center, noised histogram and randomizer are those of a release of so
    many records, with their noise. The squared bias is that of the limit of the model: the least squares fit to the
    mean of each record's released label, which the randomizer gives exactly. The variance is (p / n) s^2 for p
    parameters, s^2 the variance of a released label around that limit, weighted by leverage.

    Args:
      name: Name in `RELEASES`; not that of cells.
      records: Number of records n, a multiple of that of the population.
      epsilon: The whole budget.
      population: The population.
      seed: Seed of the noise.

    Returns:
      The row.
    """
    copies, rest = divmod(records, len(population.labels))
    assert not rest
    mechanism, center = RELEASES[name]
    column = LabelColumn("y", DOMAIN, rounding=default_rounding(mechanism), center=center)
    secret = seed_secret(seed)
    labels, linear = population.labels, None
    arrays = {"y": pa.array(labels)}
    base, offset = np.zeros(len(labels)), np.zeros(len(labels))
    if center is not None:
        linear = _center(population, records, epsilon, secret)
        base = column.labels[linear.indices(population.columns)]
        offset = linear.positions(population.columns)
        arrays[center] = pa.array(base)
    batch = LabelledBatch.whole("population", 0, pa.RecordBatch.from_pydict(arrays))
    histogram = Histogram(epsilon, None, mechanism)
    sums = summarize(histogram, batch, column, True, linear, secret)
    sums = dataclasses.replace(sums, sums=sums.sums * copies, records=sums.records * copies)
    release = histogram.release(sums, column, True, linear, secret)
    randomizer = solved(release, None if mechanism == AUTO else mechanism_named(mechanism))
    private = np.clip(labels - base, randomizer.labels[0], randomizer.labels[-1])
    place = np.rint(private - randomizer.labels[0]).astype(np.int64)
    means = base + (randomizer.labels + randomizer.bias())[place]
    noise = variances(randomizer)[place]

    inputs = np.concatenate([np.ones((len(labels), 1)), population.features[:, :-1]], axis=1)
    inverse = np.linalg.inv(inputs.T @ inputs / len(labels))
    leverage = ((inputs @ inverse) * inputs).sum(axis=1)

    def limit(values: np.ndarray) -> np.ndarray:
        return inputs @ (inverse @ (inputs.T @ values)) / len(labels)

    clean, released = limit(labels), offset + limit(means - offset)
    errors = [float(((labels - each) ** 2).mean()) for each in (clean, released)]
    spreads = [float((leverage * s).mean()) for s in ((labels - clean) ** 2, noise + (means - released) ** 2)]
    of_clean, of_released = (error + spread / records for error, spread in zip(errors, spreads, strict=True))
    variance = float(labels.var())
    lost = (of_released - of_clean) / variance
    return Loss(name, "linear", records, epsilon, "formula", lost, 0.0, 1, of_clean / variance)


def _center(population: Dataset, records: int, epsilon: float, secret: bytes) -> LinearCenter:
    """Linear center of a log in which each record of the population occurs equally often."""
    sample = select_records(population.columns, np.arange(min(MOST_SAMPLE, len(population.labels))))
    design = design_center(sample, records, epsilon)
    size = len(DOMAIN)
    if not design.epsilon:
        return LinearCenter.fit(design, size, ())
    copies = records // len(population.labels)
    sums = moment_sums(design.map.rows(population.columns), population.labels.astype(np.int64), size)
    noised = noised_sums([copies * each for each in sums], design.map.norm, size, design.epsilon, secret)
    return LinearCenter.fit(design, size, noised)


def measure() -> Iterable[Loss]:
    """Computes all rows.

    Yields:
      Rows of trained models, then of the formula.
    """
    for model, most in TRAINED.items():
        for records in RECORDS:
            if records <= most:
                yield from trained(model, records)
    population = simulate(POPULATION, 0, SEEDS)
    for records in RECORDS:
        if records in CHECKED or records > TRAINED["linear"]:
            # The formula is for linear models around a linear center.
            for name in [release for release in RELEASES if release != OF_CELLS]:
                for epsilon in EPSILONS:
                    yield expected(name, records, epsilon, population)


def percent(share: float) -> str:
    """Formats a share.

    Args:
      share: The share; small ones are within the error of the simulation. Negative ones are gains.

    Returns:
      Percent with two significant digits.
    """
    return f"{100 * share:.2g} %" if abs(share) >= 0.0005 else "< 0.05 %"


def chosen(rows: Sequence[Loss], release: str, model: str, epsilon: float) -> list[Loss]:
    """Selects one row for each number of records, a trained model where there is one.

    Args:
      rows: All rows.
      release: Name in `RELEASES`.
      model: Name of the model.
      epsilon: The budget.

    Returns:
      The rows, by number of records.
    """
    found: dict[int, Loss] = {}
    for row in sorted(rows, key=lambda row: row.source):  # the formula first
        if (row.release, row.model, row.epsilon) == (release, model, epsilon):
            found[row.records] = row
    return [found[records] for records in sorted(found)]


def cell(row: Loss | None) -> str:
    """Formats what a model loses.

    Args:
      row: The row; None gives "-".

    Returns:
      The text of a cell.
    """
    if row is None:
        return "-"
    text = percent(row.lost)
    return text if row.source == "trained" or text.startswith("<") else f"≈ {text}"


def losses(rows: Sequence[Loss]) -> str:
    """Tabulates what linear models lose.

    Args:
      rows: All rows.

    Returns:
      A row for each release and number of records.
    """
    lines = []
    for release in RELEASES:
        columns = [{row.records: row for row in chosen(rows, release, "linear", epsilon)} for epsilon in EPSILONS]
        for records in RECORDS:
            if records <= TRAINED["linear"]:
                lines.append([f"`{release}`", f"{records:,}", *(cell(column.get(records)) for column in columns)])
    return table(["release", "records", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)], lines)


def losses_of_trees(rows: Sequence[Loss]) -> str:
    """Tabulates what trees lose at epsilon 1.

    Args:
      rows: All rows.

    Returns:
      A row for each number of records.
    """
    columns = [{row.records: row for row in chosen(rows, release, "trees", ONE)} for release in RELEASES]
    lines = [
        [f"{records:,}", percent(row.clean), *(cell(column.get(records)) for column in columns)]
        for records, row in columns[0].items()
    ]
    return table(["records", "error with true labels", *(f"`{release}`" for release in RELEASES)], lines)


def needed(rows: Sequence[Loss], release: str, model: str, epsilon: float) -> float:
    """Interpolates the number of records from which on a model loses less than a tenth of what it could explain.

    Args:
      rows: All rows.
      release: Name in `RELEASES`.
      model: Name of the model.
      epsilon: The budget.

    Returns:
      The number; infinite if no row is below.
    """
    most = EXPLAINED[model] / 10
    before = None
    for row in chosen(rows, release, model, epsilon):
        if row.lost <= most:
            if before is None:
                return float(row.records)
            part = math.log(before.lost / most) / math.log(before.lost / max(row.lost, 1e-6))
            return before.records * (row.records / before.records) ** part
        before = row
    return math.inf


def rule(epsilon: float, explained: float = LINEAR, parameters: int = PARAMETERS) -> float:
    """Computes the rule of thumb for unbiased labels without a center.

    Args:
      epsilon: The budget.
      explained: Share S of the label's variance that the model could explain.
      parameters: Parameters p of the model.

    Returns:
      10 p / S times (range / 2)^2 coth^2(epsilon / 2), the largest variance of the noise, over that of the label.
    """
    ends = (DOMAIN[-1] / 2 / math.tanh(epsilon / 2)) ** 2
    return 10 * parameters / explained * ends / CLAMPED_SPREAD**2


def records_needed(rows: Sequence[Loss]) -> str:
    """Tabulates the records that a model needs, beside the rule of thumb.

    Args:
      rows: All rows.

    Returns:
      A row for each model and epsilon.
    """

    def rounded(value: float) -> str:
        return f"{float(f'{value:.2g}'):,.0f}" if math.isfinite(value) else "never"

    lines = []
    for model in TRAINED:
        for epsilon in EPSILONS if model == "linear" else (ONE,):
            found = [rounded(needed(rows, release, model, epsilon)) for release in RELEASES]
            if model == "trees":
                found[2:] = ["never" if chosen(rows, "--for labels", model, epsilon) else "-", "-"]
            lines.append([model, f"{epsilon:g}", *found, rounded(rule(epsilon)) if model == "linear" else "-"])
    return table(["model", "epsilon", *(f"`{release}`" for release in RELEASES), "rule"], lines)


def picture(rows: Sequence[Loss]) -> str:
    """Draws what models lose against the number of records.

    Args:
      rows: All rows.

    Returns:
      The content of an SVG file.
    """
    lines = []
    drawn = [("linear", DEFAULT, epsilon) for epsilon in EPSILONS]
    drawn += [("trees", release, ONE) for release in (OF_CELLS, DEFAULT)]
    drawn += [("linear", release, ONE) for release, (_, center) in RELEASES.items() if center is None]
    for model, release, epsilon in drawn:
        found = chosen(rows, release, model, epsilon)
        lost = [100 * row.lost / EXPLAINED[model] for row in found]
        # Below a hundredth of a percent, the error of the simulation is as large.
        heights = [value if value >= 0.01 else None for value in lost]
        short = {"--mechanism unbiased --center none": "unbiased, no center"}.get(release, release)
        lines.append(Line(f"{model}, {short}, epsilon {epsilon:g}", [row.records for row in found], heights))
    title = "Loss of models trained on released labels (simulated)"
    levels = [("a tenth", 10.0), ("nothing learned", 100.0)]
    return lines_chart(lines, title, "records", "percent of the explained variance lost", levels, file=True)


def write_page(rows: Sequence[Loss]) -> None:
    """Replaces the tables of docs/expect.md.

    Args:
      rows: All rows.
    """
    found = {"linear": losses(rows), "trees": losses_of_trees(rows), "needed": records_needed(rows)}
    replace_blocks(PAGE, found)


if __name__ == "__main__":
    write_rows("expect", measure(), Loss)
    everything = read_rows("expect", Loss)
    (HERE / "expect.svg").write_text(picture(everything), encoding="utf-8")
    write_page(everything)
