"""Output by the command line: its format follows the input, and Parquet keeps types and metadata."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 200
SENTINEL = "4861371529"
SPARK = b"org.apache.spark.sql.parquet.row.metadata"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, as pandas and Spark write them, with nullable integers and metadata of the owner."""
    pd: Any = pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("log")
    for name in ("a", "b"):
        frame = pd.DataFrame(
            {"n": pd.array([1, None] * (ROWS // 2), "Int64"), "f": np.arange(ROWS), "y": np.arange(ROWS) % 5}
        )
        table = pa.Table.from_pandas(frame)
        spark = [
            {"name": "n", "type": "long", "nullable": True, "metadata": {"comment": "a count"}},
            {"name": "f", "type": "long", "nullable": True, "metadata": {}},
            {"name": "y", "type": "long", "nullable": True, "metadata": {"ml_attr": {"max": SENTINEL}}},
        ]
        owner = {
            "owner": f"ads {name}",
            f"mean of y {SENTINEL}": SENTINEL,
            SPARK: json.dumps({"type": "struct", "fields": spark}),
        }
        pq.write_table(
            table.replace_schema_metadata({**(table.schema.metadata or {}), **owner}), str(folder / f"{name}.parquet")
        )
    return folder


def test_parquet_becomes_parquet_with_its_metadata(job, invoke, outputs, log, tree):
    import pandas as pd

    flags = {"input": log / "*.parquet", "input_format": "parquet", "output_format": None, "center": "linear"}
    outcome = invoke(job(**flags, mechanism="unbiased", num_shards=3)).ok()
    assert "metadata of the input is released as it is: owner (--metadata none drops it)" in outcome.err
    assert "metadata of the input that may describe the label is dropped: 1 key" in outcome.err
    assert SENTINEL not in outcome.err + outcome.out
    files = tree(outputs / "released")
    assert not any(SENTINEL.encode() in content for content in files.values())
    missing = 0
    for path in sorted((outputs / "released" / "data").iterdir()):
        assert path.suffix == ".parquet"
        schema = pq.read_schema(str(path))
        assert set(schema.metadata) == {b"pandas", SPARK, b"owner"}
        assert schema.metadata[b"owner"] == b"ads a"
        types = {field["name"]: field["type"] for field in json.loads(schema.metadata[SPARK])["fields"]}
        assert types == {"n": "long", "f": "long", "y": "double", "y_center": "double"}
        frame = pd.read_parquet(path)
        assert frame["n"].dtype == "Int64"
        assert frame["y"].dtype == np.float64
        missing += frame["n"].isna().sum()
    assert missing == ROWS


def test_metadata_none(job, invoke, outputs, log):
    flags = {"input": log / "*.parquet", "input_format": "parquet", "metadata": "none"}
    outcome = invoke(job(**flags)).ok()
    assert "metadata" not in outcome.err
    assert pq.read_schema(str(next((outputs / "released" / "data").iterdir()))).metadata is None


def test_csv_becomes_parquet_and_integers_with_gaps_stay_integers(job, invoke, outputs, tmp_path, write_csv):
    path = write_csv(tmp_path / "a.csv", [f"{i if i % 2 else ''},{i % 5}" for i in range(ROWS)])
    invoke(job(input=path, output_format=None)).ok()
    (shard,) = (outputs / "released" / "data").iterdir()
    column = pq.read_table(str(shard))["f"]
    assert column.type == pa.int64()
    assert column.to_pylist() == [i if i % 2 else None for i in range(ROWS)]


def test_tfrecords_become_tfrecords(job, invoke, outputs, small_log, tmp_path):
    pytest.importorskip("google_crc32c")
    invoke(job(output=tmp_path / "first", output_format="tfrecord")).ok()
    invoke(job(input=tmp_path / "first" / "data" / "*", input_format="tfrecord", output_format=None)).ok()
    assert [path.suffix for path in (outputs / "released" / "data").iterdir()] == [".tfrecord"]
