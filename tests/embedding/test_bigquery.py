"""The lines of the guide that read and write BigQuery tables, with the service replaced."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from tests.docs.pages import blocks

pytest.importorskip("google.cloud.bigquery_storage", reason="no extra gcp")
bigquery: Any = pytest.importorskip("apache_beam.io.gcp.bigquery", reason="no extra gcp")
tools: Any = pytest.importorskip("apache_beam.io.gcp.bigquery_tools", reason="no extra gcp")
loads: Any = pytest.importorskip("apache_beam.io.gcp.bigquery_file_loads", reason="no extra gcp")
SCHEMA = {
    "fields": [
        {"name": "id", "type": "INTEGER", "mode": "REQUIRED"},
        {"name": "site", "type": "STRING", "mode": "NULLABLE"},
        {"name": "weeks", "type": "FLOAT", "mode": "NULLABLE"},
    ]
}
CLICKS = [{"id": i, "site": None if i == 3 else f"s{i % 7}", "weeks": None if i == 5 else i % 53} for i in range(200)]


class ReadClient:
    """Client of the storage API, with one stream of all rows of the table."""

    def create_read_session(self, read_session: Any, **_: Any) -> Any:
        assert read_session.table == "projects/project/datasets/ads/tables/clicks"
        return SimpleNamespace(
            streams=[SimpleNamespace(name="stream")], data_format="ARROW", arrow_schema="",
            estimated_total_bytes_scanned=0,
        )  # fmt: skip

    def read_rows(self, name: str, **_: Any) -> Any:
        cells = [
            {key: SimpleNamespace(as_py=lambda value=value: value) for key, value in row.items()} for row in CLICKS
        ]
        return SimpleNamespace(rows=lambda: cells)


class LocalLoads(loads.BigQueryBatchFileLoads):
    """Loads files that are no objects of a store."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **{**named, "validate": False})


class Service:
    """Wrapper of BigQuery's client: the table that is read has a schema, and rows that are loaded go to a file."""

    def __init__(self, folder: Path, **_: Any):
        self._folder = folder

    def get_table(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(schema=SCHEMA, numBytes=1)

    def perform_load_job(self, destination: Any, source_uris: list[str], **_: Any) -> Any:
        content = "".join(Path(path).read_text() for path in source_uris)
        (self._folder / destination.tableId).write_text(content)
        return tools.bigquery.JobReference(projectId="project", jobId=destination.tableId)

    def __getattr__(self, name: str) -> Any:
        """Jobs have ended at once, and nothing temporary is left."""
        assert name in ("wait_for_bq_job", "_clean_up_beam_labelled_temporary_datasets"), name
        return lambda *_, **__: None


def test_the_guide_reads_and_writes_tables(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = functools.partial(Service, tmp_path)
    monkeypatch.setattr(tools, "BigQueryWrapper", service)
    vars(service).update(_bigquery_client=lambda options: None, from_pipeline_options=lambda options: service())
    monkeypatch.setattr(bigquery.bq_storage, "BigQueryReadClient", ReadClient)
    monkeypatch.setattr(loads, "BigQueryBatchFileLoads", LocalLoads)
    names: dict[str, Any] = {}
    exec(blocks("docs/guides/engines.md", "BigQuery", "python")[0].text, names)
    options = PipelineOptions(["--project=project", f"--temp_location={tmp_path}/temp"])
    with beam.Pipeline("FnApiRunner", options=options) as pipeline:
        names["release_table"](pipeline, key)
    loaded = {path.name: [*map(json.loads, path.read_text().splitlines())] for path in tmp_path.glob("clicks_*")}
    released = sorted(loaded["clicks_released"], key=lambda row: row["id"])
    assert [(row["id"], row["site"]) for row in released] == [(r["id"], r["site"]) for r in CLICKS if r["id"] != 5]
    assert loaded["clicks_left_out"] == [{"id": "5", "stage": "privatize", "error": "unusable label"}]
    assert json.loads(loaded["clicks_releases"][0]["manifest"])["records"] == 199
