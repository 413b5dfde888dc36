"""`--center_column` at its edges: values that no float32 holds, columns in two roles, and logs without the center."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 400
# No integer of the domain is written in an error message otherwise.
LABEL = 7361
GRID = {"label": "y", "label_min": 0, "label_max": 10_000, "label_step": 500, "epsilon": 2, "output_format": "parquet"}
# Solved in milliseconds, with the randomized rounding of the mechanisms that auto chooses around a center.
GRID["mechanism"] = "debiased_rr"

FLOATS = [
    250.0, np.nextafter(250.0, 0), np.nextafter(250.0, 500), 249.99999999, 1e308, -1e308, 3.5e38, 1e-300, -0.0, np.nan,
    np.inf, -np.inf, 9749.9999, 9750.0, 1e7 + 0.5, None,
]  # fmt: skip
"""Centers on and beside the bounds between labels, beyond float32, and none."""
# TFRecord output refuses what is beyond float32.
SINGLES = [
    value if value is None or not 3.4e38 < abs(value) < np.inf else np.copysign(np.inf, value) for value in FLOATS
]
INTEGERS = [250, 249, 251, (1 << 24) + 1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63), 9750, 0, None]
COLUMNS: dict[str, Callable[[], pa.Array]] = {
    "float64": lambda: pa.array((FLOATS * ROWS)[:ROWS], pa.float64()),
    "float32": lambda: pa.array((FLOATS * ROWS)[:ROWS], pa.float64()).cast(pa.float32()),
    "int64": lambda: pa.array((INTEGERS * ROWS)[:ROWS], pa.int64()),
    "uint64": lambda: pa.array([(1 << 64) - 1, 250, 9750, 251] * (ROWS // 4), pa.uint64()),
    "singles": lambda: pa.array((SINGLES * ROWS)[:ROWS], pa.float64()),
    "lists": lambda: pa.array(
        ([None, [], [], [1.0, 2.0]] + [[value] for value in SINGLES[:-1]] * ROWS)[:ROWS], pa.list_(pa.float64())
    ),
    "booleans": lambda: pa.array([True, False, None, True] * (ROWS // 4)),
}


def labels() -> np.ndarray:
    return np.where(np.arange(ROWS) % 5 == 0, LABEL, np.arange(ROWS) * 25).astype(float)


@pytest.fixture
def privatize(invoke: Any, command: Any, key_file: Path, tmp_path: Path) -> Callable[..., Any]:
    """Function (input, flag=value, ...) -> outcome of a job around the column c, from Parquet to `tmp_path` / "out"."""

    def run(log: Path, **flags: Any) -> Any:
        whole = {"input": log, "input_format": "parquet", "output": tmp_path / "out", "noise_key_file": key_file}
        return invoke(command("privatize", whole | GRID | {"center_column": "c"} | flags))

    return run


KINDS = [("float64", "parquet"), ("singles", "tfrecord"), ("float32", "parquet"), ("int64", "parquet"),
         ("int64", "tfrecord"), ("uint64", "parquet"), ("lists", "tfrecord"), ("booleans", "parquet"),
         ("booleans", "tfrecord")]  # fmt: skip


@pytest.mark.parametrize(("kind", "output_format"), KINDS)
def test_the_audit_finds_each_label_around_its_center(
    privatize: Any, invoke: Any, tmp_path: Path, kind: str, output_format: str
) -> None:
    """The job and the auditor, who share no code, round every center to the same label, whatever the file stores."""
    pq.write_table(pa.table({"c": COLUMNS[kind](), "y": labels()}), tmp_path / "log.parquet")
    privatize(tmp_path / "log.parquet", output_format=output_format).ok()
    report = invoke(["audit", str(tmp_path / "out"), "--data"]).ok().out
    assert "every label, minus the center of its record, is an output" in report
    # Of 16 floats, three are beyond float32, three are not finite and one is missing.
    missing = {
        "float64": 175,
        "singles": 175,
        "float32": 175,
        "booleans": 100,
        "int64": 40,
        "uint64": 0,
        "lists": 4 + 6 * 26 + 2,
    }[kind]
    assert json.loads((tmp_path / "out" / "release.json").read_text())["center"]["missing"] == missing


def test_the_center_may_be_the_id_and_the_column_of_the_filter(privatize: Any, invoke: Any, tmp_path: Path) -> None:
    """All three are public. The records that stay, and their noise, depend on them alone."""
    table = pa.table({"c": np.arange(ROWS), "d": np.arange(ROWS) % 2, "y": labels()})
    pq.write_table(table, tmp_path / "log.parquet")
    privatize(tmp_path / "log.parquet", id_column="c", where="d=1", mechanism="auto").ok()
    invoke(["audit", str(tmp_path / "out"), "--data"]).ok()
    (shard,) = (tmp_path / "out" / "data").iterdir()
    assert pq.read_table(shard)["c"].to_pylist() == list(range(1, ROWS, 2))
    privatize(tmp_path / "log.parquet", center_column="d", where="d=1", output=tmp_path / "other").ok()
    invoke(["audit", str(tmp_path / "other"), "--data"]).ok()
    assert json.loads((tmp_path / "other" / "release.json").read_text())["records"] == ROWS // 2


@pytest.fixture(scope="module")
def fitted(invoke: Any, command: Any, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mechanism file whose center is the column c, beside its log."""
    folder = tmp_path_factory.mktemp("fitted")
    pq.write_table(pa.table({"c": np.arange(ROWS) * 25.0, "y": labels()}), folder / "log.parquet")
    flags = {"input": folder / "log.parquet", "input_format": "parquet", "center_column": "c"} | GRID
    flags |= {"output_format": None, "mechanism_file": folder / "m.json", "noise_key_file": key_file}
    invoke(command("fit", flags)).ok()
    return folder / "m.json"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"c": ["7"] * ROWS}, "center column 'c' holds string, not numbers"),
        ({"c": pa.nulls(ROWS, pa.float64())}, "no record has a usable center in 'c'"),
        ({"c": [1e39] * ROWS}, "no record has a usable center in 'c'"),
    ],
    ids=["text", "nulls", "beyond float32"],
)
def test_apply_to_a_log_without_the_center_fails_and_names_the_column(
    fitted: Path, invoke: Any, command: Any, key_file: Path, tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    pq.write_table(pa.table({**columns, "y": labels()}), tmp_path / "log.parquet")
    input = {"input": tmp_path / "log.parquet", "input_format": "parquet", "label": "y", "noise_key_file": key_file}
    output = {"output": tmp_path / "out", "output_format": "parquet", "mechanism_file": fitted}
    outcome = invoke(command("apply", input | output))
    assert outcome.code == 1
    assert message in outcome.error
    assert str(LABEL) not in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_csv_center_without_a_number_in_its_first_rows(
    invoke: Any, command: Any, key_file: Path, tmp_path: Path
) -> None:
    """Such a column is read as text, as any other: a type can be declared."""
    rows = [f"{'' if row < 300 else row},{row * 25}" for row in range(ROWS)]
    (tmp_path / "log.csv").write_text("c,y\n" + "\n".join(["," + rows[0].split(",")[1]] * 70_000 + rows) + "\n")
    flags = {"input": tmp_path / "log.csv", "input_format": "csv", "noise_key_file": key_file, "center_column": "c"}
    job = GRID | flags | {"output": tmp_path / "out"}
    outcome = invoke(command("privatize", job))
    assert outcome.code == 1
    assert "center column 'c' holds string, not numbers" in outcome.error
    assert "--csv_types" in outcome.error
    invoke(command("privatize", job | {"csv_types": "c=float64"})).ok()
    assert json.loads((tmp_path / "out" / "release.json").read_text())["center"]["missing"] == 70_300
