"""Releases of Iceberg and Delta tables by the command line, which their own libraries write."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 300


def records(start: int, rows: int = ROWS) -> pa.Table:
    """Records of ids from `start` on; f is a feature of which y is a function."""
    ids = np.arange(start, start + rows)
    return pa.table({"id": ids, "f": ids % 7 * 1.0, "m": [f"p{i % 2}" for i in ids], "y": ids % 5})


@pytest.fixture
def delta(tmp_path: Path) -> str:
    """Folder of a Delta table of two commits, partitioned by m."""
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "events")
    for start in (0, ROWS):
        deltalake.write_deltalake(folder, records(start), mode="append", partition_by=["m"])
    return folder


@pytest.fixture
def catalog(tmp_path: Path, new_catalog: Any) -> Any:
    """A catalog cat of pyiceberg with the table n.t of two snapshots."""
    made = new_catalog("cat", tmp_path)
    made.create_namespace("n")
    table = made.create_table("n.t", records(0, 1).schema)
    for start in (0, ROWS):
        table.append(records(start))
    return made


def flags(input: str, **others: Any) -> dict[str, Any]:
    return {"input": input, "input_format": "parquet", "num_shards": 2, **others}


def released(output: Path) -> pa.Table:
    paths = sorted((output / "data").glob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(str(path)).read() for path in paths])


def manifest(output: Path) -> dict[str, Any]:
    return json.loads((output / "release.json").read_text())


@pytest.mark.parametrize("center", ["none", "linear"])
def test_a_delta_table_is_released_and_audited(job, invoke, outputs, delta, center):
    from deltalake import DeltaTable

    outcome = invoke(job(**flags(f"delta://{delta}", center=center))).ok()
    assert f"reading delta://{delta}@1" in outcome.err
    table = DeltaTable(delta)
    stated = manifest(outputs / "released")["table"]
    assert {key: stated[key] for key in ("format", "name", "id", "snapshot")} == {
        "format": "delta", "name": "events", "id": str(table.metadata().id), "snapshot": "1",
    }  # fmt: skip
    found = released(outputs / "released")
    # The files in the order of their names, with the columns of the table.
    paths = sorted(Path(delta).glob("*/*.parquet"), key=lambda path: str(path.relative_to(delta)))
    wanted = np.concatenate([pq.ParquetFile(str(path)).read()["id"].to_numpy() for path in paths])
    assert np.array_equal(found["id"].to_numpy(), wanted)
    assert found["m"].to_pylist() == [f"p{i % 2}" for i in wanted]
    audit = invoke(["audit", str(outputs / "released"), "--data"]).ok()
    assert f"table        delta 'events', id {stated['id']}, snapshot 1, schema" in audit.out
    # No path or size of a file is released.
    assert not any(text in json.dumps(manifest(outputs / "released")) for text in (delta, "snappy", "size"))


def test_a_pinned_version_is_released_again_without_a_charge(job, invoke, outputs, delta, entries, tree):
    import deltalake

    invoke(job(**flags(f"delta://{delta}"))).ok()
    before = tree(outputs / "released" / "data")
    deltalake.write_deltalake(delta, records(2 * ROWS), mode="append")
    invoke(job(**flags(f"delta://{delta}@1", output=outputs / "again"))).ok()
    assert tree(outputs / "again" / "data") == before
    invoke(job(**flags(f"delta://{delta}", output=outputs / "later"))).ok()
    assert manifest(outputs / "later")["table"]["snapshot"] == "2"
    first, again, later = entries(outputs)
    assert again["request"] == first["request"] != later["request"]
    assert [charge["release"] for charge in again["charges"]] == [charge["release"] for charge in first["charges"]]
    assert len({*(c["release"] for c in later["charges"]), *(c["release"] for c in first["charges"])}) == 4


def test_a_table_that_was_moved_is_the_same_release(job, invoke, outputs, delta, entries, tree, tmp_path):
    invoke(job(**flags(f"delta://{delta}@1"))).ok()
    shutil.move(delta, tmp_path / "moved")
    invoke(job(**flags(f"delta://{tmp_path}/moved@1", output=outputs / "again"))).ok()
    assert tree(outputs / "again" / "data") == tree(outputs / "released" / "data")
    first, again = entries(outputs)
    assert first["request"] == again["request"]


def test_with_ids_the_labels_are_those_of_plain_files(job, invoke, outputs, tmp_path, catalog):
    """Ids name the records: a table and plain files of the same records give the same bytes."""
    paths = [file.file.file_path.removeprefix("file://") for file in catalog.load_table("n.t").scan().plan_files()]
    (tmp_path / "plain").mkdir()
    for path in sorted(paths, key=lambda path: Path(path).name):
        # The types of the table, whatever the writer has kept of them.
        table = pq.ParquetFile(path).read()
        schema = pa.schema([pa.field(field.name, field.type) for field in records(0, 1).schema])
        pq.write_table(table.cast(schema), tmp_path / "plain" / Path(path).name)
    invoke(job(**flags("iceberg://cat/n.t", id_column="id", center="linear"))).ok()
    invoke(job(**flags(f"{tmp_path}/plain/*", id_column="id", center="linear", output=outputs / "plain"))).ok()
    one, other = released(outputs / "released"), released(outputs / "plain")
    assert one.equals(other)
    data = [outputs / name / "data" / "part-00000-of-00002.parquet" for name in ("released", "plain")]
    assert data[0].read_bytes() == data[1].read_bytes()
    assert manifest(outputs / "plain")["input_digest"] == manifest(outputs / "released")["input_digest"]


def test_an_evolved_iceberg_table(job, invoke, outputs, catalog):
    from pyiceberg.types import LongType

    table = catalog.load_table("n.t")
    with table.update_schema() as change:
        change.rename_column("f", "feature")
        change.add_column("new", LongType())
    more = records(2 * ROWS).rename_columns(["id", "feature", "m", "y"]).append_column("new", pa.array([7] * ROWS))
    table.append(more)
    invoke(job(**flags("iceberg://cat/n.t", center="linear"))).ok()
    found = released(outputs / "released").sort_by("id")
    assert found.schema.names[:5] == ["id", "feature", "m", "y", "new"]
    assert found["new"].to_pylist() == [None] * (2 * ROWS) + [7] * ROWS
    assert np.array_equal(found["feature"].to_numpy(), np.arange(3 * ROWS) % 7)
    stated = manifest(outputs / "released")["table"]
    assert (stated["name"], stated["schema"]) == ("cat/n.t", "1")
    assert stated["snapshot"] == str(catalog.load_table("n.t").current_snapshot().snapshot_id)
    invoke(["audit", str(outputs / "released"), "--data"]).ok()


def test_records_from_before_the_label_was_added_have_none(job, invoke, outputs, catalog):
    from pyiceberg.types import LongType

    table = catalog.load_table("n.t")
    with table.update_schema() as change:
        change.add_column("late", LongType())
    table.append(records(2 * ROWS).append_column("late", pa.array([1] * ROWS)))
    outcome = invoke(job(**flags("iceberg://cat/n.t", label="late")))
    assert "--max_unusable_fraction" in outcome.error
    invoke(job(**flags("iceberg://cat/n.t", label="late", max_unusable_fraction=0.7))).ok()
    assert manifest(outputs / "released")["records_without_label"] == 2 * ROWS
    letters = "".join(path.read_text() for path in (outputs / "released").rglob("*.jsonl") if path.is_file())
    assert "iceberg:" in letters or not letters


def test_several_labels_of_a_table(job, invoke, outputs, catalog):
    invoke(job(**flags("iceberg://cat/n.t", label="y,f", label_max="4,6"))).ok()
    whole = manifest(outputs / "released")
    assert whole["table"] == manifest(outputs / "released" / "labels" / "y")["table"]
    invoke(["audit", str(outputs / "released"), "--data"]).ok()
    whole["table"]["snapshot"] = "1"
    (outputs / "released" / "release.json").write_text(json.dumps(whole))
    assert "release.table is not that of the whole release" in invoke(["audit", str(outputs / "released")]).out


def test_a_dry_run_names_the_snapshot(job, invoke, delta):
    outcome = invoke([*job(**flags(f"delta://{delta}")), "--dry_run"]).ok()
    assert f"4 parquet files, {2 * ROWS} records: delta://{delta}@1" in outcome.out


def test_a_label_that_decides_on_the_file_is_refused(job, invoke, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "events")
    deltalake.write_deltalake(folder, records(0), partition_by=["y"])
    outcome = invoke(job(**flags(f"delta://{folder}")))
    assert outcome.code == 2
    assert "--label y: the table is partitioned or sorted by it" in outcome.error
    assert "--label y: the table is" in invoke(job(**flags(f"delta://{folder}", label="f,y"))).error


def test_a_file_that_is_deleted_between_the_passes_fails_the_job(job, invoke, outputs, delta, monkeypatch):
    from labeldp.pipelines.cli import privatize_command

    real = privatize_command.run_job

    def run(*arguments: Any) -> Any:
        next(Path(delta).glob("*/*.parquet")).unlink()
        return real(*arguments)

    monkeypatch.setattr(privatize_command, "run_job", run)
    outcome = invoke(job(**flags(f"delta://{delta}")))
    assert outcome.code == 1
    assert "if that expired" in outcome.error
    assert not list(outputs.iterdir())


@pytest.mark.parametrize("pattern", ["{}/*/*.parquet", "{}/**", "{}/m=p0/*"])
def test_a_glob_over_a_delta_table_is_refused(job, invoke, delta, pattern):
    outcome = invoke(job(**flags(pattern.format(delta))))
    assert outcome.code == 2
    assert f"files of the Delta table in {delta}" in outcome.error
    assert f"read the table with --input delta://{delta}" in outcome.error


def test_a_glob_over_an_iceberg_table_is_refused_and_a_named_file_is_not(job, invoke, tmp_path, catalog):
    folder = tmp_path / "warehouse" / "n" / "t"
    outcome = invoke(job(**flags(f"{folder}/data/*.parquet")))
    assert f"files of the Iceberg table in {folder}" in outcome.error
    assert "--input iceberg://CATALOG/NAMESPACE.TABLE" in outcome.error
    path = next((folder / "data").glob("*.parquet"))
    invoke(job(**flags(str(path), num_shards=1))).ok()


def test_other_flags_with_a_table(job, invoke, delta):
    url = f"delta://{delta}"
    assert "--input_format csv: tables have Parquet files" in invoke(job(input=url)).error
    assert "there is no column 'z' in" in invoke(job(**flags(url, id_column="z"))).error
    assert "a table has none in the names of folders" in invoke(job(**flags(url, partition_output="m"))).error
    assert "--input delta:///nowhere: there is no Delta table" in invoke(job(**flags("delta:///nowhere"))).error


@pytest.mark.parametrize(("module", "url"), [("pyiceberg", "iceberg://cat/n.t"), ("deltalake", "delta:///t")])
def test_a_missing_extra_is_named(job, invoke, monkeypatch, module, url):
    monkeypatch.setitem(sys.modules, module, None)
    extra = url.partition(":")[0]
    assert f"--input {extra}:// needs the extra {extra}: pip install 'labeldp[{extra}]'" in invoke(
        job(**flags(url))
    ).error  # fmt: skip


def test_files_with_missing_columns(job, invoke, outputs, tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    pq.write_table(records(0), folder / "a.parquet")
    later = records(ROWS).append_column("new", pa.array([7] * ROWS)).drop_columns(["m"])
    pq.write_table(later, folder / "b.parquet")
    asked = flags(f"{folder}/*.parquet", center="linear")
    assert "all files need one schema" in invoke(job(**asked)).error
    invoke(job(**asked, missing_columns="null")).ok()
    found = released(outputs / "released")
    assert found.schema.names[:5] == ["id", "f", "m", "y", "new"]
    assert found["new"].to_pylist() == [None] * ROWS + [7] * ROWS
    assert found["m"].null_count == ROWS
    assert "table" not in manifest(outputs / "released")
    invoke(["audit", str(outputs / "released"), "--data"]).ok()


def test_privatize_files_and_the_plan_of_units_take_a_table(invoke, outputs, delta, key_file):
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from labeldp import PrivatizeFiles

    grid: dict[str, Any] = {"label_min": 0, "label_max": 4, "label_step": 1}
    asked: dict[str, Any] = {"label": "y", "epsilon": 1.0, "noise_key_file": str(key_file), **grid}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | PrivatizeFiles(input=f"delta://{delta}", output=str(outputs / "released"), **asked)
    assert manifest(outputs / "released")["table"]["name"] == "events"
    own = {"input": f"delta://{delta}", "input_format": "parquet", "label": "y", "unit_column": "m", "epsilon": 1}
    argv = ["plan", "--units", *(f"--{name}={value}" for name, value in (own | grid).items())]
    assert invoke([*argv, f"--noise_key_file={key_file}"]).ok()
