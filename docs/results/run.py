"""Runs the evaluations of docs/results and copies their figures to this folder.

    python docs/results/run.py DATA_FOLDER WORK_FOLDER [NAME ...]

Cached cells found in the work folder are reused. `make results` calls this script.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from prepare import FURTHER, prepare, prepare_further
from summary import least, read
from summary import main as write_summary

HERE = Path(__file__).resolve().parent
MECHANISMS = (
    "rr_on_bins", "unbiased", "bias_limited:bias=0.1", "debiased_rr", "rp_with_prior", "laplace", "laplace:clip=false",
    "staircase", "staircase:clip=false",
)  # fmt: skip
CENSUS_MECHANISMS = MECHANISMS[:6]
"""The first six, up to clipped Laplace noise, because the census has many records."""
MODELS = ("linear", "trees")
BIASES = ("unbiased", *(f"bias_limited:bias={bias:g}" for bias in (0.1, 0.2, 0.4, 0.6, 0.8)), "rr_on_bins")
CENTERED = ("rr_on_bins", "unbiased", "auto")
CENTERS = ("none", "linear")
CELLS = {"center": ("linear", "cells"), "mechanism": ("auto",), "seeds": 5}
"""Flags by name: the default release, and that for models of the features of the log alone."""
SMALL = {"center": ("none", "linear", "cells"), "mechanism": ("auto",), "model": ("trees",), "seeds": 3}
"""Flags by name: these and labels without a center."""
LOCATION, QUALITY = ("Latitude", "Longitude"), ("clarity", "color")
"""Features of housing and of diamonds that recipients have and the log lacks."""
PICTURES = ("housing_center-trees.svg", "housing-trees.svg")
"""Pictures of the page."""
PUBLISHED_EPSILONS = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8)
SMALL_EPSILONS = (0.05, 0.1, 0.3, 0.5, 0.8, 1)
CENSUS_EPSILONS = (0.5, 1, 2, 4)
CENTER_EPSILONS = (0.1, 0.3, 0.5, 1, 2, 4, 8)
CENSUS_TREE_EPSILONS = (1, 4, 8)
CELL_EPSILONS = (0.5, 1, 2)
"""Above 2 there are no cells."""

CENSUS = {"label": "work", "label_max": 52, "label_step": 1}
HOUSING = {"label": "value", "label_min": 0, "label_max": "5.00001", "label_step": "0.1000002"}
COMMUNITIES = {"label": "ViolentCrimesPerPop", "label_min": 0, "label_max": 1}
DIAMONDS = {"label": "price", "label_min": 0, "label_max": 20, "label_step": "0.1"}
WAGES = {"label": "earnings", "label_min": 0, "label_max": 80, "label_step": "0.5"}
LOANS = {"label": "interest_rate", "label_min": 0, "label_max": 32, "label_step": "0.2"}
"""Flags by name. Steps must divide the range of labels."""


def flags(data: str, title: str, columns: dict[str, object], **more: object) -> dict[str, object]:
    """Makes the flags of one evaluation.

    Args:
      data: Name in `PREPARED`.
      title: Title of tables and pictures.
      columns: Flags of the label column.
      **more: Further flags; they replace the defaults.

    Returns:
      Flags by name; a tuple has several values.
    """
    return {"data": data, "title": title, "mechanism": MECHANISMS, "model": MODELS, **columns, **more}


RUNS = {
    "communities": flags("communities", "Communities and Crime, labels in steps of 0.01", COMMUNITIES,
        label_step="0.01", epsilon=PUBLISHED_EPSILONS, seeds=3, published="communities"),
    "communities_coarse": flags("communities", "Communities and Crime, labels in steps of 0.1", COMMUNITIES,
        label_step="0.1", epsilon=PUBLISHED_EPSILONS, seeds=3, published="communities"),
    "housing": flags("housing", "California housing", HOUSING,
        epsilon=PUBLISHED_EPSILONS, seeds=3, published="housing"),
    "communities_bias": flags("communities", "Communities and Crime, by bias", COMMUNITIES,
        label_step="0.1", epsilon=SMALL_EPSILONS, seeds=3, mechanism=BIASES),
    "housing_bias": flags("housing", "California housing, by bias", HOUSING,
        epsilon=SMALL_EPSILONS, seeds=3, mechanism=BIASES),
    "census_1_52": flags("census_1_52", "Weeks worked, 1 to 52", CENSUS,
        label_min=1, epsilon=CENSUS_EPSILONS, seeds=3, mechanism=CENSUS_MECHANISMS),
    "census_0_52": flags("census_0_52", "Weeks worked, 0 to 52", CENSUS,
        label_min=0, epsilon=CENSUS_EPSILONS, seeds=3, mechanism=CENSUS_MECHANISMS),
    "housing_center": flags("housing", "California housing, around a center", HOUSING, center=CENTERS,
        epsilon=CENTER_EPSILONS, seeds=5, mechanism=CENTERED),
    "communities_center": flags("communities", "Communities and Crime, around a center", COMMUNITIES, center=CENTERS,
        label_step="0.01", epsilon=CENTER_EPSILONS, seeds=5, mechanism=CENTERED),
    "census_center": flags("census_0_52", "Weeks worked, 0 to 52, around a center", CENSUS, center=CENTERS,
        label_min=0, epsilon=CENTER_EPSILONS, seeds=5, mechanism=CENTERED, model=("linear",)),
    "census_center_trees": flags("census_0_52", "Weeks worked, 0 to 52, trees around a center", CENSUS, center=CENTERS,
        label_min=0, epsilon=CENSUS_TREE_EPSILONS, seeds=5, mechanism=CENTERED, model=("trees",)),
    "housing_cells": flags("housing", "California housing, around cells", HOUSING, epsilon=CELL_EPSILONS, **CELLS),
    "diamonds_cells": flags("diamonds", "Diamonds, around cells", DIAMONDS, epsilon=CELL_EPSILONS, **CELLS),
    "housing_recipients": flags("housing", "California housing, location known to recipients alone", HOUSING,
        epsilon=(*CELL_EPSILONS, 4), recipient_feature=LOCATION, **CELLS | {"model": ("trees",)}),
    "diamonds_10000": flags("diamonds_10000", "12,500 diamonds", DIAMONDS, epsilon=CELL_EPSILONS, **SMALL),
    "diamonds_recipients": flags("diamonds_10000", "12,500 diamonds, quality known to recipients alone", DIAMONDS,
        epsilon=CELL_EPSILONS, recipient_feature=QUALITY, **SMALL),
    "communities_cells": flags("communities", "Communities and Crime, around cells", COMMUNITIES,
        label_step="0.01", epsilon=CELL_EPSILONS, **CELLS),
    "census_cells": flags("census_0_52", "Weeks worked, 0 to 52, around cells", CENSUS,
        label_min=0, epsilon=(1,), **CELLS),
    "wages_cells": flags("wages", "Wages, around cells", WAGES, epsilon=(1,), **CELLS),
    "loans_cells": flags("loans", "Interest of loans, around cells", LOANS, epsilon=CELL_EPSILONS, **CELLS),
}  # fmt: skip


def command(name: str, work: Path) -> list[str]:
    """Makes the arguments of `labeldp evaluate` for one run.

    Args:
      name: Name in `RUNS`.
      work: The work folder.

    Returns:
      The arguments after `labeldp`.
    """
    given = dict(RUNS[name])
    data, published = given.pop("data"), given.pop("published", None)
    parts = ["evaluate", f"--input={work / 'data' / f'{data}.csv'}", "--input_format=csv"]
    parts.append(f"--output={work / name}")
    if published:
        parts.append(f"--published={HERE / f'{published}_published.csv'}")
    for flag, value in given.items():
        parts += [f"--{flag}", *map(str, value)] if isinstance(value, tuple) else [f"--{flag}={value}"]
    return parts


PLANNED = ("housing_bias", "communities_bias")
"""Runs for which the recommendation of `labeldp plan` is stored beside the measurements."""


def plan(name: str, work: Path) -> list[str]:
    """Makes the arguments of `labeldp plan` for the training records of a run, and writes the prior of all labels.

    R^2 of the features is that of the linear model trained on true labels.

    Args:
      name: Name in `PLANNED`.
      work: The work folder.

    Returns:
      The arguments after `labeldp`.
    """
    given = RUNS[name]
    table = pd.read_csv(work / "data" / f"{given['data']}.csv")
    low, high, step = (float(str(given[f"label_{end}"])) for end in ("min", "max", "step"))
    labels = np.linspace(low, high, round((high - low) / step) + 1)
    nearest = np.abs(table[str(given["label"])].to_numpy()[:, None] - labels).argmin(axis=1)
    prior = pd.DataFrame({"label": labels, "weight": np.bincount(nearest, minlength=len(labels))})
    prior.to_csv(work / f"{name}_prior.csv", index=False)
    results = read(name)
    clean, mean = (
        least(each for each in results if each.mechanism == mechanism and each.model in (model, mechanism))
        for mechanism, model in (("clean", "linear"), ("mean_predictor", ""))
    )
    assert clean is not None
    assert mean is not None
    return [
        "plan", f"--prior={work / f'{name}_prior.csv'}", f"--records={round(0.8 * len(table))}",
        f"--features={table.shape[1] - 1}", f"--explained={1 - clean.loss / mean.loss:.2f}",
        f"--csv={HERE / f'{name}_plan.csv'}", "--epsilon", *map(str, SMALL_EPSILONS),
    ]  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Prints and runs a command of labeldp.

    Args:
      arguments: The arguments after `labeldp`.
    """
    print(f"labeldp {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "labeldp", *arguments], check=True)


def main(data: str, work: str, names: Sequence[str]) -> None:
    """Runs evaluations.

    Args:
      data: Folder of the original files.
      work: Folder of prepared files and of the output folder of each run, which must be new.
      names: Names in `RUNS`; all if empty.
    """
    folder = Path(work)
    prepare(data, str(folder / "data"))
    for name in names or RUNS:
        if RUNS[name]["data"] in FURTHER:
            prepare_further(str(RUNS[name]["data"]), str(folder / "data"))
        run(command(name, folder))
        for path in sorted((folder / name).glob("results*")):
            copy = HERE / path.name.replace("results", name, 1)
            if path.suffix == ".csv" or copy.name in PICTURES:
                shutil.copyfile(path, copy)
        if name in PLANNED:
            run(plan(name, folder))
    write_summary()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: run.py DATA_FOLDER WORK_FOLDER [{'|'.join(RUNS)} ...]")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
