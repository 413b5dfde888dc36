"""Fixtures of the Spark tests: a standalone cluster, beside those that all clusters share.

The tests run only if LABELDP_SPARK is set, as `make spark-test` does, because the cluster takes 4 GB of memory.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))

from cluster_fixtures import *  # noqa: F403
from cluster_fixtures import load
from labeldp.templates.local_processes import free_ports

collect_ignore_glob = [] if os.environ.get("LABELDP_SPARK") else ["test_*.py"]


@pytest.fixture(scope="session")
def local_cluster() -> ModuleType:
    """Module that starts a cluster."""
    return load("templates/spark/local_cluster.py")


@pytest.fixture(scope="session")
def cluster(local_cluster: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two executors of one core each: if one ends, the other can run all of a job."""
    with local_cluster.SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def on_spark(cluster: Any) -> list[str]:
    """Flags of a job on the cluster."""
    return cluster.flags


@pytest.fixture
def in_the_job_server(local_cluster: ModuleType) -> list[str]:
    """Flags of a job without a cluster: Spark runs in a job server that the command starts."""
    jar, [port] = local_cluster.SPARK_JAR, free_ports(1)
    runner = ["--runner=SparkRunner", f"--spark_job_server_jar={jar}", f"--job_port={port}"]
    return [*runner, "--spark_master_url=local[2]", "--environment_cache_millis=20000"]
