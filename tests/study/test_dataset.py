"""Data sets: conversion of files to a matrix (numbers, text, missing values), the split, and unusable input."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.study.dataset import Dataset, read_dataset
from labeldp.transforms import Equals, Format, InputError

CSV, PARQUET = Format("csv"), Format("parquet")


def _columns(dataset: Dataset) -> dict[str, list[float]]:
    return {name: dataset.features[:, place].tolist() for place, name in enumerate(dataset.names)}


@pytest.fixture
def table() -> pa.Table:
    """Twelve records with a column of each kind."""
    return pa.table(
        {
            "integer": pa.array([*range(11), None], pa.int64()),
            "real": pa.array([0.5] * 10 + [float("nan"), float("inf")]),
            "truth": pa.array([True, False] * 6),
            "two": pa.array(["no", "yes", "no"] * 4),
            "three": pa.array(["a", "b", "c"] * 3 + ["a", "a", None]),
            "constant": pa.array(["x"] * 12),
            "empty": pa.nulls(12),
            "y": pa.array([float(i) for i in range(12)]),
        }
    )


def test_each_kind_of_column_becomes_numbers(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "log.parquet")
    dataset = read_dataset(str(tmp_path / "log.parquet"), PARQUET, "y")
    columns = _columns(dataset)

    assert list(columns) == ["integer", "real", "truth", "two=yes", "three=a", "three=b", "three=c"]
    assert columns["integer"][:11] == list(range(11))
    assert np.isnan([columns["integer"][11], columns["real"][10], columns["real"][11]]).all()
    assert columns["truth"] == [1.0, 0.0] * 6
    assert columns["two=yes"] == [0.0, 1.0, 0.0] * 4
    assert columns["three=a"] == [1.0, 0.0, 0.0] * 3 + [1.0, 1.0, 0.0]
    assert dataset.labels.tolist() == list(range(12))


def test_csv_and_parquet_are_one_dataset(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    rows = [(i, i / 4, "ab"[i % 2], i % 5) for i in range(40)]
    path = write_csv(tmp_path / "log.csv", [",".join(map(str, row)) for row in rows], "i,x,text,y")
    table = pa.table(dict(zip(["i", "x", "text", "y"], map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(table, tmp_path / "log.parquet")

    read = read_dataset(str(path), CSV, "y"), read_dataset(str(tmp_path / "log.parquet"), PARQUET, "y")

    for first, second in ((read[0].features, read[1].features), (read[0].labels, read[1].labels)):
        np.testing.assert_array_equal(first, second)
    assert read[0].names == read[1].names == ("i", "x", "text=b")


def test_features_and_records_can_be_chosen(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(pa.concat_tables([table, table]), tmp_path / "log.parquet")
    path = str(tmp_path / "log.parquet")

    assert read_dataset(path, PARQUET, "y", ["real"]).names == ("real",)
    kept = read_dataset(path, PARQUET, "y", where=Equals("truth", "true"))
    assert kept.labels.tolist() == [0, 2, 4, 6, 8, 10] * 2
    assert "truth" not in kept.names


def test_only_the_most_frequent_texts_count(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    rows = [f"v{i},0" for i in range(60)] + ["v59,1"] * 3 + ["v58,1"] * 2
    dataset = read_dataset(str(write_csv(tmp_path / "log.csv", rows)), CSV, "y")

    assert len(dataset.names) == 50
    assert dataset.names[:3] == ("f=v59", "f=v58", "f=v0")


def test_records_without_a_label_are_left_out(tmp_path: Path, write_csv: Callable[..., Path]) -> None:
    rows = [f"{i},{'' if i % 4 == 0 else 1}" for i in range(40)]
    dataset = read_dataset(str(write_csv(tmp_path / "log.csv", rows)), CSV, "y")

    assert dataset.features[:, 0].tolist() == [i for i in range(40) if i % 4]


@given(records=st.integers(10, 200), seed=st.integers(0, 5))
def test_a_fifth_is_for_testing_whatever_the_labels(records: int, seed: int) -> None:
    features = np.arange(records, dtype=float)[:, None]
    train, test = Dataset.from_arrays(["x"], features, np.zeros(records)).split(seed)
    other = Dataset.from_arrays(["x"], features, np.arange(records) % 7 * 1.0).split(seed)

    assert len(test) == records // 5
    assert sorted([*train, *test]) == list(range(records))
    np.testing.assert_array_equal(train, other[0])
    np.testing.assert_array_equal(test, other[1])


@pytest.mark.parametrize(
    ("rows", "header", "named"),
    [
        ([f"{i},{i}" for i in range(5)], "f,y", "10"),
        ([f"{i}" for i in range(20)], "y", "feature"),
        ([], "f,y", "no record"),
        ([f"{i},{i}" for i in range(20)], "f,z", "'y'"),
    ],
)
def test_what_cannot_be_trained_on_is_named(
    tmp_path: Path, write_csv: Callable[..., Path], rows: list[str], header: str, named: str
) -> None:
    path = write_csv(tmp_path / "log.csv", rows, header)

    with pytest.raises(InputError, match=named):
        read_dataset(str(path), CSV, "y")


def test_recipients_do_not_have_all_features_of_the_log(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table.select(["two", "truth", "y"]), tmp_path / "log.parquet")

    with pytest.raises(InputError, match="leave out those that the log has"):
        read_dataset(str(tmp_path / "log.parquet"), PARQUET, "y", recipient_features=["two", "truth"])


def test_columns_of_other_kinds_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([0] * 20, pa.duration("s")), "y": [1.0] * 20}), tmp_path / "log.parquet")

    with pytest.raises(InputError, match=r"'t' holds duration.*--feature"):
        read_dataset(str(tmp_path / "log.parquet"), PARQUET, "y")
