"""Processes of a cluster on this machine: free ports, logs, and an end together. For tests and trials only."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

PORTS = range(20_000, 32_768)
"""Below the ephemeral ports of Linux and macOS: servers take ephemeral ports before they open the configured ones."""
_SECONDS_TO_START = 120.0
_SECONDS_TO_STOP = 10.0
_PR_SET_PDEATHSIG = 1


class LocalProcesses(ABC):
    """Java processes with their folders. As a context manager, it starts them and ends them all with the block.

    Attributes:
      folder: Folder of configuration, logs and temporary files.
      logs: Folder of the logs.
      temporary: Folder of temporary files.
      conf: Folder of the configuration.
      environment: Environment variables of all processes.
      ports: Free ports.
      job_server: Process of Beam's job server; None until started.
    """

    def __init__(self, folder: Path, java_options: Sequence[str], environment: Mapping[str, str], ports: int):
        """Prepares folders; starts nothing.

        Args:
          folder: Folder for configuration, logs and temporary files.
          java_options: Options of every Java process.
          environment: Environment variables of all processes.
          ports: Number of ports beside that of Beam's job server.
        """
        self.folder = folder
        self.logs = folder / "logs"
        self.temporary = folder / "tmp"
        self.conf = folder / "conf"
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
    def web(self) -> str:
        """Address of the web interface."""

    @property
    @abstractmethod
    def flags(self) -> list[str]:
        """Beam flags of a job on this cluster."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Starts all processes and waits until they answer."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes."""

    def popen(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a process that ends with this one.

        Args:
          name: Name of its file of standard output and error.
          command: Program and arguments.

        Returns:
          The process.
        """
        with open(self.logs / f"{name}.out", "ab") as out:
            return subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, preexec_fn=_end_with_parent,  # noqa: PLW1509
            )  # fmt: skip

    def popen_job_server(self, jar: Path, java_options: Sequence[str], flags: Sequence[str]) -> None:
        """Starts Beam's job server and waits for it.

        Args:
          jar: Jar of the job server.
          java_options: Options of Java.
          flags: Flags of the job server for its engine.
        """
        services = [f"--job-port={self._job_port}", "--artifact-port=0", "--expansion-port=0"]
        artifacts = f"--artifacts-dir={self.temporary}/artifacts"
        self.job_server = self.popen(
            "job-server", ["java", *java_options, "-jar", str(jar), *flags, *services, artifacts]
        )
        self.wait(self.job_server, "job-server", lambda: listens(self._job_port))

    def wait(self, process: subprocess.Popen[bytes], name: str, ready: Callable[[], bool]) -> None:
        """Waits until a process is ready.

        Args:
          process: The process.
          name: Its name, as in `popen`.
          ready: Check of its service; may raise OSError meanwhile.

        Raises:
          RuntimeError: If it ends or does not answer; names its logs.
        """
        until = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError, urllib.error.URLError):
                if ready():
                    return
            time.sleep(0.1)
        code = process.poll()
        what = f"does not answer after {_SECONDS_TO_START:g} s" if code is None else f"ended with exit code {code}"
        raise RuntimeError(f"{name} {what}: see {self.logs}/{name}.log and {name}.out")


def end(processes: Iterable[subprocess.Popen[bytes] | None], others: Iterable[int] = ()) -> None:
    """Ends processes, with SIGKILL those that do not end within some seconds.

    Args:
      processes: Processes started here; None is skipped.
      others: Ids of further processes, which get SIGKILL at once.
    """
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
    """Finds free ports.

    Args:
      count: Number of ports.

    Returns:
      Distinct ports of PORTS on which nothing listens.

    Raises:
      RuntimeError: If there are fewer.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("localhost", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free")


def listens(port: int) -> bool:
    """Tells whether something listens on a port of loopback, for `LocalProcesses.wait`.

    Args:
      port: The port.

    Returns:
      True; if nothing listens, the OSError of the connection is raised.
    """
    with contextlib.closing(socket.create_connection(("localhost", port), timeout=1)):
        return True


def children(*parents: int) -> list[int]:
    """Lists the child processes of processes.

    Args:
      *parents: Their process ids.

    Returns:
      Process ids of their children.
    """
    found: list[int] = []
    # Not the lists of children in /proc/PID/task: a child is missing there while the thread that started it ends.
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile. Its name, in brackets, may contain anything.
        with contextlib.suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) in parents:
                found.append(int(stat.parent.name))
    return found


def is_worker(process: int) -> bool:
    """Tells whether a process is a Python worker.

    Args:
      process: Its process id.

    Returns:
      Whether it runs a file named `worker.py`; False once it has ended.
    """
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(argument) == b"worker.py" for argument in command)


def run_until_interrupted(
    parser: argparse.ArgumentParser, make: Callable[[argparse.Namespace, Path], LocalProcesses]
) -> None:
    """Runs the program of a cluster until Ctrl-C or SIGTERM.

    Args:
      parser: Parser of its command line, which gets the flag --folder.
      make: Function of the arguments and the folder; gives the cluster, not started.
    """
    parser.add_argument("--folder", metavar="DIR", help="folder of logs; default a temporary one, removed at the end")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), _folder(args.folder) as folder, make(args, folder) as cluster:
        warning = "Beam's services listen on all network interfaces without authentication: use a trusted network"
        print(warning, file=sys.stderr)
        print(f"web interface  {cluster.web}")
        print(f"logs           {cluster.logs}")
        print(f"flags          {shlex.join(cluster.flags)}", flush=True)
        signal.pause()


@contextlib.contextmanager
def _folder(path: str | None) -> Iterator[Path]:
    if path is not None:
        yield Path(path).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="cluster-") as made:
        yield Path(made)


def _end_with_parent() -> None:
    """Makes the kernel end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
