"""The Python examples of README.md and of the guide run as printed, each in an empty folder with the logs they name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 240
EXAMPLES = [
    (page, number, code)
    for page in ("README.md", "docs/guides/python.md")
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S))
]


def test_there_are_examples() -> None:
    assert [page for page, _, _ in EXAMPLES] == ["README.md"] * 3 + ["docs/guides/python.md"] * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with log.csv and log-*.parquet, whose label `weeks` is between 0 and 52."""
    draws = np.random.default_rng(3)
    for name in ("log-1.parquet", "log-2.parquet", "log.csv"):
        table = pa.table({"age": draws.integers(18, 90, 3000), "weeks": draws.integers(0, 53, 3000)})
        if name.endswith(".csv"):
            pyarrow.csv.write_csv(table, str(tmp_path / name))
        else:
            pq.write_table(table, str(tmp_path / name))
    return tmp_path


@pytest.mark.parametrize(("page", "number", "code"), EXAMPLES, ids=[f"{page} {number}" for page, number, _ in EXAMPLES])
def test_an_example_runs_as_printed(page: str, number: int, code: str, folder: Path) -> None:
    (folder / "config").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False, cwd=folder, capture_output=True, text=True, timeout=SECONDS,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    made = {path.name for path in folder.iterdir()} - {"log-1.parquet", "log-2.parquet", "log.csv", "config"}
    if "PrivatizeFiles" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl", "released"}
        assert {"data", "mechanism.json", "release.json"} <= {path.name for path in (folder / "released").iterdir()}
    elif "LabelPrivatizer" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl"}
    else:
        assert made == {"noise.key", "out"}
        assert len(list((folder / "out").iterdir())) == 4
