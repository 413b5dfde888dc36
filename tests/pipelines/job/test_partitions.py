"""Hive partition columns by the command line: in every output, features of a center, filters, never the label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

ROWS = 300


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """month=1/part.parquet and month=2/part.parquet; y is 4 times as large in month 2, for the same f."""
    root = tmp_path_factory.mktemp("hive")
    for month in (1, 2):
        (root / f"month={month}").mkdir()
        columns = {
            "id": np.arange(ROWS) + month * ROWS,
            "f": np.arange(ROWS) % 7,
            "y": np.arange(ROWS) % 2 + 4 * (month - 1),
        }
        pq.write_table(pa.table(columns), str(root / f"month={month}" / "part.parquet"))
    return root


def table_of(output: Path) -> pa.Table:
    return pyarrow.dataset.dataset(str(output / "data")).to_table()


def flags(logs: Path, **others: Any) -> dict[str, Any]:
    grid = {"label_min": 0, "label_max": 9, "label_step": 1, "epsilon": 4}
    return {"input": logs / "*" / "*.parquet", "input_format": "parquet", **grid, **others}


def test_they_are_columns_of_the_shards_and_features_of_the_center(job, invoke, outputs, logs):
    # With ids, draws are the same in every run.
    own = {"center": "linear", "center_features": "month", "mechanism": "unbiased", "id_column": "id"}
    invoke(job(**flags(logs, **own))).ok()
    table = table_of(outputs / "released")
    assert table.schema.field("month").type == pa.int32()
    assert np.bincount(table["month"].to_numpy()).tolist() == [0, ROWS, ROWS]
    # Labels of month 2 are larger by 4: the center has learned that from the folder's name alone.
    means = [table.filter(pc.field("month") == month)["y_center"].to_numpy().mean() for month in (1, 2)]
    assert means[1] - means[0] > 2
    assert invoke(["audit", str(outputs / "released"), "--data"]).ok()
    assert json.loads((outputs / "released" / "release.json").read_text())["features"] == 2


def test_where_chooses_folders(job, invoke, outputs, logs):
    invoke(job(**flags(logs, where="month=2"))).ok()
    assert set(table_of(outputs / "released")["month"].to_pylist()) == {2}


def test_none_ignores_them(job, invoke, outputs, logs):
    invoke(job(**flags(logs, partitions="none"))).ok()
    assert table_of(outputs / "released").schema.names == ["id", "f", "y"]


def test_a_clash_names_both(job, invoke, tmp_path, write_csv):
    path = write_csv(tmp_path / "f=1" / "a.csv", ["1,2"] * 100)
    outcome = invoke(job(input=path))
    assert outcome.code == 1
    assert "the folder f=... and the column 'f' in the file give two columns of one name" in outcome.error


def test_an_output_below_such_a_folder_is_validated_without_them(job, invoke, tmp_path, small_log):
    target = tmp_path / "run=1"
    target.mkdir()
    invoke([*job(output=target / "released"), "--validate"]).ok()
    assert "run" not in (target / "released" / "validation" / "schema.pbtxt").read_text()
