"""The command `labeldp`: one subcommand per job, each loaded only when it is called."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from labeldp import __version__

from .arguments import BAD_USAGE
from .exit_codes import FAILURE, SUCCESS
from .signals import sigterm_as_interrupt


class Command(NamedTuple):
    """A subcommand.

    Attributes:
      module: Module below `labeldp.pipelines` that implements it.
      function: Function of the module that runs it: (arguments) -> exit code.
      summary: Line of help.
    """

    module: str
    function: str
    summary: str


COMMANDS = {
    "privatize": Command("job.privatize_command", "run_privatize", "release a dataset with randomized labels"),
    "fit": Command("job.privatize_command", "run_fit", "release the label histogram and write the mechanism file"),
    "apply": Command("job.privatize_command", "run_apply", "release a dataset with the mechanism file of fit"),
    "solve": Command("study.solve_command", "run", "solve for a mechanism from a public or released prior"),
    "compare": Command("study.compare_command", "run", "compare mechanisms for one prior: loss, variance, bias"),
    "plan": Command("study.plan_command", "run", "show the expected error at a privacy budget, and its best split"),
    "evaluate": Command("evaluation.evaluate_command", "run", "score models that were trained on privatized labels"),
    "audit": Command("stores.audit_on_store", "run", "recompute the certificate of a mechanism file or a release"),
    "attack": Command("attack.attack_command", "run", "attack a mechanism or a sampler as a black box"),
    "report": Command("reporting.report_command", "run", "audit a release and explain it in one HTML page"),
    "demo": Command("demo.demo_command", "run", "privatize a generated conversion log"),
}


def _help() -> str:
    lines = ["usage: labeldp COMMAND [flags]", "", "Label differential privacy for regression labels.", "", "commands:"]
    lines += [f"  {name:<11}{command.summary}" for name, command in COMMANDS.items()]
    lines += ["", "`labeldp COMMAND --help` lists the flags of a command; `labeldp --version` prints the version."]
    return "\n".join(lines)


def _quiet_libraries() -> None:
    """Silences import-time messages of libraries. A runner's own log is enabled where the runner starts."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
      argv: The arguments without the program's name; default those of the process.

    Returns:
      The exit code: 0 success, 1 the job or an audit failed, 2 bad usage.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help(), file=sys.stdout if arguments else sys.stderr)
        return SUCCESS if arguments else BAD_USAGE
    name, *rest = arguments
    if name == "--version":
        print(f"labeldp {__version__}")
        return SUCCESS
    if name not in COMMANDS:
        print(f"labeldp: error: unknown command {name!r}; known: {', '.join(COMMANDS)}", file=sys.stderr)
        return BAD_USAGE
    _quiet_libraries()
    command = COMMANDS[name]
    try:
        with sigterm_as_interrupt():
            run = getattr(importlib.import_module(f"labeldp.pipelines.{command.module}"), command.function)
            return run(rest)
    except KeyboardInterrupt:
        # During imports and while flags are parsed. A command that has begun its work reports this itself.
        print(f"labeldp {name}: interrupted; nothing was done", file=sys.stderr)
        return FAILURE
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else BAD_USAGE
