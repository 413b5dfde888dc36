"""Local Flink cluster: its choice of ports, made before any process starts. tests/flink runs the cluster."""

import importlib.util
import socket
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def local_cluster(templates: Path) -> ModuleType:
    """The module that starts a cluster."""
    spec = importlib.util.spec_from_file_location("local_cluster", templates / "flink" / "local_cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ports_are_never_given_to_who_asks_for_any(local_cluster: ModuleType) -> None:
    """Flink's BLOB server requests any free port; if it gets that of the REST interface, the JobManager exits."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if first < local_cluster.PORTS.start:
        pytest.skip("this machine was set to give away low ports, too")
    assert not set(local_cluster.PORTS) & set(range(first, last + 1))

    ports = local_cluster.free_ports(50)
    assert len(set(ports)) == 50
    assert set(ports) <= set(local_cluster.PORTS)


def test_ports_in_use_are_left_out(local_cluster: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = local_cluster.free_ports(1)
    monkeypatch.setattr(local_cluster, "PORTS", range(port, port + 1))
    assert local_cluster.free_ports(1) == [port]
    with socket.socket() as listening:
        listening.bind(("localhost", port))
        listening.listen()
        with pytest.raises(RuntimeError, match="fewer than 1 ports"):
            local_cluster.free_ports(1)
