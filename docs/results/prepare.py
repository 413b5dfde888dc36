"""Writes the three data sets of docs/results as CSV files that `labeldp evaluate` reads: (data folder, new folder)."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

PREPARED = ("census_1_52", "census_0_52", "housing", "communities")


def census(folder: Path) -> pd.DataFrame:
    """Weeks worked in 1979, of all 254,654 mothers."""
    return pd.read_csv(folder / "census_weeks.csv")


def housing(folder: Path) -> pd.DataFrame:
    """Median house values in 100,000 USD, and scikit-learn's eight features of the 1990 census' block groups."""
    raw = pd.read_csv(folder / "california_housing.csv")
    return pd.DataFrame(
        {
            "MedInc": raw["median_income"],
            "HouseAge": raw["housing_median_age"],
            "AveRooms": raw["total_rooms"] / raw["households"],
            "AveBedrms": raw["total_bedrooms"] / raw["households"],
            "Population": raw["population"],
            "AveOccup": raw["population"] / raw["households"],
            "Latitude": raw["latitude"],
            "Longitude": raw["longitude"],
            "value": raw["median_house_value"] / 1e5,
        }
    )


def communities(folder: Path) -> pd.DataFrame:
    """Violent crimes per head in 1,994 communities, with the 100 features that Liu and Huang, section 5.1, keep."""
    raw = pd.read_csv(folder / "communities.csv", na_values="?")
    raw.columns = raw.columns.str.strip()
    raw = raw.drop(columns=["state", "county", "community", "communityname", "fold"])
    raw["OtherPerCap"] = raw["OtherPerCap"].fillna(raw["OtherPerCap"].mean())
    return raw.dropna(axis="columns")


def prepare(data: str, output: str) -> None:
    """Writes a file for each of PREPARED."""
    folder, target = Path(data), Path(output)
    if not folder.is_dir():
        sys.exit(f"{folder} is no folder: docs/results/README.md says which files go there")
    target.mkdir(parents=True, exist_ok=True)
    weeks = census(folder)
    tables = [weeks[weeks["work"] >= 1], weeks, housing(folder), communities(folder)]
    for name, table in zip(PREPARED, tables, strict=True):
        table.to_csv(target / f"{name}.csv", index=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: prepare.py DATA_FOLDER NEW_FOLDER")
    prepare(*sys.argv[1:])
