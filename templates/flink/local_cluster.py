"""A Flink session cluster on this machine: JobManager, TaskManagers and Beam's job server.

For tests and trials only. Flink listens on free ports of the loopback interface and keeps its files in one folder.
Beam's job server, and the services that TaskManagers open for workers while a job runs, listen on all network
interfaces without authentication: use it only on a trusted network. `make flink` downloads Flink and Beam's runner. The
command runs until it is interrupted:

    python templates/flink/local_cluster.py --task_managers 2 --slots 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeldp.templates.local_processes import LocalProcesses, children, end, is_worker, run_until_interrupted

FLINK_JAR = Path(__file__).resolve().parents[2] / ".flink" / "flink.jar"
"""Jar whose class path lists all of Flink and Beam's job server. Also the value for --flink_job_server_jar.

The job server uploads this jar with each job, and none of its class path: `pom.xml` tells why. TaskManagers have it.
"""
WORKER = Path(__file__).with_name("worker.py")
_CACHE_MILLIS = 1500
WORKER_FLAGS = [
    "--environment_type=PROCESS",
    f"--environment_config={json.dumps({'command': str(WORKER)})}",
    f"--environment_cache_millis={_CACHE_MILLIS}",
]
"""Beam flags of a job: TaskManagers start `worker.py` as Python worker and keep it for the next stage."""

# Flink uses reflection on classes of the JDK; its own start scripts pass the same options.
_OPENED = ("lang", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent",
           "util.concurrent.atomic", "util.concurrent.locks")  # fmt: skip
_JAVA_OPTIONS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED] + [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
]
# The Java processes are short-lived: without these options, most of their time would be JIT compilation.
_JAVA_OPTIONS += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_HEAP_PER_SLOT = 1400
"""In MB. Beam's runner buffers up to 100 messages of 10 MB that one stage sends faster than the next one reads."""
_FRAMEWORK_HEAP = 128

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
# Beam's runner is on the class path of the cluster, so that workers outlive a stage (--environment_cache_millis).
classloader.resolve-order: parent-first
# A job of parallelism 2 uses two TaskManagers instead of two slots of one.
taskmanager.load-balance.mode: SLOTS
io.tmp.dirs: {folder}/tmp
# A lost process is detected within seconds instead of a minute.
heartbeat.interval: 1000
heartbeat.timeout: 6000
# A job that loses a TaskManager or a Python worker restarts. The delay is longer than the time for which a worker is
# kept for the next stage, so that a dead worker is not used again.
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 3 s
# Retries of a client whose JobManager does not answer.
rest.retry.max-attempts: 8
rest.retry.delay: 1000
blob.service.cleanup.interval: 10
# Flink's start script computes these for a TaskManager.
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


class FlinkCluster(LocalProcesses):
    """Processes of a session cluster. As a context manager, it starts them and ends them all with the block.

    Attributes:
      jar: Jar of all Java processes.
      job_manager: Process of the JobManager; None until started.
      task_managers: Processes of the TaskManagers.
    """

    def __init__(
        self, folder: Path, task_managers: int = 2, slots: int = 2, environment: Mapping[str, str] = os.environ
    ):
        """Prepares folders and ports; starts nothing.

        Args:
          folder: Folder for configuration, logs and temporary files.
          task_managers: Number of TaskManagers.
          slots: Task slots of each TaskManager.
          environment: Environment variables of all processes.

        Raises:
          FileNotFoundError: If Flink has not been downloaded.
        """
        if not FLINK_JAR.is_file():
            raise FileNotFoundError(f"{FLINK_JAR} is missing: run `make flink`")
        self.jar = FLINK_JAR
        super().__init__(folder, _JAVA_OPTIONS, environment, ports=2)
        self._rpc_port, self._rest_port = self.ports
        self._count, self._slots = task_managers, slots
        self._started = 0
        self.job_manager: subprocess.Popen[bytes] | None = None
        self.task_managers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Address of Flink's REST interface, for --flink_master and for a browser."""
        return f"localhost:{self._rest_port}"

    @property
    def web(self) -> str:
        """Address of Flink's web interface."""
        return f"http://{self.master}"

    @property
    def flags(self) -> list[str]:
        """Beam flags of a job on this cluster; its workers are child processes of the TaskManagers."""
        runner = ["--runner=PortableRunner", f"--job_endpoint={self.job_endpoint}", f"--flink_master={self.master}"]
        return [*runner, *WORKER_FLAGS]

    def start(self) -> None:
        """Starts all processes and waits until they answer.

        Raises:
          RuntimeError: If a process ends or does not answer; names its log.
        """
        values = {
            "rpc_port": self._rpc_port, "rest_port": self._rest_port, "slots": self._slots, "folder": self.folder,
            "framework_heap": _FRAMEWORK_HEAP, "heap": _HEAP_PER_SLOT * self._slots,
        }  # fmt: skip
        (self.conf / "config.yaml").write_text(_CONFIGURATION.format(**values))
        (self.conf / "log4j.properties").write_text(_LOGGING)
        self.start_job_manager()
        for _ in range(self._count):
            self.start_task_manager()
        self.start_job_server()
        self.wait_for_task_managers(self._count)

    def start_job_manager(self) -> None:
        """Starts a JobManager, also to replace one that has ended, and waits for it; TaskManagers reconnect."""
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self.job_manager = self._java("job-manager", entry, "-Xmx512m")
        self.wait(self.job_manager, "job-manager", lambda: self.rest("/overview") is not None)

    def start_task_manager(self) -> subprocess.Popen[bytes]:
        """Starts one more TaskManager.

        Returns:
          Its process.
        """
        self._started += 1
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        # If memory runs out, a stream to a worker breaks and jobs hang. If this process exits instead, they restart.
        options = [f"-Xmx{_FRAMEWORK_HEAP + _HEAP_PER_SLOT * self._slots}m", "-XX:MaxMetaspaceSize=512m"]
        process = self._java(f"task-manager-{self._started}", entry, *options, "-XX:+ExitOnOutOfMemoryError")
        self.task_managers.append(process)
        return process

    def wait_for_task_managers(self, count: int) -> None:
        """Waits until the JobManager has registered this many TaskManagers.

        Args:
          count: Number of TaskManagers.
        """
        assert self.job_manager is not None
        self.wait(self.job_manager, "job-manager", lambda: self.rest("/overview")["taskmanagers"] == count)

    def start_job_server(self) -> None:
        """Starts Beam's job server, which translates pipelines and submits them."""
        java_options = ["-Xmx512m", *self._log_options("job-server")]
        self.popen_job_server(
            FLINK_JAR, java_options, [f"--flink-master={self.master}", f"--flink-conf-dir={self.conf}"]
        )

    def rest(self, path: str) -> Any:
        """Reads from Flink's REST interface.

        Args:
          path: Path of the URL, from its first slash.

        Returns:
          The decoded JSON answer.
        """
        with urllib.request.urlopen(f"{self.web}{path}", timeout=10) as answer:
            return json.load(answer)

    def running_jobs(self) -> list[str]:
        """Lists the jobs that have not ended.

        Returns:
          Flink's job ids.
        """
        return [job["jid"] for job in self.rest("/jobs/overview")["jobs"] if job["end-time"] < 0]

    def workers(self) -> list[int]:
        """Lists the Python workers.

        Returns:
          Their process ids.
        """
        return list(filter(is_worker, children(*(process.pid for process in self.task_managers))))

    def stop(self) -> None:
        """Ends all processes."""
        workers = self.workers()
        end([self.job_server, *self.task_managers, self.job_manager], workers)

    def _java(self, name: str, entry: str, *options: str) -> subprocess.Popen[bytes]:
        command = ["java", *options, *self._log_options(name), "-cp", str(FLINK_JAR), entry]
        return self.popen(name, [*command, "--configDir", str(self.conf)])

    def _log_options(self, name: str) -> list[str]:
        return [f"-Dlog.file={self.logs}/{name}.log", f"-Dlog4j.configurationFile={self.conf}/log4j.properties"]


def main() -> None:
    """Runs a cluster until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Runs a Flink session cluster on this machine until Ctrl-C.")
    parser.add_argument("--task_managers", type=int, default=2, metavar="N", help="number of TaskManagers; default 2")
    parser.add_argument("--slots", type=int, default=2, metavar="N", help="task slots of each TaskManager; default 2")
    run_until_interrupted(parser, lambda args, folder: FlinkCluster(folder, args.task_managers, args.slots))


if __name__ == "__main__":
    main()
