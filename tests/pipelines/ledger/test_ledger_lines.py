"""File of the ledger: a line that a crash or a full disk tore is completed or taken back, and no charge is lost."""

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry, append_line, read_ledger
from labeldp.transforms import InputError, StageError

FIRST, SECOND, THIRD = (
    json.dumps({"request": name, "charges": [{"what": "labels", "epsilon": 1, "release": name}]})
    for name in ("first", "second", "third")
)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Path of a ledger of one line."""
    path = tmp_path / "ledger.jsonl"
    append_line(str(path), FIRST)
    return path


def test_lines_are_appended_and_nothing_else_is_left(ledger: Path) -> None:
    append_line(str(ledger), SECOND)
    assert ledger.read_text() == f"{FIRST}\n{SECOND}\n"
    assert list(ledger.parent.iterdir()) == [ledger]


@pytest.mark.parametrize("torn", range(len(SECOND) + 2))
def test_a_process_that_is_killed_while_it_appends(ledger: Path, torn: int) -> None:
    """From the first byte on, the charge counts. It is never lost, and the ledger is never corrupt."""
    ledger.with_name("ledger.jsonl.pending").write_text(f"{SECOND}\n")
    with ledger.open("a") as file:
        file.write(f"{SECOND}\n"[:torn])

    counted = [FIRST, SECOND] if torn else [FIRST]
    assert read_ledger(str(ledger)).splitlines() == counted
    assert Ledger(str(ledger)).spent().epsilon == len(counted)
    assert Ledger(str(ledger)).has_request("second") == bool(torn)
    append_line(str(ledger), THIRD)
    assert ledger.read_text().splitlines() == [*counted, THIRD]
    assert list(ledger.parent.iterdir()) == [ledger]


@pytest.mark.parametrize("pending", [None, "", SECOND[:20], f"{THIRD}\n"])
def test_a_line_that_lost_its_end_otherwise_is_corrupt(ledger: Path, pending: str | None) -> None:
    """The lost end may have been a charge: the ledger is to be restored, not repaired."""
    if pending is not None:
        ledger.with_name("ledger.jsonl.pending").write_text(pending)
    with ledger.open("a") as file:
        file.write(SECOND[:-5])
    with pytest.raises(InputError, match=r"corrupt \(line 2\)"):
        Ledger(str(ledger)).charge([LedgerEntry("labels", 1, "third")], Caps(), request="third")
    assert ledger.read_text() == f"{FIRST}\n{SECOND[:-5]}"


def test_a_missing_newline_of_an_editor(ledger: Path) -> None:
    ledger.write_text(FIRST)
    append_line(str(ledger), SECOND)
    assert ledger.read_text() == f"{FIRST}\n{SECOND}\n"


@pytest.fixture
def no_file_grows(ledger: Path) -> Iterator[None]:
    """Lets the kernel refuse what would make a file longer than the ledger with half a line more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.stat().st_size + len(SECOND) // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_that_does_not_fit_is_taken_back(ledger: Path, no_file_grows: None) -> None:
    """The kernel writes the first half of the line before it fails."""
    with pytest.raises(StageError, match=f"^charging the ledger {ledger} failed: File too large$"):
        append_line(str(ledger), SECOND)
    assert ledger.read_text() == f"{FIRST}\n"
    assert list(ledger.parent.iterdir()) == [ledger]


def test_the_second_file_is_as_private_as_the_ledger(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.chmod(0o600)
    pending, modes = ledger.with_name("ledger.jsonl.pending"), []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        if pending.exists():
            modes.append(pending.stat().st_mode & 0o777)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    append_line(str(ledger), SECOND)
    assert modes == [0o600, 0o600]
