"""A Flink session cluster on this machine: JobManager, TaskManagers and Beam's job server.

For tests and trials: Flink listens on the loopback interface, on ports that were free, and keeps its files in one
folder. Beam's job server, and the services that TaskManagers open for workers while a job runs, listen on all
interfaces, without a password: use it on a machine, or in a network, of your own. `make flink` fetches what it runs. As
a command it runs until it is interrupted:

    python templates/flink/local_cluster.py --task_managers 2 --slots 2
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
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
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FLINK_JAR = Path(__file__).resolve().parents[2] / ".flink" / "flink.jar"
"""Names all of Flink and Beam's job server as its class path. For --flink_job_server_jar, too."""
WORKER = Path(__file__).with_name("worker.py")
PORTS = range(20_000, 32_768)
"""Below those that Linux and macOS give to who asks for any: Flink asks for some before it opens what it was told."""
_CACHE_MILLIS = 3000
WORKER_FLAGS = [
    "--environment_type=PROCESS",
    f"--environment_config={json.dumps({'command': str(WORKER)})}",
    f"--environment_cache_millis={_CACHE_MILLIS}",
    f"--files_to_stage={FLINK_JAR}",
]
"""TaskManagers run `worker.py` for a Python worker, and keep it for the next stage; jars are there already, 150 MB."""

# Flink reflects on classes of the JDK; its distribution passes the same.
_OPENED = ("lang", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent",
           "util.concurrent.atomic", "util.concurrent.locks")  # fmt: skip
_JAVA_OPTIONS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED] + [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
]
# Short-lived Java processes: most of their time would go into compiling.
_JAVA_OPTIONS += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_HEAP_PER_SLOT = 1400
"""Megabytes. Of what a stage sends faster than the next one takes, Beam's runner keeps up to 100 messages of 10 MB."""
_FRAMEWORK_HEAP = 128
_SECONDS_TO_START = 120.0
_SECONDS_TO_STOP = 10.0
_PR_SET_PDEATHSIG = 1

_CONFIGURATION = """\
jobmanager.rpc.address: localhost
jobmanager.bind-host: localhost
jobmanager.rpc.port: {rpc_port}
rest.address: localhost
rest.bind-address: localhost
rest.port: {rest_port}
taskmanager.host: localhost
taskmanager.bind-host: localhost
taskmanager.numberOfTaskSlots: {slots}
# Beam's runner is on the class path of the cluster: its workers outlive a stage (--environment_cache_millis) then.
classloader.resolve-order: parent-first
# A job of parallelism 2 runs on two TaskManagers, not on two slots of one.
taskmanager.load-balance.mode: SLOTS
io.tmp.dirs: {folder}/tmp
# A process that is gone is missed after seconds, not after a minute.
heartbeat.interval: 1000
heartbeat.timeout: 6000
# A job that loses a TaskManager or a Python worker starts again. The delay is longer than a worker is kept for the
# next stage: a dead one would be asked again.
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 5 s
# How long a client goes on asking a JobManager that does not answer.
rest.retry.max-attempts: 8
rest.retry.delay: 1000
blob.service.cleanup.interval: 10
# What Flink's start script computes for a TaskManager.
taskmanager.cpu.cores: {slots}
taskmanager.memory.framework.heap.size: {framework_heap}m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: {heap}m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.network.min: 192m
taskmanager.memory.network.max: 192m
taskmanager.memory.managed.size: 128m
taskmanager.memory.jvm-metaspace.size: 512m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
"""
_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = File
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %-60c %x - %m%n
"""


class FlinkCluster:
    """Owns the processes of a session cluster. A context manager: they all end with the block.

    folder: for configuration, logs and temporary files. task_managers, slots: how many, and task slots in each.
    environment: of all processes.
    """

    def __init__(
        self, folder: Path, task_managers: int = 2, slots: int = 2, environment: Mapping[str, str] = os.environ
    ):
        if not FLINK_JAR.is_file():
            raise FileNotFoundError(f"{FLINK_JAR} is missing: run `make flink`")
        self.jar = FLINK_JAR
        self.folder = folder
        self.logs = folder / "logs"
        self.temporary = folder / "tmp"
        self._conf = folder / "conf"
        for path in (self.logs, self.temporary, self._conf):
            path.mkdir(parents=True, exist_ok=True)
        self._rpc_port, self._rest_port, self._job_port = free_ports(3)
        self._environment = {
            **environment,
            "TMPDIR": str(self.temporary),
            "JDK_JAVA_OPTIONS": " ".join([*_JAVA_OPTIONS, f"-Djava.io.tmpdir={self.temporary}"]),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")]),
        }
        self._count, self._slots = task_managers, slots
        self._started = 0
        self.job_manager: subprocess.Popen[bytes] | None = None
        self.task_managers: list[subprocess.Popen[bytes]] = []
        self.job_server: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        """For --flink_master, and in a browser."""
        return f"localhost:{self._rest_port}"

    @property
    def job_endpoint(self) -> str:
        """For --job_endpoint: of Beam's job server."""
        return f"localhost:{self._job_port}"

    @property
    def flags(self) -> list[str]:
        """Of a job that is to run here: the job server, and workers that are processes below the TaskManagers."""
        runner = ["--runner=PortableRunner", f"--job_endpoint={self.job_endpoint}", f"--flink_master={self.master}"]
        return [*runner, *WORKER_FLAGS]

    def __enter__(self) -> FlinkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and waits until it answers. Raises RuntimeError, naming the log, if something does not."""
        values = {
            "rpc_port": self._rpc_port, "rest_port": self._rest_port, "slots": self._slots, "folder": self.folder,
            "framework_heap": _FRAMEWORK_HEAP, "heap": _HEAP_PER_SLOT * self._slots,
        }  # fmt: skip
        (self._conf / "config.yaml").write_text(_CONFIGURATION.format(**values))
        (self._conf / "log4j.properties").write_text(_LOGGING)
        self.start_job_manager()
        for _ in range(self._count):
            self.start_task_manager()
        self.start_job_server()
        self.wait_for_task_managers(self._count)

    def start_job_manager(self) -> None:
        """Starts one in the place of one that is gone, and waits for it; TaskManagers find it by themselves."""
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self.job_manager = self._java("job-manager", entry, "-Xmx512m")
        self._wait(self.job_manager, "job-manager", lambda: self.rest("/overview") is not None)

    def start_task_manager(self) -> subprocess.Popen[bytes]:
        """Starts one more."""
        self._started += 1
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        # Out of memory, a stream to a worker breaks off and jobs wait for ever; without this process they restart.
        options = [f"-Xmx{_FRAMEWORK_HEAP + _HEAP_PER_SLOT * self._slots}m", "-XX:MaxMetaspaceSize=512m"]
        process = self._java(f"task-manager-{self._started}", entry, *options, "-XX:+ExitOnOutOfMemoryError")
        self.task_managers.append(process)
        return process

    def wait_for_task_managers(self, count: int) -> None:
        """Until that many have registered."""
        assert self.job_manager is not None
        self._wait(self.job_manager, "job-manager", lambda: self.rest("/overview")["taskmanagers"] == count)

    def start_job_server(self) -> None:
        """Starts Beam's job server, which translates pipelines and submits them."""
        command = [
            "java", "-Xmx512m", *self._log_options("job-server"), "-jar", str(FLINK_JAR),
            f"--flink-master={self.master}", f"--flink-conf-dir={self._conf}", f"--job-port={self._job_port}",
            "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={self.temporary}/artifacts",
        ]  # fmt: skip
        self.job_server = self._popen("job-server", command)
        self._wait(self.job_server, "job-server", lambda: _listens(self._job_port))

    def rest(self, path: str) -> Any:
        """What Flink's REST interface answers."""
        with urllib.request.urlopen(f"http://{self.master}{path}", timeout=10) as answer:
            return json.load(answer)

    def running_jobs(self) -> list[str]:
        """Flink's names of the jobs that have not ended."""
        return [job["jid"] for job in self.rest("/jobs/overview")["jobs"] if job["end-time"] < 0]

    def workers(self) -> list[int]:
        """Process ids of the Python workers."""
        return [worker for task_manager in self.task_managers for worker in children(task_manager.pid)]

    def stop(self) -> None:
        """Ends all processes."""
        workers = self.workers()
        everything = [self.job_server, *self.task_managers, self.job_manager]
        running = [process for process in everything if process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + _SECONDS_TO_STOP
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            process.kill()
            process.wait()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def _java(self, name: str, entry: str, *options: str) -> subprocess.Popen[bytes]:
        command = ["java", *options, *self._log_options(name), "-cp", str(FLINK_JAR), entry]
        return self._popen(name, [*command, "--configDir", str(self._conf)])

    def _log_options(self, name: str) -> list[str]:
        return [f"-Dlog.file={self.logs}/{name}.log", f"-Dlog4j.configurationFile={self._conf}/log4j.properties"]

    def _popen(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.logs / f"{name}.out", "ab") as out:
            return subprocess.Popen(
                command, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, preexec_fn=_end_with_parent,  # noqa: PLW1509
            )  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes], name: str, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError, urllib.error.URLError):
                if ready():
                    return
            time.sleep(0.1)
        code = process.poll()
        what = f"does not answer after {_SECONDS_TO_START:g} s" if code is None else f"ended with exit code {code}"
        raise RuntimeError(f"{name} {what}: see {self.logs}/{name}.log and {name}.out")


def free_ports(count: int) -> list[int]:
    """Different ports of PORTS that nothing listens on. Raises RuntimeError if there are not that many."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("localhost", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free")


def _listens(port: int) -> bool:
    with contextlib.closing(socket.create_connection(("localhost", port), timeout=1)):
        return True


def children(parent: int) -> list[int]:
    """Process ids of those that it started."""
    found: list[int] = []
    for each in Path(f"/proc/{parent}/task").glob("*/children"):
        # Threads come and go; the children of one that ends are another's.
        with contextlib.suppress(OSError):
            found += map(int, each.read_text().split())
    return found


def _end_with_parent() -> None:
    """Nothing is left behind, however this process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _folder(path: str | None) -> Iterator[Path]:
    if path is not None:
        yield Path(path).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="flink-") as made:
        yield Path(made)


def main() -> None:
    """Runs a cluster until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Runs a Flink session cluster on this machine until Ctrl-C.")
    parser.add_argument("--task_managers", type=int, default=2, metavar="N", help="default 2")
    parser.add_argument("--slots", type=int, default=2, metavar="N", help="task slots in each; default 2")
    parser.add_argument("--folder", metavar="DIR", help="where logs stay; default a temporary one, removed at the end")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        _folder(args.folder) as folder,
        FlinkCluster(folder, args.task_managers, args.slots) as cluster,
    ):
        print("Beam's ports are open to the network, without a password: use this where you are alone", file=sys.stderr)
        print(f"web interface  http://{cluster.master}")
        print(f"logs           {cluster.logs}")
        print(f"flags          {shlex.join(cluster.flags)}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
