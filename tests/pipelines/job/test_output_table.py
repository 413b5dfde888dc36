"""Releases that are added to Iceberg and Delta tables, as their own libraries read them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 300


@pytest.fixture
def catalog(tmp_path: Path, new_catalog: Any) -> Any:
    """A catalog cat of pyiceberg, with the namespace n."""
    made = new_catalog("cat", tmp_path)
    made.create_namespace("n")
    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Parquet file with a column of categories."""
    columns = {"id": np.arange(ROWS), "c": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode()}
    pq.write_table(pa.table({**columns, "y": np.arange(ROWS) % 5}), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def flags(log: Path, table: str, **others: Any) -> dict[str, Any]:
    return {"input": log, "input_format": "parquet", "num_shards": 2, "output_table": table, **others}


def released(output: Path) -> list[dict[str, Any]]:
    paths = sorted((output / "data").glob("*.parquet"))
    return [row for path in paths for row in pq.ParquetFile(str(path)).read().to_pylist()]


def facts(output: Path) -> dict[str, str]:
    manifest = json.loads((output / "release.json").read_text())
    return {f"labeldp.{name}": str(manifest[name]) for name in ("epsilon", "label", "input_digest", "records")}


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("id").to_pylist()


def test_a_release_is_added_to_an_iceberg_table_once(job, invoke, outputs, log, catalog):
    asked = flags(log, "iceberg://cat/n.released", if_exists="verify")
    outcome = invoke(job(**asked)).ok()
    assert "table      iceberg://cat/n.released has the shards" in outcome.out
    table = catalog.load_table("n.released")
    assert by_id(table.scan().to_arrow()) == released(outputs / "released")
    summary = dict(table.current_snapshot().summary.additional_properties)
    assert facts(outputs / "released").items() <= summary.items()
    # A retry changes nothing.
    assert "had the shards" in invoke(job(**asked)).ok().out
    assert len(catalog.load_table("n.released").snapshots()) == 1
    invoke(job(**{**asked, "epsilon": 2}, output=outputs / "second")).ok()
    table = catalog.load_table("n.released")
    assert len(table.scan().to_arrow()) == 2 * ROWS
    assert len(table.snapshots()) == 2
    invoke(["audit", str(outputs / "released"), "--data"]).ok()


def test_a_release_is_added_to_a_delta_table_once(job, invoke, outputs, log, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "lake" / "released"
    folder.parent.mkdir()
    asked = flags(log, f"delta://{folder}", if_exists="verify")
    invoke(job(**asked)).ok()
    table = deltalake.DeltaTable(str(folder))
    assert by_id(table.to_pyarrow_table()) == released(outputs / "released")
    assert facts(outputs / "released").items() <= table.history()[0].items()
    assert "had the shards" in invoke(job(**asked)).ok().out
    invoke(job(**{**asked, "epsilon": 2}, output=outputs / "second")).ok()
    table = deltalake.DeltaTable(str(folder))
    assert (table.version(), len(table.to_pyarrow_table())) == (1, 2 * ROWS)
    # What the table does not know, it may delete; the copies are its own.
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False) == []
    invoke(["audit", str(outputs / "second"), "--data"]).ok()
    # A table of releases can be read again.
    outcome = invoke([*job(input=f"delta://{folder}@0", input_format="parquet", output=outputs / "third"), "--dry_run"])
    assert f"{ROWS} records" in outcome.ok().out


def test_a_commit_that_fails_leaves_the_release_and_can_be_repeated(job, invoke, outputs, log, catalog, entries):
    asked = flags(log, "iceberg://cat/missing.released", if_exists="verify")
    outcome = invoke(job(**asked))
    assert outcome.code == 1
    assert (
        "is released and charged, but was not added to iceberg://cat/missing.released (NoSuchNamespace" in outcome.error
    )
    assert len(entries(outputs)) == 1
    catalog.create_namespace("missing")
    assert "has the shards" in invoke(job(**asked)).ok().out
    assert len(entries(outputs)) == 1
    assert len(catalog.load_table("missing.released").scan().to_arrow()) == ROWS


def test_a_table_with_other_columns_is_refused(job, invoke, outputs, log, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "other")
    deltalake.write_deltalake(folder, pa.table({"z": [1]}))
    outcome = invoke(job(**flags(log, f"delta://{folder}")))
    assert "the table has other columns than the shards" in outcome.error
    assert deltalake.DeltaTable(folder).version() == 0


def test_an_interrupted_commit_is_not_called_unreleased(job, invoke, outputs, log, catalog, monkeypatch):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyiceberg.table.Table.add_files", interrupt)
    outcome = invoke(job(**flags(log, "iceberg://cat/n.released")))
    assert outcome.code == 1
    assert "is released and charged, but was not added" in outcome.error
    assert (outputs / "released" / "release.json").exists()


def test_flags_that_a_table_cannot_take(job, invoke, log, tmp_path):
    table = f"delta://{tmp_path}/t"
    assert "there is no catalog dog" in invoke(job(**flags(log, "iceberg://dog/n.t"))).error
    outcome = invoke([*job(**flags(log, table)), "--dry_run"]).ok()
    assert f"2 parquet shards, added to {table}" in outcome.out
