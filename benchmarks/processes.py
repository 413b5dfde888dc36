"""Cost of a Python program in a process of its own: wall time, CPU time and peak memory."""

from __future__ import annotations

import contextlib
import glob
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

_SAMPLE_SECONDS = 0.1
# The search for new worker processes reads all of /proc: it is rare, so as not to disturb the measurement.
_SAMPLES_PER_SEARCH = 5
_LINES_SHOWN = 20


@dataclass(frozen=True)
class Cost:
    """Cost of a program with all its worker processes.

    Attributes:
      wall_seconds: Time from start to exit, with imports.
      cpu_seconds: User and system time.
      peak_bytes: Largest resident memory of all processes together; shared memory counts for each process.
      output: Standard output of the program.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def run_python(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Runs Python and measures its cost.

    The caller should use little memory: on Linux a process inherits the peak memory of the process that started it.

    Args:
      arguments: Python's arguments.
      environment: Environment variables to add.

    Returns:
      The cost.

    Raises:
      RuntimeError: If the program does not exit with 0.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=out, stderr=err, env={**os.environ, **(environment or {})}
        )
        with _Sampler(process.pid) as sampler:
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.terminate()
                process.wait()
                raise
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = _text(out), _text(err)
    if process.returncode:
        last = "\n".join(errors.splitlines()[-_LINES_SHOWN:])
        raise RuntimeError(f"python {' '.join(arguments)} exited with {process.returncode}:\n{last}")
    return Cost(
        wall,
        # The usage lacks workers that the program did not wait for.
        max(usage.ru_utime + usage.ru_stime, sampler.cpu_seconds),
        max(_maximum_bytes(usage), sampler.peak_bytes),
        output,
    )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _maximum_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@dataclass
class _Sampler:
    """Samples a process and its descendants from /proc; on systems without /proc it finds none."""

    process: int
    peak_bytes: int = 0
    _cpu: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> _Sampler:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all processes, as last sampled."""
        return sum(self._cpu.values())

    def _watch(self) -> None:
        samples = 0
        tree = [self.process]
        while not self._ended.wait(_SAMPLE_SECONDS):
            samples += 1
            if samples % _SAMPLES_PER_SEARCH == 0:
                tree = _tree(self.process)
            resident = 0
            for process in tree:
                with contextlib.suppress(OSError, IndexError):
                    fields = _stat(process)
                    self._cpu[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    resident += int(fields[21]) * resource.getpagesize()
            self.peak_bytes = max(self.peak_bytes, resident)


def _stat(process: int | str) -> list[str]:
    """Fields of /proc/N/stat, from the state on."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        # The name of the program, in parentheses, may contain spaces and parentheses.
        return file.read().rpartition(")")[2].split()


def _tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in glob.glob("/proc/[0-9]*"):
        process = os.path.basename(path)
        with contextlib.suppress(OSError, IndexError):
            children.setdefault(int(_stat(process)[1]), []).append(int(process))
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process, [])
    return found
