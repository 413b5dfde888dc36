"""Packages that workers install: the sdist that Beam stages for --setup_file, and the wheel built from it."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 300
ROOMS = ("mechanisms", "transforms", "pipelines", "templates")
DATA = (".yaml", ".json", ".j2", ".css", ".sh", ".xml")


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
