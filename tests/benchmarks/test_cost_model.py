"""The fit of the cost model: it finds the coefficients of costs that follow it, and none of them is negative."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.xdist_group("benchmarks")


def runs(model: Any, coefficients: np.ndarray) -> list[dict[str, Any]]:
    """Runs of the fitted jobs whose costs follow the model exactly."""
    made = []
    for job in model.FITTED:
        run = dataclasses.asdict(job) | {"width": 100.0 if job.columns == "synthetic" else 735.0}
        made.append(run | {"cpu_seconds": float(model._terms(run) @ coefficients)})
    return made


@pytest.mark.parametrize(
    "coefficients", [[2.0, 5e-7, 3e-9, 3e-3, 1e-3], [2.0, 0.0, 3e-9, 3e-3, 0.0], [0.1, 1e-6, 0.0, 1e-4, 1e-5]]
)
def test_costs_of_the_model_are_explained(benchmark: Any, coefficients: list[float]) -> None:
    model = benchmark("cost_model")
    found, r_squared = model.fit(runs(model, np.array(coefficients)))
    assert found == pytest.approx(coefficients, rel=1e-6, abs=1e-9)
    assert r_squared == pytest.approx(1)


@pytest.mark.usefixtures("jobs_in_process")
def test_the_model_is_measured(benchmark: Any, last_line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = benchmark("cost_model")
    monkeypatch.setattr(model, "FITTED", (model.Job(300, "synthetic", 2, 2), model.Job(100, "wide", 2, 1)))
    monkeypatch.setattr(model, "UNSEEN", (model.Job(200, "synthetic", 3, 3),))
    model.main(["--rounds=1", f"--temp_location={tmp_path}"])

    facts = last_line()
    # Two files share one segment.
    assert [row["segments"] for row in facts["fitted"]] == [2, 1]
    assert [row["segments by the model"] for row in facts["fitted"]] == ["2", "1 to 3"]
    (unseen,) = facts["not used for the fit"]
    assert (unseen["files"], unseen["segments"], unseen["segments by the model"]) == (3, 3, "3")
    assert [row["records"] for row in facts["worked"]] == ["1e9", "1e10", "1e11"] * 2
    assert "| 1e11 |" in benchmark("performance_tables").tables({"cost_model": facts})
    assert list(tmp_path.iterdir()) == []
