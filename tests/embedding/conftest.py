"""Fixtures of the tests of pipelines of others: rows, a key, and the arguments of a small release."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from tests.commands import write_key

DOMAIN = (0.0, 1.0, 2.0, 3.0, 4.0)


@pytest.fixture
def key(tmp_path: Path) -> str:
    """Path of a secret key."""
    return str(write_key(tmp_path / "noise.key", bytes(range(32))))


@pytest.fixture
def label_dp(key: str) -> dict[str, Any]:
    """Arguments of LabelDP for `rows`."""
    return {
        "label": "y", "id_column": "id", "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1,
        "noise_key_file": key, "mechanism": "rr",
    }  # fmt: skip


@pytest.fixture
def rows() -> list[beam.Row]:
    """Rows with an id, a unit, a feature and a label."""
    return [beam.Row(id=i, unit=f"u{i // 3}", x=float(i % 7), y=float(i % 5)) for i in range(300)]
