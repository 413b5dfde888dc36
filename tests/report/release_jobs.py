"""One release of each kind, made by commands from one log: by its ids, so that the noise is the same in every run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 3000
USERS = [None] * 10 + [f"u{row % 1000 if row % 3 else row % 7}" for row in range(10, ROWS)]
NUMBERS = {"label": "y", "label_min": 0, "label_max": 20, "label_step": 1, "epsilon": 2, "mechanism": "unbiased"}
PLAIN = NUMBERS | {"center": "none"}
CLASSES = {"label": "grade", "label_classes": "poor,fair,good", "epsilon": 2}
UNITS = {"unit_column": "user", "max_records_per_unit": 3}
JOBS: dict[str, dict[str, Any]] = {
    "plain": PLAIN | {"where": "kind=wide"},
    "missing": PLAIN | {"missing_label": 3},
    "center": NUMBERS | {"for": "models", "mechanism": None, "center": "linear"},
    "cells": NUMBERS | {"for": "log_features", "mechanism": None},
    "column": NUMBERS | {"center_column": "guess"},
    "delta": PLAIN | {"mechanism": "gaussian", "delta": 1e-6},
    "units": PLAIN | UNITS | {"epsilon": 6},
    "units_center": NUMBERS | UNITS | {"center": "linear", "epsilon": 6},
    "several": PLAIN | {"label": "y,z", "label_max": "20,1"},
    "several_units": PLAIN | UNITS | {"label": "y,z", "label_max": "20,1", "epsilon": 6},
    "classes": CLASSES | {"mechanism": "rr"},
    "class_center": CLASSES | {"for": "models", "center_features": "x,kind"},
    "class_units": CLASSES
    | UNITS
    | {"for": "models", "center_features": "x,kind", "epsilon": 6, "leave_out": "user,id"},
}
RELEASES = [*JOBS, "applied", "public"]


def _columns() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    x, kind = rng.normal(size=ROWS), rng.integers(0, 2, ROWS)
    y = np.clip(np.rint(10 + 4 * x + rng.normal(0, 2, ROWS)), 0, 20)
    return {
        "id": np.arange(ROWS), "x": x, "kind": np.array(["narrow", "wide"], object)[kind], "user": USERS,
        "guess": np.clip(10 + 4 * x, 0, 20), "y": y, "z": (y > 12).astype(np.int64),
        "grade": np.array(["poor", "fair", "good"], object)[np.searchsorted([7, 14], y)],
    }  # fmt: skip


def make_releases(folder: Path, run: Callable[..., Any], key_file: Path) -> None:
    """Makes each release `folder`/NAME with a ledger of its own, and those of `fit` and of a public prior.

    What each command prints, and what its dry run does, goes into NAME.out, its warnings into NAME.err. `run` takes the
    command, its flags and a switch.
    """
    pq.write_table(pa.table(_columns()), folder / "log.parquet")
    base = {"input": folder / "log.parquet", "input_format": "parquet", "noise_key_file": key_file, "id_column": "id"}

    def make(name: str, command: str, flags: dict[str, Any], written: dict[str, Path]) -> None:
        dry = "" if command == "apply" else f"{run(command, base | flags | written, '--dry_run').out}\n"
        outcome = run(command, base | flags | written)
        (folder / f"{name}.out").write_text(f"{dry}{outcome.out}")
        (folder / f"{name}.err").write_text("".join(f"{line}\n" for line in outcome.err.splitlines() if "warn" in line))

    def at(name: str) -> dict[str, Path]:
        return {"output": folder / name, "ledger": folder / f"{name}.jsonl"}

    for name, flags in JOBS.items():
        make(name, "privatize", flags, at(name))
    make("fitted", "fit", PLAIN, {"mechanism_file": folder / "fitted.json", "ledger": folder / "applied.jsonl"})
    make("applied", "apply", {"label": "y", "mechanism_file": folder / "fitted.json"}, at("applied"))
    (folder / "prior.csv").write_text("".join(f"{value},{21 - value}\n" for value in range(21)))
    run(
        "solve",
        {"prior": folder / "prior.csv", "epsilon": 1, "mechanism": "unbiased", "output": folder / "solved.json"},
    )
    make("public", "apply", {"label": "y", "mechanism_file": folder / "solved.json"}, at("public"))
