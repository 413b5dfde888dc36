"""On Flink, labels around a center, of the input or of the job, have the same bytes as on DirectRunner."""

import json
from pathlib import Path
from typing import Any


def test_labels_around_a_center(
    centered_log: Path, start: Any, on_flink: list[str], undisturbed: Any, tree: Any, charges: Any
) -> None:
    """Two passes over labels and centers, a range chosen on a worker: shards, mechanism and manifest are the same."""
    flags = {"input": centered_log, "input_format": "csv", "center_column": "guess"}
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert len(charges(running.outputs)) == 2
    assert "center     guess: 800 missing; " in outcome.out


def test_models_of_the_log_around_a_center_of_cells(
    centered_log: Path, start: Any, on_flink: list[str], undisturbed: Any, tree: Any, charges: Any
) -> None:
    """Three more passes, for the sample of features and the sums; auto chooses on a worker."""
    flags = {"input": centered_log, "input_format": "csv", "for": "log_features", "epsilon": 1}
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert len(charges(running.outputs)) == 3
    assert " for the center sums + " in outcome.out
    assert json.loads((running.release / "center.json").read_text())["linear"]["cells"]["sums"]
