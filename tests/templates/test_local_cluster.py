"""Local clusters: the choice of ports, made before any process starts. tests/flink and tests/spark run the clusters."""

import socket
from pathlib import Path

import pytest
from labeldp.templates import local_processes


def test_ports_are_never_given_to_who_asks_for_any() -> None:
    """Flink's BLOB server requests any free port; if it gets that of the REST interface, the JobManager exits."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if first < local_processes.PORTS.start:
        pytest.skip("this machine was set to give away low ports, too")
    assert not set(local_processes.PORTS) & set(range(first, last + 1))

    ports = local_processes.free_ports(50)
    assert len(set(ports)) == 50
    assert set(ports) <= set(local_processes.PORTS)


def test_ports_in_use_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = local_processes.free_ports(1)
    monkeypatch.setattr(local_processes, "PORTS", range(port, port + 1))
    assert local_processes.free_ports(1) == [port]
    with socket.socket() as listening:
        listening.bind(("localhost", port))
        listening.listen()
        with pytest.raises(RuntimeError, match="fewer than 1 ports"):
            local_processes.free_ports(1)
