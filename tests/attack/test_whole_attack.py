"""`labeldp attack --whole`: findings on standard output, exit codes, and error lines."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from labeldp.attack import whole_attack
from labeldp.attack.claims import Finding
from labeldp.attack.whole_releases import CASES
from labeldp.mechanisms.noise import noisy_histogram


@pytest.fixture
def attack(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function (flag, ...) -> outcome of an attack on whole releases, of three kinds, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    small = tuple(case for case in CASES if case.name in ("labels", "classes", "two columns"))
    monkeypatch.setattr(whole_attack, "CASES", small)

    def run(*flags: str) -> Any:
        return invoke(["attack", *flags])

    return run


def test_releases_as_they_are_pass(attack: Callable[..., Any], tmp_path: Path) -> None:
    outcome = attack("--whole", "--pairs=1", "--releases=0").ok()
    lines = outcome.out.splitlines()
    assert [line[:27].strip() for line in lines] == [
        "release", "record and replay", "replay of labels", "replay of classes", "replay of two columns", "noise",
        "largest share", "PASS",
    ]  # fmt: skip
    assert "in 3 pairs" in lines[-2]
    assert "labeldp: replaying neighbors: classes" in outcome.err
    # Ledgers are temporary.
    assert list(tmp_path.iterdir()) == []


def test_break_fails_the_command(attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_histogram, "HISTOGRAM_SENSITIVITY", Fraction(9, 5))
    outcome = attack("--whole", "--pairs=1", "--releases=0")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == "FAIL: replay of labels, replay of classes, replay of two columns"


def test_discriminators_are_printed_with_their_confidence(
    attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def testers(cases: Any, releases: int, setting: Any, *others: Any) -> Any:
        assert (releases, setting.alpha) == (300, pytest.approx(0.01 / 11))
        yield Finding("classes, whole", False, "epsilon at least 3", 3.0)

    pytest.importorskip("sklearn")
    monkeypatch.setattr(whole_attack, "check_testers", testers)
    monkeypatch.setattr(whole_attack, "check_replays", lambda *given: iter([Finding("replay of all", True, "", 0.5)]))
    outcome = attack("--whole", "--releases=300", "--confidence=0.99")
    assert outcome.code == 1
    assert "300 releases of each of two neighbors; confidence 0.99 of all bounds together" in outcome.out
    assert "0.5000 of the claim" in outcome.out
    assert outcome.out.splitlines()[-1] == "FAIL: classes, whole"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--whole", "released"], "leave out the path"),
        (["--whole", "--draws=5000"], "--draws is not for --whole: leave it out"),
        (["--whole", "--within=1"], "--within is not for --whole: leave it out"),
        (["--whole", "--sampler=a:b"], "--sampler is not for --whole: leave it out"),
        (["--whole", "--pairs=0"], "--pairs must be between 1 and 10000, not 0"),
        (["--whole", "--releases=10"], "--releases must be between 200 and 1000000, or 0 for none, not 10"),
        (["--whole", "--processes=0"], "--processes must be at least 1, not 0"),
        (["--whole", "--confidence=1"], "--confidence must be at least 0.5 and below 1, not 1"),
        ([], "name a mechanism file or an output folder; or give --whole"),
        (["released", "--pairs=3"], "--pairs needs --whole"),
        (["released", "--processes=3"], "--processes needs --whole"),
    ],
)
def test_wrong_flags(attack: Callable[..., Any], flags: list[str], said: str) -> None:
    outcome = attack(*flags)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""


def test_missing_library(attack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labeldp.pipelines.spec.machine._importable", lambda module: module != "sklearn")
    outcome = attack("--whole")
    assert outcome.code == 2
    assert (
        "attack --whole, unless --releases is 0, needs the extra evaluation: pip install 'labeldp[evaluation]'"
        in outcome.err
    )
