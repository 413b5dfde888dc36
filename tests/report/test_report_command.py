"""`labeldp report`: the path of the page, and rejected arguments."""

import json
from pathlib import Path
from typing import Any

import pytest


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_the_same_release_gives_the_same_page(released: Path, page_text: str, invoke: Any, tmp_path: Path) -> None:
    invoke(["report", str(released / "release.json"), f"--output={tmp_path / 'again.html'}"]).ok()

    assert (tmp_path / "again.html").read_text() == page_text


def test_it_goes_into_the_release_by_default(damaged: Path, invoke: Any, page_text: str) -> None:
    assert invoke(["report", str(damaged)]).ok().out == f"report     {damaged / 'report.html'}\n"
    assert (damaged / "report.html").read_text() == page_text


def test_a_mechanism_file_goes_into_the_page_beside_it(solved: Any, invoke: Any) -> None:
    path = solved({0: 1, 1: 3})
    invoke(["report", str(path)]).ok()

    assert (path.parent / "report.html").exists()
    assert {file.name for file in path.parent.iterdir()} == {"prior.csv", "mechanism.json", "report.html"}


def change(path: Path, keys: tuple[str, ...], value: Any) -> None:
    document = load(path)
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    # The audit compares documents with the text that labeldp writes.
    path.write_text(json.dumps(document, indent=2 if path.name == "release.json" else None) + "\n")


@pytest.mark.parametrize(
    ("file", "keys", "value", "problem"),
    [
        ("mechanism.json", ("certificate", "epsilon"), 0.1, "certificate.epsilon is below the true epsilon"),
        ("release.json", ("epsilon",), 0.5, "release.certified_epsilon is above release.epsilon"),
        ("release.json", ("format",), "labeldp-release-9", "is not a release manifest"),
    ],
)
def test_what_does_not_hold_gets_no_page(
    damaged: Path, invoke: Any, tmp_path: Path, file: str, keys: tuple[str, ...], value: Any, problem: str
) -> None:
    """It says what the audit finds, whose own tests have all problems."""
    change(damaged / file, keys, value)
    outcome = invoke(["report", str(damaged), f"--output={tmp_path / 'page.html'}"])

    assert outcome.code == 1
    assert problem in outcome.error
    assert outcome.error.startswith(f"labeldp report: error: {damaged}")
    assert outcome.out == ""
    assert not (tmp_path / "page.html").exists()
    assert not (damaged / "report.html").exists()


@pytest.mark.parametrize("missing", ["release.json", "mechanism.json"])
def test_a_release_without_its_files(damaged: Path, invoke: Any, missing: str) -> None:
    (damaged / missing).unlink()
    outcome = invoke(["report", str(damaged)])

    assert outcome.code == 1
    assert missing in outcome.error
    assert not (damaged / "report.html").exists()


def test_a_damaged_ledger(damaged: Path, invoke: Any) -> None:
    (damaged.parent / "labeldp_ledger.jsonl").write_text("{}\n")
    outcome = invoke(["report", str(damaged)])

    assert outcome.code == 1
    assert "labeldp_ledger.jsonl is corrupt (line 1)" in outcome.error


def test_text_that_utf8_cannot_hold(damaged: Path, invoke: Any) -> None:
    ledger = damaged.parent / "labeldp_ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"time": "', '"time": "\\ud800'))
    invoke(["report", str(damaged)]).ok()

    assert "\\ud800" in (damaged / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([""], "does not exist"),
        (["released", "--output=nowhere/page.html"], "--output nowhere/page.html lies in a folder that does not exist"),
        (["released", "--output=released"], "--output and FOLDER|FILE are the same file, released"),
        (["released", "--output=."], "--output . is a folder"),
        (["released", "--output="], "--output is empty"),
        (["released", "--output=labeldp_ledger.jsonl"], "--output labeldp_ledger.jsonl exists: name another file"),
        (["released", "--ouput=page.html"], "--ouput"),
        (["released", "mechanism.json", "--output=page.html"], "give one FOLDER|FILE; quote a glob"),
        ([], "FOLDER|FILE"),
    ],
)
def test_bad_usage(
    damaged: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(damaged.parent)
    outcome = invoke(["report", *arguments])

    assert outcome.code == 2
    assert problem in outcome.error
    assert {path.name for path in damaged.parent.iterdir()} == {"released", "labeldp_ledger.jsonl"}
