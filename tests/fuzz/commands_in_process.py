"""Commands run in this process, with captured output, and the check that every outcome of theirs has to pass."""

import contextlib
import io
import os
import re
import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2

CANARY = "31337.25"
"""Label of the input files that no message may show."""

_TESTS = Path(__file__).parents[1]
_loggers_restored = runpy.run_path(str(_TESTS / "restored_loggers.py"))["loggers_restored"]
_UNFORESEEN = re.compile(r"the job failed: |Error at \S+\.py:\d+")


@dataclass(frozen=True)
class Outcome:
    """Result of a command."""

    code: int
    out: str
    err: str


def run(argv: Sequence[str], folder: Path) -> Outcome:
    """Runs a command.

    Args:
      argv: Its arguments.
      folder: Folder for the user's configuration.

    Returns:
      Its outcome.
    """
    from labeldp.pipelines.cli.commands import main

    # Encoded as on a terminal, so that text that cannot be printed fails here as well.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", newline="\n", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="\n", write_through=True)
    with (
        mock.patch.dict(os.environ, XDG_CONFIG_HOME=str(folder)),
        mock.patch.object(jinja2.Environment, "compile", _compile),
        _loggers_restored(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(list(argv))
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


_compiled: dict[str, Any] = {}
_compile_template = jinja2.Environment.compile


def _compile(environment: jinja2.Environment, source: str, *args: Any, **options: Any) -> Any:
    """Compiles the template of the report once, which takes ten times as long as to render it."""
    if source not in _compiled:
        _compiled[source] = _compile_template(environment, source, *args, **options)
    return _compiled[source]


def checked(argv: Sequence[str], folder: Path) -> Outcome:
    """Runs a command and checks its outcome: success, or one line of error that shows no label.

    Args:
      argv: Its arguments.
      folder: As for `run`.

    Returns:
      Its outcome.

    Raises:
      AssertionError: At any other outcome.
    """
    outcome = run(argv, folder)
    assert outcome.code in (0, 1, 2), outcome
    # Neither the canary nor another text of the same number.
    assert "31337" not in outcome.err, outcome.err
    lines = outcome.err.removesuffix("\n").split("\n") if outcome.err else []
    assert all(line.isprintable() for line in lines), outcome.err
    errors = [line for line in lines if not line.startswith("labeldp: ") or line.startswith("labeldp: error: ")]
    if outcome.code == 0:
        assert not errors, outcome.err
    elif argv and argv[0] == "audit" and outcome.code == 1:
        assert not errors, outcome.err
        assert outcome.out.removesuffix("\n").rpartition("\n")[2].startswith("FAIL: "), outcome.out
    elif argv:
        assert len(errors) == 1, outcome.err
        assert re.match(r"labeldp( \w+)?: error: ", errors[0]), outcome.err
        assert not _UNFORESEEN.search(errors[0]), outcome.err
    return outcome
