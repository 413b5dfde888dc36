"""The examples for schedulers in docs/guides/engines.md run as printed, twice each, with stand-ins for modules."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import write_key

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "engines.md").read_text()
PAGE = PAGE.partition("\n## Schedulers\n")[2].partition("\n## ")[0]
AIRFLOW, SCRIPT, KUBEFLOW = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DAY = "2026-11-25"
JOB = """\
input_format: parquet
label: weeks
label_min: 0
label_max: 52
label_step: 1
epsilon: 1
for: labels
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of the page: a folder of a day's log, the flags, the key, and `labeldp` among the programs."""
    (tmp_path / "logs" / DAY).mkdir(parents=True)
    weeks = np.random.default_rng(1).integers(0, 53, 2000)
    pq.write_table(pa.table({"weeks": weeks}), tmp_path / "logs" / DAY / "log.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    write_key(tmp_path / "noise.key", bytes(range(32)))
    program = tmp_path / "bin" / "labeldp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m labeldp "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(text: str, folder: Path) -> str:
    """A command of the page with the files of this machine."""
    return text.replace("/etc/labeldp/", f"{folder}/").replace("/run/secrets/", f"{folder}/")


def check_twice(run: Any, folder: Path, ledger: Path) -> None:
    """Checks that a run and its retry give one release and one charge, and both say what is there."""
    first, again = run(), run()
    assert first["output"] == again["output"] == str(folder / "released" / DAY)
    assert (first["verified"], again["verified"]) == (False, True)
    assert first["records"] == 2000
    assert len(ledger.read_text().splitlines()) == 1


def test_the_command(folder: Path) -> None:
    def run() -> dict[str, Any]:
        key = f" --noise_key_file {folder}/noise.key"
        subprocess.run(["bash", "-c", COMMAND.rstrip() + key], check=True, capture_output=True)
        return json.loads((folder / "result.json").read_text())

    check_twice(run, folder, folder / "released" / "labeldp_ledger.jsonl")


def test_airflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[SimpleNamespace] = []

    class Dag:
        def __init__(self, name: str, **given: Any):
            assert given["catchup"] is False

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    modules = {
        "pendulum": SimpleNamespace(datetime=lambda *day, tz: day),
        "airflow": ModuleType("airflow"),
        "airflow.sdk": SimpleNamespace(DAG=Dag),
        "airflow.providers": ModuleType("airflow.providers"),
        "airflow.providers.standard": ModuleType("airflow.providers.standard"),
        "airflow.providers.standard.operators": ModuleType("airflow.providers.standard.operators"),
        "airflow.providers.standard.operators.bash": SimpleNamespace(
            BashOperator=lambda **given: tasks.append(SimpleNamespace(**given))
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(AIRFLOW, "engines.md", "exec"), {})
    (task,) = tasks
    command = here(jinja2.Template(task.bash_command).render(ds=DAY), folder)

    def run() -> dict[str, Any]:
        done = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    check_twice(run, folder, folder / "released" / "ledger.jsonl")


def test_kubeflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dsl = SimpleNamespace(
        container_component=lambda function: function, OutputPath=lambda kind: kind, ContainerSpec=SimpleNamespace
    )
    monkeypatch.setitem(sys.modules, "kfp", SimpleNamespace(dsl=dsl))
    names: dict[str, Any] = {}
    exec(compile(KUBEFLOW, "engines.md", "exec"), names)
    spec = names["release"](DAY, str(folder / "result"))

    def run() -> dict[str, Any]:
        subprocess.run([here(each, folder) for each in spec.command + spec.args], check=True, capture_output=True)
        return json.loads((folder / "result").read_text())

    check_twice(run, folder, folder / "released" / "ledger.jsonl")


def test_the_script_is_the_command(folder: Path) -> None:
    (folder / "labels.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "labels.py", "--epsilon", "none"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("labeldp privatize: error: ")
