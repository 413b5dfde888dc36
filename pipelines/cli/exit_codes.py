"""Exit codes of commands, and the one place where exceptions become one-line errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .arguments import BAD_USAGE, UsageError
from .one_line import one_line
from .signals import was_signalled

SUCCESS = 0
FAILURE = 1


def run_command(
    prog: str,
    work: Callable[[], object],
    shown: tuple[type[Exception], ...] = (ValueError, OSError, MemoryError),
    interrupted: str = "nothing is written",
    redact: Callable[[Exception], str] | None = None,
) -> int:
    """Does the work of a command and reports every error in one line on standard error.

    Args:
      prog: The command as the user typed it, for example `labeldp fit`.
      work: The command; it raises on any error.
      shown: Exceptions whose text may be shown, because it holds no label. They end the command with code 1.
      interrupted: State after an interrupt, for the message.
      redact: Makes the text to show of any other exception. Without it, such an exception is a bug and is raised.

    Returns:
      0 on success, 1 if the work failed or was interrupted, 2 if the command line is wrong.
    """
    try:
        work()
    except UsageError as error:
        return _fail(prog, f"error: {error}", BAD_USAGE)
    except KeyboardInterrupt:
        return _interrupted(prog, interrupted)
    except shown as error:
        return _fail(prog, f"error: {error}", FAILURE)
    except Exception as error:
        if was_signalled():
            # A runner wraps the KeyboardInterrupt of a signal in errors of its own.
            return _interrupted(prog, interrupted)
        if redact is None:
            raise
        return _fail(prog, f"error: the job failed: {redact(error)}", FAILURE)
    return SUCCESS


def _fail(prog: str, text: str, code: int) -> int:
    print(f"{prog}: {one_line(text)}", file=sys.stderr, flush=True)
    return code


def _interrupted(prog: str, state: str) -> int:
    _fail(prog, f"interrupted; {state}", FAILURE)
    if was_signalled():
        # Threads that a runner leaves running must not keep the process alive.
        os._exit(FAILURE)
    return FAILURE
