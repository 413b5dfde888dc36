"""Output by the command line: its format follows the input, and Parquet keeps types and no metadata of the input."""

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
    """Two files, as pandas and Spark write them, with labels in all documents and in metadata of the owner."""
    pd: Any = pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("log")
    for name in ("a", "b"):
        frame = pd.DataFrame(
            {
                "n": pd.array([1, None] * (ROWS // 2), "Int64"),
                "c": pd.Categorical(["a", "b"] * (ROWS // 2), ["b", "a"], ordered=True),
                "t": pd.date_range("2024-01-01", periods=ROWS, tz="Europe/Berlin"),
                "f": np.arange(ROWS),
                "y": np.arange(ROWS) % 5,
            },
            index=pd.Index([f"{name} {row}" for row in range(ROWS)], name="k"),
        )
        frame.attrs = {"target_mean": SENTINEL}
        table = pa.Table.from_pandas(frame)
        spark = [
            {"name": "f", "type": "long", "nullable": True, "metadata": {"target_sum": SENTINEL}},
            {"name": "y", "type": "long", "nullable": True, "metadata": {"ml_attr": {"max": SENTINEL}}},
        ]
        fields = [field.with_metadata({"y_mean": SENTINEL, "PARQUET:field_id": "7"}) for field in table.schema]
        owner = {
            f"owner {SENTINEL}": f"ads {name}",
            "yMax": SENTINEL,
            SPARK: json.dumps({"type": "struct", "fields": spark}),
        }
        schema = pa.schema(fields, metadata={**(table.schema.metadata or {}), **owner})
        pq.write_table(table.cast(schema), str(folder / f"{name}.parquet"))
    return folder


def test_parquet_becomes_parquet_with_its_types_and_without_metadata(job, invoke, outputs, log, tree):
    import pandas as pd

    flags = {"input": log / "*.parquet", "input_format": "parquet", "output_format": None, "center": "linear"}
    outcome = invoke(job(**flags, mechanism="unbiased", num_shards=3)).ok()
    assert "metadata" not in outcome.err
    content = b"".join(tree(outputs / "released").values()) + (outcome.err + outcome.out).encode()
    for text in (SENTINEL, "target_mean", "target_sum", "y_mean", "yMax", "owner"):
        assert text.encode() not in content
    frames = []
    for path in sorted((outputs / "released" / "data").iterdir()):
        assert path.suffix == ".parquet"
        schema = pq.read_schema(str(path))
        assert schema.metadata is None
        assert [field.metadata for field in schema] == [None] * len(schema)
        # That of the writer alone.
        assert list(pq.ParquetFile(path).metadata.metadata or {}) == [b"ARROW:schema"]
        frames.append(pd.read_parquet(path))
    frame = pd.concat(frames)
    assert [*frame.columns] == ["n", "c", "t", "f", "y", "y_center"]
    assert "the pandas index k is left out" in outcome.err
    assert frame["n"].isna().sum() == ROWS
    assert frame["c"].cat.categories.tolist() == ["b", "a"]
    # Categories of several files have no common order.
    assert not frame["c"].cat.ordered
    assert str(frame["t"].dt.tz) == "Europe/Berlin"
    assert frame["y"].dtype == np.float64


def test_csv_becomes_parquet_and_integers_with_gaps_stay_integers(job, invoke, outputs, tmp_path, write_csv):
    path = write_csv(tmp_path / "a.csv", [f"{i if i % 2 else ''},{i % 5}" for i in range(ROWS)])
    invoke(job(input=path, output_format=None)).ok()
    (shard,) = (outputs / "released" / "data").iterdir()
    column = pq.read_table(str(shard))["f"]
    assert column.type == pa.int64()
    assert column.to_pylist() == [i if i % 2 else None for i in range(ROWS)]
