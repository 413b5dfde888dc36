"""Too few records for labels of any use: refused from public facts, before anything is charged."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from labeldp import LabelPrivatizer

from tests.written_logs import write_log

RNG = np.random.default_rng(1)
SCORES = RNG.normal(size=50)
LABELS = np.clip(np.rint(10 + 5 * SCORES + 3 * RNG.normal(size=50)), 0, 20)


@pytest.fixture
def run(job: Any, invoke: Any, tmp_path: Path) -> Any:
    """Function (command, switch, ..., flag=value, ...) -> outcome of a job of 50 records."""
    log = write_log(tmp_path / "log.parquet", {"score": SCORES, "y": LABELS})
    given = {"input": log, "input_format": "parquet", "label_max": 20}
    return lambda command, *switches, **flags: invoke([*job(command, **{**given, **flags}), *switches])


@pytest.mark.parametrize(
    ("command", "switches", "flags", "code"),
    [
        # The center takes most of epsilon.
        ("privatize", [], {"center": "linear", "epsilon": 1}, 1),
        ("privatize", [], {"center": "none"}, 1),
        ("privatize", [], {"center_column": "score"}, 1),
        ("fit", [], {"center": "none"}, 1),
        ("privatize", ["--dry_run"], {"for": "models"}, 2),
    ],
)
def test_an_automatic_release_of_few_records_costs_nothing(
    run: Any, outputs: Path, command: str, switches: list[str], flags: dict[str, Any], code: int
) -> None:
    outcome = run(command, *switches, **{"epsilon": 0.4, **flags})
    assert outcome.code == code
    assert "50 records are too few" in outcome.error
    assert list(outputs.iterdir()) == []


@pytest.mark.parametrize("more", [{"mechanism": "unbiased", "epsilon": 0.4}, {"center": "none"}])
def test_a_named_mechanism_or_more_epsilon_is_released(run: Any, outputs: Path, more: dict[str, Any]) -> None:
    run("privatize", **more).ok()
    assert np.ptp(pq.read_table(outputs / "released" / "data").column("y").to_numpy()) > 0


def test_labels_in_memory_are_refused_before_the_ledger_is_written(tmp_path: Path, key_file: Path) -> None:
    made = LabelPrivatizer(
        label_min=0, label_max=20, label_step=1, epsilon=0.4, noise_key_file=key_file, ledger=tmp_path / "ledger.jsonl"
    )
    for call in (made.fit, made.fit_transform):
        with pytest.raises(ValueError, match="50 records are too few for the epsilon of the labels"):
            call(LABELS)
    assert list(tmp_path.iterdir()) == []
