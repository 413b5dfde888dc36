"""Classes that are drawn from a center of the features, in whole jobs: formats, bytes, budget, units, memory."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.center.linear_center import MOST_SAMPLE

from tests.written_logs import write_parts

ROWS = 4000
GRADES = ("poor", "fair", "good")
FEATURES = ("a", "b", "word")


def log_table(seed: int = 3) -> pa.Table:
    """A log whose classes depend on features: clicks on an interaction of two, grades nearly linearly."""
    random = np.random.default_rng(seed)
    a, b, word = random.normal(size=ROWS), random.normal(size=ROWS), random.integers(0, 3, ROWS)
    click = random.random(ROWS) < 1 / (1 + np.exp(2 - 2 * a - 2 * np.sign(a * b)))
    grade = np.searchsorted([-0.7, 0.9], 1.5 * a + (word == 1) + random.normal(0, 0.7, ROWS))
    return pa.table({
        "id": np.arange(ROWS), "a": a, "b": b, "word": [f"w{value}" for value in word.tolist()],
        "click": click.astype(np.int64), "grade": [GRADES[place] for place in grade.tolist()],
        "user": np.arange(ROWS) // 2,
    })  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parts(tmp_path_factory.mktemp("logs"), log_table(), 2500, ("parquet", "csv", "tfrecord"))


@pytest.fixture
def run(logs: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Callable[..., Any]:
    """Function (output, kind="parquet", name="privatize", flag=value, ...) -> the outcome of the command."""

    def call(place: str | None, kind: str = "parquet", name: str = "privatize", **flags: Any) -> Any:
        standard: dict[str, Any] = {"input": logs / f"log-*.{kind}", "input_format": kind, "noise_key_file": key_file}
        standard |= {"label": "click", "id_column": "id", "output": place and outputs / place}
        if name != "apply":
            standard |= {"label_classes": "0,1", "epsilon": 2, "for": "models", "center_features": ",".join(FEATURES)}
        return invoke(command(name, standard | flags))

    return call


def test_features_of_few_values_leave_no_epsilon_unspent(
    run: Callable[..., Any], invoke: Any, outputs: Path, tmp_path: Path
) -> None:
    """Their sample is that of centers of classes, larger than of others: here, all records."""
    table = pa.concat_tables([log_table().select(["word", "click"])] * 5)
    pq.write_table(table.append_column("id", pa.array(np.arange(len(table)))), tmp_path / "log.parquet")
    run("few", epsilon=1, input=tmp_path / "log.parquet", center_features="word").ok()
    manifest = json.loads((outputs / "few" / "release.json").read_text())
    assert manifest["class_center"]["cells"] == 3
    assert Fraction(99, 100) < Fraction(manifest["certified_epsilon"]) <= 1
    center = json.loads((outputs / "few" / "center.json").read_text())["center"]
    assert len(center["cells"]["codes"][0]) == len(table) > MOST_SAMPLE
    invoke(["audit", str(outputs / "few")]).ok()


def test_frequent_classes_at_a_large_epsilon_are_warned_of(run: Callable[..., Any], outputs: Path, invoke: Any) -> None:
    for name, epsilon, expected in (("large", 2, ["frequent_classes"]), ("small", 1, [])):
        err = run(name, epsilon=epsilon).ok().err
        assert ("say more than the center: --center none" in err) == bool(expected)
        file = outputs / name / "release.json"
        manifest = json.loads(file.read_text())
        assert manifest["warnings"] == expected
        invoke(["audit", str(outputs / name)]).ok()
        file.write_text(json.dumps(manifest | {"warnings": [] if expected else ["frequent_classes"]}))
        assert "frequent_classes" in invoke(["audit", str(outputs / name)]).out
