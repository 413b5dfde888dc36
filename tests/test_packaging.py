"""Packages that workers install: the sdist that Beam stages for --setup_file, and the wheel built from it."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.commands import write_key

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 300
ROOMS = ("mechanisms", "transforms", "pipelines", "templates")
DATA = (".yaml", ".json", ".j2", ".css", ".sh", ".txt", ".xml")


def run(*command: str, folder: Path = ROOT, **environment: str) -> str:
    """Runs a command and returns its standard output; fails with its standard error if it does not succeed."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=folder,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    # Only files that git does not ignore are copied, so that a stray build product cannot hide a missing file.
    checkout = tmp_path_factory.mktemp("checkout")
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(checkout))
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python interpreter of an environment that contains only the wheel."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False)
    (wheel,) = built.glob("*.whl")
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--python", str(python), str(wheel))
    return python


def files_of_the_rooms() -> set[str]:
    """Modules and data files that a wheel must hold, relative to the import root."""
    found = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS).splitlines()
    return {name for name in found if name.endswith((".py", *DATA)) or name.endswith("Dockerfile")}


@pytest.mark.xdist_group("packaging")
def test_the_sdist_and_the_wheel_hold_every_file(built: Path) -> None:
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    in_wheel = {name.removeprefix("labeldp/") for name in zipfile.ZipFile(wheel).namelist()}

    wanted = files_of_the_rooms()
    assert len(wanted) > 80
    assert wanted <= in_sdist
    assert wanted <= in_wheel
    assert "documents.json" in in_wheel
    # The compiled part: its source for workers that build the package, itself in the wheel.
    assert "transforms/tfrecord/wire.c" in in_sdist
    # In the stable interface: one wheel for every Python from 3.11 on.
    assert "transforms/tfrecord/_wire.abi3.so" in in_wheel
    assert wheel.name.split("-")[2:4] == ["cp311", "abi3"]
    assert not [name for name in in_wheel if name.startswith("tests") or name.endswith(".key")]


@pytest.mark.xdist_group("packaging")
def test_the_wheel_runs_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    """Dependencies come from the tests' environment, labeldp only from the wheel."""
    libraries = sysconfig.get_paths()["purelib"]
    where = "import labeldp.transforms, labeldp.templates; print(labeldp.transforms.__file__)"
    found = run(str(installed), "-W", "ignore", "-c", where, folder=tmp_path, PYTHONPATH=libraries).strip()
    assert found.startswith(str(installed.parents[1]))

    (tmp_path / "prior.csv").write_text("0,1\n1,2\n2,1\n")
    flags = ["--prior", str(tmp_path / "prior.csv"), "--epsilon", "1", "--output", str(tmp_path / "m.json")]
    run(str(installed.parent / "labeldp"), "solve", *flags, PYTHONPATH=libraries)
    assert "PASS" in run(str(installed.parent / "labeldp"), "audit", str(tmp_path / "m.json"), PYTHONPATH=libraries)


def install(python: Path, *what: str) -> None:
    """Installs packages with their dependencies, in the versions of the lock file."""
    lock = str(ROOT / "requirements.lock")
    run(sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(python), "--constraint", lock, *what)


# Runs commands and a LabelPrivatizer, with errors on standard output. A process for each would import Beam again.
COMMANDS = """
import contextlib, json, sys
from labeldp import LabelPrivatizer
from labeldp.pipelines.cli.commands import main

with contextlib.redirect_stderr(sys.stdout):
    codes = [main(argv) for argv in json.loads(sys.argv[1])]
made = LabelPrivatizer(label_values=range(5), epsilon=1, for_="labels", noise_key_file="noise.key")
print(json.dumps([codes, len(made.fit_transform([row % 5 for row in range(200)]))]))
"""


@pytest.mark.xdist_group("packaging")
def test_the_core_and_tfrecords_run_in_empty_environments(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "core", with_pip=False)
    python = tmp_path / "core" / "bin" / "python"
    rows = "\n".join(f"{row},{row % 5}" for row in range(200))
    write_key(tmp_path / "noise.key", bytes(range(32)))
    (tmp_path / "log.csv").write_text(f"f,y\n{rows}\n")

    def privatize(input: str, input_format: str, output: str, output_format: str) -> list[str]:
        flags = {
            "input": input, "input_format": input_format, "output": output, "output_format": output_format,
            "label": "y", "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1, "for": "labels",
            "noise_key_file": "noise.key",
        }  # fmt: skip
        return ["privatize", *(f"--{name}={value}" for name, value in flags.items())]

    def audit(output: str) -> list[str]:
        return ["audit", output, "--data"]

    def run_all(*commands: list[str]) -> tuple[list[int], list[str]]:
        arguments = ["-W", "ignore", "-c", COMMANDS, json.dumps(commands)]
        *lines, last = run(str(python), *arguments, folder=tmp_path).splitlines()
        codes, labels = json.loads(last)
        assert labels == 200
        return codes, lines

    install(python, str(wheel))
    codes, lines = run_all(
        privatize("log.csv", "csv", "one", "parquet"), audit("one"),
        privatize("one/data/*.parquet", "parquet", "two", "parquet"), audit("two"),
        privatize("log.csv", "csv", "three", "tfrecord"), audit("three"),
        privatize("three/data/*.tfrecord", "tfrecord", "four", "tfrecord"), audit("four"),
    )  # fmt: skip
    assert codes == [0] * 8
    assert lines.count("PASS") == 4
    installed = json.loads(run(sys.executable, "-m", "uv", "pip", "list", "--python", str(python), "--format", "json"))
    assert not {"tensorflow", "tfx-bsl", "tensorflow-metadata", "google-crc32c"} & {
        package["name"] for package in installed
    }


def test_the_lock_has_hashes_no_index_and_no_vulnerable_pyarrow() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)", lock, re.MULTILINE))

    blocks = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pinned) > 100
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search("index-url|find-links|://", lock)
    # Below 14.0.1, reading a file could run code (CVE-2023-47248).
    assert tuple(map(int, pinned["pyarrow"].split("."))) >= (14, 0, 1)
