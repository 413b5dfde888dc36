"""`labeldp domain`: what it releases, what it charges, and what it refuses."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.analysis.label_range import log_spaced_labels

from tests.commands import write_key
from tests.false_alarms import mean_bound
from tests.written_logs import write_log

pytestmark = pytest.mark.xdist_group("label range")
RECORDS = 4000


def weeks(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 53, RECORDS)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """4,000 records with labels from 0 to 52."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    return write_csv(path, [f"{row},{label}" for row, label in enumerate(weeks().tolist())])


@pytest.fixture(scope="module")
def flags(log: Path, key_file: Path) -> dict[str, Any]:
    # With ids, the noise is the same in every run: one release in a hundred has a false alarm.
    return {
        "input": log,
        "input_format": "csv",
        "label": "y",
        "epsilon": 1,
        "noise_key_file": key_file,
        "id_column": "f",
    }


def arguments(flags: dict[str, Any], target: Path, **more: Any) -> list[str]:
    return ["domain", *(f"--{name}={value}" for name, value in (flags | more | {"domain_file": target}).items())]


@pytest.fixture(scope="module")
def released(flags: dict[str, Any], invoke: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """File of a released range, with the outcome of its command."""
    target = tmp_path_factory.mktemp("released") / "domain.json"
    return target, invoke(arguments(flags, target)).ok()


def test_the_domain_holds_the_labels(released: tuple[Path, Any]) -> None:
    path, outcome = released
    proposal = json.loads(path.read_text())["proposal"]
    assert (proposal["label_min"], proposal["label_max"], proposal["label_step"]) == ("0", "60", "1")
    assert "domain     --label_min 0 --label_max 60 --label_step 1 (61 labels)" in outcome.out.splitlines()


def test_the_counts_have_the_noise_of_the_budget(released: tuple[Path, Any]) -> None:
    """The noise is not zero, is not larger than its scale allows, and has no count without it."""
    document = json.loads(released[0].read_text())
    cells = log_spaced_labels()
    assert document["cells"] == cells.tolist()
    # A label belongs to the cell that ends at it, or beyond it.
    exact = np.bincount([int((cells < label).sum()) for label in weeks().tolist()], minlength=len(cells))
    noise = np.array(document["counts"]) - exact
    # P(|noise| > 40) = 2e-9 for each of 381 counts of scale 2; its mean square is 8, and that of 381 within 5 to 13.
    assert np.abs(noise).max() <= 40
    assert 4 < np.mean(noise**2) < 14
    assert np.count_nonzero(noise) > 100


def test_it_is_charged_once(released: tuple[Path, Any], flags: dict[str, Any], invoke: Any, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    for number, clamped in enumerate((0.01, 0.2)):
        invoke(arguments(flags, tmp_path / f"{number}.json", clamped=clamped, ledger=ledger, epsilon_cap=1)).ok()
    runs = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [run["command"] for run in runs] == ["domain", "domain"]
    assert [entry["epsilon"] for run in runs for entry in run["charges"]] == [1.0, 1.0]
    assert len({entry["release"] for run in runs for entry in run["charges"]}) == 1
    counts = [json.loads((tmp_path / f"{number}.json").read_text())["counts"] for number in range(2)]
    assert counts[0] == counts[1] == json.loads(released[0].read_text())["counts"]
    outcome = invoke(arguments(flags, tmp_path / "2.json", epsilon=0.5, ledger=ledger, epsilon_cap=1))
    assert outcome.code == 2
    assert "--epsilon_cap 1 would be exceeded" in outcome.error
    assert not (tmp_path / "2.json").exists()


def test_changed_labels_have_fresh_noise(
    released: tuple[Path, Any], flags: dict[str, Any], invoke: Any, write_csv: Any, tmp_path: Path
) -> None:
    """The difference of two releases is not that of the labels."""
    labels = weeks().tolist()
    labels[7] = (labels[7] + 26) % 53
    changed = write_csv(tmp_path / "log.csv", [f"{row},{label}" for row, label in enumerate(labels)])
    invoke(arguments(flags, tmp_path / "domain.json", input=changed)).ok()
    found = np.array(json.loads((tmp_path / "domain.json").read_text())["counts"])
    difference = found - np.array(json.loads(released[0].read_text())["counts"])
    assert np.count_nonzero(difference) > 100


def test_a_release_may_use_the_domain_and_adds_up(
    released: tuple[Path, Any], flags: dict[str, Any], invoke: Any, spent: Any, tmp_path: Path
) -> None:
    proposal = json.loads(released[0].read_text())["proposal"]
    domain = {name: proposal[name] for name in ("label_min", "label_max", "label_step")}
    given = flags | domain | {"output": tmp_path / "released", "for": "labels", "output_format": "parquet"}
    invoke(arguments(flags, tmp_path / "domain.json")).ok()
    invoke(["privatize", *(f"--{name}={value}" for name, value in given.items())]).ok()
    assert spent(tmp_path) == pytest.approx(2)


def test_clicks_get_the_domain_from_0_to_1(flags: dict[str, Any], invoke: Any, write_csv: Any, tmp_path: Path) -> None:
    clicks = write_csv(tmp_path / "clicks.csv", [f"{row},{int(row % 10 == 0)}" for row in range(RECORDS)])
    outcome = invoke(arguments(flags, tmp_path / "domain.json", input=clicks)).ok()
    lines = outcome.out.splitlines()
    assert "domain     --label_min 0.00 --label_max 1.00 --label_step 0.02 (51 labels)" in lines
    assert "step       --label_step 1, if the labels are whole numbers: the histogram cannot tell" in lines


def test_too_few_records_are_charged_and_told(
    flags: dict[str, Any], invoke: Any, write_csv: Any, tmp_path: Path, spent: Any
) -> None:
    """A proposal depends on the noised counts, so it is printed only after they were charged."""
    small = write_csv(tmp_path / "small.csv", ["1,3", "2,4"])
    outcome = invoke(arguments(flags, tmp_path / "domain.json", input=small)).ok()
    assert "domain     none: no range of the labels can be told from noise" in outcome.out
    assert json.loads((tmp_path / "domain.json").read_text())["proposal"] is None
    assert spent(tmp_path) == 1


def test_a_domain_of_units(flags: dict[str, Any], invoke: Any, tmp_path: Path) -> None:
    """Its histogram has three times the noise, and holds three records of a user at most."""
    users = np.minimum(np.random.default_rng(3).zipf(1.5, RECORDS), 1500)
    named = [None if row % 100 == 0 else f"u{user}" for row, user in enumerate(users.tolist())]
    log = write_log(tmp_path / "log.parquet", {"f": np.arange(RECORDS), "user": named, "y": weeks() / 53 * 40})
    counts = Counter(user for user in named if user)
    given = {**flags, "input": log, "input_format": "parquet", "epsilon": 5, "unit_column": "user"}
    empty = []
    for draw in range(10):
        key, file = write_key(tmp_path / f"{draw}.key", bytes([draw]) * 32), tmp_path / f"{draw}.json"
        outcome = invoke(arguments(given, file, noise_key_file=key, max_records_per_unit=3)).ok()
        document = json.loads(file.read_text())
        assert document["unit"] == {"column": "user", "max_records": 3}
        assert document["records"] == sum(min(records, 3) for records in counts.values())
        assert "for all labels of a unit of user" in outcome.out
        empty.append(np.array(document["counts"])[np.array(document["cells"]) < 0])
    # Discrete Laplace noise of scale 2 * 3 / 5 in cells without a label; none is above 40, but for 1e-10.
    sizes, decay = np.abs(np.concatenate(empty)), np.exp(-1 / 1.2)
    mean = 2 * decay / (1 - decay**2)
    bound = mean_bound(np.full(len(sizes), 2 * decay / (1 - decay) ** 2 - mean**2), 40)
    assert bound < mean - 0.2  # a third of the noise has the mean 0.18
    assert abs(sizes.mean() - mean) < bound
