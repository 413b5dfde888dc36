"""`labeldp completion`: prints a script with which a shell completes commands, flags, their values and files."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import UsageError
from ..flags.command_parser import CommandParser
from ..spec.machine import check_extra
from .commands import make_parser
from .exit_codes import run_command

_FILES, _FOLDERS = ("FILE", "GLOB", "FILE|FOLDER", "FOLDER|FILE", "FILE|URL", "KEY", "PUB"), ("DIR",)


def run(args: argparse.Namespace) -> int:
    """Prints the script; returns the exit code."""
    return run_command("labeldp completion", lambda: print(_script(args.shell), end=""))


def _script(shell: str) -> str:
    check_extra("completion", "completion", "shtab")
    import shtab

    parser: Any = make_parser()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command, shtab)
    try:
        return shtab.complete(parser, shell=shell)
    except NotImplementedError:
        raise UsageError(f"the installed shtab knows no {shell}: update it") from None


def _complete_paths(parser: CommandParser, shtab: Any) -> None:
    """Marks the arguments that are paths."""
    for action in parser.load()._actions:
        complete: Any = action
        if action.metavar in _FILES:
            complete.complete = shtab.FILE
        elif action.metavar in _FOLDERS:
            complete.complete = shtab.DIRECTORY
