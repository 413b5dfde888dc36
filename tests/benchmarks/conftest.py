"""Fixtures of the benchmark tests: their folder on the Python path, and jobs that run in this process."""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
LABEL_MAX = 24
"""Largest label that jobs in this process know, less than a tenth of that of a benchmark: solving takes longer."""


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the folder of the benchmarks, which are scripts that import each other by name, to the Python path."""
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def benchmark() -> Callable[[str], ModuleType]:
    """(name) -> the module."""
    return importlib.import_module


@pytest.fixture
def last_line(capsys: pytest.CaptureFixture[str]) -> Callable[[], dict[str, Any]]:
    """() -> the last line printed, parsed as strict JSON without NaN and infinity."""

    def read() -> dict[str, Any]:
        line = capsys.readouterr().out.splitlines()[-1]
        return json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))

    return read


@pytest.fixture
def jobs_in_process(on_the_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the programs that a benchmark would start in this process, which has the libraries loaded."""
    processes: Any = importlib.import_module("processes")
    monkeypatch.setattr(importlib.import_module("workspace"), "LABEL_MAX", LABEL_MAX)
    # A benchmark waits for the disk before a run; the figures of a test do not depend on that.
    monkeypatch.setattr(os, "sync", lambda: None)

    def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
        output = io.StringIO()
        started, cpu = time.perf_counter(), time.process_time()
        with mock.patch.dict(os.environ, environment or {}), contextlib.redirect_stdout(output):
            main, rest = _program(arguments)
            assert not main(rest)
        return processes.Cost(time.perf_counter() - started, time.process_time() - cpu, 1, output.getvalue())

    monkeypatch.setattr(processes, "run_python", run)


def _program(arguments: Sequence[str]) -> tuple[Callable[[Sequence[str]], Any], Sequence[str]]:
    """Returns the main function that Python would call with these arguments, and its arguments."""
    if arguments[0] == "-m":
        return importlib.import_module(f"{arguments[1]}.__main__").main, arguments[2:]
    path = Path(arguments[0])
    name = f"script_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name].main, arguments[1:]
