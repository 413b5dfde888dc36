"""Processes of a cluster on this machine: free ports, logs, and an end together."""

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]
# Below the ephemeral ports of Linux, which Flink's BLOB server asks for: given the port of the REST interface, it would
# keep the JobManager from starting.
_PORTS = range(20_000, 32_768)
_SECONDS_TO_START = 120.0
_SECONDS_TO_STOP = 10.0
_PR_SET_PDEATHSIG = 1


class LocalProcesses(ABC):
    """Java processes with their folders. As a context manager, it starts them and ends them all with the block.

    Beam's job server, and the services that an engine opens for workers while a job runs, listen on all network
    interfaces without authentication.

    Attributes:
      folder: Folder of configuration, logs and temporary files, which are `conf`, `logs` and `temporary`.
      job_server: Process of Beam's job server; None until started.
      ports: Free ports.
    """

    jar: Path
    """Jar whose class path lists all of the engine and Beam's job server."""
    alone: list[str]
    """Beam flags of a job without a cluster: the engine runs in a job server that the command starts."""

    def __init__(self, folder: Path, java_options: Sequence[str], environment: Mapping[str, str], ports: int):
        """Prepares the folders; starts nothing.

        All processes get the options of Java and the environment variables. `ports` are those beside the job server's.
        """
        if not self.jar.is_file():
            raise FileNotFoundError(f"{self.jar} is missing: run `make {self.jar.stem}`")
        self.folder, self.logs, self.temporary, self.conf = folder, *(folder / name for name in ("logs", "tmp", "conf"))
        for path in (self.logs, self.temporary, self.conf):
            path.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **environment,
            "TMPDIR": str(self.temporary),
            "JDK_JAVA_OPTIONS": " ".join([*java_options, f"-Djava.io.tmpdir={self.temporary}"]),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")]),
        }
        self.job_server: subprocess.Popen[bytes] | None = None
        self._job_port, *self.ports = free_ports(1 + ports)

    @property
    def job_endpoint(self) -> str:
        """Address of Beam's job server, for --job_endpoint."""
        return f"localhost:{self._job_port}"

    @property
    @abstractmethod
    def flags(self) -> list[str]:
        """Beam flags of a job on this cluster."""

    @abstractmethod
    def running_jobs(self) -> list[str]:
        """Ids of the jobs that have not ended."""

    @abstractmethod
    def workers(self) -> list[int]:
        """Process ids of the Python workers."""

    @abstractmethod
    def start(self) -> None:
        """Starts all processes and waits until they answer. Raises RuntimeError if one does not; names its log."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def popen(self, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Starts a process that ends with this one. `name` is that of its file of standard output and error."""
        with open(self.logs / f"{name}.out", "ab") as out:
            return subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, preexec_fn=_end_with_parent,  # noqa: PLW1509
            )  # fmt: skip

    def popen_job_server(self, java_options: Sequence[str], flags: Sequence[str]) -> None:
        """Starts Beam's job server and waits for it. `flags` are those for its engine."""
        services = [f"--job-port={self._job_port}", "--artifact-port=0", "--expansion-port=0"]
        services.append(f"--artifacts-dir={self.temporary}/artifacts")
        self.job_server = self.popen("job-server", ["java", *java_options, "-jar", str(self.jar), *flags, *services])
        self.wait(self.job_server, "job-server", self._job_server_listens)

    def _job_server_listens(self) -> bool:
        with contextlib.closing(socket.create_connection(("localhost", self._job_port), timeout=1)):
            return True

    def wait(self, process: "subprocess.Popen[bytes]", name: str, ready: Callable[[], bool]) -> None:
        """Waits until the process of a name is ready; `ready` may raise OSError until then."""
        until = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError, urllib.error.URLError):
                if ready():
                    return
            time.sleep(0.1)
        code = process.poll()
        what = f"does not answer after {_SECONDS_TO_START:g} s" if code is None else f"ended with exit code {code}"
        raise RuntimeError(f"{name} {what}: see {self.logs}/{name}.log and {name}.out")


def worker_flags(cache_millis: int) -> list[str]:
    """Beam flags of a job whose workers the engine starts and keeps for the next stage, for some milliseconds."""
    command = json.dumps({"command": str(ROOT / "templates" / "flink" / "worker.py")})
    return [
        "--environment_type=PROCESS", f"--environment_config={command}", f"--environment_cache_millis={cache_millis}",
    ]  # fmt: skip


def read_json(url: str) -> Any:
    """Decodes the answer of a web interface."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def end(processes: Sequence["subprocess.Popen[bytes] | None"], others: Sequence[int] = ()) -> None:
    """Ends processes, with SIGKILL those that do not end within some seconds, and those of `others`, by id, at once."""
    running = [process for process in processes if process is not None]
    for process in running:
        process.terminate()
    until = time.monotonic() + _SECONDS_TO_STOP
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()
        process.wait()
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Distinct ports on which nothing listens."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("localhost", port))
            free.append(port)
        if len(free) == count:
            return free
    raise RuntimeError(f"fewer than {count} ports from {_PORTS.start} to {_PORTS.stop - 1} are free")


def children(*parents: int) -> list[int]:
    """Process ids of the child processes of processes."""
    ids: list[int] = []
    # Not the lists of children in /proc/PID/task: a child is missing there while the thread that started it ends.
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile. Its name, in brackets, may contain anything.
        with contextlib.suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) in parents:
                ids.append(int(stat.parent.name))
    return ids


def is_worker(process: int) -> bool:
    """Tells whether a process runs a file named `worker.py`; False once it has ended."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(argument) == b"worker.py" for argument in command)


def _end_with_parent() -> None:
    """Makes the kernel end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
