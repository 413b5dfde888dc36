"""Without extras and the compiled part, CSV and Parquet work, and the error for TFRecord says how to get it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

COMPILED = "labeldp.transforms.tfrecord._wire"
TENSORFLOW = ("tfx_bsl", "tensorflow", "tensorflow_data_validation", "tensorflow_metadata")

SCRIPT = """
import importlib, io, json, sys, traceback
from contextlib import redirect_stderr, redirect_stdout


absent = sys.argv[1:]


class Absent:
    def find_spec(self, name, path=None, target=None):
        if {name, name.partition(".")[0]} & {*absent}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
for package in ("mechanisms", "transforms", "pipelines"):
    importlib.import_module(f"labeldp.{package}")
from labeldp.pipelines.cli.commands import main

for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(argv)
        except Exception:
            code = 1
            traceback.print_exc()
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
print(json.dumps(sorted(set(sys.modules) & set(absent))))
"""


def outcomes_of(jobs: dict[str, list[str]], absent: tuple[str, ...], environment: Any, outcome: Any) -> dict[str, Any]:
    """Outcomes of jobs by name, from one process that cannot import some packages."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *absent],
        check=False,
        env=environment,
        input=json.dumps(list(jobs.values())),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    *outcomes, imported = map(json.loads, done.stdout.splitlines())
    assert imported == []
    return {name: outcome(*each) for name, each in zip(jobs, outcomes, strict=True)}


@pytest.fixture(scope="module")
def runs(
    small_log: Path, command: Any, environment: dict[str, str], outcome: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A folder and the outcomes of jobs in it, by name, from one process that cannot import packages of the extras."""
    folder = tmp_path_factory.mktemp("without_extras")
    parquet = {"input": folder / "released" / "data" / "*.parquet", "input_format": "parquet"}
    to_parquet = {"output_format": "parquet"}
    log = {"input": small_log, "input_format": "csv", "label": "y"}
    domain = {"label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1}
    fit = {"mechanism_file": folder / "mechanism.json"}
    refused = {"output": folder / "refused"}
    jobs = {
        "to parquet": command("privatize", log | domain | to_parquet | {"output": folder / "released"}),
        "from parquet": command("privatize", log | domain | to_parquet | parquet | {"output": folder / "again"}),
        "fit": command("fit", log | domain | fit),
        "apply": command("apply", log | fit | to_parquet | {"output": folder / "applied"}),
        "audit": ["audit", str(folder / "released")],
        "to tfrecord": command("privatize", log | domain | refused | {"output_format": "tfrecord"}),
        "by default": command("privatize", log | domain | {"output": folder / "default"}),
        "from tfrecord": command("privatize", log | domain | refused | to_parquet | {"input_format": "tfrecord"}),
        "apply to tfrecord": command("apply", log | fit | refused | {"output_format": "tfrecord"}),
        "demo": command("demo", refused),
    }
    return folder, outcomes_of(jobs, (*TENSORFLOW, "google_crc32c", COMPILED), environment, outcome)


@pytest.mark.xdist_group("without_extras")
@pytest.mark.parametrize("name", ["to parquet", "from parquet", "fit", "apply", "audit", "by default"])
def test_csv_and_parquet_work(runs: tuple[Path, dict[str, Any]], name: str) -> None:
    folder, outcomes = runs

    assert outcomes[name].ok().errors == []
    if name == "audit":
        assert outcomes[name].out.endswith("PASS\n")
    elif name != "fit":
        output = {"to parquet": "released", "from parquet": "again", "apply": "applied", "by default": "default"}[name]
        assert pq.read_table(folder / output / "data").column("f").to_pylist() == list(range(1000))


@pytest.mark.xdist_group("without_extras")
@pytest.mark.parametrize(
    ("name", "purpose", "instead"),
    [
        ("to tfrecord", "--output_format tfrecord", "give --output_format parquet"),
        ("from tfrecord", "--input_format tfrecord", "convert the files and give --input_format parquet or csv"),
        ("apply to tfrecord", "--output_format tfrecord", "give --output_format parquet"),
        ("demo", "demo, which writes TFRecords,", "try privatize on a CSV or Parquet file of your own"),
    ],
)
def test_tfrecords_say_what_to_install(
    runs: tuple[Path, dict[str, Any]], name: str, purpose: str, instead: str
) -> None:
    _, outcomes = runs

    assert outcomes[name].code == 2
    assert outcomes[name].error.endswith(
        f"error: {purpose} needs the compiled part of labeldp, which this installation lacks: install labeldp again "
        f"where there is a C compiler with the headers of Python, or {instead}"
    )


@pytest.mark.xdist_group("without_extras")
def test_what_was_refused_left_nothing(runs: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = runs
    left = {path.name for path in folder.iterdir()}
    assert left == {"released", "again", "applied", "default", "mechanism.json", "labeldp_ledger.jsonl"}


def test_tfrecords_need_no_tensorflow(
    small_log: Path, command: Any, environment: dict[str, str], outcome: Any, tmp_path: Path
) -> None:
    released = {"input": tmp_path / "released" / "data" / "*.tfrecord", "input_format": "tfrecord"}
    log = {"input": small_log, "input_format": "csv"}
    domain = {"label": "y", "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1}
    jobs = {
        "released": command("privatize", log | domain | {"output": tmp_path / "released", "output_format": "tfrecord"}),
        "again": command("privatize", released | domain | {"output": tmp_path / "again"}),
        "audit": ["audit", str(tmp_path / "again"), "--data"],
        "parquet": command(
            "privatize", released | domain | {"output": tmp_path / "parquet", "output_format": "parquet"}
        ),
        "validated": [*command("privatize", log | domain | {"output": tmp_path / "refused"}), "--validate"],
    }
    outcomes = outcomes_of(jobs, TENSORFLOW, environment, outcome)

    for name in ("released", "again", "audit", "parquet"):
        assert outcomes[name].ok().errors == []
    features = pq.read_table(tmp_path / "parquet" / "data").column("f").to_pylist()
    assert features == [[number] for number in range(1000)]
    assert outcomes["validated"].code == 2
    assert "pip install 'labeldp[validation]'" in outcomes["validated"].error


@pytest.mark.xdist_group("without_extras")
def test_recipients_need_no_beam(runs: tuple[Path, dict[str, Any]], environment: dict[str, str]) -> None:
    """They audit a release and open it where Beam and the libraries of a job are not installed."""
    folder, outcomes = runs
    assert outcomes["to parquet"].code == 0
    released = str(folder / "released")
    absent = ("apache_beam", "yaml", "tensorflow", "sklearn", "jinja2", "pandas")
    script = (
        "import sys; sys.modules |= dict.fromkeys(sys.argv[2:]); "
        "from labeldp.pipelines.cli.commands import main; from labeldp.training import Release; "
        "print(main(['audit', sys.argv[1], '--data']), Release.open(sys.argv[1]).epsilon)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, released, *absent],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    *_, verdict, last = done.stdout.splitlines()
    assert (verdict, last.split()[0]) == ("PASS", "0")
