"""Mechanism files that `apply` cannot use: one error that names the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.release.drawing import Table
from labeldp.pipelines.spec.mechanism_file import MechanismFile, read_mechanism_file


@pytest.fixture
def document() -> dict[str, Any]:
    """A mechanism file of two labels, as parsed JSON."""
    prior = Prior(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    return json.loads(MechanismFile(Table(solve("rr", prior, 1.0), prior=prior)).to_text())


def test_it_reads_what_it_wrote(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(document))
    found = read_mechanism_file(str(tmp_path / "m.json"))
    assert json.loads(found.to_text()) == document
