"""Argument parsing and logging that all commands share."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import BAD_USAGE, FieldError, as_flag, did_you_mean, named, one_line

_FLAG = re.compile(r"-(?![0-9.])")
# Commas between names, but not between parameters of a mechanism, NAME:PARAMETER=VALUE,...; those before NAME=VALUE.
_NAMES, _PAIRS = re.compile(",(?![^,:]*=)"), re.compile(r",(?=\w+=)")
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


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
    """Formats a log line with names of flags, and without line breaks, which names of files and features may have."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(named(super().format(record), as_flag))


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


def with_lists(arguments: Sequence[str], actions: Mapping[str, argparse.Action]) -> list[str]:
    """Rewrites lists, which may have commas, spaces or both, as their flags take them.

    `actions` are those of the flags by their names. A list ends before the next flag, and where a flag takes NAME=VALUE
    before what has no equals sign.
    """
    found, rest = [], list(arguments)
    while rest:
        first = rest.pop(0)
        flag, equals, text = first.partition("=")
        action = actions.get(flag[2:]) if flag.startswith("--") else None
        metavar = "" if action is None else str(action.metavar)
        commas = metavar.endswith(",...")
        if action is None or not (commas or action.nargs == "+"):
            found.append(first)
            continue
        values = [text] if equals else []
        while rest and not equals and not _FLAG.match(rest[0]) and (not values or "=" in rest[0] or "=" not in metavar):
            values.append(rest.pop(0))
        if not commas:
            ends = _PAIRS if metavar == "NAME=VALUE" else _NAMES
            values = [part for value in values for part in ends.split(value) if part or not value]
            found += [flag, *values] if len(values) != 1 or not equals else [f"{flag}={values[0]}"]
        elif len(values) > 1:
            found.append(f"{flag}={','.join(value.strip(',') for value in values)}")
        else:
            found += [first, *([] if equals else values)]
    return found


def check_unique(field: str, values: Sequence[Any]) -> None:
    """Checks that no value of a field occurs twice. Raises FieldError if one does."""
    repeated = [value for place, value in enumerate(values) if value in values[:place]]
    if repeated:
        raise FieldError(f"{{{field}}} names {{value}} twice: name each value once", value=repeated[0])


def local_copy(args: argparse.Namespace, path: str) -> str:
    """Local copy of a path that a command reads, of `args.copies` if there is one; the path itself if it is local."""
    return getattr(args, "copies", {}).get(path, path)
