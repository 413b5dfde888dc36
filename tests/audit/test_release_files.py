"""`labeldp audit --data` of several files of dead letters; changes of one file are rows of test_planted_records."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main
from labeldp.pipelines.job import job_graph
from labeldp.transforms import Limits
from labeldp.transforms.shards.dead_letter_writer import WriteDeadLetters


def problems(folder: Path) -> str:
    return "; ".join(audit_path(str(folder), data=True).problems)


def test_missing_and_foreign_files_are_found(
    base: Any, invoke: Any, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "released"
    monkeypatch.setattr(job_graph, "WriteDeadLetters", partial(WriteDeadLetters, limits=Limits(letters=10)))
    invoke(command("privatize", {**base("records without a label").flags, "ledger": None, "output": folder})).ok()
    first, second, *more = sorted(folder.glob("dead_letters*"))
    assert sum(json.loads((folder / "release.json").read_text())["dead_letters"].values()) == 120
    assert main(["audit", str(folder), "--data"]) == 0
    assert f"dead letters 120 in {2 + len(more)} files, as in the manifest" in capsys.readouterr().out
    content = first.read_bytes()
    first.unlink()
    assert problems(folder) == f"{first.name} is missing"
    first.mkdir()
    assert problems(folder) == f"{first.name} is not a regular file"
    first.rmdir()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    (folder / "dead_letters.jsonl").write_bytes(content)
    assert "dead_letters.jsonl is not one of release.dead_letters" in problems(folder)
