"""Labels of true and false are labels of 1 and 0: the release is that of the same file with numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

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


def test_missing_labels_among_truth_values_of_csv(job: Any, invoke: Any, path: Path) -> None:
    texts = ["true", "", "NA", "null", "false"] * 20
    path.write_text("v,click\n" + "".join(f"{row},{text}\n" for row, text in enumerate(texts)))
    outcome = invoke(job(**GRID, input=path, max_unusable_fraction=0.7)).ok()
    assert (
        "Released  40 records with new labels in click, in 1 shard; 60 (60 % of 100) without a usable label left out"
        in outcome.out
    )


def test_init_fills_in_the_domain(invoke: Any, path: Path, tmp_path: Path) -> None:
    pq.write_table(table(CLICKS), path)
    for label, domain in (("click", (0, 1, 1)), ("v", (0, None, 1))):
        target = tmp_path / f"{label}.yaml"
        invoke(["init", str(path), f"--label={label}", f"--output={target}"]).ok()
        flags = yaml.safe_load(target.read_text())
        assert (flags["label_min"], flags["label_max"], flags["label_step"]) == domain


def test_domain_and_evaluate(invoke: Any, path: Path, tmp_path: Path, key_file: Path) -> None:
    flags = [f"--input={path}", "--input_format=parquet", "--label=click"]
    found = []
    for column in (CLICKS, CLICKS.astype(np.int8)):
        pq.write_table(table(column), path)
        target = tmp_path / f"domain{len(found)}.json"
        outcome = invoke(
            ["domain", *flags, "--epsilon=1", f"--domain_file={target}", f"--noise_key_file={key_file}"]
        ).ok()
        found.append([line for line in outcome.out.splitlines() if not line.startswith("released")])
    assert found[0] == found[1]
    grid = ["--label_min=0", "--label_max=1", "--label_step=1", "--epsilon=1", "--mechanism=rr", "--seeds=1"]
    pq.write_table(table(CLICKS), path)
    invoke(["evaluate", *flags, *grid, f"--output={tmp_path / 'evaluated'}"]).ok()
