"""On Spark a job releases the same bytes as on DirectRunner, and its key is in nothing that Spark keeps."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

RECORDS = 4000


@pytest.fixture
def of_units(tmp_path: Path) -> dict[str, Any]:
    """Flags of a job over two Parquet files, in each of which each unit has a record."""
    for name, label in {"a": 3, "b": 7}.items():
        rows = np.arange(RECORDS)
        pq.write_table(pa.table({"f": rows, "y": rows * label % 20.0}), tmp_path / f"{name}.parquet")
    log = {"input": tmp_path / "*.parquet", "input_format": "parquet"}
    return log | {"unit_column": "f", "max_records_per_unit": 1}


@pytest.fixture
def of_several_labels(small_log: Path, reference: Callable[..., Path]) -> dict[str, Any]:
    """Flags of a job over TFRecords, which are a release of a CSV log, with two labels."""
    records = reference(input=small_log, input_format="csv", output_format="tfrecord") / "data" / "part-*"
    formats = {"input_format": "tfrecord", "output_format": "tfrecord"}
    return {"input": records, "label": "y,f", "label_max": "19,4000", **formats}


@pytest.fixture
def of_a_center(centered_log: Path) -> dict[str, Any]:
    """Flags of a job over CSV for models of the log: around a center of cells."""
    return {"input": centered_log, "input_format": "csv", "for": "log_features", "epsilon": 1}


@pytest.fixture
def of_classes(tmp_path: Path) -> dict[str, Any]:
    """Flags of a job over CSV whose labels are classes, by randomized response."""
    random = np.random.default_rng(12)
    for name in "ab":
        rows = zip(random.normal(size=RECORDS).round(3), random.choice(["low", "mid", "high"], RECORDS), strict=True)
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{x},{label}\n" for x, label in rows))
    numbers = dict.fromkeys(("label_min", "label_max", "label_step"))
    return {"input": tmp_path / "*.csv", "input_format": "csv", "label_classes": "low,high", **numbers}


@pytest.mark.parametrize(
    ("flags", "line", "charged"),
    [
        ("of_units", "units      f: 4,000, at most 1 record each, 4,000 left out", 2),
        ("of_several_labels", "together   epsilon 2 for all labels of a record", 4),
        ("of_a_center", " for the center sums + ", 3),
        ("of_classes", "classes    low, high; all other values count as low", 2),
    ],
    ids=["units", "several_labels", "center", "classes"],
)
def test_on_the_cluster(
    flags: str, line: str, charged: int, request: pytest.FixtureRequest, start: Any, on_spark: list[str], cluster: Any,
    undisturbed: Any, tree: Any, charges: Any, leaks: Any, secret: bytes,
) -> None:  # fmt: skip
    """Shards, mechanism and manifest are the same. The audit passes, and the ledger is charged once."""
    values = request.getfixturevalue(flags)
    running = start(on_spark, **values)
    whole = undisturbed(**values)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert line in outcome.out
    assert len(charges(running.outputs)) == charged
    audit = [sys.executable, "-m", "labeldp", "audit", str(running.release)]
    assert subprocess.run(audit, check=False, capture_output=True).returncode == 0

    kept = tree(cluster.folder) | tree(running.outputs) | tree(running.temporary)
    assert any("stderr" in path for path in kept)
    assert leaks.found(kept | {"err": outcome.err.encode()}, set(leaks.key_spellings(secret))) == []


def test_with_the_job_server_that_the_runner_starts(
    in_the_job_server: list[str], start: Any, undisturbed: Any, tree: Any, small_log: Path
) -> None:
    """--runner SparkRunner without a cluster: the workers are threads of the command."""
    flags = {"input": small_log, "input_format": "csv"}
    running = start(in_the_job_server, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert "workers of SparkRunner listen on all network interfaces" in outcome.err
    assert tree(running.temporary) == {}
