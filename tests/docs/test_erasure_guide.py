"""Erasure in the guide for auditors: the command prints what is shown, and the lines for tables run as printed."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import write_key

GUIDE = (Path(__file__).parents[2] / "docs/guides/auditors.md").read_text()
GUIDE = GUIDE.partition("\n## Erasure and corrections\n")[2].partition("\n## ")[0]
ICEBERG, DELTA = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
RECORDS = 3000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with ids.txt, which names five of the records in the log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.txt").write_text("".join(f"user {place}\n" for place in (0, 5, 1499, 2222, 2999)))
    return tmp_path


def log() -> pa.Table:
    random = np.random.default_rng(1)
    a, b = random.normal(0, 1, (2, RECORDS))
    weeks = np.clip(np.rint(20 + 5 * a + 3 * b + random.normal(0, 3, RECORDS)), 0, 52)
    return pa.table({"name": [f"user {i}" for i in range(RECORDS)], "a": a, "b": b, "weeks": weeks})


def test_the_command_prints_what_the_guide_shows(folder: Path, run_labeldp: Any, capsys: Any) -> None:
    pq.write_table(log(), "log.parquet")
    write_key(folder / "noise.key", bytes(range(32)))
    flags = ["--input=log.parquet", "--input_format=parquet", "--label=weeks", "--label_min=0", "--label_max=52"]
    flags += ["--label_step=1", "--epsilon=1", "--center=linear", "--id_column=name", "--num_shards=3"]
    assert run_labeldp(["privatize", *flags, "--output=released", "--noise_key_file=noise.key"]) == 0
    capsys.readouterr()
    (line,) = re.findall(r"^```sh\n(labeldp remove .*)\n```$", GUIDE, re.M)
    assert run_labeldp([*line.split()[1:], "--removed_on=2026-01-31"]) == 0
    # Digests depend on the working folder, which is in the identities.
    found = re.sub(
        r"digest [0-9a-f]{16}", "digest 93f4c0f9fd5dcdc3", capsys.readouterr().out.replace(str(folder), "...")
    )
    (shown,) = re.findall(r"<!-- output -->\n```text\n(.*?)^```$", GUIDE, re.M | re.S)
    assert found.splitlines() == shown.splitlines()
    assert run_labeldp(["audit", "released2", "--data"]) == 0


def test_records_are_deleted_from_an_iceberg_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}/warehouse")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    catalog = catalogs.load_catalog("lake")
    catalog.create_namespace("ads")
    made = catalog.create_table("ads.released", schema=log().schema)
    for part in range(2):
        made.append(log().slice(1500 * part, 1500))
    exec(compile(ICEBERG, "guide", "exec"), {})
    table = catalog.load_table("ads.released")
    left = table.scan().to_arrow()["name"].to_pylist()
    assert len(left) == RECORDS - 5
    assert "user 1499" not in left
    assert len(table.metadata.snapshots) == 1


def test_records_are_deleted_from_a_delta_table(folder: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake("released_table", log())
    exec(compile(DELTA, "guide", "exec"), {})
    left = [path for path in Path("released_table").rglob("*.parquet") if "_delta_log" not in path.parts]
    names = [name for path in left for name in pq.read_table(path)["name"].to_pylist()]
    assert len(names) == RECORDS - 5
    assert "user 1499" not in names
