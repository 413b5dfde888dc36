"""On Flink, labels that are classes have the same bytes as on DirectRunner, by randomized response and of a center."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def test_classes(tmp_path: Path, start: Any, on_flink: list[str], undisturbed: Any, tree: Any, charges: Any) -> None:
    """Batches with coded classes pass between Java and Python; the drawn ones are text."""
    random = np.random.default_rng(12)
    for name in "ab":
        rows = zip(random.normal(size=4000).round(3).tolist(), random.choice(["low", "mid", "high"], 4000), strict=True)
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{x},{label}\n" for x, label in rows))
    numbers = dict.fromkeys(("label_min", "label_max", "label_step"))
    flags = {"input": tmp_path / "*.csv", "input_format": "csv", "label_classes": "low,high", **numbers}
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert len(charges(running.outputs)) == 2
    assert "classes    low, high; all other values count as low" in outcome.out


def test_a_center_of_classes(
    tmp_path: Path, start: Any, on_flink: list[str], undisturbed: Any, tree: Any, charges: Any
) -> None:
    """Four passes with the center carried along; every class is drawn by a worker."""
    random = np.random.default_rng(13)
    for name in "ab":
        x, word = random.normal(size=4000).round(3), random.integers(0, 3, 4000)
        places = np.searchsorted([-0.7, 0.9], 1.5 * x + (word == 1) + random.normal(0, 0.7, 4000))
        labels = [("low", "mid", "high")[place] for place in places]
        rows = zip(x.tolist(), word.tolist(), labels, strict=True)
        (tmp_path / f"{name}.csv").write_text("x,word,y\n" + "".join(f"{x},w{w},{label}\n" for x, w, label in rows))
    numbers = dict.fromkeys(("label_min", "label_max", "label_step"))
    flags = {
        "input": tmp_path / "*.csv",
        "input_format": "csv",
        "label_classes": "low,mid,high",
        "center": "cells",
        "for": "models",
        **numbers,
    }
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert "center     y_probabilities: probabilities of the classes, from " in outcome.out
    assert json.loads((running.release / "center.json").read_text())["center"]["cells"]
