"""Releases of ORC files by the command line: those of Parquet files with the same records."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

ROWS = 40_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """log.orc, of several stripes, and log.parquet, with the same records."""
    folder = tmp_path_factory.mktemp("log")
    draws = np.random.default_rng(1)
    table = pa.table(
        {"id": np.arange(ROWS), "f": draws.random(ROWS), "s": ["a", "b"] * (ROWS // 2), "y": np.arange(ROWS) % 5}
    )
    orc.write_table(table, str(folder / "log.orc"), stripe_size=1 << 16)
    assert orc.ORCFile(str(folder / "log.orc")).nstripes > 1
    pq.write_table(table, folder / "log.parquet")
    return folder


@pytest.mark.parametrize("center", ["none", "linear"])
def test_with_ids_the_shards_are_those_of_parquet(job, invoke, outputs, logs, tree, center):
    for format in ("orc", "parquet"):
        asked = {"input": logs / f"log.{format}", "input_format": format, "id_column": "id", "center": center}
        invoke(job(**asked, output=outputs / format, num_shards=3)).ok()
    assert tree(outputs / "orc" / "data") == tree(outputs / "parquet" / "data")
    digests = [json.loads((outputs / name / "release.json").read_text())["input_digest"] for name in ("orc", "parquet")]
    assert digests[0] == digests[1]
    invoke(["audit", str(outputs / "orc"), "--data"]).ok()


def test_a_dry_run_counts_records_and_init_knows_the_format(job, invoke, logs, tmp_path):
    outcome = invoke([*job(input=logs / "log.orc", input_format="orc"), "--dry_run"]).ok()
    assert f"1 orc file, {ROWS:,} records" in outcome.out
    invoke(["init", str(logs / "log.orc"), "--output", str(tmp_path / "job.yaml")]).ok()
    assert "input_format: orc" in (tmp_path / "job.yaml").read_text()
    outcome = invoke(job(input=logs / "log.orc"))
    assert "is an ORC file: give --input_format orc" in outcome.error
