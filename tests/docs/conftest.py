"""Shared fixtures of the documentation tests: `labeldp` in this process, which has imported Beam."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.docs.pages import Runner


@pytest.fixture
def run_labeldp() -> Callable[[Sequence[str]], int]:
    """Function (arguments) -> exit code of `labeldp`."""
    from labeldp.pipelines.cli.commands import main

    return main


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """Runner of the blocks of pages, in the working folder of the test, which is empty."""
    return Runner(tmp_path, monkeypatch, capsys)
