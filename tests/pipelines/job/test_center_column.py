"""`--center_column` in whole jobs: every format, fit and apply, the audit of the records, and refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

ROWS = 1200
FLAGS = {"label": "y", "label_min": 0, "label_max": 20, "label_step": 1, "epsilon": 2}
CENTER = FLAGS | {"center_column": "guess", "mechanism": "unbiased"}
MISSING = 40
"""The guess of every 30th record is missing."""


def log_table() -> pa.Table:
    rng = np.random.default_rng(4)
    guess = rng.uniform(0, 20, ROWS)
    labels = np.clip(np.rint(guess + rng.normal(0, 1.5, ROWS)), 0, 20)
    guesses = [None if i % 30 == 5 else value for i, value in enumerate(guess.tolist())]
    return pa.table({"id": np.arange(ROWS), "guess": pa.array(guesses, pa.float64()), "y": labels})


@pytest.fixture(scope="module")
def log_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    pa_csv.write_csv(log_table(), path)
    return path


def centers_of(table: pa.Table) -> np.ndarray:
    guesses = np.array([np.nan if value is None else value for value in table["guess"].to_pylist()], np.float32)
    return np.where(np.isnan(guesses), 10.0, np.clip(np.floor(guesses.astype(float) + 0.5), 0, 20))


@pytest.fixture(scope="module")
def released(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A release from CSV to Parquet, and what the command printed."""
    output = tmp_path_factory.mktemp("center") / "released"
    flags = {"input": log_csv, "input_format": "csv", "output": output, "noise_key_file": key_file}
    outcome = invoke(command("privatize", flags | CENTER | {"output_format": "parquet", "id_column": "id"})).ok()
    return output, outcome.out


def test_labels_are_centers_plus_outputs_and_the_center_stays(released: tuple[Path, str]) -> None:
    output, printed = released
    table, before = pq.read_table(output / "data"), log_table()
    assert table.drop(["y"]).equals(before.drop(["y"]))
    mechanism = json.loads((output / "mechanism.json").read_text())
    outputs, centers = np.array(mechanism["outputs"]), centers_of(before)
    offsets = table["y"].to_numpy() - centers
    assert np.abs(offsets[:, None] - outputs).min(axis=1).max() < 1e-12
    labels = np.array(mechanism["labels"])
    assert labels[-1] - labels[0] < 20, "the range is a part of the domain"
    assert mechanism["mechanism"] == "unbiased"
    errors = table["y"].to_numpy() - before["y"].to_numpy()
    # With ids, draws are the same in every run.
    assert abs(errors.mean()) < 5 * errors.std() / ROWS**0.5
    assert f"center     guess: {MISSING} missing; residuals clipped to {labels[0]:g}..{labels[-1]:g}," in printed


def test_the_manifest_states_the_center(released: tuple[Path, str]) -> None:
    output, _ = released
    release, mechanism = (json.loads((output / name).read_text()) for name in ("release.json", "mechanism.json"))
    labels = mechanism["labels"]
    assert release["center"]["column"] == "guess"
    assert release["center"]["missing"] == MISSING
    assert release["center"]["residuals"] == {"min": labels[0], "max": labels[-1], "labels": len(labels)}
    assert set(release["center"]["clipping"]) == {"share", "bias", "squared_error"}
    assert release["domain"] == {"min": 0.0, "max": 20.0, "labels": 21}
    assert release["rounding"] == "randomized"
    assert mechanism["center"]["domain"] == [float(label) for label in range(21)]
    assert release["prior_epsilon"] <= release["epsilon"] / 8


def test_a_changed_center_fails_the_audit(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    (shard,) = (output / "data").iterdir()
    table = pq.read_table(shard)
    values = table["guess"].to_pylist()
    values[7] = (values[7] + 10) % 20
    place = table.schema.get_field_index("guess")
    pq.write_table(table.set_column(place, "guess", pa.array(values, pa.float64())), shard)
    outcome = invoke(["audit", str(output), "--data"])
    assert outcome.code == 1
    assert "1 labels that are no output of the mechanism around the record's center, first in record 7" in (
        outcome.out + outcome.err
    )


def test_the_report_says_that_labels_are_residuals(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    invoke(["report", str(released[0]), f"--output={tmp_path / 'page.html'}"]).ok()
    page = (tmp_path / "page.html").read_text()
    assert "Labels are privatized around a public center" in page
    assert "column <bdi>guess</bdi>; 40 records without one" in page
    assert "21 values" in page, "the public domain"
