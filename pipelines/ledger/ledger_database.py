"""Ledger in a database, SQLite or PostgreSQL, so that caps hold across machines. Needs the extra `ledger`.

A run is charged in one serializable transaction: it reads all runs of the ledger, checks the caps and appends. Of two
transactions that do so at the same time, PostgreSQL refuses one, which starts again and then reads the other's run;
SQLite lets one wait for the other. Both keep the table `labeldp_ledger`, to which rows are only appended.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import random
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, make_folders, sync_folder
from .charged_runs import corrupt, same_time

_DRIVERS = {
    "sqlite": "sqlite", "sqlite+pysqlite": "sqlite",
    "postgresql": "postgresql+psycopg", "postgresql+psycopg": "postgresql+psycopg",
}  # fmt: skip
_FORMS = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"

_TABLE = "labeldp_ledger"
# `entry` alone decides what was spent. The other columns repeat parts of it, for queries by people; `run` is a digest
# of all of it but the time, so that a charge whose answer was lost is found by the next attempt. A run that is repeated
# later has its time after the digest.
_RUNS = sa.Table(
    _TABLE,
    sa.MetaData(),
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), primary_key=True),
    sa.Column("ledger", sa.Text(), nullable=False),
    sa.Column("run", sa.Text(), nullable=False),
    sa.Column("time", sa.Text(), nullable=False),
    sa.Column("request", sa.Text(), nullable=False),
    sa.Column("input_digest", sa.Text(), nullable=False),
    sa.Column("epsilon", sa.Double(), nullable=False),
    sa.Column("delta", sa.Double(), nullable=False),
    sa.Column("entry", sa.Text(), nullable=False),
    sa.UniqueConstraint("ledger", "run"),
)

_CONNECT_SECONDS = 10
PATIENCE_SECONDS = 60.0
"""How long a charge is attempted again, and how long SQLite waits for another process."""

LONGEST_PAUSE = 1.0
"""Longest time in seconds between two attempts."""

# serialization_failure, deadlock_detected; then what two first runs meet that make the table: unique_violation,
# duplicate_table, duplicate_object (of the type of its rows, where the other run ends between two look-ups).
_CONFLICTS = ("40001", "40P01", "23505", "42P07", "42710")
# admin_shutdown, cannot_connect_now, too_many_connections; an error while connecting or of a lost connection has none.
_OUTAGES = (None, "57P01", "57P03", "53300")

_ADVICE = {
    "sqlite": "check the file and its rights, and that no other process keeps it locked",
    "postgresql": "check the URL, the server, the password (PGPASSWORD or ~/.pgpass) and the rights of the user",
}

_Found = TypeVar("_Found")


def parse_database_url(text: str) -> sa.URL:
    """Parses the URL of a ledger's database: sqlite:///FILE or postgresql://USER@HOST/DATABASE.

    It ends with ?ledger=NAME for one of several ledgers in the database. The result has an absolute path of SQLite's
    file. Raises ValueError if it is malformed or of another database. The message has no part of the URL that may be a
    password.
    """
    scheme, _, rest = text.partition("://")
    if scheme not in _DRIVERS:
        raise ValueError(f"{scheme}:// is no database that a ledger can be kept in: {_FORMS}")
    try:
        url = sa.make_url(text).set(drivername=_DRIVERS[scheme])
    except (ValueError, SQLAlchemyError):
        raise ValueError(f"the URL of the database is malformed: {_FORMS}") from None
    if not isinstance(url.query.get("ledger", ""), str):
        raise ValueError("the URL of the database names several ledgers: name one")
    if scheme.startswith("sqlite"):
        if url.host or not url.database or url.database == ":memory:":
            raise ValueError("the URL of a SQLite database is sqlite:///FILE, or sqlite:////FILE for an absolute path")
        if set(url.query) - {"ledger"}:
            raise ValueError("the URL of a SQLite database takes ?ledger=NAME and nothing else")
        try:
            return url.set(database=absolute(url.database))
        except InputError as error:
            raise ValueError(str(error)) from None
    if rest.count("@") > 1:
        # SQLAlchemy would take the rest of such a password for the host, which messages name.
        raise ValueError("the URL of the database has more than one @: write %40 for one that belongs to a password")
    return url


class LedgerDatabase:
    """Runs in a table of a database.

    Attributes:
      name: URL without password and without the driver's options, for messages.
    """

    def __init__(self, url: str):
        """Names the database. Connects to it only when the ledger is read or charged.

        The URL is one for `parse_database_url`. Raises InputError if it is malformed, and ImportError if the driver is
        not installed.
        """
        try:
            parsed = parse_database_url(url)
        except ValueError as error:
            raise InputError(f"ledger: {error}") from None
        scope = parsed.query.get("ledger")
        self._ledger = str(scope or "")
        self._secrets = [parsed.password, *(str(parsed.query.get(key, "")) for key in ("password", "sslpassword"))]
        self._file = parsed.database if parsed.drivername == "sqlite" else None
        dialect = parsed.get_backend_name()
        # Without the query: a driver's options may be secret, too.
        shown = parsed.set(drivername=dialect, query={"ledger": scope} if scope else {})
        self.name = shown.render_as_string(hide_password=True)
        self._engine = _engine(parsed.difference_update_query(["ledger"]))

    def rows(self) -> list[tuple[str, str]]:
        """Place ("row 1", by its id) and text of each run of the ledger; none if the table does not exist.

        Raises InputError if the database cannot be used.
        """
        if self._file is not None and not os.path.exists(self._file):
            return []
        return [(place, entry) for place, _, entry in self._transaction(self._select, patient=False)]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Does nothing: the transaction of a charge is the lock."""
        yield

    def append(self, run: dict[str, Any], check: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        """Appends a run, or finds it: one that differs from a run of the last minutes in its time alone is not new.

        Conflicts with other runs and failures of the connection are retried for a minute. `check` looks at the rows so
        far, and raises if the run must not be appended; each attempt calls it again. Raises InputError if the database
        cannot be used.
        """
        values = self._values(run)

        def charge(connection: sa.Connection) -> None:
            if connection.dialect.name == "postgresql":
                # A charge must survive a crash of the server, whatever its configuration.
                durable = "SELECT set_config('synchronous_commit', 'on', true) WHERE " \
                    "current_setting('synchronous_commit') = 'off'"  # fmt: skip
                connection.execute(sa.text(durable))
            before = self._select(connection)
            check([(place, entry) for place, _, entry in before])
            key, again = values["run"], False
            for place, found, entry in before:
                if found.partition(" ")[0] != key:
                    continue
                earlier = json.loads(entry)
                if _run_key(earlier) != key:
                    # The entry was edited: what it says is not what was charged.
                    raise corrupt(self.name, place)
                if same_time(earlier.get("time"), run["time"]):
                    return
                again = True
            _RUNS.create(connection, checkfirst=True)
            connection.execute(_RUNS.insert().values(values | ({"run": f"{key} {run['time']}"} if again else {})))

        if self._file is not None:
            _create_private(self._file)
        self._transaction(charge, patient=True)

    def _values(self, run: dict[str, Any]) -> dict[str, Any]:
        return {
            "ledger": self._ledger,
            "run": _run_key(run),
            "time": run["time"],
            "request": str(run["request"]),
            "input_digest": str(run.get("input_digest", "")),
            "epsilon": math.fsum(charge["epsilon"] for charge in run["charges"]),
            "delta": math.fsum(charge.get("delta", 0.0) for charge in run["charges"]),
            "entry": json.dumps(run),
        }

    def _select(self, connection: sa.Connection) -> list[tuple[str, str, str]]:
        if not sa.inspect(connection).has_table(_TABLE):
            return []
        columns = sa.select(_RUNS.c.id, _RUNS.c.run, _RUNS.c.entry)
        found = connection.execute(columns.where(_RUNS.c.ledger == self._ledger).order_by(_RUNS.c.id))
        return [(f"row {id}", run, entry) for id, run, entry in found]

    def _transaction(self, work: Callable[[sa.Connection], _Found], patient: bool) -> _Found:
        """Does the work in a serializable transaction, again if it met another one; it may be called several times.

        If `patient`, starts again after a failure of the connection, too: at the end of a long job, the database was
        reached before.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        # One connection serves all attempts: connecting takes longer than a charge. SQLAlchemy replaces a lost one.
        connection = None
        try:
            for attempt in itertools.count():
                try:
                    connection = connection or self._engine.connect()
                    with connection.begin():
                        return work(connection)
                except DBAPIError as error:
                    state = getattr(error.orig, "sqlstate", None)
                    outage = self._file is None and isinstance(error, OperationalError) and state in _OUTAGES
                    if not (state in _CONFLICTS or (patient and outage)) or time.monotonic() > end:
                        advice = _ADVICE[self._engine.dialect.name]
                        raise InputError(
                            f"ledger {self.name} cannot be used ({self._reason(error)}): {advice}"
                        ) from None
                _pause(attempt)
            raise AssertionError("unreachable")
        finally:
            if connection is not None:
                connection.close()

    def _reason(self, error: DBAPIError) -> str:
        primary = getattr(getattr(error.orig, "diag", None), "message_primary", None)
        reason = " ".join(str(primary or error.orig).split())
        for secret in filter(None, self._secrets):
            reason = reason.replace(secret, "***")
        return reason


def _run_key(run: dict[str, Any]) -> str:
    timeless = json.dumps({key: value for key, value in run.items() if key != "time"}, sort_keys=True)
    return hashlib.blake2b(timeless.encode(), digest_size=16).hexdigest()


def _engine(url: sa.URL) -> sa.Engine:
    if url.drivername != "sqlite":
        # Without the encoding, a database of encoding SQL_ASCII gives bytes for text.
        url = url.update_query_dict(
            {"connect_timeout": str(_CONNECT_SECONDS)} | dict(url.query) | {"client_encoding": "utf8"}
        )
        return sa.create_engine(url, isolation_level="SERIALIZABLE", poolclass=sa.NullPool)
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"timeout": PATIENCE_SECONDS})

    # Python's driver starts a transaction only at the first write, so that two could read the same sums.
    @event.listens_for(engine, "connect")
    def without_implicit_transactions(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _pause(attempt: int) -> None:
    """Waits a random time, so that runs that met do not meet again: longer after each attempt, up to a second."""
    time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.01 * 2**attempt)))


def _create_private(path: str) -> None:
    """Creates the file of an SQLite database with mode 0600, unless it exists: SQLite would let everyone read it.

    The file is not opened: closing it would end the locks that another thread of the process may have on it by then.
    """
    folder = os.path.dirname(path)
    make_folders(folder)
    with contextlib.suppress(FileExistsError):
        try:
            os.mknod(path, stat.S_IFREG | 0o600)
        except PermissionError:
            # macOS lets the superuser alone make a file so.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(folder)
