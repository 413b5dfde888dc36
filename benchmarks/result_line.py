"""Output of a benchmark: progress on standard error, and the results as one JSON line on standard output."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

# Processes that wanted to run in the minute before the benchmark: they disturb what is measured.
_LOAD_BEFORE = os.getloadavg()[0]
_PACKAGES = ("apache-beam", "numpy", "pyarrow", "tensorflow", "tfx-bsl")


def progress(text: str) -> None:
    """Prints a line on standard error.

    Args:
      text: The line.
    """
    print(text, file=sys.stderr, flush=True)


def print_result(benchmark: str, figures: dict[str, Any]) -> None:
    """Prints the JSON line of a benchmark, with the machine and the versions that it ran on.

    Args:
      benchmark: Name of the benchmark.
      figures: Its results, in JSON types.

    Raises:
      ValueError: If a figure is not finite.
    """
    print(json.dumps({"benchmark": benchmark, **figures, "machine": machine()}, allow_nan=False), flush=True)


def machine() -> dict[str, Any]:
    """Describes the machine, the day and the versions of packages.

    Returns:
      JSON types. `load_before` is the load average before the benchmark.
    """
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": round(_LOAD_BEFORE, 2),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if _installed(name)},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
