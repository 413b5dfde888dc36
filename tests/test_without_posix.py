"""What Windows lacks is hidden: modules, flags and functions of POSIX. Imports, releases, audit and the kit work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import write_key

SCRIPT = """
import os, sys

for module in ("fcntl", "grp", "pwd", "termios", "resource"):
    sys.modules[module] = None
for name in (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fork", "getegid", "geteuid", "getgid", "getgroups", "getuid",
    "mknod", "sched_getaffinity",
):
    if hasattr(os, name):
        delattr(os, name)

import filelock

locked = []


class Recorded(filelock.FileLock):
    def acquire(self, *args, **more):
        locked.append(self.lock_file)
        return super().acquire(*args, **more)


filelock.FileLock = Recorded
import labeldp, labeldp.audit, labeldp.training
from labeldp.pipelines.cli.commands import main

made = labeldp.LabelPrivatizer(
    label_values=range(5), epsilon=1, for_="labels", noise_key_file="memory.key", ledger="ledger.jsonl"
)
assert len(made.fit_transform([row % 5 for row in range(200)])) == 200
flags = [
    "--input=log.csv", "--input_format=csv", "--label=y", "--label_min=0", "--label_max=4", "--label_step=1",
    "--epsilon=1", "--center=none", "--output=out", "--output_format=parquet", "--ledger=ledger.jsonl",
    "--noise_key_file=job.key",
]
assert main(["privatize", *flags]) == 0
assert main(["audit", "out", "--data"]) == 0
assert labeldp.training.Release.open("out").records == 200
assert len(locked) >= 2 and all(name.endswith("ledger.jsonl.lock") for name in locked), locked
"""


@pytest.mark.job
def test_a_release_is_made_audited_and_opened_without_posix(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("f,y\n" + "".join(f"{row},{row % 5}\n" for row in range(200)))
    write_key(tmp_path / "job.key", bytes(range(32)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    runs = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert len(runs) == 2
