"""Too few records for labels of any use: refused from public facts, before anything is charged."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import LabelPrivatizer

RNG = np.random.default_rng(1)
SCORES = RNG.normal(size=50)
LABELS = np.clip(np.rint(10 + 5 * SCORES + 3 * RNG.normal(size=50)), 0, 20)


@pytest.fixture
def flags(tmp_path: Path, key_file: Path) -> dict[str, Any]:
    pq.write_table(pa.table({"score": SCORES, "y": LABELS}), tmp_path / "log.parquet")
    return {
        "input": tmp_path / "log.parquet",
        "input_format": "parquet",
        "label": "y",
        "label_min": 0,
        "label_max": 20,
        "label_step": 1,
        "epsilon": 1,
        "noise_key_file": key_file,
    }


@pytest.mark.parametrize(
    "more",
    [
        # The center takes most of epsilon.
        {"center": "linear"},
        {"center": "none", "epsilon": 0.4},
        {"center_column": "score", "epsilon": 0.4},
    ],
)
def test_an_automatic_release_of_few_records_costs_nothing(
    flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path, more: dict[str, Any]
) -> None:
    outcome = invoke(command("privatize", flags | {"output": tmp_path / "released"} | more))
    assert outcome.code == 1
    assert "50 records are too few for the epsilon of the labels" in outcome.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet"]


def test_fit_refuses_them_too(flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path) -> None:
    outcome = invoke(command("fit", flags | {"mechanism_file": tmp_path / "m.json", "epsilon": 0.4, "center": "none"}))
    assert outcome.code == 1
    assert "50 records are too few" in outcome.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet"]


def test_a_dry_run_says_so_where_the_number_is_known(
    flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path
) -> None:
    outcome = invoke(
        [*command("privatize", flags | {"output": tmp_path / "released", "epsilon": 0.4, "for": "models"}), "--dry_run"]
    )
    assert outcome.code == 2
    assert "50 records are too few" in outcome.error


@pytest.mark.parametrize("more", [{"mechanism": "unbiased", "epsilon": 0.4}, {"center": "none"}])
def test_a_named_mechanism_or_more_epsilon_is_released(
    flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path, more: dict[str, Any]
) -> None:
    invoke(command("privatize", flags | {"output": tmp_path / "released"} | more)).ok()
    labels = pq.read_table(tmp_path / "released" / "data").column("y").to_numpy()
    assert np.ptp(labels) > 0


def test_labels_in_memory_are_refused_before_the_ledger_is_written(tmp_path: Path, key_file: Path) -> None:
    made = LabelPrivatizer(
        label_min=0, label_max=20, label_step=1, epsilon=0.4, noise_key_file=key_file, ledger=tmp_path / "ledger.jsonl"
    )
    for call in (made.fit, made.fit_transform):
        with pytest.raises(ValueError, match="50 records are too few for the epsilon of the labels"):
            call(LABELS)
    assert list(tmp_path.iterdir()) == []
