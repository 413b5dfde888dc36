"""The program that attacks whole releases: findings on standard output, and exit codes."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from labeldp.mechanisms.noise import noisy_histogram

from tests.privacy import attack_releases
from tests.privacy.findings import Finding
from tests.privacy.whole_releases import CASES


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Function (flag, ...) -> exit code and outputs of an attack on releases of three kinds, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    small = tuple(case for case in CASES if case.name in ("labels", "classes", "two columns"))
    monkeypatch.setattr(attack_releases, "CASES", small)

    def run(*flags: str) -> Any:
        return attack_releases.main(flags), *capsys.readouterr()

    return run


def test_releases_as_they_are_pass(attack: Callable[..., Any], tmp_path: Path) -> None:
    code, out, err = attack("--pairs=1", "--releases=0")
    assert code == 0
    lines = out.splitlines()
    assert [line[:27].strip() for line in lines] == [
        "release", "record and replay", "replay of labels", "replay of classes", "replay of two columns", "noise",
        "largest share", "PASS",
    ]  # fmt: skip
    assert "in 3 pairs" in lines[-2]
    assert "labeldp: replaying neighbors: classes" in err
    # Ledgers are temporary.
    assert list(tmp_path.iterdir()) == []


def test_break_fails_the_command(attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_histogram, "HISTOGRAM_SENSITIVITY", Fraction(9, 5))
    code, out, _ = attack("--pairs=1", "--releases=0")
    assert code == 1
    assert out.splitlines()[-1] == "FAIL: replay of labels, replay of classes, replay of two columns"


def test_discriminators_are_printed_with_their_confidence(
    attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def testers(cases: Any, releases: int, setting: Any, *others: Any) -> Any:
        assert (releases, setting.alpha) == (300, pytest.approx(0.01 / 11))
        yield Finding("classes, whole", False, "epsilon at least 3", 3.0)

    monkeypatch.setattr(attack_releases, "check_testers", testers)
    monkeypatch.setattr(attack_releases, "check_replays", lambda *_: iter([Finding("replay of all", True, "", 0.5)]))
    code, out, _ = attack("--releases=300", "--confidence=0.99")
    assert code == 1
    assert "300 releases of each of two neighbors; confidence 0.99 of all bounds together" in out
    assert "0.5000 of the claim" in out
    assert out.splitlines()[-1] == "FAIL: classes, whole"
