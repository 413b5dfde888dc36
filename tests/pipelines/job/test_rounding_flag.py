"""Labels between grid labels, end to end: an unbiased mechanism stays unbiased for them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.false_alarms import FALSE_ALARM

VALUES = (1.3, 3.5, 7.9)
"""Of a domain 0, 5, 10. None is the nearest label, or the mean of two."""
RECORDS_EACH = 7_000


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """Records that cycle through VALUES; f is the index of the value."""
    rows = [f"{i % 3},{VALUES[i % 3]}" for i in range(3 * RECORDS_EACH)]
    return write_csv(tmp_path_factory.mktemp("continuous") / "log.csv", rows)


@pytest.fixture(scope="session")
def flags(log: Path, key_file: Path) -> dict[str, Any]:
    return {
        "input": log,
        "input_format": "csv",
        "label": "y",
        "label_min": 0,
        "label_max": 10,
        "label_step": 5,
        "epsilon": 3,
        "mechanism": "debiased_rr",
        "noise_key_file": key_file,
    }


@pytest.fixture(scope="session")
def release(
    flags: dict[str, Any], invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Function (flag=value, ...) -> the output folder of the job, with two shards of Parquet."""

    def run(**others: Any) -> Path:
        output = tmp_path_factory.mktemp("rounding") / "released"
        invoke(
            command("privatize", flags | {"output": output, "output_format": "parquet", "num_shards": 2} | others)
        ).ok()
        return output

    return run


@pytest.fixture(scope="session")
def released(release: Any) -> Path:
    return release()


@pytest.fixture(scope="session")
def released_nearest(release: Any) -> Path:
    return release(rounding="nearest")


def read(output: Path) -> tuple[np.ndarray, np.ndarray]:
    """Columns f and y of all records."""
    table = pq.read_table(output / "data")
    return table.column("f").to_numpy(), table.column("y").to_numpy()


def recorded(output: Path) -> set[str]:
    return {json.loads((output / name).read_text())["rounding"] for name in ("mechanism.json", "release.json")}


def bound_of_means(mechanism: dict[str, Any]) -> float:
    """Hoeffding's bound on the mean of the outputs of one value. Names of records, their paths, are not fixed."""
    spread = mechanism["outputs"][-1] - mechanism["outputs"][0]
    return spread * math.sqrt(math.log(2 / FALSE_ALARM) / (2 * RECORDS_EACH))


@pytest.mark.xdist_group("rounding")
class TestRounding:
    """21,000 records at epsilon 3."""

    def test_outputs_are_right_on_average_for_labels_between(self, released: Path) -> None:
        places, outputs = read(released)
        document = json.loads((released / "mechanism.json").read_text())
        bound = bound_of_means(document)
        assert document["certificate"]["max_bias"] < 1e-9
        assert bound < 0.5  # rounding to the nearest would give an error of 1.3 or more
        for place, value in enumerate(VALUES):
            drawn = outputs[places == place]
            assert len(drawn) == RECORDS_EACH
            assert abs(drawn.mean() - value) < bound

    def test_to_the_nearest_they_are_not(self, released_nearest: Path) -> None:
        places, outputs = read(released_nearest)
        bound = bound_of_means(json.loads((released_nearest / "mechanism.json").read_text()))
        assert bound < 0.5  # so far are the true means from the nearest labels, or farther
        for place, nearest in enumerate((0, 5, 10)):
            assert abs(outputs[places == place].mean() - nearest) < bound

    def test_the_prior_is_that_of_the_rounded_labels(self, release: Any) -> None:
        """The histogram is within the bounds of randomized rounding (Hoeffding) and noise (scale 2 per cell)."""
        document = json.loads((release(prior_epsilon=1) / "mechanism.json").read_text())
        shares = np.mean([[1 - 0.26, 0.26, 0], [0.3, 0.7, 0], [0, 0.42, 0.58]], axis=0)
        records = 3 * RECORDS_EACH
        rounding = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * records))
        # The error of a cell is its own noise plus a share of the noise of all three cells.
        noise = 4 * 2 * math.log(2 / FALSE_ALARM) / records
        assert rounding + noise < 0.03  # rounding to the nearest would give a third to each
        np.testing.assert_allclose(document["prior"]["weights"], shares, atol=rounding + noise)

    def test_the_files_say_how_and_audits_pass(self, released: Path, released_nearest: Path, invoke: Any) -> None:
        assert recorded(released) == {"randomized"}
        assert recorded(released_nearest) == {"nearest"}
        for path in (released, released_nearest, released / "mechanism.json"):
            assert invoke(["audit", str(path)]).ok().out.splitlines()[-1] == "PASS"


@pytest.mark.parametrize(("mechanism", "expected"), [("rr", "nearest"), ("debiased_rr", "randomized")])
def test_a_solved_mechanism_is_applied_with_its_default(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, mechanism: str, expected: str
) -> None:
    (tmp_path / "prior.csv").write_text("".join(f"{label},1\n" for label in range(5)))
    solved = ["--prior", str(tmp_path / "prior.csv"), "--epsilon", "1", "--mechanism", mechanism]
    invoke(["solve", *solved, "--output", str(outputs / "mechanism.json")]).ok()
    invoke(job("apply")).ok()
    assert recorded(outputs / "released") == {expected}
