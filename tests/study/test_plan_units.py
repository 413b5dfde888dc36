"""`labeldp plan --units`: the options of a file's ids, as a table, files and a chart."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.release.records_per_unit import best_bound, bound_options

LABELS = np.arange(5.0)
USERS = [f"u{number}" for number in range(60) for _ in range(1 + number % 4)]
COLUMNS = ["epsilon", "max_records", "records", "units_cut", "record_epsilon", "model_error", "best", "reason"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Parquet file of 150 records of 60 users; the first three, of two users, have no label, the last two no user."""
    labels: list[float | None] = [float(row % 5) for row in range(len(USERS))]
    labels[:3] = [None, float("nan"), float("inf")]
    users: list[str | None] = [*USERS[:-2], None, None]
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"user": users, "sale": [row % 2 for row in range(len(USERS))], "y": labels}), path)
    return path


@pytest.fixture
def plan(invoke: Any, log: Path, key_file: Path, tmp_path: Path) -> Callable[..., Any]:
    """Function (flag=value or values, ...) -> the outcome. Writes tmp_path / "plan.json"."""

    def run(**flags: Any) -> Any:
        standard: dict[str, Any] = {
            "input": log, "input_format": "parquet", "label": "y", "unit_column": "user", "label_min": 0,
            "label_max": 4, "label_step": 1, "epsilon": 2, "noise_key_file": key_file, "processes": 1,
            "json": tmp_path / "plan.json",
        }  # fmt: skip
        argv = ["plan", "--units"]
        for name, value in (standard | flags).items():
            if value is not None:
                argv += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return invoke(argv)

    return run


@pytest.fixture
def document(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Function () -> the JSON that `plan` wrote."""
    return lambda: json.loads((tmp_path / "plan.json").read_text())


def sizes(users: list[str]) -> dict[int, int]:
    """Number of units by number of records, counted here."""
    return dict(Counter(Counter(users).values()))


def test_the_rows_are_the_options_of_the_ids(plan: Any, document: Any, tmp_path: Path) -> None:
    out = plan(epsilon=[16, 0.5], features=3, csv=tmp_path / "plan.csv").ok().out

    found, units = document(), sizes(USERS[3:-2])
    records = sum(size * number for size, number in units.items())
    assert [found[name] for name in ("units", "records", "most_records_of_a_unit", "parameters", "unit_column")] == [
        sum(units.values()), records, 4, 4, "user",
    ]  # fmt: skip
    expected = []
    for epsilon in (16.0, 0.5):
        options = bound_options(units, Prior(LABELS, np.ones(5)), epsilon, parameters=4, shown=8)
        assert [option.max_records for option in options] == [1, 2, 3, 4]
        for each in options:
            values = [epsilon, *astuple(each), each == best_bound(options), None]
            expected.append(dict(zip(COLUMNS, values, strict=True)))
    assert [dict(row) for row in found["rows"]] == expected
    with (tmp_path / "plan.csv").open(newline="") as file:
        assert [row["model_error"] for row in csv.DictReader(file)] == [str(row["model_error"]) for row in expected]
    heading, *lines = out.splitlines()[3:-1]
    assert heading.split() == COLUMNS[:-1]
    assert [line.endswith("*") for line in lines] == [row["best"] for row in expected]
    assert out.splitlines()[-1].startswith("for scale: the labels' variance is 2.")


def test_no_value_of_a_label_matters(plan: Any, document: Any, log: Path) -> None:
    plan().ok()
    first = document()
    table = pq.read_table(log)
    changed = [label if label is None or not np.isfinite(label) else 9.5 for label in table["y"].to_pylist()]
    pq.write_table(table.set_column(2, "y", pa.array(changed)), log)
    plan().ok()
    assert document() == first


def test_nothing_is_charged_and_nothing_is_left(plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    plan().ok()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet", "plan.json", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_counts_come_back_through_the_temporary_folder_of_the_runner(plan: Any, document: Any, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    plan(temp_location=tmp_path / "shared").ok()
    assert document()["units"] == len(set(USERS[3:-2]))
    assert list((tmp_path / "shared").iterdir()) == []


def test_filtered_records_of_csv(plan: Any, document: Any, log: Path, tmp_path: Path, write_csv: Any) -> None:
    rows = pq.read_table(log).to_pylist()[:-2]
    lines = [
        f"{row['user']},{row['sale']},{'' if row['y'] is None or not np.isfinite(row['y']) else row['y']}"
        for row in rows
    ]
    path = write_csv(tmp_path / "log.csv", lines, header="user,sale,y")
    plan(input=path, input_format="csv", where="sale=1").ok()

    kept = [user for row, user in enumerate(USERS) if row % 2 == 1 and 3 <= row < len(USERS) - 2]
    assert (document()["units"], document()["records"]) == (len(set(kept)), len(kept))


def test_a_prior_is_taken_instead_of_a_flat_one(plan: Any, document: Any, tmp_path: Path) -> None:
    weights = np.array([8.0, 4.0, 2.0, 1.0, 1.0])
    prior = tmp_path / "prior.csv"
    prior.write_text("label,weight\n" + "".join(f"{y},{w}\n" for y, w in zip(LABELS, weights, strict=True)))
    no_domain = dict.fromkeys(("label_min", "label_max", "label_step"))

    out = plan(prior=prior, **no_domain).ok().out
    assert "5 labels, taken as public" in out
    first, expected = document(), bound_options(sizes(USERS[3:-2]), Prior(LABELS, weights), 2.0, shown=8)
    assert [row["model_error"] for row in first["rows"]] == [option.model_error for option in expected]
    plan(prior=prior).ok()
    assert document() == first

    outcome = plan(prior=prior, label_max=5)
    assert outcome.code == 2
    assert "--prior" in outcome.error


def test_an_epsilon_that_is_too_small_is_a_row_that_says_why(plan: Any, document: Any) -> None:
    out = plan(epsilon=[1, 1e-9]).ok().out
    *_, refused = document()["rows"]
    assert "epsilon must be at least 2e-09" in refused["reason"]
    assert refused["reason"] in out

    outcome = plan(epsilon=1e-9)
    assert outcome.code == 1
    assert "no epsilon could be planned for" in outcome.error
