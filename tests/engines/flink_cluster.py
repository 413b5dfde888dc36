"""A Flink session cluster on this machine: JobManager, TaskManagers and Beam's job server.

Flink listens on free ports of the loopback interface and keeps its files in one folder. `make flink` downloads it.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engines.local_processes import ROOT, LocalProcesses, children, end, is_worker, read_json, worker_flags

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
_CACHE_MILLIS = 1500

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
    """Processes of a session cluster.

    Attributes:
      job_manager: Process of the JobManager; None until started.
      task_managers: Processes of the TaskManagers.
    """

    # The job server uploads this jar with each job, and none of its class path: `pom.xml` tells why.
    jar = ROOT / ".flink" / "flink.jar"
    alone = ["--runner=FlinkRunner", f"--flink_job_server_jar={jar}", "--parallelism=2"]

    def __init__(
        self, folder: Path, task_managers: int = 2, slots: int = 2, environment: Mapping[str, str] = os.environ
    ):
        """Prepares folders and ports, for some TaskManagers with task slots each; starts nothing."""
        super().__init__(folder, _JAVA_OPTIONS, environment, ports=2)
        self._rpc_port, self._rest_port = self.ports
        self._count, self._slots = task_managers, slots
        self._started = 0
        self.job_manager: subprocess.Popen[bytes] | None = None
        self.task_managers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Address of Flink's REST interface, for --flink_master."""
        return f"localhost:{self._rest_port}"

    @property
    def flags(self) -> list[str]:
        """Beam flags of a job in one slot of each TaskManager, whose child processes its workers are."""
        runner = ["--runner=PortableRunner", f"--job_endpoint={self.job_endpoint}", f"--flink_master={self.master}"]
        return [*runner, *worker_flags(_CACHE_MILLIS), f"--parallelism={self._count}"]

    def start(self) -> None:
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
        """Starts one more TaskManager and returns its process."""
        self._started += 1
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        # If memory runs out, a stream to a worker breaks and jobs hang. If this process exits instead, they restart.
        options = [f"-Xmx{_FRAMEWORK_HEAP + _HEAP_PER_SLOT * self._slots}m", "-XX:MaxMetaspaceSize=512m"]
        process = self._java(f"task-manager-{self._started}", entry, *options, "-XX:+ExitOnOutOfMemoryError")
        self.task_managers.append(process)
        return process

    def wait_for_task_managers(self, count: int) -> None:
        """Waits until the JobManager has registered this many TaskManagers."""
        assert self.job_manager is not None
        self.wait(self.job_manager, "job-manager", lambda: self.rest("/overview")["taskmanagers"] == count)

    def start_job_server(self) -> None:
        """Starts Beam's job server, which translates pipelines and submits them."""
        flags = [f"--flink-master={self.master}", f"--flink-conf-dir={self.conf}"]
        self.popen_job_server(["-Xmx512m", *self._log_options("job-server")], flags)

    def rest(self, path: str) -> Any:
        """Answer of Flink's REST interface for the path of a URL."""
        return read_json(f"http://{self.master}{path}")

    def running_jobs(self) -> list[str]:
        return [job["jid"] for job in self.rest("/jobs/overview")["jobs"] if job["end-time"] < 0]

    def workers(self) -> list[int]:
        return list(filter(is_worker, children(*(process.pid for process in self.task_managers))))

    def stop(self) -> None:
        end([self.job_server, *self.task_managers, self.job_manager], self.workers())

    def _java(self, name: str, entry: str, *options: str) -> subprocess.Popen[bytes]:
        command = ["java", *options, *self._log_options(name), "-cp", str(self.jar), entry]
        return self.popen(name, [*command, "--configDir", str(self.conf)])

    def _log_options(self, name: str) -> list[str]:
        return [f"-Dlog.file={self.logs}/{name}.log", f"-Dlog4j.configurationFile={self.conf}/log4j.properties"]
