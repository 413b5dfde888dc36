"""Shared fixture of the documentation tests: `labeldp` in this process, which has imported Beam."""

import logging
from collections.abc import Callable, Iterator, Sequence

import pytest


@pytest.fixture
def run_labeldp() -> Iterator[Callable[[Sequence[str]], int]]:
    """Function (arguments) -> exit code of `labeldp`. The logger that it configures is restored at the end."""
    from labeldp.pipelines.cli.commands import main

    logger = logging.getLogger("labeldp")
    before = logger.handlers[:], logger.level, logger.propagate
    yield main
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
