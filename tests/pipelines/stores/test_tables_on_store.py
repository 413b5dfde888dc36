"""Tables on S3, which their own libraries write there, are released and audited; a glob over one is refused."""

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
def test_an_iceberg_table_on_a_store(emulator, job, invoke, outputs, monkeypatch, tmp_path, new_catalog):
    for name, value in emulator.variables.items():
        monkeypatch.setenv(name, value)
    store = {"s3__endpoint": emulator.variables["AWS_ENDPOINT_URL"], "s3__region": "us-east-1"}
    keys = dict.fromkeys(("s3__access_key_id", "s3__secret_access_key"), "tests")
    catalog = new_catalog("cat", tmp_path, warehouse=emulator.url("lake"), **store, **keys)
    catalog.create_namespace("n")
    catalog.create_table("n.t", RECORDS.schema).append(RECORDS)
    invoke(job(input="iceberg://cat/n.t", input_format="parquet")).ok()
    table, stated = released(outputs / "released")
    assert table["f"].equals(RECORDS["f"])
    assert stated["name"] == "cat/n.t"
    outcome = invoke(job(input=f"{emulator.url('lake')}/n/t/data/*", input_format="parquet", output=outputs / "other"))
    assert "matches files of the Iceberg table" in outcome.error
