"""`--center_column` in whole jobs: every format, fit and apply, the audit of the records, and refusals."""

import json
import shutil
from collections.abc import Callable
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


@pytest.mark.parametrize("column", ["y", "guess"])
def test_a_changed_label_or_center_fails_the_audit(
    released: tuple[Path, str], invoke: Any, tmp_path: Path, column: str
) -> None:
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    (shard,) = (output / "data").iterdir()
    table = pq.read_table(shard)
    values = table[column].to_pylist()
    values[7] = values[7] + 0.25 if column == "y" else (values[7] + 10) % 20
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array(values, pa.float64())), shard)
    outcome = invoke(["audit", str(output), "--data"])
    assert outcome.code == 1
    assert "1 labels that are no output of the mechanism around the record's center, first in record 7" in (
        outcome.out + outcome.err
    )


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("release.json", lambda d: d.pop("center"), "release.center and center of mechanism.json: one is missing"),
        ("release.json", lambda d: d.update(label="guess"), "release.center.column is the label column"),
        (
            "release.json",
            lambda d: d["center"].update(missing=10**6),
            "release.center.missing is above release.records",
        ),
        (
            "release.json",
            lambda d: d["center"]["residuals"].update(max=99.0),
            "release.center.residuals is not that of",
        ),
        ("release.json", lambda d: d["domain"].update(max=21.0), "release.domain is not that of the center of"),
        ("mechanism.json", lambda d: d["center"].update(more=1), "center has other members than column"),
        ("mechanism.json", lambda d: d["center"]["counts"].pop(), "do not have one count for each cell"),
        ("mechanism.json", lambda d: d["center"].update(domain=[0.0, 1.0, 3.0]), "center.domain is not a grid"),
        ("mechanism.json", lambda d: d["center"].update(counts="9"), "center.counts is not an array"),
        ("mechanism.json", lambda d: d["center"].pop("column"), "center.column is missing"),
        ("mechanism.json", lambda d: d.pop("center"), "prior.counts is missing"),
        (
            "mechanism.json",
            lambda d: d["center"].update(domain=[label / 2 for label in d["center"]["domain"]]),
            "labels are not consecutive residuals of center.domain",
        ),
    ],
)
def test_the_audit_finds_what_contradicts_the_center(
    released: tuple[Path, str], invoke: Any, tmp_path: Path, name: str, change: Callable[[Any], Any], message: str
) -> None:
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    document = json.loads((output / name).read_text())
    change(document)
    (output / name).write_text(json.dumps(document))
    outcome = invoke(["audit", str(output)])
    assert outcome.code == 1
    assert message in outcome.out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["center"]["counts"].__setitem__(0, 10**6), "its prior is not that of its center's counts"),
        (
            lambda d: d["center"].update(more=1),
            "its center does not have exactly a column, a domain, counts and perhaps",
        ),
        (lambda d: d["center"].update(column=3), "its center.column is not text"),
        (lambda d: d["center"].update(domain=[0, 1]), "its center.domain is not an array of floats"),
        (lambda d: d["center"].update(domain=[0.0, 1.0, 9.0]), "evenly spaced"),
        (lambda d: d["center"].update(counts=[0.5]), "its center.counts is not an array of integers"),
        (lambda d: d["center"].update(counts=[5, 5, 5]), "not one count for each cell"),
        (lambda d: d["prior"].update(epsilon=0.0, release=None), "its prior has no epsilon"),
    ],
)
def test_apply_refuses_a_mechanism_file_with_a_wrong_center(
    released: tuple[Path, str], log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path,
    change: Callable[[Any], Any], message: str,
) -> None:  # fmt: skip
    document = json.loads((released[0] / "mechanism.json").read_text())
    change(document)
    file = tmp_path / "m.json"
    file.write_text(json.dumps(document))
    flags = {"input": log_csv, "input_format": "csv", "label": "y", "noise_key_file": key_file}
    outcome = invoke(command("apply", flags | {"mechanism_file": file, "output": tmp_path / "out"}))
    assert outcome.code == 2
    assert message in outcome.error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"center_column": "y"}, "--center_column must be another column than --label"),
        ({"loss": "poisson"}, "--loss"),
        ({"label_values": "uneven", "label_min": None, "label_max": None, "label_step": None}, "evenly spaced"),
    ],
)
def test_wrong_flags_are_usage_errors(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path, flags: dict[str, Any], message: str
) -> None:
    if "label_values" in flags:
        flags = flags | {"label_values": tmp_path / "values"}
        (tmp_path / "values").write_text("0\n1\n3\n")
    whole = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "output": tmp_path / "out"}
    asked = {name: value for name, value in (whole | CENTER | flags).items() if value is not None}
    outcome = invoke(command("privatize", asked | {"output_format": "parquet"}))
    assert outcome.code == 2
    assert message in outcome.error


def test_apply_takes_the_center_from_its_file(released: tuple[Path, str], job: Any, invoke: Any) -> None:
    outcome = invoke(job("apply", mechanism_file=released[0] / "mechanism.json", center_column="guess"))
    assert outcome.code == 2
    assert "--center_column is set by the mechanism file; leave it out" in outcome.error


@pytest.mark.parametrize(
    ("column", "code", "message"),
    [("nothing", 2, "--center_column: there is no column 'nothing'"), ("word", 1, "center column 'word' holds")],
)
def test_a_center_that_is_not_there_or_text_fails(
    invoke: Any, job: Any, outputs: Path, tmp_path: Path, column: str, code: int, message: str
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("word,y\n" + "".join(f"w{i},{i % 5}\n" for i in range(50)))
    outcome = invoke(job(input=log, center_column=column))
    assert outcome.code == code
    assert message in outcome.error
    assert not (outputs / "released").exists()


def test_another_center_is_another_request_and_is_charged(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    whole = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "ledger": ledger, "id_column": "id"}

    def charged(name: str, flags: dict[str, Any]) -> set[str]:
        output = {"output": tmp_path / name, "output_format": "parquet"}
        invoke(command("privatize", whole | flags | output)).ok()
        return {charge["release"] for charge in json.loads(ledger.read_text().splitlines()[-1])["charges"]}

    one = charged("one", CENTER)
    assert len(one) == 2
    assert not charged("other", CENTER | {"center_column": "id"}) & one


def test_the_report_says_that_labels_are_residuals(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    invoke(["report", str(released[0]), f"--output={tmp_path / 'page.html'}"]).ok()
    page = (tmp_path / "page.html").read_text()
    assert "Labels are privatized around a public center" in page
    assert "column <bdi>guess</bdi>; 40 records without one" in page
    assert "21 values" in page, "the public domain"
