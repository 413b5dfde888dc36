"""The command `labeldp`: one parser with a subcommand per job. Each loads its libraries only when it runs."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from labeldp import __version__

from ..errors import BAD_USAGE, UsageError, one_line
from ..flags.arguments import ArgumentParser, log_to_stderr
from ..flags.command_parser import CommandParser
from ..publish.signals import sigterm_as_interrupt
from .exit_codes import FAILURE, SUCCESS, run_command, with_standard_streams, without_temporary_folder


class Command(NamedTuple):
    """A subcommand.

    Attributes:
      flags: `module:function` below `labeldp` that adds its flags to a `CommandParser`; loads no library.
      work: `module:function` that runs it: (parsed flags) -> exit code; for commands with runner flags, (parsed flags,
        runner flags) -> exit code.
      summary: Line of help.
      runner_flags: Whether unknown flags are passed to Beam.
      copies: Whether it reads local copies of what it is given in object stores; `work` takes no runner flags then.
      reported: Whether its errors are reported here: `work` raises them, and need not give a code.
      slow: Whether its libraries take seconds to load, which it says.
    """

    flags: str
    work: str
    summary: str
    runner_flags: bool = False
    copies: bool = False
    reported: bool = False
    slow: bool = False


_JOB, _STUDY, _FLAGS = "pipelines.flags.job_flags", "study.study_flags", "pipelines.flags.release_flags"
GROUPS = {
    "Release labels": {
        "init": Command(f"{_FLAGS}:init_flags", "pipelines.cli.init_command:run",
            "write a commented job file for an input file, to complete"),
        "privatize": Command(f"{_JOB}:privatize_flags", "pipelines.cli.privatize_command:run",
            "release a dataset with randomized labels", True),
        "fit": Command(f"{_JOB}:fit_flags", "pipelines.cli.privatize_command:run",
            "release the label histogram and write the mechanism file", True),
        "apply": Command(f"{_JOB}:apply_flags", "pipelines.cli.privatize_command:run",
            "release a dataset with the mechanism file of fit", True),
        "finish": Command(f"{_FLAGS}:finish_flags", "pipelines.cli.finish_command:run",
            "publish the release of a job that was submitted only", True),
    },
    "Choose a mechanism and a budget": {
        "domain": Command(f"{_JOB}:domain_flags", "pipelines.cli.domain_command:run",
            "propose a label domain, from a histogram with noise", True),
        "solve": Command(f"{_STUDY}:solve_flags", "study.solve_command:run",
            "solve for a mechanism from a public or released prior", True, True, True),
        "compare": Command(f"{_STUDY}:compare_flags", "study.compare_command:run",
            "compare mechanisms for one prior: loss, variance, bias", True, True, True),
        "plan": Command(f"{_STUDY}:plan_flags", "study.plan_command:run",
            "show the expected error at a privacy budget, and its best split", True, reported=True),
        "evaluate": Command(f"{_STUDY}:evaluation_flags", "study.evaluate_command:run",
            "score models that were trained on privatized labels", True, True, True, True),
    },
    "Check and explain a release": {
        "audit": Command("pipelines.cli.audit_command:add_flags", "pipelines.cli.audit_command:run",
            "recompute the certificate of a mechanism file or a release", True, True, True),
        "attack": Command("attack.label_attack_flags:attack_flags", "attack.label_attacks:run",
            "guess labels by their features, with a release and without", True, True, True),
        "report": Command(f"{_FLAGS}:report_flags", "report.report_command:run",
            "audit a release and explain it in one HTML page", True, True, True),
        "ledger": Command(f"{_FLAGS}:ledger_flags", "pipelines.cli.ledger_command:run",
            "list what was released and what it costs together", True),
    },
    "Change a release": {
        "remove": Command(f"{_FLAGS}:remove_flags", "pipelines.cli.remove_command:run",
            "make a release without some records: erasure", True),
    },
    "Other": {
        "demo": Command(f"{_FLAGS}:demo_flags", "pipelines.cli.demo_command:run",
            "privatize a generated conversion log"),
        "completion": Command(f"{_FLAGS}:completion_flags", "pipelines.cli.completion_command:run",
            "print a script for the completion of commands and flags in a shell"),
    },
}  # fmt: skip
"""Commands by name, in the titled groups of the help."""
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}


class _MainParser(ArgumentParser):
    """Parser of `labeldp` itself, whose help has the commands in groups."""

    def format_help(self) -> str:
        lines = ["usage: labeldp COMMAND [flags]", "", "Label differential privacy for numbers and classes.", ""]
        for title, commands in GROUPS.items():
            lines += [f"{title}:", *(f"  {name:<12}{command.summary}" for name, command in commands.items()), ""]
        lines += [
            "Begin with `labeldp init FILE` for your file, or `labeldp demo --output DIR`.",
            "`labeldp COMMAND --help` lists the flags of a command, `labeldp --version`",
            "prints the version.",
        ]
        return "\n".join(lines) + "\n"


def make_parser() -> ArgumentParser:
    """Makes the parser of `labeldp`. The flags of a command are added when it is used.

    Its only values are those of the command, and the name of the command.
    """
    parser = _MainParser("labeldp")
    parser.add_argument("--version", action="version", version=f"labeldp {__version__}", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for name, command in COMMANDS.items():
        commands.add_parser(
            name,
            help=command.summary,
            make=partial(_call, command.flags),
            runner_flags=_runner_flags if command.runner_flags else None,
        )
    return parser


def command_parser(name: str) -> CommandParser:
    """Makes the parser of one command, with all its flags except those of the runner."""
    command = COMMANDS[name]
    runner_flags = _runner_flags if command.runner_flags else None
    parser = CommandParser(partial(_call, command.flags), runner_flags, prog=f"labeldp {name}")
    return parser.load()


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses the arguments after the program's name. Exits with code 2 if they are wrong.

    Returns the flags of the command, with its name as `command`, and the runner's flags as they are.
    """
    args, others = make_parser().parse_known_args(argv)
    if others:
        _check_others(command_parser(args.command), others)
    return args, others


def _check_others(parser: CommandParser, others: Sequence[str]) -> None:
    """Exits with code 2 if an argument is neither one of the command nor, where it has one, of the runner."""
    # Beam has flags of the names of some that another command takes.
    advised = [flag for flag in others if flag.startswith("-") and flag.partition("=")[0].lstrip("-") in parser.hints]
    if advised:
        parser.error(parser.advice(advised[0]))
    unknown, runner_flags = list(others), []
    if parser.runner_flags is not None:
        # Loads Beam.
        try:
            unknown = _call("pipelines.job.runner_options:unknown_flags", others)
        except UsageError as error:
            parser.error(str(error))
        runner_flags = [*parser.runner_flags()] if unknown else []
    if unknown:
        parser.error(parser.advice(unknown[0], runner_flags))


def _runner_flags() -> list[str]:
    """Names of the flags of Beam's runners, which is loaded for it."""
    return _call("pipelines.job.runner_options:runner_flags")


def _call(target: str, *arguments: Any) -> Any:
    module, function = target.split(":")
    call: Callable[..., Any] = getattr(importlib.import_module(f"labeldp.{module}"), function)
    return call(*arguments)


def _reported(name: str, work: Callable[[], int | None]) -> int:
    from ...transforms.errors import InputError, describe_failure

    log_to_stderr()
    shown = (InputError, OSError, MemoryError)
    return run_command(f"labeldp {name}", work, shown, "nothing is written", describe_failure)


def _quiet_libraries() -> None:
    """Silences import-time messages of libraries. A runner's own log is enabled where the runner starts."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")


def _collect_rarely() -> None:
    """Lets Python look for garbage less often: importing the libraries makes it look in vain for 0.2 seconds."""
    gc.set_threshold(50_000, 20, 100)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the arguments are those after the program's name, by default those of the process.

    Returns the exit code: 0 success, 1 the job or an audit failed, 2 bad usage, 74 success whose results standard
    output did not take. That a reader of the output ends early changes nothing.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    prog = f"labeldp {arguments[0]}" if arguments and arguments[0] in COMMANDS else "labeldp"
    return with_standard_streams(prog, lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        print(_MainParser("labeldp").format_help(), file=sys.stderr, end="")
        return BAD_USAGE
    if arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"):
        flag = one_line(arguments[0].partition("=")[0])
        print(f"labeldp: error: flags come after the command: labeldp COMMAND {flag} ...", file=sys.stderr)
        return BAD_USAGE
    try:
        with sigterm_as_interrupt():
            _quiet_libraries()
            _collect_rarely()
            args, runner_flags = parse(arguments)
            command = COMMANDS[args.command]
            parser = command_parser(args.command)
            try:
                parser.check_written(args)
            except UsageError as error:
                parser.error(str(error))
            if command.slow:
                print("labeldp: loading libraries", file=sys.stderr, flush=True)
            work = partial(_call, command.work)
            if command.copies:
                work = partial(_call, "pipelines.cli.store_copies:run_with_copies", work)
            work = partial(work, args, *([runner_flags] if command.runner_flags else []))
            return _reported(args.command, work) if command.reported else work()
    except KeyboardInterrupt:
        # During imports and while flags are parsed. A command that has begun its work reports this itself.
        print(f"labeldp {arguments[0]}: interrupted; nothing was done", file=sys.stderr)
        return FAILURE
    except FileNotFoundError as error:
        # While libraries are imported.
        missing = without_temporary_folder(error)
        if missing is None:
            raise
        print(f"labeldp {arguments[0]}: error: {missing}", file=sys.stderr)
        return FAILURE
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else SUCCESS if exit.code is None else BAD_USAGE
