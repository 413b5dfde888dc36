"""Hive partition columns: features of a center, filters, and with `--partition_output` folders of the shards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from labeldp.pipelines.publish.protocol import Charge
from labeldp.transforms.errors import InputError

from tests.written_logs import write_log

ROWS = 600
MONTHS = ("1", "2", "__HIVE_DEFAULT_PARTITION__")
COUNTRIES = ("a%2Fb%20%C3%A9", "de")


def month_of(folder: str) -> int | None:
    return int(folder) if folder.isdigit() else None


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Glob of six files by format, month=M/country=C/part-N: n is the record's number, y larger in later months."""
    root, number = tmp_path_factory.mktemp("log"), 0
    for month in MONTHS:
        for country in COUNTRIES:
            numbers = np.arange(number, number + ROWS)
            columns = {"n": numbers, "y": (numbers % 2 + 3 * (month_of(month) or 0)).astype(float)}
            for format in ("parquet", "csv", "tfrecord"):
                write_log(root / format / f"month={month}" / f"country={country}" / "part-1", columns, format)
            number += ROWS
    return {format: f"{root}/{format}/*/*/*" for format in ("parquet", "csv", "tfrecord")}


@pytest.fixture
def partitioned(job: Any, logs: dict[str, str]) -> Any:
    """Function (format, flag=value, ...) -> arguments of a job over `logs` that writes to folders of months."""

    def arguments(format: str = "parquet", **flags: Any) -> list[str]:
        files = {"input": logs[format], "input_format": format, "output_format": None}
        return job(**{**files, "label_max": 9, "epsilon": 4, "partition_output": "month", **flags})

    return arguments


def shards_of(release: Path) -> dict[str, bytes]:
    data = release / "data"
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("format", ["parquet", "csv", "tfrecord"])
def test_the_release_is_audited_and_can_be_the_input_of_another_one(format, partitioned, invoke, outputs, tree):
    """The folders are features of the center; all shards are in folders of both columns."""
    center = {"center": "linear", "center_features": "month,country", "mechanism": "debiased_rr"}
    own = {"partition_output": "country,month", **center}
    invoke(partitioned(format, **own)).ok()
    audited = invoke(["audit", str(outputs / "released"), "--data"]).ok()
    assert "every center is the one that the published map predicts" in audited.out
    assert json.loads((outputs / "released" / "release.json").read_text())["features"] == 3
    folders = {str(path.relative_to(outputs / "released" / "data")) for path in outputs.rglob("month=*")}
    assert folders == {f"country={name}/month={month}" for name in ("a%2Fb é", "de") for month in MONTHS}

    kind = "tfrecord" if format == "tfrecord" else "parquet"
    again = {"input": outputs / "released" / "data" / "*" / "*" / "*", "output": outputs / "again"}
    invoke(partitioned(kind, **again, **center | {"center_column": "second"})).ok()
    assert {name.partition("/")[0] for name in shards_of(outputs / "again")} == {f"month={month}" for month in MONTHS}
    assert invoke(["audit", str(outputs / "again"), "--data"]).ok()


def test_a_center_learns_from_the_names_of_folders_alone(partitioned, invoke, outputs):
    own = {"center": "linear", "center_features": "month", "mechanism": "unbiased", "id_column": "n"}
    invoke(partitioned(**own)).ok()
    table = pyarrow.dataset.dataset(str(outputs / "released" / "data"), partitioning="hive").to_table()
    assert table.schema.field("month").type == pa.int32()
    # Labels of month 2 are larger by 3.
    means = [table.filter(pc.field("month") == month)["y_center"].to_numpy().mean() for month in (1, 2)]
    assert means[1] - means[0] > 2


def test_none_ignores_them(job, invoke, outputs, logs):
    invoke(job(input=logs["parquet"], input_format="parquet", label_max=9, partitions="none")).ok()
    assert pq.read_schema(next((outputs / "released" / "data").iterdir())).names == ["n", "y"]


def test_a_clash_names_both(job, invoke, tmp_path, write_csv):
    outcome = invoke(job(input=write_csv(tmp_path / "f=1" / "a.csv", ["1,2"] * 100)))
    assert outcome.code == 1
    assert "the folder f=... and the column 'f' in the file give two columns of one name" in outcome.error


def test_values_are_kept_and_escaped(job, invoke, outputs, tmp_path, write_csv):
    """01 and 1 are two texts, also for the filter."""
    for place, (day, name) in enumerate([("01", "1"), ("1", "%3D%25"), ("2", "x^{y}")]):
        rows = [f"{i},{i % 5}" for i in range(1000 * place, 1000 * place + 300)]
        write_csv(tmp_path / f"d={day}" / f"k={name}" / "a.csv", rows)
    invoke(job(input=tmp_path / "*" / "*" / "*.csv", partition_output="d,k")).ok()
    names = ["d=01/k=1", "d=1/k=%3D%25", "d=2/k=x%5E%7By}"]
    assert sorted(shards_of(outputs / "released")) == [f"{name}/part-00000-of-00001.parquet" for name in names]
    # As the guide says, because pyarrow would infer integers.
    hive = pyarrow.dataset.partitioning(pa.schema([("d", pa.string()), ("k", pa.string())]), flavor="hive")
    table = pyarrow.dataset.dataset(str(outputs / "released" / "data"), partitioning=hive).to_table()
    assert {(row["d"], row["k"]) for row in table.to_pylist()} == {("01", "1"), ("1", "=%"), ("2", "x^{y}")}
    invoke(["audit", str(outputs / "released"), "--data"]).ok()
    invoke(job(input=tmp_path / "*" / "*" / "*.csv", where="d=01", output=outputs / "filtered")).ok()
    (shard, *_) = (outputs / "filtered" / "data").iterdir()
    assert {*pq.read_table(str(shard))["d"].to_pylist()} == {"01"}


def test_each_folder_has_as_many_shards_as_the_largest_has_files(job, invoke, outputs, tmp_path, write_csv):
    for name in ("k=1/a.csv", "k=1/b.csv", "k=2/a.csv"):
        write_csv(tmp_path / name, [f"{i},{i % 5}" for i in range(600)])
    flags = {"input": tmp_path / "*" / "*.csv", "partition_output": "k"}
    planned = invoke([*job(**flags), "--dry_run"]).ok().out
    assert "2 parquet shards in each of 2 folders, k=..." in planned
    invoke(job(**flags)).ok()
    assert list(shards_of(outputs / "released")) == [
        f"k={k}/part-0000{i}-of-00002.parquet" for k in (1, 2) for i in (0, 1)
    ]


def test_a_filter_leaves_folders_without_records(partitioned, invoke, outputs):
    invoke(partitioned(where="month=2")).ok()
    shards = json.loads((outputs / "released" / "release.json").read_text())["shards"]
    assert [records > 0 for records in shards.values()] == [False, False, True, True, False, False]
    assert invoke(["audit", str(outputs / "released"), "--data"]).ok()


def test_validation_reads_the_folders_but_not_those_of_the_output(job, invoke, tmp_path, logs):
    (tmp_path / "run=1").mkdir()
    grid = {"label_max": 9, "epsilon": 4, "partition_output": "month", "output": tmp_path / "run=1" / "released"}
    invoke([*job(input=logs["parquet"], input_format="parquet", **grid), "--validate"]).ok()
    schema = (tmp_path / "run=1" / "released" / "validation" / "schema.pbtxt").read_text()
    assert all(f'name: "{name}"' in schema for name in ("n", "y", "month", "country"))
    assert '"run"' not in schema


def test_a_run_that_fails_after_its_shards_leaves_nothing(partitioned, invoke, outputs, monkeypatch):
    def fail(*_: Any) -> None:
        (staging,) = outputs.glob(".released.*/release")
        assert len(shards_of(staging)) == 2 * len(MONTHS)
        raise InputError("refused")

    monkeypatch.setattr(Charge, "write", fail)
    outcome = invoke(partitioned())
    assert outcome.code == 1
    assert "refused" in outcome.error
    # The ledger is locked, and so exists, when a run is charged.
    assert [(path.name, path.read_text()) for path in outputs.iterdir()] == [("labeldp_ledger.jsonl", "")]
