"""The environment of the Dataflow image, built here, runs the launcher, the job and `finish` for each kind of input.

The service is not there: the launcher stages the graph, which runs in the process that has staged it. Packages are kept
below build/image, by the lock.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as orc
import pytest

from tests.pipelines.stores.conftest import records

pytestmark = pytest.mark.xdist_group("stores")
pytest.importorskip("apache_beam.runners.dataflow.internal.apiclient", reason="no extra gcp")
GS = pytest.mark.parametrize("emulator", ["gs"], indirect=True)
ROOT = Path(__file__).parents[3]

# Reads for each input the parameters of the template, the place of the graph, and the output; LAUNCHER is main.py.
LAUNCH = """
import json, runpy, sys
from apache_beam.internal.gcp import auth
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments
from labeldp.pipelines.cli.commands import main
from labeldp.transforms.io.filesystems import store_of

# Otherwise Beam looks for credentials for half a minute.
auth._Credentials._credentials_init = True
here = environments.EmbeddedPythonEnvironment.default().to_runner_api(None)
codes = {}
for name, (parameters, staging, output) in json.load(sys.stdin).items():
    sys.argv = [LAUNCHER, *parameters]
    try:
        runpy.run_path(LAUNCHER, run_name="__main__")
    except SystemExit as ended:
        codes[name] = [ended.code]
    if codes[name] == [0]:
        store = store_of(staging)
        [graph] = [info.path for info in store.list(staging) if info.path.endswith("pipeline.pb")]
        pipeline = beam_runner_api_pb2.Pipeline.FromString(store.read(graph)[0])
        for environment in pipeline.components.environments.values():
            environment.CopyFrom(here)
        FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()
        codes[name].append(main(["finish", output, "--timeout=0"]))
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that the RUN lines of the Dockerfile have made."""
    lines = (ROOT / "templates" / "dataflow" / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    wheel, packages, package = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    lock = ROOT / "templates" / "dataflow" / "requirements.lock"
    folder = ROOT / "build" / "image" / hashlib.sha256(f"{packages}{lock.read_text()}".encode()).hexdigest()[:16]
    python, work = folder / "bin" / "python", tmp_path_factory.mktemp("image")
    uv = Path(sys.executable).with_name("uv")
    # uv installs what pip does, in a tenth of the time; the wheel is built with what this environment has.
    here = {
        "pip install --no-cache-dir": f"{uv} pip install -q --reinstall --python {python}",
        "pip check": f"{uv} pip check -q --python {python}",
        "pip wheel --no-cache-dir": f"{sys.executable} -m pip wheel -q --no-build-isolation",
        "python -c": f"{python} -c",
        "/wheels/requirements.lock": str(lock),
        "/wheels": str(work / "wheels"),
    }

    def run(command: str, cwd: Path) -> None:
        for there, instead in here.items():
            command = command.replace(there, instead)
        subprocess.run(command, shell=True, check=True, cwd=cwd, timeout=600)

    if not (folder / "ready").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
        run(packages, work)
        (folder / "ready").touch()
    source = work / "source"
    for name in ("labeldp", "mechanisms", "transforms", "pipelines", "templates"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(wheel, source)
    run(package, work)
    return python


def tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """URLs of an Iceberg and of a Delta table of `records`, whose folders all machines share."""
    catalogs, deltalake = pytest.importorskip("pyiceberg.catalog"), pytest.importorskip("deltalake")
    uri = f"sqlite:///{folder}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    catalog = catalogs.load_catalog("lake", type="sql", uri=uri, warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("ads")
    catalog.create_table("ads.clicks", records(600).schema).append(records(600))
    catalog.close()
    deltalake.write_deltalake(f"{folder}/clicks", records(600))
    return {"iceberg": "iceberg://lake/ads.clicks", "delta": f"delta://{folder}/clicks"}


@GS
def test_the_image_launches_and_releases_each_kind_of_input(
    image: Path, emulator: Any, on_store: Any, tfrecord_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"csv": pa.BufferOutputStream(), "orc": pa.BufferOutputStream()}
    pa_csv.write_csv(records(600), files["csv"])
    orc.write_table(records(600), files["orc"])
    inputs = {name: emulator.put(f"in/a.{name}", file.getvalue().to_pybytes()) for name, file in files.items()}
    inputs |= {"tfrecord": emulator.put("in/a.tfrecord", tfrecord_file), "parquet": emulator.url("in/*.parquet")}
    inputs |= tables(tmp_path, monkeypatch)
    offered = json.loads((ROOT / "templates" / "dataflow" / "metadata.json").read_text())["parameters"]
    [formats] = [each["enumOptions"] for each in offered if each["name"] == "input_format"]
    assert set(inputs) == {each["value"] for each in formats} | {"iceberg", "delta"}
    jobs = {}
    for name, url in inputs.items():
        format, output = "parquet" if name in ("iceberg", "delta") else name, emulator.url(f"out/{name}/released")
        staging = emulator.url(f"staging/{name}/")
        asked = on_store(input=url, input_format=format, output=output, mechanism="bias_limited:bias=0.25")[1:]
        flags = [
            "--project=project-1", "--region=us-central1", "--no_auth", f"--job_name=labeldp-{name}",
            "--sdk_container_image=registry/image:1", f"--staging_location={staging}",
            f"--temp_location={emulator.url('temp')}", f"--template_location={staging}job_object",
        ]  # fmt: skip
        jobs[name] = [*asked, *flags], staging, output
    done = subprocess.run(
        [image, "-c", LAUNCH.replace("LAUNCHER", repr(str(ROOT / "templates" / "dataflow" / "main.py")))],
        check=False, cwd=tmp_path, input=json.dumps(jobs), capture_output=True, text=True, timeout=500,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {name: [0, 0] for name in inputs}, done.stderr
    for name in inputs:
        made = emulator.objects(f"out/{name}/")
        manifest = json.loads(made["released/release.json"])
        assert (manifest["records"], manifest["mechanism"]) == (600, "bias_limited"), name
        assert made["labeldp_ledger.jsonl"].count(b"\n") == 1, name
