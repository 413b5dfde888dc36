"""Mechanism files that `apply` cannot use: one error that names the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.pipelines.spec.mechanism_file import MechanismFile, read_mechanism_file
from labeldp.transforms import InputError


@pytest.fixture
def document() -> dict[str, Any]:
    """A mechanism file of two labels, as parsed JSON."""
    prior = Prior(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    return json.loads(MechanismFile(solve("rr", prior, 1.0), prior, 0.0).to_text())


def test_it_reads_what_it_wrote(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(document))
    found = read_mechanism_file(str(tmp_path / "m.json"))
    assert json.loads(found.to_text()) == document


@pytest.mark.parametrize(
    "prior",
    [{"weights": [10**400, 1], "epsilon": 0.0}, {"weights": [[1], 1], "epsilon": 0.0}, {"weights": [1, 1]}, [], None],
)
def test_a_prior_that_is_none(document: dict[str, Any], tmp_path: Path, prior: Any) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document | {"prior": prior}))
    with pytest.raises(InputError) as caught:
        read_mechanism_file(str(path))
    assert str(caught.value).startswith(str(path))
