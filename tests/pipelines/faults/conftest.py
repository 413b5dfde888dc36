"""Harness of the fault tests: runs the command in forks of a process that has imported it, and disturbs it on the way.

A fork saves the seconds of the imports; it runs `main(argv)` as the command does. Its steps are what it does with files
below `outputs`, which an audit hook sees, and its requests to a store that change something.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store_emulators import emulator, google_server, s3_server

__all__ = ["emulator", "google_server", "s3_server"]

# Beam keeps its results, as in the processes of pytest.
KEPT_BETWEEN_JOBS = Path(__file__).parents[2] / "kept_between_jobs.py"
# Runs with the variables argv, kept_between_jobs, environment, prelude, store, watched, stdout, stderr and trace.
CHILD = """
import contextlib, os, runpy, signal, sys, threading

runpy.run_path(kept_between_jobs)["keep_results"]()
signal.alarm(600)  # A command that does not end is killed.
os.dup2(stdout.fileno(), 1)
os.dup2(stderr.fileno(), 2)
os.environ.update(environment)
names = {"watched": watched, "trace": trace, "fault": lambda step: None}
exec(prelude, names)
recorded = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
alone = threading.RLock()


def begin(step):
    # The whole run is disturbed: none of its threads goes on meanwhile.
    with alone:
        # The fault may be a limit on the sizes of files.
        with contextlib.suppress(OSError):
            os.write(recorded, step.encode() + b"\\n")
        names["fault"](step)


def hook(event, arguments):
    # Opening for reading changes nothing, but shards are made from segments.
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        if not (isinstance(arguments[0], str) and "/segments/0" in arguments[0]):
            return
        event = "read"
    if event in ("open", "read", "os.mkdir", "os.rename", "os.remove", "shutil.rmtree", "fcntl.flock"):
        paths = [path for path in arguments[:2] if isinstance(path, str) and path.startswith(watched)]
        if paths or event == "fcntl.flock":
            begin(" ".join([event, *(os.path.relpath(path, watched) for path in paths)]))


if store:
    import requests
    from botocore.httpsession import URLLib3Session
    from labeldp.transforms.errors import StoreError

    def hooked(send):
        def sent(self, request, *rest, **options):
            if request.method not in ("GET", "HEAD"):
                try:
                    begin(f"{request.method} {request.url}")
                except OSError:
                    raise StoreError("a fault") from None
            return send(self, request, *rest, **options)

        return sent

    for session in (URLLib3Session, requests.Session):
        session.send = hooked(session.send)
else:
    sys.addaudithook(hook)
from labeldp.pipelines.cli.commands import main

code = main(argv)
sys.stdout.flush()
os._exit(code)
"""


@pytest.fixture
def fork(forks: Any, outputs: Path, tmp_path: Path, home: Path, outcome: Any) -> Callable[..., tuple[Any, list[str]]]:
    """Function (argv, prelude="", meanwhile=None, variables={}) -> Outcome, and the steps of the command.

    The exit code of a killed command is negative. The prelude is Python code that runs first; it may define
    `fault(step)`, which is called before each step. `meanwhile` is called once the fault has made the file of the
    trace with the ending .stopped; then the one with .continued is made. `variables` are those of a store.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    trace = tmp_path / "trace"
    stopped, continued = (trace.with_suffix(ending) for ending in (".stopped", ".continued"))

    def run(
        argv: list[str],
        prelude: str = "",
        meanwhile: Callable[[], None] | None = None,
        variables: dict[str, str] | None = None,
    ) -> tuple[Any, list[str]]:
        trace.write_text("")
        for path in (stopped, continued):
            path.unlink(missing_ok=True)
        pipes = [forks.Pipe(duplex=False) for _ in range(2)]
        names: dict[str, object] = {"argv": argv, "prelude": prelude, "watched": str(outputs), "trace": str(trace)}
        names |= {"kept_between_jobs": str(KEPT_BETWEEN_JOBS), "store": variables is not None}
        names["environment"] = {"XDG_CONFIG_HOME": str(home), "TMPDIR": str(temporary), **(variables or {})}
        names |= {"stdout": pipes[0][1], "stderr": pipes[1][1]}
        process = forks.Process(target=exec, args=(CHILD, names))
        process.start()
        if meanwhile is not None:
            while process.is_alive() and not stopped.exists():
                time.sleep(0.01)
            if stopped.exists():
                meanwhile()
                continued.touch()
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
