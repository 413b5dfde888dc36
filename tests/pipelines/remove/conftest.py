"""Fixtures of the tests of `labeldp remove`: releases of one log, and functions that remove records and audit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

RECORDS = 3000


def log_table() -> pa.Table:
    """Labels that are linear in the features but for an interaction of two, which is worth cells; ids of two kinds."""
    random = np.random.default_rng(1)
    a, b, c = random.normal(0, 1, (3, RECORDS))
    labels = np.rint(20 + 5 * a + 3 * b + np.where((b > 0) == (c > 0), 4, -4) + random.normal(0, 1, RECORDS))
    return pa.table({
        "number": 7 * np.arange(RECORDS) - 500,
        "name": [f"user {i}" for i in range(RECORDS)],
        "user": np.arange(RECORDS) // 2,
        "a": a, "b": b, "c": c,
        "y": np.clip(labels, 0, 40),
        "sold": (a + b + random.normal(0, 1, RECORDS) > 0).astype(np.int64),
    })  # fmt: skip


NUMBERS = {"label": "y", "label_min": 0, "label_max": 40, "label_step": 1, "epsilon": 1}
RELEASES: dict[str, dict[str, Any]] = {
    "parquet": NUMBERS | {"id_column": "name", "num_shards": 3},
    "records": NUMBERS | {"id_column": "number", "output_format": "tfrecord", "num_shards": 3},
    "gzip": NUMBERS
    | {"id_column": "name", "output_format": "tfrecord", "compression": "gzip", "num_shards": 2, "center": "cells"},
    "csv": NUMBERS | {"num_shards": 2, "input_format": "csv", "max_unusable_fraction": 0.1},
    "units": NUMBERS | {"unit_column": "user", "max_records_per_unit": 2, "id_column": "number"},
    "cells": NUMBERS | {"id_column": "number", "center": "cells"},
    "classes": {
        "label": "sold",
        "label_classes": "0,1",
        "epsilon": 1,
        "id_column": "number",
        "num_shards": 2,
        "center": "cells",
    },
    "several": NUMBERS
    | {"label": "y,sold", "label_max": "40,1", "id_column": "number", "center": "none", "mechanism": "unbiased"},
}


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the log as Parquet, and as two CSV files, of the first of which every hundredth label is missing."""
    folder = tmp_path_factory.mktemp("logs")
    pq.write_table(log_table(), folder / "log.parquet")
    for part in range(2):
        table = log_table().drop_columns(["sold"]).slice(part * 1000, 1000 + 1000 * part)
        labels = [None if not part and row % 100 == 3 else y for row, y in enumerate(table["y"].to_pylist())]
        pa_csv.write_csv(table.set_column(table.schema.get_field_index("y"), "y", pa.array(labels, pa.float64())),
                         folder / f"log-{part}.csv")  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def released(
    tmp_path_factory: pytest.TempPathFactory, logs: Path, key_file: Path, invoke: Any, command: Any
) -> Callable[[str], Path]:
    """Function (name in RELEASES) -> that release, which is made once."""
    folder, made = tmp_path_factory.mktemp("releases"), set()

    def get(name: str) -> Path:
        if name not in made:
            kind = RELEASES[name].get("input_format", "parquet")
            standard = {"input": f"{logs}/*.{kind}", "input_format": kind, "output_format": "parquet"}
            flags = standard | {"noise_key_file": key_file, "output": folder / name} | RELEASES[name]
            invoke(command("privatize", flags)).ok()
            made.add(name)
        return folder / name

    return get


@pytest.fixture
def copied(released: Any, tmp_path: Path) -> Callable[[str], Path]:
    """Function (name in RELEASES) -> a copy of that release, to be changed."""
    return lambda name: Path(shutil.copytree(released(name), tmp_path / f"copy of {name}"))


@pytest.fixture
def remove(invoke: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (release, lines, flag, *further flags) -> outcome of the removal into tmp_path / "reduced"."""

    def run(release: Path, lines: Any, flag: str = "ids", *flags: str, output: str = "reduced") -> Any:
        file = tmp_path / f"{flag}.txt"
        file.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
        standard = [f"--{flag}={file}", f"--output={tmp_path / output}", "--removed_on=2026-01-31"]
        return invoke(["remove", str(release), *standard, *flags])

    return run


@pytest.fixture
def audit(invoke: Any) -> Callable[..., str]:
    """Function (folder) -> last line of its audit with --data."""
    return lambda folder: invoke(["audit", str(folder), "--data"]).out.splitlines()[-1]
