"""Fixtures of the Flink tests: a session cluster, beside those that all clusters share.

The tests run only if LABELDP_FLINK is set, as `make flink-test` does, because the cluster takes 6 GB of memory.
LABELDP_FLINK_REPEAT is the number of repetitions of each fault.
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

collect_ignore_glob = [] if os.environ.get("LABELDP_FLINK") else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that uses `repetition` LABELDP_FLINK_REPEAT times."""
    if "repetition" in metafunc.fixturenames:
        metafunc.parametrize("repetition", range(int(os.environ.get("LABELDP_FLINK_REPEAT", "1"))))


@pytest.fixture(scope="session")
def local_cluster() -> ModuleType:
    """Module that starts a cluster."""
    return load("templates/flink/local_cluster.py")


@pytest.fixture(scope="session")
def cluster(local_cluster: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two TaskManagers of two task slots each: if one ends, the other can run all of a job of parallelism 2."""
    with local_cluster.FlinkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def on_flink(cluster: Any) -> list[str]:
    """Flags of a job in two slots, one in each TaskManager."""
    return [*cluster.flags, "--parallelism=2"]
