"""Exit codes of commands, the one place where exceptions become one-line errors, and the ends of standard output."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from ..errors import BAD_USAGE, FieldError, Naming, UsageError, as_flag, named, one_line
from ..publish.signals import was_signalled

SUCCESS = 0
FAILURE = 1
OUTPUT_LOST = 74
"""Success of the work, whose results could not be written to standard output: a full disk. EX_IOERR of sysexits.h."""


def run_command(
    prog: str,
    work: Callable[[], int | None],
    shown: tuple[type[Exception], ...] = (ValueError, OSError, MemoryError),
    interrupted: str = "nothing is written",
    redact: Callable[[Exception], str] | None = None,
    naming: Naming = as_flag,
) -> int:
    """Does the work of a command and reports every error in one line on standard error.

    The text of exceptions in `shown` holds no label. `interrupted` describes the state after an interrupt. `redact`
    makes the text to show of any other exception; without it, such an exception is a bug and is raised. `naming` names
    fields in errors. Returns the exit code of the work, 0 if it gives none, 1 if it failed or was interrupted, 2 if the
    command line is wrong.
    """
    try:
        return work() or SUCCESS
    except UsageError as error:
        text = error.text(naming) if isinstance(error, FieldError) else error
        return _fail(prog, f"error: {named(str(text), naming)}", BAD_USAGE)
    except KeyboardInterrupt:
        return _interrupted(prog, interrupted)
    except shown as error:
        return _fail(prog, f"error: {without_temporary_folder(error) or named(str(error), naming)}", FAILURE)
    except Exception as error:
        missing = without_temporary_folder(error)
        if missing is not None:
            return _fail(prog, f"error: {missing}", FAILURE)
        if was_signalled():
            # A runner wraps the KeyboardInterrupt of a signal in errors of its own.
            return _interrupted(prog, interrupted)
        if redact is None:
            raise
        return _fail(prog, f"error: the job failed: {redact(error)}", FAILURE)


def names_of_flags(args: argparse.Namespace) -> Naming:
    """Names fields as the user gave them: as flags, or with their line of the file of `--config`."""
    lines: Mapping[str, str] = getattr(args, "config_lines", {})
    return lambda field: f"{field} ({lines[field]})" if field in lines else as_flag(field)


def without_temporary_folder(error: BaseException) -> str | None:
    """Says what to do if an error occurred because there is no folder for temporary files; None if there is one.

    The error is that of the command, or of importing its libraries, which look for the folder.
    """
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return "no folder for temporary files can be written to: name one in the environment variable TMPDIR"
    return None


def _fail(prog: str, text: str, code: int) -> int:
    print(f"{prog}: {one_line(text)}", file=sys.stderr, flush=True)
    return code


def _interrupted(prog: str, state: str) -> int:
    _fail(prog, f"interrupted; {state}", FAILURE)
    if was_signalled():
        # Threads that a runner leaves running must not keep the process alive.
        os._exit(FAILURE)
    return FAILURE


class _Stream:
    """Standard stream whose reader may end early: after its first error, what is written to it is dropped."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, work: Callable[[], object]) -> None:
        if self.error is not None:
            return
        try:
            work()
        except OSError as error:
            self.error = error
            # Python would write what is left in its buffer at the end of the process, and fail again.
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def with_standard_streams(prog: str, work: Callable[[], int]) -> int:
    """Runs a command whose readers may end before it does, as in `labeldp audit FOLDER | head -1`.

    Returns the exit code of the work, also if its readers have ended; 74 in place of 0 if a result could not be
    written.
    """
    streams = sys.stdout, sys.stderr
    # A stream that was closed before the start is None, and `print` writes nothing to it.
    output, errors = (None if stream is None else _Stream(stream) for stream in streams)
    sys.stdout, sys.stderr = output, errors
    try:
        code = work()
        if output is not None:
            output.flush()
            if output.error is not None and not isinstance(output.error, BrokenPipeError):
                reason = output.error.strerror or type(output.error).__name__
                _fail(prog, f"error: standard output cannot be written ({reason}); the command itself has ended", code)
                code = code or OUTPUT_LOST
        if errors is not None:
            errors.flush()
    finally:
        sys.stdout, sys.stderr = streams
    return code
