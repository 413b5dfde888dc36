"""Sources of a prior. test_solve_command.py tests the errors in its text."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.pipelines.cli.arguments import UsageError
from labeldp.pipelines.study.prior_file import read_prior


def test_a_public_prior_has_spent_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("0,1\n1,3\n")
    (tmp_path / "p.json").write_text('{"labels": [0, 1], "weights": [1, 3]}')

    for name in ("p.csv", "p.json"):
        found = read_prior(str(tmp_path / name))
        assert found.prior.weights.tolist() == [0.25, 0.75]
        assert (found.prior_epsilon, found.records) == (0.0, None)


@pytest.fixture
def released(invoke: Any, job: Any, outputs: Path) -> Path:
    """A release of the small log: 1,000 records, 5 labels."""
    invoke(job()).ok()
    return outputs / "released"


def test_a_release_and_its_mechanism_file(released: Path) -> None:
    manifest = json.loads((released / "release.json").read_text())
    weights = json.loads((released / "mechanism.json").read_text())["prior"]["weights"]

    whole, alone = read_prior(str(released)), read_prior(os.path.join(released, "mechanism.json"))

    for found in (whole, alone):
        np.testing.assert_array_equal(found.prior.labels, [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(found.prior.weights, weights)
        assert found.prior_epsilon == manifest["prior_epsilon"] > 0
    assert (whole.records, alone.records) == (1000, None)


def test_a_folder_that_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--prior {tmp_path}/mechanism.json cannot be read"):
        read_prior(str(tmp_path))
