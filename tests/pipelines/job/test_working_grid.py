"""Label grids finer than mechanisms use, end to end: as good and as fast as coarse ones, stated and audited."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.false_alarms import mean_bound

pytestmark = [pytest.mark.xdist_group("working grid"), pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")]
RECORDS = 12_000
RNG = np.random.default_rng(1)
SCORES = np.round(RNG.random(RECORDS), 5)
REVENUE = np.round(np.clip(60 * SCORES + np.exp(RNG.normal(2.5, 1.0, RECORDS)), 0, 400), 2)


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("revenue") / "log.csv"
    rows = [f"{score:.5f},{revenue:.2f}" for score, revenue in zip(SCORES.tolist(), REVENUE.tolist(), strict=True)]
    path.write_text("\n".join(["score,revenue", *rows]) + "\n")
    return {
        "input": path,
        "input_format": "csv",
        "label": "revenue",
        "label_min": 0,
        "label_max": 400,
        "label_step": 0.01,
        "epsilon": 2,
        "noise_key_file": key_file,
    }


@pytest.fixture(scope="module")
def release(flags: dict[str, Any], invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function (flag=value, ...) -> the output folder."""

    def run(**others: Any) -> Path:
        output = tmp_path_factory.mktemp("grid") / "released"
        invoke(command("privatize", flags | {"output": output} | others)).ok()
        return output

    return run


@pytest.fixture(scope="module")
def cents(release: Any) -> Path:
    """A release of 40,001 declared labels, with the default center and mechanism."""
    return release(center="linear")


@pytest.fixture(scope="module")
def million(release: Any) -> Path:
    """A release of 1,000,001 declared labels."""
    return release(label_max=1_000_000, label_step=1, center="none")


def documents(output: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """release.json and mechanism.json."""
    return json.loads((output / "release.json").read_text()), json.loads((output / "mechanism.json").read_text())


def labels_of(output: Path, name: str = "revenue") -> np.ndarray:
    return pq.read_table(output / "data").column(name).to_numpy()


def assert_unbiased(output: Path, clipping: float = 0.0) -> None:
    """The mean is that of the true labels, up to noise and the stated error of clipping."""
    manifest, mechanism = documents(output)
    grid = manifest["domain"]
    step = (grid["max"] - grid["min"]) / (grid["labels"] - 1)
    assert mechanism["certificate"]["max_bias"] < 1e-6 * (grid["max"] - grid["min"])
    # The loss is that under the noised histogram; the largest one is that of an end of the range.
    length = mechanism["outputs"][-1] - mechanism["outputs"][0]
    bound = mean_bound(np.full(RECORDS, length**2 / 4 + step**2 / 4), length + step)
    assert abs(labels_of(output).mean() - REVENUE.mean()) <= bound + clipping


def assert_little_is_clipped(manifest: dict[str, Any]) -> None:
    """Clipping costs less than the labels vary. It was more when ranges were cut to 4,096 residuals of a cent."""
    clipping = manifest["center"]["clipping"]
    assert clipping["share"] < 0.5
    assert clipping["squared_error"] < REVENUE.var() / 2


def test_cents_are_released_around_a_center(cents: Path) -> None:
    manifest, mechanism = documents(cents)
    assert manifest["domain"] == {"min": 0.0, "max": 400.0, "labels": 501}
    assert manifest["declared_grid"] == mechanism["declared_grid"] == {"labels": 40_001, "epsilon": 2.0}
    assert manifest["rounding"] == "randomized"
    assert_little_is_clipped(manifest)
    assert_unbiased(cents, math.sqrt(manifest["center"]["clipping"]["squared_error"]))


def test_cents_have_the_error_of_a_coarse_step(release: Any) -> None:
    own = {"center": "none", "mechanism": "unbiased", "prior_epsilon": 0.5}
    fine, coarse = (documents(release(**own, label_step=step))[0] for step in (0.01, 1))
    assert fine["declared_grid"]["labels"] == 40_001
    assert "declared_grid" not in coarse
    assert fine["expected_loss"]["squared"] == pytest.approx(coarse["expected_loss"]["squared"], rel=0.03)


def test_a_million_labels_are_released(million: Path) -> None:
    manifest, mechanism = documents(million)
    assert manifest["domain"] == {"min": 0.0, "max": 1e6, "labels": 501}
    assert manifest["declared_grid"]["labels"] == 1_000_001
    assert mechanism["labels"] == np.arange(0, 1_000_001, 2000.0).tolist()
    assert_unbiased(million)


def test_a_dry_run_states_the_grid(flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path) -> None:
    outcome = invoke([*command("privatize", flags | {"output": tmp_path / "released"}), "--dry_run"]).ok()
    assert "501 labels chosen for the 40,001 declared ones, 0 to 400, 0.8 apart; rounding randomized" in outcome.out


def test_two_steps_with_one_grid_are_one_release(release: Any, spent: Any, tmp_path: Path) -> None:
    """Noise is bound to the working grid: the second release repeats the first one and costs nothing."""
    own = {"center": "none", "mechanism": "unbiased", "ledger": tmp_path / "labeldp_ledger.jsonl"}
    fine, finer = release(**own, label_step=0.1), release(**own, label_step=0.01)
    assert np.array_equal(labels_of(fine), labels_of(finer))
    assert [documents(each)[0]["declared_grid"]["labels"] for each in (fine, finer)] == [4001, 40_001]
    assert spent(tmp_path) == pytest.approx(2)


def test_each_of_several_labels_has_its_own_grid(release: Any, invoke: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{score},{revenue},{round(10 * score)}" for score, revenue in zip(SCORES, REVENUE, strict=True)]
    path.write_text("\n".join(["score,revenue,stars", *rows]) + "\n")
    own = {"label": "revenue,stars", "label_max": "400,10", "label_step": "0.01,1", "center": "none"}
    output = release(input=path, **own)
    revenue, stars = (json.loads((output / f"labels/{name}/release.json").read_text()) for name in ("revenue", "stars"))
    assert (revenue["domain"]["labels"], stars["domain"]["labels"]) == (501, 11)
    assert revenue["declared_grid"]["labels"] == 40_001
    assert "declared_grid" not in stars
    assert invoke(["audit", str(output), "--data"]).ok()


def test_units_around_a_center_take_a_fine_grid(release: Any, invoke: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{score},{i // 2},{y}" for i, (score, y) in enumerate(zip(SCORES, REVENUE, strict=True))]
    path.write_text("\n".join(["score,user,revenue", *rows]) + "\n")
    own = {"center": "linear", "center_features": "score", "unit_column": "user", "max_records_per_unit": 1}
    output = release(input=path, **own)
    manifest, _ = documents(output)
    assert manifest["declared_grid"]["labels"] == 40_001
    assert_little_is_clipped(manifest)
    assert invoke(["audit", str(output), "--data"]).ok()
