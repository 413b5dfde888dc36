"""Ledger in a database: SQLite always, PostgreSQL where there is a server."""

import json
import sqlite3
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("postgres")
KINDS = ["sqlite", "postgresql"]
SECRET = "hunter2"

Execute = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, new_ledger: Any) -> str:
    """URL of a database without a table."""
    return new_ledger(request.param)


@pytest.fixture
def execute(request: pytest.FixtureRequest, place: str) -> Execute:
    """Function (SQL statement) -> its rows. Does not use the code under test."""
    if not place.startswith("sqlite"):
        server, database = request.getfixturevalue("postgres"), place.rpartition("/")[2]
        return lambda statement: server.execute(statement, database)

    def run(statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(place.removeprefix("sqlite:///"))
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    return run


def charge(place: str, release: str, epsilon: float = 0.5, cap: float | None = None, **details: Any) -> None:
    """Charges one release of labels."""
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry

    ledger = Ledger(place)
    with ledger.locked():
        ledger.charge([LedgerEntry("labels", epsilon, release)], Caps(cap), **{"request": release} | details)


def spent(place: str) -> Fraction:
    """Epsilon in a ledger."""
    from labeldp.pipelines.ledger.ledger import Ledger

    return Ledger(place).spent().epsilon


def refusal(place: str) -> str:
    """Text of the error of reading a ledger."""
    from labeldp.pipelines.ledger.ledger import Ledger
    from labeldp.transforms import InputError

    with pytest.raises(InputError) as found:
        Ledger(place).runs()
    assert "\n" not in str(found.value)
    return str(found.value)


def test_what_is_charged_is_read_back(place: str, execute: Execute) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry

    ledger = Ledger(place)
    assert ledger.runs() == []
    entries = [LedgerEntry("prior", 0.1, "a"), LedgerEntry("labels", 0.2, "a-b", 1e-6)]
    ledger.charge(entries, Caps(), request="r", input_digest="d", label="é\x00", output="o")

    [run] = ledger.runs()
    assert run["charges"] == [entry.to_dict() for entry in entries]
    assert (run["request"], run["label"], run["output"], run["adjacency"]) == ("r", "é\x00", "o", "label")
    assert ledger.spent() == (Fraction("0.3"), Fraction("1e-6"))
    assert ledger.has_request("r")
    assert not ledger.has_request("s")
    [row] = execute("SELECT ledger, time, request, input_digest, epsilon, delta, entry FROM labeldp_ledger")
    assert row == ("", run["time"], "r", "d", 0.1 + 0.2, 1e-6, json.dumps(run))


def test_nothing_is_created_by_reading_or_by_a_refused_charge(place: str, execute: Execute) -> None:
    from labeldp.transforms import InputError

    assert spent(place) == 0
    if place.startswith("sqlite"):
        assert not Path(place.removeprefix("sqlite:///")).exists()
    with pytest.raises(InputError, match=r"--epsilon_cap 0.4 would be exceeded.*; nothing is released"):
        charge(place, "a", 0.5, cap=0.4)
    with pytest.raises(Exception, match="labeldp_ledger"):
        execute("SELECT 1 FROM labeldp_ledger")


def test_a_run_again_is_found_and_one_to_another_output_is_written_down(place: str, monkeypatch: Any) -> None:
    """Windows of caps are longer by more than the minutes for which a run is found."""
    from labeldp.pipelines.ledger import ledger

    def at(minute: int) -> None:
        monkeypatch.setattr(ledger.time, "gmtime", lambda: (2100, 1, 1, 0, minute, 0, 0, 1, 0))

    at(0)
    charge(place, "a", output="x")
    at(10)
    charge(place, "a", output="x", cap=0.5)
    assert len(ledger.Ledger(place).runs()) == 1
    charge(place, "a", output="y", cap=0.5)
    assert [run["output"] for run in ledger.Ledger(place).runs()] == ["x", "y"]
    assert spent(place) == Fraction(0.5)


def test_a_run_that_is_repeated_later_is_written_down_with_its_time(
    place: str, execute: Execute, monkeypatch: Any
) -> None:
    """A window has the releases of its time, those that were made before among them."""
    from labeldp.pipelines.ledger import ledger

    for month in (1, 2, 2, 3):
        monkeypatch.setattr(ledger.time, "gmtime", lambda month=month: (2100, month, 1, 0, 0, 0, 0, 1, 0))
        charge(place, "a", output="x", cap=0.5)
    assert [run["time"][:10] for run in ledger.Ledger(place).runs()] == ["2100-01-01", "2100-02-01", "2100-03-01"]
    assert spent(place) == Fraction(0.5)
    (first,), (second,), (third,) = execute("SELECT run FROM labeldp_ledger ORDER BY id")
    assert [second, third] == [f"{first} 2100-02-01T00:00:00Z", f"{first} 2100-03-01T00:00:00Z"]


def test_one_request_with_other_releases_is_charged_again(place: str) -> None:
    """A request does not name the noise key, the content of the input and the mechanism file: the releases do."""
    charge(place, "a", request="r", output="x")
    charge(place, "b", request="r", output="x")
    assert spent(place) == 1


def test_ledgers_in_one_database_have_sums_of_their_own(place: str) -> None:
    for name in ("", "?ledger=clicks", "?ledger=views"):
        charge(f"{place}{name}", "a", cap=0.5)
        charge(f"{place}{name}", "a", cap=0.5)
    assert spent(f"{place}?ledger=clicks") == Fraction(0.5)
    assert spent(f"{place}?ledger=sales") == 0


@pytest.mark.parametrize("entry", ["", "{", "[]", '{"request": "r", "charges": [{"epsilon": -1, "release": "a"}]}'])
def test_a_corrupt_row_is_named_by_its_id(place: str, execute: Execute, entry: str) -> None:
    from labeldp.transforms import InputError

    for name in "abc":
        charge(place, name)
    execute(f"UPDATE labeldp_ledger SET entry = '{entry}' WHERE id = 2")

    assert refusal(place).endswith("is corrupt (row 2); restore it from a backup before releasing again")
    with pytest.raises(InputError, match=r"is corrupt \(row 2\)"):
        charge(place, "d")
    assert execute("SELECT count(*) FROM labeldp_ledger") == [(3,)]


def test_an_edited_entry_does_not_stand_for_the_charge(place: str, execute: Execute) -> None:
    """Else the run again would be found, and released for the epsilon that was edited."""
    from labeldp.transforms import InputError

    charge(place, "a", 0.5)
    execute("UPDATE labeldp_ledger SET entry = replace(entry, '0.5', '0.0')")
    with pytest.raises(InputError, match=r"is corrupt \(row 1\)"):
        charge(place, "a", 0.5)


def test_a_row_that_was_written_by_hand_counts(place: str, execute: Execute) -> None:
    """As the guides say: streams and pipelines in Python charge no ledger."""
    charge(place, "a")
    entry = {"request": "stream", "charges": [{"what": "labels", "epsilon": 0.25, "release": "b"}]}
    execute(
        "INSERT INTO labeldp_ledger (ledger, run, time, request, input_digest, epsilon, delta, entry) "
        f"VALUES ('', 'stream', '2026-11-22T00:00:00Z', 'stream', '', 0.25, 0, '{json.dumps(entry)}')"
    )
    assert spent(place) == Fraction(0.75)


def test_a_crash_before_the_publication_leaves_a_charge_that_the_run_again_finds(
    place: str, job: Any, invoke: Any, outputs: Path, execute: Execute, monkeypatch: Any, tree: Any
) -> None:
    from labeldp.pipelines.publish import release_steps

    def crash(*_: Any) -> None:
        raise RuntimeError("power off")

    with monkeypatch.context() as patched:
        patched.setattr(release_steps, "publish_folder", crash)
        assert invoke(job(ledger=place, epsilon_cap=1)).code == 1
    assert list(outputs.iterdir()) == []
    once = spent(place)
    assert 0 < once <= 1

    invoke(job(ledger=place, epsilon_cap=1)).ok()
    assert spent(place) == once
    [(entry,)] = execute("SELECT entry FROM labeldp_ledger")
    assert json.loads(entry)["output"] == str(outputs / "released")
    refused = invoke(job(ledger=place, epsilon_cap=1, epsilon=0.5, output=outputs / "more"))
    assert refused.code == 2
    assert "--epsilon_cap 1 would be exceeded" in refused.error
    assert set(outputs.iterdir()) == {outputs / "released"}


def test_a_charge_survives_a_lost_connection(postgres: Any, postgres_url: str, monkeypatch: Any) -> None:
    """At the end of a long job the server may restart. The answer to the commit is lost here, after it was made."""
    from labeldp.pipelines.ledger import ledger_database
    from sqlalchemy.dialects.postgresql.psycopg import dialect

    commit, attempts = dialect.do_commit, []

    def lose(self: Any, connection: Any) -> None:
        commit(self, connection)
        attempts.append(connection)
        if len(attempts) == 1:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(ledger_database, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(dialect, "do_commit", lose)
    charge(postgres_url, "a")

    assert len(attempts) >= 2
    assert postgres.execute("SELECT id FROM labeldp_ledger", postgres_url.rpartition("/")[2]) == [(1,)]


def test_a_first_charge_meets_the_type_of_the_table_of_another(
    postgres: Any, postgres_url: str, monkeypatch: Any
) -> None:
    """PostgreSQL looks for a table of the name, then for its type: another run may make both in between."""
    from labeldp.pipelines.ledger import ledger_database

    database, attempts = postgres_url.rpartition("/")[2], []

    def pause(attempt: int) -> None:
        attempts.append(attempt)
        postgres.execute("DROP TYPE labeldp_ledger", database)

    monkeypatch.setattr(ledger_database, "_pause", pause)
    postgres.execute("CREATE TYPE labeldp_ledger AS ENUM ()", database)
    charge(postgres_url, "a")
    assert attempts == [0]
    assert postgres.execute("SELECT id FROM labeldp_ledger", database) == [(1,)]


def test_charges_are_serializable_and_durable(postgres: Any, monkeypatch: Any) -> None:
    """For all defaults of the server."""
    from labeldp.pipelines.ledger.ledger_database import LedgerDatabase
    from sqlalchemy import event

    monkeypatch.setenv("PGPASSWORD", postgres.password)
    database = postgres.create_database()
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    store, seen = LedgerDatabase(postgres.url(database)), []

    @event.listens_for(store._engine, "commit")
    def look(connection: Any) -> None:
        for setting in ("transaction_isolation", "synchronous_commit"):
            seen.append(connection.exec_driver_sql(f"SHOW {setting}").scalar())

    run = {"time": "", "request": "b", "charges": [{"what": "labels", "epsilon": 0.1, "release": "b"}]}
    store.append(run, lambda _: None)
    assert seen[-2:] == ["serializable", "on"]


def test_another_process_that_keeps_the_file_locked(new_ledger: Any, monkeypatch: Any) -> None:
    from labeldp.pipelines.ledger import ledger_database

    monkeypatch.setattr(ledger_database, "PATIENCE_SECONDS", 0.1)
    place = new_ledger("sqlite")
    charge(place, "a")
    other = sqlite3.connect(place.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        assert "cannot be used (database is locked): check the file and its rights" in refusal(place)
    finally:
        other.close()
    assert spent(place) == Fraction(0.5)


def test_a_file_that_is_no_database(new_ledger: Any) -> None:
    place = new_ledger("sqlite")
    Path(place.removeprefix("sqlite:///")).write_text('{"request": "a line of a ledger file", "charges": []}\n' * 20)
    assert "cannot be used (file is not a database): check the file" in refusal(place)


@pytest.mark.parametrize(("kind", "module"), [("sqlite", "sqlalchemy"), ("postgresql", "psycopg")])
def test_without_the_extra_the_error_names_it(
    job: Any, invoke: Any, tmp_path: Path, monkeypatch: Any, kind: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    outcome = invoke(job(ledger=f"sqlite:///{tmp_path}/l" if kind == "sqlite" else f"postgresql://u:{SECRET}@h/db"))
    assert outcome.code == 2
    assert "needs the extra ledger: pip install 'labeldp[ledger]'" in outcome.error
    assert SECRET not in outcome.err


def test_a_report_shows_a_ledger_elsewhere(place: str, job: Any, invoke: Any, outputs: Path, tmp_path: Path) -> None:
    invoke(job(ledger=place)).ok()
    page = tmp_path / "page.html"
    invoke(["report", str(outputs / "released"), f"--output={page}", f"--ledger={place}"]).ok()
    assert "Privacy ledger" in page.read_text()
    assert "does not contain the whole release" not in page.read_text()
    assert place not in page.read_text()

    outcome = invoke(["report", str(outputs / "released"), f"--output={tmp_path / 'no'}", "--ledger=missing"])
    assert outcome.code == 2
    assert "--ledger missing is not a file" in outcome.error


def test_an_unreachable_server_ends_the_job_before_it_starts(
    job: Any, invoke: Any, outputs: Path, monkeypatch: Any
) -> None:
    from labeldp.pipelines.job import job_graph

    monkeypatch.setattr(job_graph, "run_pipeline", lambda *_: pytest.fail("the job was started"))
    outcome = invoke(job(ledger=f"postgresql://u:{SECRET}@127.0.0.1:1/db?ledger=x"))

    assert outcome.code == 1
    assert "ledger postgresql://u:***@127.0.0.1:1/db?ledger=x cannot be used (connection failed" in outcome.error
    assert "check the URL, the server, the password (PGPASSWORD or ~/.pgpass)" in outcome.error
    assert SECRET not in outcome.err
    assert list(outputs.iterdir()) == []


def test_errors_of_the_server_are_one_line_without_the_password(
    postgres: Any, postgres_url: str, monkeypatch: Any
) -> None:
    host = f"127.0.0.1:{postgres.port}"
    database = postgres_url.rpartition("/")[2]
    assert 'database "missing" does not exist' in refusal(postgres.url("missing"))
    assert 'password authentication failed for user "tester"' in refusal(
        f"postgresql://tester:{SECRET}@{host}/postgres"
    )
    assert "invalid connection option" in refusal(f"{postgres_url}?leger=x")
    assert SECRET not in refusal(f"{postgres_url}?password={SECRET}")
    charge(postgres_url, "a")
    postgres.execute(f"CREATE ROLE reader_{database} LOGIN PASSWORD '{SECRET}'")
    reader = f"postgresql://reader_{database}@{host}/{database}"
    monkeypatch.setenv("PGPASSWORD", SECRET)
    assert "permission denied for table labeldp_ledger" in refusal(reader)
    assert SECRET not in refusal(reader)


def test_a_user_may_only_append(postgres: Any, postgres_url: str, monkeypatch: Any) -> None:
    """The rights that the guide recommends are enough."""
    database = postgres_url.rpartition("/")[2]
    charge(postgres_url, "a")
    postgres.execute(f"CREATE ROLE writer_{database} LOGIN PASSWORD '{SECRET}'")
    postgres.execute(f"GRANT SELECT, INSERT ON labeldp_ledger TO writer_{database}", database)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    charge(f"postgresql://writer_{database}@127.0.0.1:{postgres.port}/{database}", "b", cap=1)
    assert postgres.execute("SELECT id FROM labeldp_ledger ORDER BY id", database) == [(1,), (2,)]


def test_a_password_in_the_url_is_used_and_never_shown(
    job: Any, invoke: Any, outputs: Path, postgres: Any, tree: Any, monkeypatch: Any
) -> None:
    """Neither in messages and files nor in the job graph, whose options a runner displays."""
    from urllib.parse import quote

    import apache_beam as beam
    from labeldp.pipelines.job import job_graph, run_pipeline

    graphs = []

    def run(options: Any, wire: Any, *rest: Any) -> None:
        pipeline = beam.Pipeline(options=options)
        wire(pipeline)
        graphs.append(pipeline.to_runner_api().SerializeToString() + repr(options.get_all_options()).encode())
        run_pipeline.run_pipeline(options, wire, *rest)

    monkeypatch.setattr(job_graph, "run_pipeline", run)
    database = postgres.create_database()
    secret = quote(postgres.password, safe="")
    url = f"postgresql://{postgres.user}:{secret}@127.0.0.1:{postgres.port}/{database}"
    outcome = invoke(job(ledger=url, epsilon_cap=1)).ok()
    refused = invoke(job(ledger=url, epsilon_cap=1, epsilon=0.5, output=outputs / "more"))

    assert refused.code == 2
    assert f"postgresql://tester:***@127.0.0.1:{postgres.port}/{database}" in refused.error
    assert "the password in --ledger is in the list of processes: set PGPASSWORD" in outcome.err
    [(entry,)] = postgres.execute("SELECT entry FROM labeldp_ledger", database)
    seen = [outcome.out, outcome.err, refused.err, entry, *map(repr, tree(outputs).values()), *map(repr, graphs)]
    assert len(graphs) == 1
    assert not [
        text
        for text in seen
        if secret in text or postgres.password in text or "tester:" in text.replace("tester:***", "")
    ]
