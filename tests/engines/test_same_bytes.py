"""On a cluster a job releases the same bytes as on DirectRunner, and its key is in nothing that the cluster keeps."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.local_processes import free_ports

CLASSES = {"input_format": "csv", **dict.fromkeys(("label_min", "label_max", "label_step"))}
CASES: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "parquet": ("parquet_log", {}, "mechanism  rr_on_bins", 2),
    "tfrecord": ("tfrecord_log", {"input_format": "tfrecord", "output_format": "tfrecord"}, "mechanism  rr_on_bins", 2),
    # Each unit has one record in each of the two files, which two workers read: one of them is released.
    "units": (
        "small_log", {"input_format": "csv", "unit_column": "f", "max_records_per_unit": 1},
        "units      f: 4,000, at most 1 record each, 4,000 left out", 2,
    ),
    # Each has a histogram, a randomizer and a stage of its own in one job.
    "several_labels": (
        "small_log", {"input_format": "csv", "label": "y,f", "label_max": "19,4000"},
        "Privacy   Epsilon 2: ", 4,
    ),
    # Two passes over labels and centers, a range chosen on a worker.
    "center_column": (
        "centered_log", {"input_format": "csv", "center_column": "guess"}, "center     guess: 800 missing; ", 2,
    ),
    # Three more passes, for the sample of features and the sums; auto chooses on a worker.
    "cells": (
        "centered_log", {"input_format": "csv", "for": "log_features", "epsilon": 1}, " for the center sums + ", 3,
    ),
    # Batches with coded classes pass between Java and Python; the drawn ones are text.
    "classes": (
        "class_log", CLASSES | {"label_classes": "low,high"}, "classes    low, high; all other values count as low", 2,
    ),
    # Four passes with the center carried along; every class is drawn by a worker.
    "center_of_classes": (
        "class_log", CLASSES | {"label_classes": "low,mid,high", "center": "cells", "for": "models"},
        "center     y_probabilities: probabilities of the classes, from ", 1,
    ),
}  # fmt: skip
"""Fixture of the log, flags, a text that the command prints, and the number of charges."""


@pytest.fixture(scope="session")
def tfrecord_log(reference: Callable[..., Path]) -> Path:
    """Glob of a release in TFRecords, which is privatized once more."""
    return reference(output_format="tfrecord") / "data" / "part-*"


@pytest.fixture(scope="session")
def centered_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Glob of two CSV files with 8,000 records in total; every tenth has no center."""
    rng = np.random.default_rng(11)
    guesses = rng.uniform(-1, 20, 8000)
    labels = np.clip(np.rint(guesses + rng.normal(0, 1.5, 8000)), 0, 19).astype(int)
    rows = zip(guesses.tolist(), labels.tolist(), strict=True)
    return write_halves(
        tmp_path_factory.mktemp("centered"),
        "guess,y\n",
        [f"{'' if row % 10 == 3 else guess},{label}\n" for row, (guess, label) in enumerate(rows)],
    )


@pytest.fixture(scope="session")
def class_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Glob of two CSV files with 8,000 records in total, whose classes follow from two features in part."""
    rng = np.random.default_rng(13)
    x, word = rng.normal(size=8000).round(3), rng.integers(0, 3, 8000)
    places = np.searchsorted([-0.7, 0.9], 1.5 * x + (word == 1) + rng.normal(0, 0.7, 8000))
    rows = zip(x.tolist(), word.tolist(), np.array(["low", "mid", "high"])[places].tolist(), strict=True)
    return write_halves(
        tmp_path_factory.mktemp("classes"), "x,word,y\n", [f"{x},w{word},{label}\n" for x, word, label in rows]
    )


def write_halves(folder: Path, header: str, lines: list[str]) -> Path:
    """Writes the lines to two CSV files, and gives their glob."""
    for name, half in {"a": lines[::2], "b": lines[1::2]}.items():
        (folder / f"{name}.csv").write_text(header + "".join(half))
    return folder / "*.csv"


@pytest.mark.parametrize(("log", "options", "line", "charged"), CASES.values(), ids=CASES)
def test_on_the_cluster(
    log: str, options: dict[str, Any], line: str, charged: int, request: pytest.FixtureRequest, start: Any,
    cluster: Any, undisturbed: Any, tree: Any, charges: Any, leaks: Any, secret: bytes,
) -> None:  # fmt: skip
    """Shards, mechanism and manifest are the same. The audit passes, and the ledger is charged once."""
    flags = {"input": request.getfixturevalue(log), **options}
    running = start(cluster.flags, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert line in outcome.out
    assert len(charges(running.outputs)) == charged
    audit = [sys.executable, "-m", "labeldp", "audit", str(running.release)]
    assert subprocess.run(audit, check=False, capture_output=True).returncode == 0

    kept = tree(cluster.folder) | tree(running.outputs) | tree(running.temporary)
    assert any("logs/" in path for path in kept)
    assert leaks.found(kept | {"err": outcome.err.encode()}, set(leaks.key_spellings(secret))) == []


def test_without_a_cluster(cluster: Any, start: Any, undisturbed: Any, tree: Any, small_log: Path) -> None:
    """The engine runs in a job server that the command starts, and the workers are threads of the command."""
    flags = {"input": small_log, "input_format": "csv"}
    running = start([*cluster.alone, *(f"--job_port={port}" for port in free_ports(1))], **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert "listen on all network interfaces" in outcome.err
    assert tree(running.temporary) == {}


def test_in_two_halves(start: Any, cluster: Any, undisturbed: Any, tree: Any, small_log: Path, tmp_path: Path) -> None:
    """`fit` and `apply` release the same shards as `privatize`."""
    flags = {"input": small_log, "input_format": "csv"}
    mechanism = tmp_path / "mechanism.json"
    start(cluster.flags, "fit", mechanism_file=mechanism, output=None, num_shards=None, **flags).finish().ok()
    settled = dict.fromkeys(("label_min", "label_max", "label_step", "epsilon"))
    outcome = start(cluster.flags, "apply", mechanism_file=mechanism, **settled, **flags).finish().ok()

    whole, applied = undisturbed(**flags), tree(outcome.ran.release)
    shards = {name for name in whole | applied if name.startswith("data/")}
    assert len(shards) == 3
    assert {name: applied.get(name) for name in shards} == {name: whole.get(name) for name in shards}
