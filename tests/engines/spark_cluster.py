"""A standalone Spark cluster on this machine: master, worker with its executors, and Beam's job server as the driver.

Spark listens on free ports of the loopback interface and keeps its files in one folder. `make spark` downloads it.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engines.local_processes import ROOT, LocalProcesses, children, end, is_worker, read_json, worker_flags

_HOME = ROOT / ".spark"
_CACHE_MILLIS = 20000
SETTINGS = {
    # An executor keeps a dead Python worker for as long as tasks ask for it: by default a task fails four times in a
    # second, and the job with it. So a task is tried again on another executor, and one on which a task has failed is
    # replaced. All executors here are on one node, so that a node is not given up before the job.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.killExcludedExecutors": "true",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": 1,
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": 1,
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": 3,
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": 1000,
    "spark.excludeOnFailure.application.maxFailedExecutorsPerNode": 1000,
}
"""Settings of Spark with which a job survives the loss of Python workers."""
# Spark uses reflection on classes of the JDK; its own start scripts pass the same options.
_OPENED = ("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
           "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
           "sun.security.action", "sun.util.calendar")  # fmt: skip
# The Java processes are short-lived: without these options, most of their time would be JIT compilation.
_JAVA_OPTIONS = [
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
]
_EXECUTOR_HEAP = 1400
"""In MB. Beam's runner buffers up to 100 messages of 10 MB that one stage sends faster than the next one reads."""

# When a worker ends, Beam closes a connection that the worker has closed already, and logs that with its stack.
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.name = stderr
appender.stderr.type = Console
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %-5p %-60c %x - %m%n%ex
appender.stderr.filter.closed.type = RegexFilter
appender.stderr.filter.closed.regex = (?s)Error cleaning up servers.*
appender.stderr.filter.closed.onMatch = DENY
appender.stderr.filter.closed.onMismatch = NEUTRAL
"""


class SparkCluster(LocalProcesses):
    """Processes of a standalone cluster.

    Attributes:
      master: Process of the master; None until started.
      worker: Process of the worker, which starts executors for each job; None until started.
    """

    # The job server uploads this jar with each job, and none of its class path: `pom.xml` tells why.
    jar = _HOME / "jars" / "spark.jar"
    alone = [
        "--runner=SparkRunner", f"--spark_job_server_jar={jar}", "--spark_master_url=local[2]",
        f"--environment_cache_millis={_CACHE_MILLIS}",
    ]  # fmt: skip

    def __init__(self, folder: Path, executors: int = 2, environment: Mapping[str, str] = os.environ):
        """Prepares folders and ports, for jobs of some executors of one core; starts nothing."""
        # Without the first two, Spark's web interfaces would listen on all network interfaces.
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_PUBLIC_DNS": "localhost"}
        home = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_DIRS": f"{folder}/tmp"}
        super().__init__(folder, _JAVA_OPTIONS, {**environment, **loopback, **home}, ports=3)
        self._port, self._web_port, self._worker_port = self.ports
        self._executors = executors
        self.master: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the master, for --spark_master_url."""
        return f"spark://localhost:{self._port}"

    @property
    def flags(self) -> list[str]:
        """Beam flags of a job on this cluster; its Python workers are child processes of the executors."""
        return ["--runner=PortableRunner", f"--job_endpoint={self.job_endpoint}", *worker_flags(_CACHE_MILLIS)]

    @property
    def java_properties(self) -> list[str]:
        """Options of Java for a job server: the settings of Spark for its jobs."""
        logging = f"-Dlog4j2.configurationFile={self.conf}/log4j2.properties"
        settings = SETTINGS | {
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.cores.max": self._executors,
            "spark.executor.cores": 1,
            "spark.executor.memory": f"{_EXECUTOR_HEAP}m",
            "spark.executor.extraJavaOptions": logging,
        }
        return [logging, *(f"-D{name}={value}" for name, value in settings.items())]

    def start(self) -> None:
        (self.conf / "log4j2.properties").write_text(_LOGGING)
        listening = ["--host", "localhost", "--port", str(self._port), "--webui-port", str(self._web_port)]
        self.master = self._java("master", "org.apache.spark.deploy.master.Master", *listening)
        self.wait(self.master, "master", lambda: self._alive_workers() == 0)
        self.worker = self._java(
            "worker", "org.apache.spark.deploy.worker.Worker", "--host", "localhost", "--webui-port", "0",
            "--port", str(self._worker_port), "--cores", str(self._executors),
            "--memory", f"{_EXECUTOR_HEAP * self._executors}m", "--work-dir", f"{self.logs}/executors", self.url,
        )  # fmt: skip
        self.start_job_server()
        self.wait(self.worker, "worker", lambda: self._alive_workers() == 1)

    def start_job_server(self) -> None:
        """Starts Beam's job server, which is the driver of the jobs."""
        self.popen_job_server(["-Xmx1g", *self.java_properties], [f"--spark-master-url={self.url}"])

    def state(self) -> Any:
        """State of the cluster, as the master tells it."""
        return read_json(f"http://localhost:{self._web_port}/json/")

    def running_jobs(self) -> list[str]:
        return [application["id"] for application in self.state()["activeapps"]]

    def executors(self) -> list[int]:
        """Process ids of the executors."""
        return children(self.worker.pid) if self.worker else []

    def workers(self) -> list[int]:
        return list(filter(is_worker, children(*self.executors())))

    def finished_tasks(self, job: str) -> dict[str, int]:
        """Number of finished tasks of a job by the name of the executor."""
        logs = (self.logs / "executors" / job).glob("*/stderr")
        return {log.parent.name: log.read_text().count(" - Finished task ") for log in logs}

    def stop(self) -> None:
        below = [*self.workers(), *self.executors()]
        end([self.job_server, self.worker, self.master], below)

    def _alive_workers(self) -> int | None:
        """Number of workers of which the master knows; None while its web interface has no such page yet."""
        with contextlib.suppress(json.JSONDecodeError):
            return self.state()["aliveworkers"]
        return None

    def _java(self, name: str, entry: str, *arguments: str) -> subprocess.Popen[bytes]:
        logging = f"-Dlog4j2.configurationFile={self.conf}/log4j2.properties"
        return self.popen(name, ["java", "-Xmx256m", logging, "-cp", str(self.jar), entry, *arguments])
