"""Start-up time of `labeldp --help` and `labeldp solve`, and the libraries that they load.

The baselines are the interpreter without imports, and one that imports numpy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from log_schema import EPSILON
from processes import Cost
from result_line import print_result, progress
from workspace import Workspace, open_workspace

TARGET_SECONDS = {"help": 0.5, "solve": 1.5}
_FORBIDDEN = ("tensorflow", "tfx_bsl", "apache_beam", "google.cloud")
_PROBE = """
import json, sys
before = set(sys.modules)
from labeldp.pipelines.cli.commands import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(set(sys.modules) - before)}))
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Times the commands and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="runs of each command (default: 10)")
    args = parser.parse_args(argv)
    with open_workspace() as space:
        solved = space.folder / "solved.json"
        solve = ["solve", f"--prior={space.prior()}", f"--epsilon={EPSILON}", f"--output={solved}"]
        commands = {"help": ["--help"], "solve": solve}
        programs = {
            **{name: [*_labeldp(), *arguments] for name, arguments in commands.items()},
            "python": ["-c", "pass"],
            "numpy": ["-c", "import numpy"],
        }
        costs: dict[str, list[Cost]] = {name: [] for name in programs}
        for number in range(args.rounds):
            for name, program in programs.items():
                # The command does not overwrite files.
                solved.unlink(missing_ok=True)
                costs[name].append(space.run(program))
            times = ", ".join(f"{name} {runs[-1].wall_seconds:.2f} s" for name, runs in costs.items())
            progress(f"round {number + 1} of {args.rounds}: {times}")
        figures = {name: _times(runs) for name, runs in costs.items()}
        for name, arguments in commands.items():
            solved.unlink(missing_ok=True)
            figures[name] |= {"target_seconds": TARGET_SECONDS[name], **_loaded(space, arguments)}
    print_result("startup", figures)


def _labeldp() -> list[str]:
    """The installed script, if there is one."""
    script = Path(sys.executable).with_name("labeldp")
    return [str(script)] if script.is_file() else ["-m", "labeldp"]


def _times(runs: Sequence[Cost]) -> dict[str, Any]:
    return {
        "median_seconds": statistics.median(run.wall_seconds for run in runs),
        "least_seconds": min(run.wall_seconds for run in runs),
        "cpu_seconds": statistics.median(run.cpu_seconds for run in runs),
    }


def _loaded(space: Workspace, arguments: Sequence[str]) -> dict[str, Any]:
    """Modules that a command loads beyond those of a bare interpreter, in which some packages load empty modules.

    libraries: all packages outside the standard library. forbidden: those that the command must not load.
    """
    reported = json.loads(space.run(["-c", _PROBE, *arguments]).output.splitlines()[-1])
    if reported["code"] != 0:
        raise RuntimeError(f"labeldp {' '.join(arguments)} exited with {reported['code']}")
    modules = set(reported["modules"])
    libraries = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    return {
        "modules": len(modules),
        "libraries": sorted(name for name in libraries if not name.startswith("_")),
        "forbidden": [name for name in _FORBIDDEN if name in modules],
    }


if __name__ == "__main__":
    main()
