"""Caps within a window of time, from the command line and in each kind of store."""

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("postgres")
DAY = 86_400


@pytest.fixture
def days_ago(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Function (days) that sets the clock of the ledger back from now."""
    from labeldp.pipelines.ledger import ledger

    now, gmtime = time.time(), time.gmtime
    return lambda days: monkeypatch.setattr(ledger.time, "gmtime", lambda *_: gmtime(now - days * DAY))


@pytest.mark.parametrize("kind", ["file", "sqlite", "postgresql"])
def test_a_release_a_day_within_a_window(kind: str, new_ledger: Any, days_ago: Any) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry
    from labeldp.pipelines.ledger.spent_budget import Window
    from labeldp.transforms import InputError

    place, caps = new_ledger(kind), Caps(8.0, None, Window.parse("7d"))

    def charge(release: str, unit: dict[str, Any] | None = None) -> None:
        ledger = Ledger(place)
        with ledger.locked():
            ledger.charge(
                [LedgerEntry("labels", 1.0, release)], caps, request=release, **({"unit": unit} if unit else {})
            )

    for day in range(20, 0, -1):
        days_ago(day + 0.02 * (day % 2))  # an early run shares windows of 7 days with 7 earlier ones
        charge(f"day {day}")
    days_ago(0.99)
    with pytest.raises(InputError, match=r"--epsilon_cap 8 .* the epsilon spent within 7d is 9 \(ledger .*nothing is"):
        charge("another")
    with pytest.raises(InputError, match=r"--epsilon_cap 8 .* is 9 "):
        charge("day 20")  # a release of another week is in this one as well
    charge("day 3")
    with pytest.raises(InputError, match=r"per user cannot be kept: .* or wait until it was 7d ago"):
        charge("of a user", {"column": "user", "max_records": 2})
    ledger = Ledger(place)
    assert ledger.spent().epsilon == 20
    assert ledger.spent(window=caps.window).epsilon == 8
    days_ago(-10)
    charge("of a user", {"column": "user", "max_records": 2})
    assert Ledger(place).runs()[-1]["adjacency"] == "unit"
    assert Ledger(place).runs()[-1]["unit"] == {"column": "user", "max_records": 2}


def test_a_job_that_would_exceed_the_window_does_not_start(
    job: Any, invoke: Any, outputs: Path, days_ago: Any, monkeypatch: Any, spent: Any
) -> None:
    from labeldp.pipelines.job import job_graph

    capped = {"epsilon_cap": 1, "cap_window": "4w"}
    days_ago(40)
    invoke(job(**capped)).ok()
    days_ago(1)
    invoke(job(epsilon=0.75, output=outputs / "second", **capped)).ok()
    assert spent(outputs) > Fraction(1.7)
    said = invoke([*job(epsilon=0.5, output=outputs / "third", epsilon_cap=2, cap_window="4w"), "--dry_run"]).ok().out
    assert "which has 0.75 of the last 4w, of 2 allowed" in said
    monkeypatch.setattr(job_graph, "run_pipeline", lambda *_: pytest.fail("the job was started"))
    refused = invoke(job(epsilon=0.5, output=outputs / "third", **capped))
    assert refused.code == 2
    assert (
        "--epsilon_cap 1 would be exceeded: with this run the epsilon spent within 4w is 1.25; ledger" in refused.error
    )
    refused = invoke(job(epsilon=0.5, output=outputs / "third", epsilon_cap=2))
    assert "with this run the epsilon spent is 2.25; ledger" in refused.error
