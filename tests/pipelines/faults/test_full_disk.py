"""Disks that fill up: the run fails with the system's own text and the file, and leaves nothing; the next run succeeds.

The disk is a small tmpfs that is filled before a step of the run. Where nothing may be mounted, a limit on file sizes
takes its place: the kernel then refuses the same writes, with another text.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("faults")

LEDGER = "labeldp_ledger.jsonl"
FULL, TOO_LARGE = "No space left on device", "File too large"

# Fills the disk before the first step that contains a text.
FILL = """
import os


def fault(step, file={ballast!r}):
    if {text!r} in step and not os.path.exists(file):
        with open(file, "wb", buffering=0) as ballast:
            for size in (1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"x" * size)
                except OSError:
                    pass
"""

# From the first step that contains a text on, no regular file may grow.
LIMIT = """
import resource


def fault(step):
    if {text!r} in step:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
"""

STAGES = {
    "segments": ("segments/00000-", "writing {staging}/segments failed"),
    "mechanism": ("mechanism.json.", "writing {staging}/release/mechanism.json failed"),
    "shards": ("segments/part-", "writing {staging}/release/data/part-0000[01]-of-00002.parquet failed"),
    "dead letters": ("dead_letters.jsonl.", "writing {staging}/release/dead_letters.jsonl failed"),
    "job result": ("job_result_0.json.", "writing {staging}/job_result_0.json failed"),
    "manifest": ("release.json.", "writing {staging}/release/release.json failed"),
    "ledger": (f"{LEDGER}.pending", "charging the ledger {ledger} failed"),
}


@pytest.fixture
def disk(outputs: Path) -> Iterator[str]:
    """Mounts a tmpfs of 2 MB at the folder of outputs, if that is permitted. Gives the text of errors on it."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(outputs)], check=False, capture_output=True
    )
    yield TOO_LARGE if mounted.returncode else FULL
    if not mounted.returncode:
        subprocess.run(["umount", str(outputs)], check=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """Log of three files in which one record has no label. Each of two shards has rows of two files."""
    rows = [f"{i},{'' if i == 7 else i % 5}" for i in range(600)]
    folder = tmp_path_factory.mktemp("full_disk")
    for start in range(0, 600, 200):
        write_csv(folder / f"log-{start}.csv", rows[start : start + 200])
    return folder / "log-*.csv"


@pytest.fixture
def run(job: Any, log: Path) -> list[str]:
    """Arguments of the run. Its cap admits one charge."""
    return job(input=log, num_shards=2, epsilon_cap=1, max_unusable_fraction=0.1)


@pytest.fixture
def failed(outputs: Path, left_behind: Any, spent: Any) -> Any:
    """Function (outcome, stage, text): checks the run that failed at a stage of STAGES."""

    def check(outcome: Any, stage: str, text: str) -> None:
        where = STAGES[stage][1].format(staging=rf"{outputs}/\.released\.[0-9a-f]{{12}}", ledger=outputs / LEDGER)
        assert outcome.code == 1
        assert re.fullmatch(rf"labeldp privatize: error: the job failed: {where}: {text}", outcome.error), outcome.error
        assert left_behind(outputs) == []
        assert {path.name for path in outputs.iterdir()} <= {LEDGER, "ballast"}
        assert spent(outputs) == 0

    return check


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_disk_fails_the_run_and_not_the_next(
    stage: str, disk: str, fork: Any, run: list[str], reference: Any, outputs: Path, failed: Any, tree: Any, spent: Any
) -> None:
    files, charged = reference(run)
    text, ballast = STAGES[stage][0], outputs / "ballast"
    prelude = LIMIT.format(text=text, size=0) if disk == TOO_LARGE else FILL.format(text=text, ballast=str(ballast))
    outcome, steps = fork(run, prelude)
    failed(outcome, stage, disk)
    assert any(text in step for step in steps)
    ballast.unlink(missing_ok=True)

    outcome, _ = fork(run)
    outcome.ok()
    assert sorted(path.name for path in outputs.iterdir()) == [LEDGER, "released"]
    assert tree(outputs / "released") == files
    assert spent(outputs) == charged


@pytest.mark.parametrize("stage", ["segments", "ledger"])
def test_files_that_may_not_grow(stage: str, fork: Any, run: list[str], failed: Any) -> None:
    """Here, the line of the ledger is written in part."""
    outcome, _ = fork(run, LIMIT.format(text=STAGES[stage][0], size=100))
    failed(outcome, stage, TOO_LARGE)
