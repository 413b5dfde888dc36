"""The Python examples of README.md and of the guide run as printed, each in an empty folder with the logs they name."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    (page, number, code)
    for page in ("README.md", "docs/guides/python.md")
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S))
]


def test_there_are_examples() -> None:
    assert [page for page, _, _ in EXAMPLES] == ["README.md"] + ["docs/guides/python.md"] * 5


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


# Labels of 3,000 records at epsilon 1 have warnings for those who use them.
@pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
@pytest.mark.parametrize(("page", "number", "code"), EXAMPLES, ids=[f"{page} {number}" for page, number, _ in EXAMPLES])
def test_an_example_runs_as_printed(
    page: str, number: int, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    exec(compile(code, f"example {number} of {page}", "exec"), {"__name__": "__main__"})
    made = {path.name for path in folder.iterdir()} - {"log-1.parquet", "log-2.parquet", "log.csv", "config"}
    if "PrivatizeFiles" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl", "released"}
        assert {"data", "mechanism.json", "release.json"} <= {path.name for path in (folder / "released").iterdir()}
    elif "LabelPrivatizer" in code or "labeldp.privatize" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl"}
    else:
        assert made == {"noise.key", "out"}
        assert len(list((folder / "out").iterdir())) == 4


def test_side_inputs_that_batches_carry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the guide to engines, in the pipeline of the guide to Python, write the same shards."""
    (code,) = (code for _, _, code in EXAMPLES if "ReleaseShards" in code)
    page = (ROOT / "docs/guides/engines.md").read_text().partition("\n## Flink\n")[2].partition("\n## ")[0]
    (lines,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    start, end = code.index("    records = "), code.index("    shards | ReleaseShards")
    carrying = code[:start] + textwrap.indent(lines, "    ") + code[end:]
    carrying = carrying.replace("import (", "import (\n    Carried,\n    DivideRows,").replace("key.create()", "")
    monkeypatch.chdir(folder)
    written = []
    for number, each in enumerate((code, carrying)):
        exec(compile(each, f"pipeline {number}", "exec"), {"__name__": "__main__"})
        written.append({path.name: path.read_bytes() for path in (folder / "out").iterdir()})
        (folder / "out").rename(folder / f"out-{number}")
    assert written[0] == written[1]
    assert len(written[0]) == 4
