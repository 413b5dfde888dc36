"""The commands and the model of docs/guides/late_labels.md run as printed; its tables are those of the simulation."""

import csv
import importlib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from tests.commands import write_key

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guides" / "late_labels.md").read_text()
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(command)
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for command in block.replace("\\\n", " ").splitlines()
]
RECORDS = 20_000

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


def clicks(first: int, oldest: float, newest: float, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
    """Columns of clicks of some days, with labels of day 1 and final ones; and probabilities that they convert."""
    x = rng.normal(size=(RECORDS, 3)).round(4)
    angle = -rng.uniform(newest, oldest, RECORDS) / 30
    score = 1.5 * (np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1]) - 1.5
    chance = 1 / (1 + np.exp(-score))
    final = rng.random(RECORDS) < chance
    early = final & (rng.exponential(3 * np.exp(0.7 * x[:, 2])) < 1)
    columns = dict(zip(("visits", "recency", "price"), x.T, strict=True))
    labels = {"early": early, "final": final}
    return {"click": np.arange(first, first + RECORDS), **columns, **labels}, chance


def write(path: Path, columns: dict[str, Any], label: str) -> None:
    """Writes a log with one of the labels, which is missing where it is 0."""
    labels = pa.array(np.ones(RECORDS, np.int64), mask=~columns[label])
    features = {name: column for name, column in columns.items() if name not in ("early", "final")}
    pyarrow.csv.write_csv(pa.table({**features, "converted": labels}), str(path))


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Writes the logs into an empty working folder. Returns features and probabilities of clicks of today."""
    rng = np.random.default_rng(6)
    older, _ = clicks(0, 60, 30, rng)
    recent, _ = clicks(RECORDS, 30, 0, rng)
    write(tmp_path / "older_day1.csv", older, "early")
    write(tmp_path / "older_final.csv", older, "final")
    write(tmp_path / "recent_day1.csv", recent, "early")
    today, chance = clicks(2 * RECORDS, 0, 0, rng)
    monkeypatch.chdir(tmp_path)
    return np.column_stack([today[name] for name in ("visits", "recency", "price")]), chance


def excess(chance: np.ndarray, found: np.ndarray) -> float:
    """Excess of the log loss over that of the true probabilities."""
    return float((chance * np.log(chance / found) + (1 - chance) * np.log((1 - chance) / (1 - found))).mean())


def asked(command: Sequence[str], key: Path, **changed: str) -> list[str]:
    """Arguments of a command of the page, with a key and some flags changed."""
    argv = [*command[1:], "--noise_key_file", str(key)]
    for name, value in changed.items():
        argv[argv.index(f"--{name}") + 1] = value
    return argv


def test_commands_and_model_run_as_printed(
    logs: tuple[np.ndarray, np.ndarray], tmp_path: Path, run_labeldp: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    features, chance = logs
    key = write_key(tmp_path / "noise.key", bytes(range(32)))
    assert [command[:2] for command in COMMANDS] == [["labeldp", "privatize"]] * 3
    for command in COMMANDS:
        assert run_labeldp(asked(command, key)) == 0
    for name in ("older_day1", "older_final", "recent_day1"):
        assert json.loads(Path(name, "release.json").read_text())["records"] == RECORDS
        assert run_labeldp(["audit", name]) == 0

    # Both releases of the older clicks are in one ledger, whose cap they have used up.
    capsys.readouterr()
    assert run_labeldp(asked(COMMANDS[1], key, epsilon="0.5", output="again")) == 2
    assert "--epsilon_cap 2" in capsys.readouterr().err
    assert not Path("again").exists()

    names: dict[str, Any] = {}
    exec(compile(CODE, "late_labels.md", "exec"), names)
    corrected = excess(chance, names["predict"](features))
    for other in ("final", "recent"):
        assert corrected < 0.8 * excess(chance, 1 / (1 + np.exp(-names[other](features))))


def test_tables_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "results"))
    script = importlib.import_module("late_labels")
    for name, text in script.tables().items():
        assert f"<!-- {name} -->\n{text}\n<!-- end -->" in PAGE
    with (DOCS / "results" / "late_labels.csv").open(newline="") as file:
        worlds = {(row["kind"], row["delay"], float(row["speed"])) for row in csv.DictReader(file)}
    assert worlds == {*script.WORLDS}


def test_truth_of_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected final labels are the means of those that are drawn, and early labels come before final ones."""
    monkeypatch.syspath_prepend(str(DOCS / "results"))
    script = importlib.import_module("late_labels")
    for kind in script.KINDS:
        for delay in script.DELAYS:
            log = script.World(kind, delay, 0.5).log(60, 30, 200_000, np.random.default_rng(1))
            error = (log.final - log.truth).mean() / (log.final - log.truth).std() * 200_000**0.5
            assert abs(error) < 5
            assert ((log.early == 0) | (log.early == log.final)).all()
            # Chances below LEAST are raised to it.
            assert script.error(kind, log.truth, log.truth) < 1e-6
            assert script.error(kind, np.full(len(log.truth), log.truth.mean()), log.truth) == pytest.approx(1)
