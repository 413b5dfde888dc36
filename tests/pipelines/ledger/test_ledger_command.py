"""`labeldp ledger`: its table and sums, by hand, and what it refuses."""

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DAY = 86_400


def line(days_ago: float, release: str, epsilon: float = 0.5, **details: Any) -> dict[str, Any]:
    """A run that was charged some days ago."""
    charged = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days_ago * DAY))
    adjacency = "unit" if "unit" in details else "label"
    charge = {"what": "labels", "epsilon": epsilon, "release": release}
    run = {"time": charged, "command": "privatize", "request": release, "label": "weeks", "output": f"out/{release}"}
    return {**run, "adjacency": adjacency, "charges": [charge]} | details


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[..., str]:
    """Function (runs) -> the path of a ledger."""

    def write(*runs: dict[str, Any]) -> str:
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(json.dumps(run) + "\n" for run in runs))
        return str(path)

    return write


USER = {"column": "user", "max_records": 5}


def test_in_a_process_of_its_own(ledger: Any, spawn: Any) -> None:
    """The extra ledger is installed, so that all sums are printed."""
    written = [*(line(n - 0.5, f"r{n}", unit=USER) for n in range(40, 0, -1)), line(0.4, "r3", unit=USER)]
    path = ledger(*written)
    flags = ["--unit_column=user", "--cap_window=30d", "--epsilon_cap=31", "--delta=1e-6"]
    outcome = spawn(["ledger", path, *flags]).ok()

    assert outcome.err == ""
    head, *rows, empty, runs, releases, epsilon, composed, largest, remains = outcome.out.splitlines()
    assert head.split() == ["day", "command", "label", "unit", "epsilon", "delta", "output"]
    assert [row.split()[0] for row in rows] == [run["time"][:10] for run in written]
    assert rows[0].split()[1:] == ["privatize", "weeks", "user", "(at", "most", "5)", "0.5", "0", "out/r40"]
    assert empty == ""
    assert runs == "runs       31 of the last 30d, 41 in all"
    assert releases == "releases   30, of 30 noised parts; a repeated run makes no new release"
    assert epsilon == "epsilon    15 with delta 0 per user, by basic composition"
    assert composed.startswith("composed   13.9")
    assert composed.endswith(" with delta 1e-06, by privacy loss distributions")
    # Windows are longer by the tolerance of clocks: runs at the same time of 31 days are in one.
    assert largest == "largest    15.5 with delta 0 within any 30d"
    assert remains == "remains    16 of --epsilon_cap 31"


def test_sums_of_all_time(ledger: Any, invoke: Any, tmp_path: Path) -> None:
    path = ledger(*(line(9 - number, f"{number}", 0.1) for number in range(9)), line(0, "8", 0.1))
    table = tmp_path / "table.json"
    outcome = invoke(["ledger", path, "--epsilon_cap=1", f"--json={table}"]).ok()

    assert outcome.out.splitlines()[-4:] == [
        "runs       10",
        "releases   9, of 9 noised parts; a repeated run makes no new release",
        "epsilon    0.9 with delta 0 per record, by basic composition",
        "remains    0.1 of --epsilon_cap 1",
    ]
    document = json.loads(table.read_text())
    assert len(document["rows"]) == document["runs_counted"] == 10
    assert document["rows"][0] == {
        "day": document["rows"][0]["day"], "command": "privatize", "label": "weeks", "unit": "record", "epsilon": 0.1,
        "delta": 0.0, "output": "out/0",
    }  # fmt: skip
    assert document["epsilon"] == 0.9
    assert document["epsilon_remaining"] == 0.1
    assert (document["parts"], document["composed_epsilon"], document["largest_epsilon"]) == (9, None, None)
    assert (
        "remains    0 of --epsilon_cap 0.5 (it is exceeded)" in invoke(["ledger", path, "--epsilon_cap=0.5"]).ok().out
    )


def test_what_remains_may_be_spent_and_no_more(
    ledger: Any, invoke: Any, job: Any, outputs: Path, tmp_path: Path
) -> None:
    path, table = ledger(line(40, "old", 3.0), line(1, "new", 0.3)), tmp_path / "table.json"
    caps = {"epsilon_cap": 1, "cap_window": "30d"}
    invoke(["ledger", path, *(f"--{name}={value}" for name, value in caps.items()), f"--json={table}"]).ok()
    remaining = json.loads(table.read_text())["epsilon_remaining"]
    assert remaining == pytest.approx(0.7)
    assert invoke(job(ledger=path, epsilon=remaining + 1e-9, **caps)).code == 2
    invoke(job(ledger=path, epsilon=remaining, **caps)).ok()


def test_runs_that_bound_nothing_for_the_unit(ledger: Any, invoke: Any, tmp_path: Path) -> None:
    path = ledger(line(9, "a"), line(8, "b", unit=USER), line(7, "c", unit={"column": "household", "max_records": 9}))
    table = tmp_path / "table.json"
    out = invoke(["ledger", path, "--unit_column=user", "--epsilon_cap=3", f"--json={table}"]).ok().out
    assert out.splitlines()[-1].startswith("epsilon    unknown per user: 2 runs charged otherwise, that of 20")
    assert out.splitlines()[-1].endswith("Z privatize of label weeks per record")
    document = json.loads(table.read_text())
    assert document["epsilon"] is document["epsilon_remaining"] is document["composed_epsilon"] is None
    out = invoke(["ledger", path, "--unit_column=user", "--cap_window=180h"]).ok().out
    assert out.splitlines()[-1].endswith("1 run charged otherwise, that of " + out.splitlines()[-1].partition("of ")[2])
    assert "epsilon    1.5 with delta 0 per record" in invoke(["ledger", path]).ok().out


def test_a_delta_that_the_releases_exceed(ledger: Any, invoke: Any) -> None:
    approximate = [{"what": "labels", "epsilon": 1.0, "release": "a", "delta": 1e-5}]
    path = ledger(line(1, "a", charges=approximate))
    out = invoke(["ledger", path, "--delta=1e-6"]).ok().out
    assert "epsilon    1 with delta 1e-05 per record, by basic composition" in out
    assert "composed   no bound with delta 1e-06, by privacy loss distributions" in out
    assert (
        "composed   1 with delta 1e-05, by privacy loss distributions"
        in invoke(["ledger", path, "--delta=1e-5"]).ok().out
    )


def test_clocks_that_were_wrong_are_named(ledger: Any, invoke: Any) -> None:
    path = ledger(line(9, "a"), line(90, "b"), line(5, "c"), line(1, "d"), line(-400, "e"))
    outcome = invoke(["ledger", path, "--cap_window=7d"]).ok()
    assert "runs       4 of the last 7d, 5 in all\nreleases   4, of 4 noised parts" in outcome.out
    assert "epsilon    2 with delta 0 per record" in outcome.out
    assert "largest    2 with delta 0 within any 7d" in outcome.out  # it has the run of the future, too
    back, ahead = outcome.err.splitlines()
    assert "the time of a run is missing or before that of an earlier run, 1 times, first in the run of 20" in back
    assert "is in the future: it stays in every window until then; if a clock was wrong, correct the time" in ahead


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing"], "missing is not a file: name the ledger that was charged"),
        (["."], ". is not a file"),
        (
            ["mysql://u:hunter2@h/db"],
            "mysql:// holds no ledger: name a file, s3://, gs://, sqlite:///FILE or postgresql:",
        ),
        (
            ["LEDGER", "--cap_window=30"],
            "--cap_window takes a whole number of hours, days or weeks, such as 12h, 30d or",
        ),
        (["LEDGER", "--epsilon_cap=0"], "--epsilon_cap must be above 0, not 0"),
        (["LEDGER", "--epsilon_cap=nan"], "--epsilon_cap must be above 0"),
        (["LEDGER", "--delta=0"], "--delta must be from 1e-10 to below 1, not 0"),
        (["LEDGER", "--delta=nan"], "--delta must be from 1e-10 to below 1"),
        (["LEDGER", "--json=missing/table.json"], "--json missing/table.json lies in a folder that does not exist"),
        (["LEDGER", "--s3_endpoint_url=http://h"], "flags of an object store need a URL"),
        (["LEDGER", "--epsilon_cpa=1"], "unknown flag --epsilon_cpa; did you mean --epsilon_cap?"),
        (["s3://u:hunter2@bucket/ledger"], "takes no credentials"),
    ],
)
def test_bad_usage(ledger: Any, invoke: Any, arguments: list[str], said: str) -> None:
    path = ledger(line(1, "a"))
    outcome = invoke(["ledger", *(path if each == "LEDGER" else each for each in arguments)])
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.error
    assert "hunter2" not in outcome.err


def test_without_the_extra_the_error_names_it(ledger: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dp_accounting", "sqlalchemy"):
        monkeypatch.setitem(sys.modules, module, None)
    path = ledger(line(1, "a"))
    outcome = invoke(["ledger", path, "--delta=1e-6"])
    assert outcome.code == 2
    assert "--delta needs the extra ledger: pip install 'labeldp[ledger]'" in outcome.error
    assert "needs the extra ledger" in invoke(["ledger", f"sqlite:///{path}"]).error
    invoke(["ledger", path]).ok()


def test_a_corrupt_ledger(ledger: Any, invoke: Any) -> None:
    path = ledger(line(1, "a"), {"request": "b"})
    outcome = invoke(["ledger", path])
    assert outcome.code == 1
    assert f"ledger {path} is corrupt (line 2)" in outcome.error


def test_names_in_a_ledger_forge_no_line(ledger: Any, invoke: Any) -> None:
    path = ledger(line(1, "a", label="x\nremains    9", output="o\r\u202e", unit={"column": "u\n", "max_records": 1}))
    out = invoke(["ledger", path, "--unit_column=u\n"]).ok().out
    assert "x\\nremains" in out
    assert len(out.splitlines()) == 6
    assert not [character for character in out if not character.isprintable() and character != "\n"]


def test_a_database(tmp_path: Path, invoke: Any) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry

    place = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    assert invoke(["ledger", place]).ok().out.splitlines() == [
        "runs       0",
        "releases   0, of 0 noised parts; a repeated run makes no new release",
        "epsilon    0 with delta 0 per record, by basic composition",
    ]
    assert not (tmp_path / "ledger.sqlite").exists()
    Ledger(f"{place}?ledger=clicks").charge([LedgerEntry("labels", 0.75, "a")], Caps(), request="r")
    out = invoke(["ledger", f"{place}?ledger=clicks", "--cap_window=1h"]).ok().out
    assert "epsilon    0.75 with delta 0 per record, by basic composition" in out
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM labeldp_ledger").fetchone() == (1,)
    connection.close()
