"""The lines of the guide to input files and tables that make a table of the shards of a release run as printed."""

import importlib
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
ICEBERG, DELTA = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/guides/input_files.md").read_text(), re.M | re.S)
FACTS = {"epsilon": 1.0, "label": "weeks", "mechanism": "unbiased", "input_digest": "0f" * 32}


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Records of the release in the folder `released` of an empty working folder."""
    table = pa.table({"age": range(10), "weeks": [0.5] * 10})
    (tmp_path / "released" / "data").mkdir(parents=True)
    for number in (0, 1):
        path = tmp_path / "released" / "data" / f"part-0000{number}-of-00002.parquet"
        pq.write_table(table.slice(5 * number, 5), path)
    (tmp_path / "released" / "release.json").write_text(str(FACTS).replace("'", '"'))
    monkeypatch.chdir(tmp_path)
    return table


def test_shards_are_added_to_an_iceberg_table(released, tmp_path, monkeypatch):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    catalog = catalogs.load_catalog("lake")
    catalog.create_namespace("ads")
    names: dict = {}
    exec(compile(ICEBERG, "guide", "exec"), names)
    table = catalog.load_table("ads.released")
    assert table.scan().to_arrow().sort_by("age").equals(released)
    assert {f"labeldp.{name}": str(value) for name, value in FACTS.items()}.items() <= dict(
        table.current_snapshot().summary.additional_properties
    ).items()
    assert len(table.snapshots()) == 1
    catalog.close()
    names["catalog"].close()


def test_shards_become_a_delta_table(released):
    deltalake = pytest.importorskip("deltalake")
    exec(compile(DELTA, "guide", "exec"), {})
    table = deltalake.DeltaTable("clicks_released")
    assert table.to_pyarrow_table().sort_by("age").equals(released)
    (commit,) = table.history()
    assert {f"labeldp.{name}": str(value) for name, value in FACTS.items()}.items() <= commit.items()
    assert not Path("released/data/_delta_log").exists()
