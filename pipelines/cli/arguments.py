"""What every command shares: errors of usage, exit codes, log lines on standard error."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import NoReturn

BAD_USAGE = 2


class UsageError(Exception):
    """The command line is at fault. The message names the flag and says what to do."""


def parse_parameters(
    text: str | None, delta: float | None = None, flag: str = "--mechanism_parameters"
) -> dict[str, bool | int | float | str]:
    """NAME=VALUE,... as a dictionary, with the budget's delta where there is one; values are numbers, true, false or
    text. Raises UsageError, naming the flag, for anything else, and for a delta that is no budget.
    """
    parameters: dict[str, bool | int | float | str] = {}
    for pair in text.split(",") if text else []:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in parameters:
            raise UsageError(f"{flag} takes NAME=VALUE,..., each name once, not {pair!r}")
        parameters[name] = _value(value)
    if "delta" in parameters:
        raise UsageError(f"{flag} delta: a delta is a part of the budget, give it as --delta")
    if "loss" in parameters:
        raise UsageError(f"{flag} loss: give it as --loss")
    if delta is not None:
        if not 0 < delta < 1:
            raise UsageError(f"--delta must be above 0 and below 1, not {delta:g}: for pure label DP leave it out")
        parameters["delta"] = delta
    return parameters


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class ArgumentParser(argparse.ArgumentParser):
    """argparse with one-line errors and no abbreviated flags."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Exits with 2 and one line on standard error."""
        self.exit(BAD_USAGE, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")


def log_to_stderr() -> None:
    """Sends the project's progress to standard error, and of other libraries only what warns.

    Beam's workers log the tracebacks of failures; the command reports failures itself, in one line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("labeldp: %(message)s"))
    logger = logging.getLogger("labeldp")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
