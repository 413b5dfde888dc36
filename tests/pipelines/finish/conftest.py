"""Fixtures of the tests of `labeldp finish`: jobs that are submitted, and run later by a worker of the tests."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
RUNNER = "--runner=detached_runner.DetachedRunner"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File in which the runner of submitted jobs keeps their graph."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("LABELDP_TESTS_GRAPH", str(tmp_path / "graph"))
    return tmp_path / "graph"


@pytest.fixture
def submit(graph: Path, job: Any, invoke: Any) -> Callable[..., Any]:
    """Function as `job` -> outcome of the command that submits it only."""
    return lambda command="privatize", **flags: invoke([*job(command, **flags), RUNNER, "--no_wait_until_finish"])


@pytest.fixture
def run_job(graph: Path) -> Callable[[], None]:
    """Function that runs the job that was submitted last to its end."""

    def run() -> None:
        sys.modules["detached_runner"].run_graph(str(graph))

    return run


@pytest.fixture
def finish(invoke: Any, outputs: Path) -> Callable[..., Any]:
    """Function (flags) -> outcome of `labeldp finish` for the output released, which looks once."""
    return lambda *flags, path=None: invoke(["finish", str(path or outputs / "released"), "--timeout=0", *flags])


@pytest.fixture
def staged(outputs: Path) -> Callable[[], list[Path]]:
    """Function -> the staging folders beside the output."""
    return lambda: sorted(path for path in outputs.iterdir() if path.name.startswith("."))


@pytest.fixture
def unchanged(after_job: Any, outputs: Path, tree: Any, spent: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function as `job` -> files and epsilon of the same run that waited for its job."""

    def run(command: str = "privatize", **flags: Any) -> Any:
        after_job(command, **flags)
        found = tree(outputs / "released"), spent(outputs)
        for path in outputs.iterdir():
            path.rename(tmp_path / f"waited-{path.name}")
        return found

    return run
