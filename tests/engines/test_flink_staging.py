"""--setup_file: workers without labeldp install it from the package staged with the job."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

import pytest

SECONDS_TO_END = 20.0


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Interpreter that finds the dependencies of labeldp but not labeldp, as it skips the editable-install finder."""
    folder = tmp_path / "bare"
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture
def workers(python: Path, root: Path, tmp_path: Path) -> str:
    """Command that starts workers with that interpreter, outside the checkout."""
    copied = tmp_path / "worker.py"
    copied.write_bytes((root / "templates" / "flink" / "worker.py").read_bytes())
    command = tmp_path / "worker"
    command.write_text(f'#!/bin/sh\nexec {python} {copied} "$@"\n')
    command.chmod(0o755)
    return str(command)


def replaced(flags: list[str], command: str) -> list[str]:
    """The flags with the command that starts workers replaced."""
    others = [flag for flag in flags if not flag.startswith("--environment_config=")]
    return [*others, f"--environment_config={json.dumps({'command': command})}"]


def test_the_package_is_staged(
    python: Path, workers: str, root: Path, flink: Any, start: Any, undisturbed: Any, tree: Any,
    small_log: Path, tmp_path: Path,
) -> None:  # fmt: skip
    probe = subprocess.run(
        [python, "-c", "import apache_beam, pyarrow; import labeldp.pipelines"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "No module named 'labeldp'" in probe.stderr

    flags = {"input": small_log, "input_format": "csv"}
    running = start([*replaced(flink.flags, workers), f"--setup_file={root / 'setup.py'}"], **flags)
    running.wait_until(lambda: bool(tree(flink.temporary / "artifacts")), "the package was staged")
    running.finish().ok()

    assert tree(running.release) == undisturbed(**flags)
    # Beam may keep workers for a later job. SIGKILL ends those of this test; their installed packages must go too.
    for worker in flink.workers():
        with contextlib.suppress(OSError):
            if str(tmp_path) in Path(f"/proc/{worker}/cmdline").read_text():
                os.kill(worker, signal.SIGKILL)
    until = time.monotonic() + SECONDS_TO_END
    while list(flink.temporary.glob("labeldp-worker-*")) and time.monotonic() < until:
        time.sleep(0.2)
    assert list(flink.temporary.glob("labeldp-worker-*")) == []
