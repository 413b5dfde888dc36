"""On Prism, Beam's single-machine runner written in Go, a job releases the same bytes as on DirectRunner."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local_processes import children, free_ports


@pytest.fixture(scope="module")
def prism(root: Path) -> Path:
    """The binary that `make prism` builds."""
    path = root / ".flink" / "prism"
    if not path.exists():
        pytest.skip("there is no .flink/prism: `make prism` builds it where there is Go")
    return path.resolve()


def test_same_bytes(start: Any, undisturbed: Any, tree: Any, prism: Path, small_log: Path) -> None:
    flags = {"input": small_log, "input_format": "csv"}
    runner = ["--runner=PrismRunner", f"--prism_location={prism}"]
    running = start([*runner, *(f"--job_port={port}" for port in free_ports(1))], **flags)

    def runs() -> bool:
        return any(os.path.realpath(f"/proc/{child}/exe") == str(prism) for child in children(running.process.pid))

    # Beam must not have fallen back to another runner.
    running.wait_until(runs, "Prism was started")
    outcome = running.finish().ok()
    assert "listen on all network interfaces" in outcome.err
    assert tree(running.release) == undisturbed(**flags)
