"""Runners without their job server: one line that says what to do. tests/engines runs jobs on Spark."""

import socket
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.portability.spark_runner import SparkJarJobServer


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Beam fail as it does where the jar of the job server cannot be downloaded."""

    def fail(url: str, *_: object) -> str:
        raise RuntimeError(f"Unable to fetch remote job server jar at {url}")

    monkeypatch.setattr(SparkJarJobServer, "local_jar", staticmethod(fail))
    monkeypatch.setattr("labeldp.pipelines.job.runner_options.shutil.which", lambda name: f"/usr/bin/{name}")


@pytest.mark.parametrize("jar", [[], ["--spark_job_server_jar=nowhere.jar"]])
def test_no_jar(jar: list[str], job: Any, invoke: Any, outputs: Path, no_network: None) -> None:
    outcome = invoke([*job(), "--runner=SparkRunner", *jar])

    assert outcome.code == 2
    assert "--runner SparkRunner starts Beam's job server, whose jar cannot be fetched" in outcome.error
    assert "run `make spark`" in outcome.error
    assert list(outputs.iterdir()) == []


def test_no_java(job: Any, invoke: Any, outputs: Path) -> None:
    outcome = invoke([*job(), "--runner=spark", "--job_server_java_launcher=/nowhere/java"])

    assert outcome.code == 2
    assert "install Java 11 or 17" in outcome.error
    assert list(outputs.iterdir()) == []


def test_not_to_wait(job: Any, invoke: Any, outputs: Path) -> None:
    """The job server that SparkRunner starts is the driver: the job would end with the command."""
    outcome = invoke([*job(), "--runner=SparkRunner", "--environment_type=PROCESS", "--no_wait_until_finish"])

    assert outcome.code == 2
    assert "--no_wait_until_finish needs a runner whose jobs go on without this command" in outcome.error
    assert list(outputs.iterdir()) == []


def test_an_address_without_a_job_server(job: Any, invoke: Any, outputs: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("labeldp.pipelines.job.runner_options.CONNECTION_SECONDS", 0.5)
    with socket.create_server(("localhost", 0)) as server:
        endpoint = f"localhost:{server.getsockname()[1]}"
    outcome = invoke([*job(), "--runner=PortableRunner", f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"])
    assert outcome.code == 2
    assert f"--job_endpoint {endpoint}: no job server answers there" in outcome.error
    assert list(outputs.iterdir()) == []
