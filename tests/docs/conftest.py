"""Shared fixture of the documentation tests: `labeldp` in this process, which has imported Beam."""

from collections.abc import Callable, Sequence

import pytest


@pytest.fixture
def run_labeldp() -> Callable[[Sequence[str]], int]:
    """Function (arguments) -> exit code of `labeldp`."""
    from labeldp.pipelines.cli.commands import main

    return main
