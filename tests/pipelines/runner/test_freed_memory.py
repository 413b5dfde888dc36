"""Freed memory is kept in the process, where the C library is glibc."""

import platform
import subprocess
import sys

import pytest

BLOCKS = 50
# Writes blocks of 3 MB, twice, and prints the page faults of the second time.
PROGRAM = f"""
import resource, sys, numpy
from labeldp.pipelines.runner.freed_memory import keep_freed_memory

assert not int(sys.argv[1]) or keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({BLOCKS}):
        both = [numpy.ones(3_000_000, numpy.uint8) for _ in range(4)]
        del both
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


def faults(kept: int) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(kept)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_the_second_time_no_page_is_new() -> None:
    assert faults(kept=1) < BLOCKS
    # A block of 3 MB has 732 pages.
    assert faults(kept=0) > BLOCKS * 732


def test_other_systems_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from labeldp.pipelines.runner.freed_memory import keep_freed_memory

    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory.__wrapped__()
