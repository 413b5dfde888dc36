"""Argument parsing and logging that all commands share."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import BAD_USAGE, UsageError, one_line
from .suggestions import did_you_mean

_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def parse_parameters(
    text: str | None, delta: float | None = None, flag: str = "--mechanism_parameters"
) -> dict[str, bool | int | float | str]:
    """Parses NAME=VALUE,..., the parameters of a mechanism; values are integers, floats, true, false or text.

    `delta`, the value of `--delta`, is added as the parameter `delta`; None for pure DP. Raises UsageError, which names
    the flag, if the text is malformed or delta is not in (0, 1).
    """
    parameters: dict[str, bool | int | float | str] = {}
    for pair in text.split(",") if text else []:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in parameters:
            raise UsageError(f"{flag} takes NAME=VALUE,..., each name once, not {pair!r}")
        parameters[name] = _value(value)
    if "delta" in parameters:
        raise UsageError(f"{flag} delta: delta is part of the budget; give it as --delta")
    if "loss" in parameters:
        raise UsageError(f"{flag} loss: give it as --loss")
    if delta is not None:
        if not 0 < delta < 1:
            raise UsageError(f"--delta must be above 0 and below 1, not {delta:g}; for pure label DP leave it out")
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
    """argparse with one-line errors, suggestions for misspelled values, and without abbreviated flags."""

    def __init__(self, prog: str | None = None, description: str | None = None, **settings: Any):
        """Makes a parser; `prog` is the command as the user types it, for example `labeldp fit`."""
        settings["allow_abbrev"] = False
        super().__init__(prog=prog, description=description, **settings)

    def error(self, message: str) -> NoReturn:
        """Exits with code 2 after one line on standard error."""
        text = one_line(message.removeprefix("argument "))
        self.exit(BAD_USAGE, f"{self.prog}: error: {text} (see `{self.prog} --help`)\n")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Converts a value; numbers are asked for in words."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in _NUMBERS:
                raise
            raise argparse.ArgumentError(action, f"takes {_NUMBERS[action.type]}, not {arg_string!r}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuses a value that is none of the choices, and suggests the closest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            kind = "command" if isinstance(action, argparse._SubParsersAction) else "value"
            message = f"unknown {kind} {value!r}; known: {', '.join(known)}{did_you_mean(str(value), known)}"
            raise argparse.ArgumentError(None if kind == "command" else action, message)


class _OneLine(logging.Formatter):
    """Formats a log line without line breaks, which names of files and features in it may have."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def log_to_stderr() -> None:
    """Sends the project's log lines of level INFO and above to standard error, each after `labeldp: `.

    They do not reach the root logger. The commands report failures themselves, in one line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("labeldp: %(message)s"))
    logger = logging.getLogger("labeldp")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def available_cpus() -> int:
    """Counts the CPUs that this process may use; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_unique(flag: str, values: Sequence[Any]) -> None:
    """Checks that no value of a flag, named with its dashes, occurs twice. Raises UsageError if one does."""
    repeated = [value for place, value in enumerate(values) if value in values[:place]]
    if repeated:
        raise UsageError(f"{flag} names {repeated[0]} twice: name each value once")
