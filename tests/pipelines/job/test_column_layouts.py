"""Columns of Parquet files in the layouts of other writers: their values come out as they are, or the run stops."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 600


def labels(rows: int = ROWS) -> list[int]:
    return [row % 5 for row in range(rows)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.mkdir()
    return path


@pytest.fixture
def release(job: Any, invoke: Any, outputs: Path, folder: Path) -> Any:
    """Function (flag=value, ...) -> the released records of all files of the folder, and the outcome."""

    def run(**flags: Any) -> tuple[pa.Table, Any]:
        outcome = invoke(job(input=f"{folder}/*", input_format="parquet", output_format=None, **flags)).ok()
        return pq.read_table(outputs / "released" / "data"), outcome

    return run


@pytest.mark.parametrize("shards", [1, 3])
def test_categories_of_several_files(folder: Path, release: Any, shards: int) -> None:
    """Their indices of 8 bits, which pandas chooses, overflow where the categories of all files are joined."""
    names = [[f"v{day}_{row % 100}" for row in range(ROWS)] for day in range(3)]
    for day, values in enumerate(names):
        pd.DataFrame({"c": pd.Categorical(values), "y": labels()}).to_parquet(folder / f"day{day}.parquet")
    table, _ = release(num_shards=shards)
    assert table["c"].to_pylist() == [name for values in names for name in values]
    assert table.schema.field("c").type == pa.dictionary(pa.int32(), pa.string())


def test_nullability_differs(folder: Path, release: Any) -> None:
    for name, nullable in (("a", False), ("b", True)):
        inner = pa.list_(pa.field("element", pa.int64(), nullable))
        fields = [pa.field("v", pa.float64(), nullable), pa.field("w", inner, nullable), pa.field("y", pa.int64())]
        values = [None if nullable else 0.5, *np.arange(ROWS - 1.0)]
        lists = [[None] if nullable else [1], *([[2]] * (ROWS - 1))]
        schema = pa.schema(fields)
        pq.write_table(pa.table([values, lists, labels()], schema=schema), folder / f"{name}.parquet")
    table, _ = release(num_shards=1)
    assert table["v"].to_pylist() == [0.5, *range(ROWS - 1), None, *range(ROWS - 1)]
    assert table["w"].to_pylist() == [[1], *([[2]] * (ROWS - 1)), [None], *([[2]] * (ROWS - 1))]


def test_columns_that_all_files_require_stay_required(folder: Path, release: Any) -> None:
    schema = pa.schema([pa.field("v", pa.float64(), False), pa.field("y", pa.int64(), False)])
    for name in "ab":
        pq.write_table(pa.table([np.arange(float(ROWS)), labels()], schema=schema), folder / name)
    table, _ = release()
    assert not table.schema.field("v").nullable


@pytest.mark.parametrize(
    "kinds", [(pa.string(), pa.string_view()), (pa.string_view(),), (pa.large_string(), pa.string())]
)
def test_layouts_of_text_are_features_of_the_center(folder: Path, release: Any, kinds: Any) -> None:
    for name, kind in zip("ab", kinds, strict=False):
        text = pa.array([f"c{row % 5}" for row in range(ROWS)], kind)
        pq.write_table(pa.table({"v": np.arange(float(ROWS)), "c": text, "y": labels()}), folder / name)
    table, outcome = release(mechanism="auto", num_shards=1)
    assert table["c"].to_pylist() == [f"c{row % 5}" for row in range(ROWS)] * len(kinds)
    assert table.schema.field("c").type == (pa.large_string() if kinds[0] == pa.large_string() else pa.string())
    assert "labeldp: center of y: linear, from up to 2 features: v, c, without" in outcome.err


def test_every_kind_of_column_is_a_feature_or_said_to_be_none(folder: Path, job: Any, invoke: Any) -> None:
    large = pa.array(["a", "b"] * (ROWS // 2), pa.large_string())
    columns = {
        "text": large,
        "category": large.dictionary_encode(),
        "flag": [True, False] * (ROWS // 2),
        "price": pa.array([Decimal("1.25")] * ROWS),
        "day": [datetime.date(2024, 1, 31)] * ROWS,
        "nested": [{"a": 1}] * ROWS,
        "nothing": pa.nulls(ROWS),
        "wait": pa.array([datetime.timedelta(1)] * ROWS),
        "y": labels(),
    }
    pq.write_table(pa.table(columns), folder / "a")
    arguments = job(input=folder / "a", input_format="parquet", mechanism="auto")
    used = (
        "linear, from up to 4 features: text, category, flag, price, "
        "without those in which nearly all values differ, as ids do"
    )
    unused = (
        "not from day (date32[day], neither numbers nor text), nested (struct<a: int64>, neither numbers nor text), "
        "nothing (no value in the first records), wait (duration[us], neither numbers nor text)"
    )
    assert f"center     {used}; {unused}\n" in invoke([*arguments, "--dry_run"]).ok().out
    assert f"labeldp: center of y: {used}; {unused}\n" in invoke(arguments).ok().err


def test_without_a_feature_it_is_said_that_there_is_no_center(folder: Path, release: Any) -> None:
    pq.write_table(pa.table({"day": [datetime.date(2024, 1, 31)] * ROWS, "y": labels()}), folder / "a")
    _, outcome = release(mechanism="auto")
    assert f"no center: {folder}/a has no column of numbers or text besides the label" in outcome.err


# TFRecord output.


def test_a_column_without_a_value_in_the_first_file(folder: Path, release: Any) -> None:
    for name, column in (("a", pa.nulls(ROWS)), ("b", pa.array(["x"] * ROWS))):
        pq.write_table(pa.table({"k": column, "y": labels()}), folder / name)
    table, _ = release(num_shards=1)
    assert table["k"].to_pylist() == [None] * ROWS + ["x"] * ROWS
