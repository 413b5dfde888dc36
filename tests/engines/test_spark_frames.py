"""Frames of Spark: labels of the command on classic Spark and Connect, no secret in sight, an executor that is lost."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import labeldp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from tests.commands import write_key
from tests.engines.local_processes import ROOT, free_ports

PYSPARK = Path(os.environ.get("LABELDP_PYSPARK", ROOT / ".spark" / "python"))
RECORDS, MANY = 4000, 2_000_000


@dataclass(frozen=True)
class Job:
    """A finished job: its folder, the lines that it printed, and what it wrote on standard error."""

    folder: Path
    lines: list[dict[str, Any]]
    err: str

    def refused(self, name: str) -> dict[str, Any]:
        """Error of a call."""
        return next(line for line in self.lines if line.get("refused") == name)


def run(master: str, folder: Path, records: int, labels: list[Any], domain: list[Any], secret: bytes) -> Job:
    """Releases a log of these labels in turn on a master."""
    generator = np.random.default_rng(3)
    table = pa.table({
        "id": np.arange(records) * 7,
        "x": generator.normal(size=records),
        "group": pa.array(generator.choice(["a", "b", "c", "d", ""], records)),
        "y": np.array([labels[place % len(labels)] for place in range(records)], np.float64),
    })  # fmt: skip
    for name in ("log.parquet", "before.parquet"):
        pq.write_table(table, folder / name)
    (folder / "domain").write_text("".join(f"{label}\n" for label in domain))
    write_key(folder / "noise.key", secret)
    paths = os.pathsep.join([str(PYSPARK), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"
    command = [sys.executable, "tests/engines/spark_job.py", master, str(folder), str(free_ports(1)[0])]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=1500, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return Job(folder, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr)


@pytest.fixture(scope="module", params=["local[2]", "connect"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, leaks: Any, secret: bytes) -> Job:
    """A job of labels that are rare as texts."""
    return run(request.param, tmp_path_factory.mktemp("frames"), RECORDS, leaks.SENTINELS, leaks.DOMAIN, secret)


def run_command(*arguments: Any) -> None:
    """Runs labeldp."""
    subprocess.run([Path(sys.executable).parent / "labeldp", *arguments], check=True, capture_output=True)


def asked_of(folder: Path) -> dict[str, Any]:
    """Keywords of the job of a folder."""
    files = {"label_values": str(folder / "domain"), "noise_key_file": str(folder / "noise.key")}
    return {"label": "y", "epsilon": 2.0, "id_column": "id", **files}


def rows(table: Any) -> pa.Table:
    """Records by their ids."""
    return table.sort_by("id").combine_chunks()


def test_labels_are_those_of_other_frames_and_of_the_command(job: Job, tmp_path: Path) -> None:
    """Of one log by the command, in memory as Arrow and pandas, as a dataset that is read in blocks, and by Spark."""
    asked = asked_of(job.folder)
    table = pq.read_table(job.folder / "before.parquet")
    memory = labeldp.privatize(table, ledger=tmp_path / "a", **asked)
    pandas = labeldp.privatize(table.to_pandas(), ledger=tmp_path / "a", **asked).frame
    streamed = labeldp.privatize(dataset.dataset(job.folder / "before.parquet"), ledger=tmp_path / "a", **asked).frame
    assert rows(streamed.read_all()).equals(rows(memory.frame))
    assert rows(pa.Table.from_pandas(pandas, preserve_index=False)).column("y").equals(rows(memory.frame).column("y"))
    spark = rows(pq.read_table(job.folder / "frame"))
    assert spark.equals(rows(memory.frame))
    flags = [f"--{name}={value}" for name, value in asked.items()]
    run_command(
        "privatize", job.folder / "before.parquet", "--output", tmp_path / "r", "--output_format=parquet", *flags
    )
    written = [rows(pq.read_table(folder / "data")) for folder in (job.folder / "release", tmp_path / "r")]
    assert written[0].column("y").equals(spark.column("y"))
    assert written[1].column("y").cast(pa.float64()).equals(spark.column("y"))
    classes: dict[str, Any] = {"label": "group", "label_classes": ["a", "b", "c"], "label_values": None}
    asked |= classes
    drawn = labeldp.privatize(table, ledger=tmp_path / "b", **asked)
    assert rows(pq.read_table(job.folder / "classes")).equals(rows(drawn.frame))
    names = {"id": "i.d", "x": "X", "group": "x", "y": "y`.z"}
    table = table.rename_columns([names[name] for name in table.column_names])
    table = table.append_column("u.v", pa.array(table["i.d"].to_numpy() % 1000))
    asked = asked_of(job.folder) | {"label": "y`.z", "id_column": "i.d"}
    asked |= {"unit_column": "u.v", "max_records_per_unit": 3}
    renamed = labeldp.privatize(table, ledger=tmp_path / "c", **asked).frame
    renamed = renamed.rename_columns(["id", "x", "group", "y", "u"])
    assert rows(pq.read_table(job.folder / "names")).equals(rows(renamed))


def test_a_release_that_is_written_is_audited_and_reported(job: Job, tmp_path: Path) -> None:
    run_command("audit", job.folder / "release")
    run_command("report", job.folder / "release", "--output", tmp_path / "report.html")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("random", "the input changed while the job ran"),
        ("units", "the input changed while the job ran"),
        ("keys", "the frame also has a field 'm.Y'"),
        ("ids", "two records have the same id in 'id'"),
        ("no ids", "name a column of unique ids with id_column"),
        ("bytes", "with noise_key_file"),
        ("text", "labels holds string, not numbers"),
        ("changed", "the input changed while the job ran"),
        ("changed write", "the input changed while the job ran"),
    ],
)
def test_refused(job: Job, name: str, error: str) -> None:
    assert error in job.refused(name)["error"]
    assert not (job.folder / "changed").exists()


def test_no_secret_is_in_sight(job: Job, leaks: Any, secret: bytes, tree: Callable[..., dict[str, bytes]]) -> None:
    check_logs(job, {}, leaks, secret, tree)


def check_logs(job: Job, others: dict[str, bytes], leaks: Any, secret: bytes, tree: Any) -> None:
    """Searches what the driver prints, the pages of the web interface, the event log and other logs."""
    shown = {"lines": json.dumps(job.lines).encode(), "err": job.err.encode(), **tree(job.folder / "events"), **others}
    assert any("mapInArrow" in text or "MapInArrow" in text for text in map(str, shown.values()))
    labels = {spelling for spelling in leaks.LABEL_SPELLINGS if len(spelling) > 4}
    assert leaks.found(shown, labels | set(leaks.key_spellings(secret))) == []


def test_an_executor_is_killed(
    tmp_path: Path, leaks: Any, secret: bytes, tree: Callable[..., dict[str, bytes]]
) -> None:
    """Two million records: those of the lost executor are drawn again, and the labels are the same.

    The logs of executors are searched, too: a local cluster has them below the folder of Spark.
    """
    job = run("local-cluster[2,1,1024]", tmp_path, MANY, leaks.SENTINELS, leaks.DOMAIN, secret)
    assert {"killed": True} in job.lines
    application = next(line["application"] for line in job.lines if "application" in line)
    work = PYSPARK / "pyspark" / "work" / application
    logs = {path: text for path, text in tree(work).items() if Path(path).name in ("stdout", "stderr")}
    shutil.rmtree(work)
    assert sum(b"Executor" in text for text in logs.values()) >= 2
    check_logs(job, logs, leaks, secret, tree)
    asked = asked_of(tmp_path)
    memory = labeldp.privatize(pq.read_table(tmp_path / "before.parquet"), ledger=tmp_path / "a", **asked)
    written = rows(pq.read_table(tmp_path / "release" / "data"))
    assert written.column("y").equals(rows(memory.frame).column("y"))
