"""The command `labeldp`: one subcommand per job, each loaded only when it is called."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Sequence

from .usage import BAD_USAGE, SUCCESS

COMMANDS = {
    "privatize": ("privatize", "fit and apply in one job: a private log of labels in, randomized labels out"),
    "fit": ("privatize", "spend part of epsilon on the label histogram and write the mechanism file"),
    "apply": ("privatize", "privatize labels with a mechanism file"),
    "solve": ("solve", "solve for a mechanism from a public prior, without data"),
    "compare": ("compare", "solve several mechanisms for one prior and compare what they cost"),
    "plan": ("plan", "what a budget will buy: the split of epsilon, the loss, a mechanism for a model"),
    "evaluate": ("evaluate", "train models on privatized labels and score them on true ones, for research"),
    "audit": ("audit", "recompute the certificate of a mechanism file or a release"),
    "report": ("report", "explain a release as one HTML page, after auditing it"),
    "demo": ("demo", "privatize a generated conversion log and say what was released"),
}


def _help() -> str:
    lines = ["usage: labeldp COMMAND [flags]", "", "Label differential privacy for regression labels.", "", "commands:"]
    lines += [f"  {name:<11}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join([*lines, "", "`labeldp COMMAND --help` lists the flags of a command."])


def _quiet_libraries() -> None:
    """Keeps what libraries say on import off the user's terminal; a runner's own log is switched on where it runs."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit code: 0 success, 1 the job or an audit failed, 2 bad usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help(), file=sys.stdout if arguments else sys.stderr)
        return SUCCESS if arguments else BAD_USAGE
    _quiet_libraries()
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"labeldp: error: unknown command {name!r}; known: {', '.join(COMMANDS)}", file=sys.stderr)
        return BAD_USAGE
    module = importlib.import_module(f"labeldp.pipelines.{COMMANDS[name][0]}")
    run = module.run if COMMANDS[name][0] != "privatize" else getattr(module, f"run_{name}")
    try:
        return run(rest)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
