"""The pages on training run as printed: models learn from releases what is true, which these tests alone know."""

import csv
import importlib
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from tests.docs.pages import ROOT, Runner, blocks
from tests.false_alarms import standard_errors

TRAINING, LATE_LABELS = "docs/guides/training.md", "docs/guides/late_labels.md"

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


def excess(p: np.ndarray, predicted: Any) -> float:
    """Mean excess of the log loss over that of the true probabilities."""
    predicted = np.asarray(predicted)
    return float(np.mean(p * np.log(p / predicted) + (1 - p) * np.log((1 - p) / (1 - predicted))))


def errors_in(printed: str) -> dict[str, tuple[float, float]]:
    """Estimates and their standard errors by name."""
    found = re.findall(r"^(\w+) (\S+) \+- (\S+)$", printed, re.MULTILINE)
    return {name: (float(value), float(error)) for name, value, error in found}


def test_numbers(page: Runner) -> None:
    rng = np.random.default_rng(3)
    age, visits = rng.integers(18, 90, 20_000), rng.poisson(2, 20_000)
    weeks = np.clip(np.rint(np.where(age < 60, 6, 20) + 3 * visits + rng.normal(0, 4, len(age))), 0, 52)
    pyarrow.csv.write_csv(pa.table({"age": age, "visits": visits, "weeks": weeks}), "log.csv")
    (command,) = blocks(TRAINING, "Numbers", "sh")
    page.run(command)
    printed = "".join(map(page.run, [blocks(TRAINING)[0], *blocks(TRAINING, "Numbers", "python")]))
    names = page.names
    # The row order is that of the log.
    true = weeks[names["kept"]]
    value, error = errors_in(printed)["mean_squared_error"]
    assert abs(value - np.mean((names["predictions"] - true) ** 2)) < standard_errors() * error
    assert abs(names["mean"].value - true.mean()) < standard_errors() * names["mean"].standard_error
    truth = np.mean((names["predictions"] - true) ** 2 - (names["shallow"] - true) ** 2)
    assert abs(names["difference"] - truth) < standard_errors() * names["compare"](
        names["predictions"], names["shallow"], names["z"][names["kept"]], names["release"],
        center=names["center"][names["kept"]],
    ).standard_error  # fmt: skip
    assert names["weights"] == pytest.approx([1, 1])


CLASSES = blocks(TRAINING, "Classes", "python")
LIBRARIES = {block.needs: block for block in CLASSES if block.needs}
COMMON = [block for block in CLASSES if not block.needs]


@pytest.fixture
def clicks(page: Runner) -> tuple[np.ndarray, np.ndarray]:
    """Writes log.csv and releases it by the commands of the page. Returns true labels and probabilities."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(100_000, 3)).round(4)
    p = 1 / (1 + np.exp(5 - 1.1 * features[:, 0] - 0.8 * features[:, 1] + 0.6 * features[:, 2]))
    true = (rng.uniform(size=len(p)) < p).astype(int)
    columns = dict(zip(("visits", "recency", "price"), features.T, strict=True))
    pyarrow.csv.write_csv(pa.table({**columns, "converted": true}), "log.csv")
    first, second = blocks(TRAINING, "Classes", "sh")
    page.run(first)
    page.run(second)
    return true, p


def test_classes(page: Runner, clicks: tuple[np.ndarray, np.ndarray], subtests: pytest.Subtests) -> None:
    """Those of a library run in a process of their own: TensorFlow and PyTorch cannot be loaded into one."""
    true, p = clicks
    printed = errors_in("".join(map(page.run, COMMON)))
    names = page.names
    kept, share, by_price = names["kept"], names["share"], names["by_price"]
    assert np.abs(share.values[1] - true.mean()) < standard_errors() * share.standard_errors[1]
    for row, above in enumerate((False, True)):
        mean = true[(names["features"][:, 2] > 0) == above].mean()
        assert abs(by_price.values[row, 1] - mean) < standard_errors() * by_price.standard_errors[row, 1]
    predicted = names["p"]
    truth = {
        "log_loss": -np.log(np.where(true[kept] == 1, predicted, 1 - predicted)).mean(),
        "brier_score": np.mean((predicted - true[kept]) ** 2),
        "calibration_slope": np.polyfit(predicted, true[kept], 1)[0],
    }
    for metric, value in truth.items():
        assert abs(printed[metric][0] - value) < standard_errors() * printed[metric][1], metric
    constant = excess(p[kept], np.full(kept.sum(), p.mean()))
    assert excess(p[kept], predicted) < constant / 5
    assert excess(p[kept], names["inverted"]) < constant / 2
    assert excess(p, names["modeled_p"]) < constant / 10

    # Each library learns probabilities that are far better than one prediction, and have the right mean.
    kept = np.arange(len(p)) % 4 == 0
    constant = excess(p[kept], np.full(kept.sum(), p.mean()))
    # The first two blocks read the release and keep a part of it.
    start = "\n".join(block.text for block in COMMON[:2])
    for library, block in LIBRARIES.items():
        with subtests.test(library):
            if not find_spec(library):
                pytest.skip(f"{library} is not installed")
            code = f"{start}\n{block.text}\nimport json\nprint(json.dumps([float(each) for each in p]))\n"
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            learned = np.array(json.loads(done.stdout.splitlines()[-1]))
            assert excess(p[kept], learned) < constant / 4
            assert learned.mean() == pytest.approx(true.mean(), abs=0.005)


# Late labels.

CLICKS = 20_000


def late_clicks(first: int, oldest: float, newest: float, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Columns of clicks of some days, with labels of day 1 and final ones; and probabilities that they convert."""
    x = rng.normal(size=(CLICKS, 3)).round(4)
    angle = -rng.uniform(newest, oldest, CLICKS) / 30
    score = 1.5 * (np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1]) - 1.5
    chance = 1 / (1 + np.exp(-score))
    final = rng.random(CLICKS) < chance
    early = final & (rng.exponential(3 * np.exp(0.7 * x[:, 2])) < 1)
    columns = dict(zip(("visits", "recency", "price"), x.T, strict=True))
    return ({"click": np.arange(first, first + CLICKS), **columns}, {"day1": early, "final": final}), chance


def test_late_labels(page: Runner) -> None:
    rng = np.random.default_rng(6)
    older, recent = late_clicks(0, 60, 30, rng)[0], late_clicks(CLICKS, 30, 0, rng)[0]
    for name, (features, labels), day in (
        ("older_day1", older, "day1"), ("older_final", older, "final"), ("recent_day1", recent, "day1"),
    ):  # fmt: skip
        # The label is missing where it is 0.
        converted = pa.array(np.ones(CLICKS, np.int64), mask=~labels[day])
        pyarrow.csv.write_csv(pa.table({**features, "converted": converted}), f"{name}.csv")
    (today, _), chance = late_clicks(2 * CLICKS, 0, 0, rng)
    text = "".join(block.text for block in blocks(LATE_LABELS, kind="sh"))
    commands = text.replace("\\\n", " ").splitlines()
    assert len(commands) == 3
    for command in commands:
        page.labeldp(command)
    for name in ("older_day1", "older_final", "recent_day1"):
        assert json.loads(Path(name, "release.json").read_text())["records"] == CLICKS
        page.labeldp(f"labeldp audit {name}")

    # Both releases of the older clicks are in one ledger, whose cap they have used up.
    again = re.sub(r"--epsilon \S+ --output \S+", "--epsilon 0.5 --output again", commands[1])
    assert "--epsilon_cap 2" in page.labeldp(again, code=2)
    assert not Path("again").exists()

    (code,) = blocks(LATE_LABELS, kind="python")
    page.run(code)
    features = np.column_stack([today[name] for name in ("visits", "recency", "price")])
    corrected = excess(chance, page.names["predict"](features))
    for other in ("final", "recent"):
        assert corrected < 0.8 * excess(chance, 1 / (1 + np.exp(-page.names[other](features))))


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script behind the tables on late labels."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "results"))
    return importlib.import_module("late_labels")


def test_tables_of_late_labels_are_current(simulation: Any) -> None:
    for name, text in simulation.tables().items():
        assert f"<!-- {name} -->\n{text}\n<!-- end -->" in (ROOT / LATE_LABELS).read_text()
    with (ROOT / "docs" / "results" / "late_labels.csv").open(newline="") as file:
        worlds = {(row["kind"], row["delay"], float(row["speed"])) for row in csv.DictReader(file)}
    assert worlds == {*simulation.WORLDS}


def test_truth_of_the_simulation(simulation: Any) -> None:
    """The expected final labels are the means of those that are drawn, and early labels come before final ones."""
    for kind in simulation.KINDS:
        for delay in simulation.DELAYS:
            log = simulation.World(kind, delay, 0.5).log(60, 30, 200_000, np.random.default_rng(1))
            error = (log.final - log.truth).mean() / (log.final - log.truth).std() * 200_000**0.5
            assert abs(error) < 5
            assert ((log.early == 0) | (log.early == log.final)).all()
            # Chances below LEAST are raised to it.
            assert simulation.error(kind, log.truth, log.truth) < 1e-6
            assert simulation.error(kind, np.full(len(log.truth), log.truth.mean()), log.truth) == pytest.approx(1)
