"""Labels of true and false are labels of 1 and 0: the release is that of the same file with numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 2000
CLICKS = np.random.default_rng(4).random(ROWS) < 0.3
GRID: dict[str, Any] = {"label": "click", "label_max": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "in"


def table(label: Any, **columns: Any) -> pa.Table:
    return pa.table({"user": np.arange(ROWS) // 4, "v": np.arange(ROWS) % 7, "click": label, **columns})


WORDS = [
    ("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ('"true"', '"false"'), ("1", "0"), ("1.0", "0.0"),
    ("1e0", "-0"),
]  # fmt: skip


def test_csv(job: Any, invoke: Any, outputs: Path, path: Path) -> None:
    """Some are words and others numbers, in any order: each is read by itself."""
    texts, found = [WORDS[row % len(WORDS)][not click] for row, click in enumerate(CLICKS)], []
    for number, column in enumerate((texts, CLICKS.astype(int).tolist())):
        path.write_text("user,click,v\n" + "".join(f"{row},{each},{row % 7}\n" for row, each in enumerate(column)))
        invoke(job(**GRID, input=path, output=outputs / f"{number}")).ok()
        invoke(["audit", str(outputs / f"{number}"), "--data"]).ok()
        found.append(pq.read_table(outputs / f"{number}" / "data"))
    assert found[0].equals(found[1])
