"""`--unit_column` in whole jobs: what is released and stated, fit and apply, audits of tampered releases, refusals."""

import json
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.release.unit_bound import UnitCounts
from labeldp.pipelines.cli.announcement import unusable_share

from tests.commands import write_key
from tests.false_alarms import mean_bound
from tests.written_logs import write_parts

ROWS = 4000
FLAGS = {"label": "minutes", "label_min": 0, "label_max": 40, "label_step": 1, "epsilon": 3}
UNITS = FLAGS | {"unit_column": "user", "max_records_per_unit": 3}
CENTERED = UNITS | {"center": "linear"}


def log_table(seed: int = 3) -> pa.Table:
    """A click log: few users have many records; some records have no user."""
    rng = np.random.default_rng(seed)
    users = np.array([f"u{each}" for each in np.minimum(rng.zipf(1.5, ROWS), 1500)], object)
    users[::100] = None
    x = rng.normal(size=ROWS)
    minutes = np.clip(np.rint(20 + 6 * x + rng.normal(0, 3, ROWS)), 0, 40)
    return pa.table({"user": pa.array(users), "place": rng.integers(0, 5, ROWS), "x": x, "minutes": minutes})


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in three files, so that a user's records are spread over files."""
    return write_parts(tmp_path_factory.mktemp("logs"), log_table(), 1500, ["parquet"])


@pytest.fixture(scope="module")
def flags(logs: Path, key_file: Path) -> dict[str, Any]:
    return {"input": logs / "log-*.parquet", "input_format": "parquet", "noise_key_file": key_file}


@pytest.fixture(scope="module")
def released(
    flags: dict[str, Any], invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """A release around a linear center, and the outcome of the command."""
    output = tmp_path_factory.mktemp("units") / "released"
    outcome = invoke(command("privatize", flags | CENTERED | {"output": output})).ok()
    return output, outcome


def documents(release: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest, mechanism = (json.loads((release / name).read_text()) for name in ("release.json", "mechanism.json"))
    return manifest, mechanism


def users_of(table: pa.Table) -> Counter[str]:
    return Counter(user for user in table["user"].to_pylist() if user is not None)


def test_each_user_has_at_most_so_many_records_over_all_files(released: tuple[Path, Any]) -> None:
    output, outcome = released
    table, before = pq.read_table(output / "data"), users_of(log_table())
    assert users_of(table) == Counter({user: min(records, 3) for user, records in before.items()})
    assert table["user"].null_count == 0
    manifest, mechanism = documents(output)
    unit = manifest["unit"]
    assert mechanism["unit"] == {"column": "user", "max_records": 3}
    assert unit["units"] == len(before)
    assert unit["records_left_out"] == sum(before.values()) - table.num_rows
    assert unit["records_without_unit"] == 40
    assert f"units      user: {len(before):,}, at most 3 records each, {unit['records_left_out']:,} left out" in (
        outcome.out
    )
    assert "warning: 40 records without a unit in user: left out" in outcome.err


def test_epsilon_is_that_of_a_unit(released: tuple[Path, Any], spent: Any) -> None:
    output, _ = released
    manifest, mechanism = documents(output)
    parts = [mechanism["center"]["linear"]["epsilon"], manifest["prior_epsilon"], mechanism["certificate"]["epsilon"]]
    total = 3 * sum(map(Fraction, parts))
    assert total <= Fraction(manifest["certified_epsilon"]) <= manifest["epsilon"] == 3.0
    assert total > Fraction(299, 100)
    assert Fraction(manifest["unit"]["record_epsilon"]) >= total / 3
    assert manifest["adjacency"].startswith("label differential privacy for units: ")
    assert total <= spent(output.parent) < total + Fraction(1, 10**9)
    (run,) = [json.loads(line) for line in (output.parent / "labeldp_ledger.jsonl").read_text().splitlines()]
    assert run["adjacency"] == "unit"
    assert run["unit"] == {"column": "user", "max_records": 3}


def test_the_column_of_units_is_no_feature_of_the_center(released: tuple[Path, Any]) -> None:
    _, mechanism = documents(released[0])
    assert {each["name"] for each in mechanism["center"]["linear"]["encoders"]} == {"place", "x"}


def test_the_audit_counts_the_records_of_each_unit(released: tuple[Path, Any], invoke: Any) -> None:
    outcome = invoke(["audit", str(released[0]), "--data"]).ok()
    assert "with at most 3 records each, 3 are allowed" in outcome.out
    assert "sets of outputs agree with the channel and the noised histogram" in outcome.out
    assert "every center is the one that the published map predicts" in outcome.out


def test_a_unit_with_a_record_too_many_fails_the_audit(released: tuple[Path, Any], invoke: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(released[0], copy)
    shard = sorted((copy / "data").iterdir())[0]
    table = pq.read_table(shard)
    busiest = users_of(pq.read_table(released[0] / "data")).most_common(1)[0][0]
    users = [busiest] * 4 + table["user"].to_pylist()[4:]
    kind = table.schema.field("user").type
    pq.write_table(table.set_column(table.schema.get_field_index("user"), "user", pa.array(users, kind)), shard)
    outcome = invoke(["audit", str(copy), "--data"])
    assert outcome.code == 1
    assert "1 units have more than 3 records, the unit.max_records of mechanism.json" in outcome.out + outcome.err
    assert busiest not in outcome.out + outcome.err


def test_the_share_without_a_label_is_of_all_records() -> None:
    """Records beyond the bounds of units have labels, of which the limit on unusable ones is a share, too."""
    result: Any = SimpleNamespace(binding=SimpleNamespace(records=10, unusable=5), units=UnitCounts(4, 80, 5))
    assert unusable_share(result) == " (5 % of 100)"


def test_a_dry_run_says_what_a_record_gets(flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path) -> None:
    outcome = invoke([*command("privatize", flags | UNITS | {"output": tmp_path / "no"}), "--dry_run"]).ok()
    assert "units      user: at most 3 records of each, the others are left out" in outcome.out
    assert "epsilon 3 for all labels of a unit, 1 for each of at most 3 records" in outcome.out
    assert "user (the record's unit)" in outcome.out


def test_units_have_names(flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path) -> None:
    outcome = invoke(command("privatize", flags | UNITS | {"unit_column": "x", "output": tmp_path / "no"}))
    assert outcome.code == 1
    assert "the unit in 'x' is a number that is not whole" in outcome.error
    assert not (tmp_path / "no").exists()


def test_a_public_prior_serves_units(flags: dict[str, Any], invoke: Any, command: Any, tmp_path: Path) -> None:
    """It holds no record of a unit, other than a histogram of records."""
    file = tmp_path / "m.json"
    given = {"label": "minutes", "mechanism_file": file, "unit_column": "user", "max_records_per_unit": 2}
    (tmp_path / "prior.csv").write_text("label,weight\n" + "".join(f"{label},1\n" for label in range(41)))
    solved = ["solve", f"--prior={tmp_path / 'prior.csv'}", "--epsilon=1", "--mechanism=rr", f"--output={file}"]
    invoke(solved).ok()
    invoke(command("apply", flags | given | {"output": tmp_path / "yes"})).ok()
    manifest, _ = documents(tmp_path / "yes")
    assert manifest["unit"]["max_records"] == 2
    assert 1.99 < manifest["certified_epsilon"] <= 2
    invoke(["audit", str(tmp_path / "yes"), "--data"]).ok()


def test_a_label_domain_of_units(flags: dict[str, Any], invoke: Any, tmp_path: Path) -> None:
    """Its histogram has three times the noise, and holds three records of a user at most."""
    given = {**flags, "label": "minutes", "epsilon": 5, "unit_column": "user", "max_records_per_unit": 3}
    empty = []
    for draw in range(10):
        key, file = write_key(tmp_path / f"{draw}.key", bytes([draw]) * 32), tmp_path / f"{draw}.json"
        given |= {"noise_key_file": key, "domain_file": file}
        outcome = invoke(["domain", *(f"--{name}={value}" for name, value in given.items())]).ok()
        document = json.loads(file.read_text())
        assert document["unit"] == {"column": "user", "max_records": 3}
        assert document["records"] == sum(min(records, 3) for records in users_of(log_table()).values())
        assert "for all labels of a unit of user" in outcome.out
        empty.append(np.array(document["counts"])[np.array(document["cells"]) < 0])
    # Discrete Laplace noise of scale 2 * 3 / 5 in cells without a label; none is above 40, but for 1e-10.
    sizes, decay = np.abs(np.concatenate(empty)), np.exp(-1 / 1.2)
    mean = 2 * decay / (1 - decay**2)
    bound = mean_bound(np.full(len(sizes), 2 * decay / (1 - decay) ** 2 - mean**2), 40)
    assert bound < mean - 0.2  # a third of the noise has the mean 0.18
    assert abs(sizes.mean() - mean) < bound
