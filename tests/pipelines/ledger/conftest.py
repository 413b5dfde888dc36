"""Fixtures of the ledger tests: a PostgreSQL server of their own, and an empty ledger in each kind of store."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 60
PASSWORD = "p@ss:w/rd?#%"  # each of these characters means something in a URL


def _server_program(name: str) -> Path | None:
    """The program of the newest server among Debian's, or on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4].split(".")[0]))
    on_path = shutil.which(name)
    return found[-1] if found else Path(on_path).resolve() if on_path else None


@dataclass(frozen=True)
class Postgres:
    """A running server, which takes connections on one port of this machine, with a password.

    Attributes:
      port: TCP port on 127.0.0.1.
      user: Name of its superuser.
      password: Password of that user.
    """

    port: int
    user: str
    password: str

    def url(self, database: str) -> str:
        """URL of a database, without the password."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Executes a statement outside a transaction; returns its rows."""
        import psycopg

        settings: dict[str, Any] = {"user": self.user, "password": self.password, "dbname": database}
        with psycopg.connect(host="127.0.0.1", port=self.port, autocommit=True, **settings) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, options: str = "") -> str:
        """Creates a database of its own for a test that configures one; returns its name."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server in a temporary folder, stopped at the end. Skips without the server or its driver."""
    initdb, server = _server_program("initdb"), _server_program("postgres")
    if initdb is None or server is None:
        pytest.skip("no PostgreSQL server: `make postgres` installs Debian's as root")
    # The server refuses to run as root. Its folder is not below pytest's, which only root can enter then.
    as_user: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="labeldp-postgres-"))
    if os.geteuid() == 0:
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        (folder / "password").write_text(PASSWORD + "\n")
        (folder / "password").chmod(0o644)
        subprocess.run(
            [initdb, "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--username=tester",
             f"--pwfile={folder / 'password'}", f"--pgdata={folder / 'data'}"],
            check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=START_SECONDS, **as_user,
        )  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # fsync only matters where the machine itself crashes.
        settings = {"listen_addresses": "127.0.0.1", "port": port, "fsync": "off", "max_connections": 150,
                    "unix_socket_directories": folder}  # fmt: skip
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [server, "-D", folder / "data", *(f"--{name}={value}" for name, value in settings.items())],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **as_user,
            )  # fmt: skip
        try:
            running = Postgres(port, "tester", PASSWORD)
            _wait_until_ready(running, process, folder / "log")
            yield running
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: its data is thrown away
            process.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder)


def _wait_until_ready(running: Postgres, process: "subprocess.Popen[Any]", log: Path) -> None:
    import psycopg

    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(psycopg.OperationalError):
            running.execute("SELECT 1")
            return
        time.sleep(0.05)
    pytest.fail(f"PostgreSQL did not start: {log.read_text()}")


@pytest.fixture
def postgres_url(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a database without a table, without the password, which is in the environment."""
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    postgres.execute("DROP TABLE IF EXISTS labeldp_ledger")
    return postgres.url("postgres")


@pytest.fixture
def new_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Function (file, sqlite or postgresql) -> the place of an empty ledger."""

    def make(kind: str) -> str:
        if kind == "postgresql":
            return request.getfixturevalue("postgres_url")
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / 'ledger.sqlite'}"
        return str(tmp_path / "ledger.jsonl")

    return make
