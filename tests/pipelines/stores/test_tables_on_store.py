"""Tables on S3, which their own libraries write there, are released and audited; a glob over one is refused."""

import importlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.xdist_group("stores")

S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
RECORDS = pa.table({"f": np.arange(600), "y": np.arange(600) % 5})


def released(folder: Path) -> tuple[pa.Table, dict[str, str]]:
    paths = sorted((folder / "data").iterdir())
    table = pa.concat_tables([pq.ParquetFile(str(path)).read() for path in paths])
    return table.sort_by("f"), json.loads((folder / "release.json").read_text())["table"]


@S3
def test_a_delta_table_on_a_store(emulator, job, invoke, outputs, monkeypatch):
    deltalake = pytest.importorskip("deltalake")
    for name, value in {**emulator.variables, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    url = emulator.url("tables/clicks")
    deltalake.write_deltalake(url, RECORDS, storage_options={"aws_conditional_put": "etag"})
    asked = {"input": f"delta://{url}", "input_format": "parquet"}
    invoke(job(**asked)).ok()
    table, stated = released(outputs / "released")
    assert table["f"].equals(RECORDS["f"])
    assert (stated["name"], stated["snapshot"]) == ("clicks", "0")
    invoke(["audit", str(outputs / "released"), "--data"]).ok()
    outcome = invoke(job(input=f"{url}/*.parquet", input_format="parquet", output=outputs / "other"))
    assert f"read the table with --input delta://{url}" in outcome.error


@S3
def test_an_iceberg_table_on_a_store(emulator, job, invoke, outputs, monkeypatch, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    own = {
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "S3__ENDPOINT": emulator.variables["AWS_ENDPOINT_URL"],
        "S3__REGION": "us-east-1",
        "S3__ACCESS_KEY_ID": "tests",
        "S3__SECRET_ACCESS_KEY": "tests",
    }
    for name, value in {**emulator.variables, **{f"PYICEBERG_CATALOG__CAT__{k}": v for k, v in own.items()}}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    catalog = catalogs.load_catalog("cat", warehouse=emulator.url("lake"))
    catalog.create_namespace("n")
    catalog.create_table("n.t", RECORDS.schema).append(RECORDS)
    invoke(job(input="iceberg://cat/n.t", input_format="parquet")).ok()
    table, stated = released(outputs / "released")
    assert table["f"].equals(RECORDS["f"])
    assert stated["name"] == "cat/n.t"
    outcome = invoke(job(input=f"{emulator.url('lake')}/n/t/data/*", input_format="parquet", output=outputs / "other"))
    assert "matches files of the Iceberg table" in outcome.error
    catalog.close()
