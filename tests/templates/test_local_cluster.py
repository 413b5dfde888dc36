"""Local clusters: the choice of ports, child processes. tests/flink and tests/spark run the clusters."""

import os
import socket
import subprocess
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


def test_child_processes(tmp_path: Path) -> None:
    """A process may have any name. It is a worker by the file that it runs, until it ends."""
    for name, worker in {"a) S 1 1 (b": False, "worker.py": True}.items():
        program = tmp_path / name
        program.write_text("#!/bin/sh\nread line\n")
        program.chmod(0o755)
        with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
            assert child.pid in local_processes.children(1, os.getpid())
            assert child.pid not in local_processes.children(child.pid)
            assert local_processes.is_worker(child.pid) == worker
            child.kill()
            child.wait()
            assert child.pid not in local_processes.children(os.getpid())
            assert not local_processes.is_worker(child.pid)
