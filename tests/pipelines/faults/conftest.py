"""Harness of the fault tests: runs the command in forks of a process that has imported it, and disturbs it on the way.

A fork saves the seconds of the imports; it runs `main(argv)` as the command does. An audit hook sees what it does with
files, so that a fault can be placed between any two of these steps.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Beam keeps its results, as in the processes of pytest.
KEPT_BETWEEN_JOBS = Path(__file__).parents[2] / "kept_between_jobs.py"
# Runs with the variables argv, kept_between_jobs, environment, prelude, watched, stdout, stderr and trace.
CHILD = """
import contextlib, os, runpy, signal, sys

runpy.run_path(kept_between_jobs)["keep_results"]()
signal.alarm(120)  # A command that does not end is killed.
os.dup2(stdout.fileno(), 1)
os.dup2(stderr.fileno(), 2)
os.environ.update(environment)
names = {"watched": watched, "fault": lambda step: None}
exec(prelude, names)
recorded = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def hook(event, arguments):
    # Opening for reading changes nothing. A lock has no name of a file.
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        return
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "shutil.rmtree", "fcntl.flock"):
        paths = [path for path in arguments[:2] if isinstance(path, str) and path.startswith(watched)]
        if paths or event == "fcntl.flock":
            step = " ".join([event, *(os.path.relpath(path, watched) for path in paths)])
            # The fault may be a limit on the sizes of files.
            with contextlib.suppress(OSError):
                os.write(recorded, step.encode() + b"\\n")
            names["fault"](step)


sys.addaudithook(hook)
from labeldp.pipelines.cli.commands import main

code = main(argv)
sys.stdout.flush()
os._exit(code)
"""


@pytest.fixture
def fork(forks: Any, outputs: Path, tmp_path: Path, home: Path, outcome: Any) -> Callable[..., tuple[Any, list[str]]]:
    """Function (argv, prelude="") -> Outcome, and what the command did with files below `outputs`, step by step.

    The exit code of a killed command is negative. The prelude is Python code that runs first; it may define
    `fault(step)`, which is called before each step.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"XDG_CONFIG_HOME": str(home), "TMPDIR": str(temporary)}

    def run(argv: list[str], prelude: str = "") -> tuple[Any, list[str]]:
        trace = tmp_path / "trace"
        trace.write_text("")
        pipes = [forks.Pipe(duplex=False) for _ in range(2)]
        names = {"argv": argv, "prelude": prelude, "watched": str(outputs), "trace": str(trace)}
        names |= {"kept_between_jobs": str(KEPT_BETWEEN_JOBS)}
        names |= {"environment": environment, "stdout": pipes[0][1], "stderr": pipes[1][1]}
        process = forks.Process(target=exec, args=(CHILD, names))
        process.start()
        texts = []
        for reader, writer in pipes:
            writer.close()
            with os.fdopen(os.dup(reader.fileno()), encoding="utf-8") as file:
                texts.append(file.read())
            reader.close()
        process.join()
        # Beam and the command leave nothing in the folder for temporary files, however they end.
        assert list(temporary.iterdir()) == []
        return outcome(process.exitcode, *texts), trace.read_text().splitlines()

    return run


@pytest.fixture(scope="session")
def undisturbed() -> dict[tuple[str, ...], tuple[dict[str, bytes], float]]:
    """Results that `reference` keeps."""
    return {}


@pytest.fixture
def reference(fork: Any, outputs: Path, tree: Any, spent: Any, undisturbed: Any) -> Callable[..., Any]:
    """Function (argv, prelude) -> files of the release and epsilon spent by an undisturbed run; empties `outputs`.

    One run serves all tests whose arguments differ in the output alone.
    """

    def run(argv: list[str], prelude: str = "") -> tuple[dict[str, bytes], float]:
        request = tuple(flag for flag in argv if not flag.startswith("--output="))
        if request not in undisturbed:
            fork(argv, prelude)[0].ok()
            undisturbed[request] = tree(outputs / "released"), spent(outputs)
            for path in outputs.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return undisturbed[request]

    return run


@pytest.fixture(scope="session")
def left_behind() -> Callable[[Path], list[Path]]:
    """Function (folder) -> the staging folders in it."""
    return lambda folder: sorted(path for path in folder.iterdir() if re.fullmatch(r"\..*\.[0-9a-f]{12}", path.name))
