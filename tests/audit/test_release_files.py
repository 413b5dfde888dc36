"""`labeldp audit --data` of the dead letters: those of a job pass, each planted defect fails."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main
from labeldp.transforms.shards import dead_letter_writer

RECORDS, UNUSABLE = 2_000, 40


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, write_csv: Any, key_file: Any, invoke: Any, command: Any) -> Any:
    """Releases of a log in which every 50th record has no label: with one file of them, several files, two labels."""
    folder = tmp_path_factory.mktemp("letters")
    log = write_csv(folder / "log.csv", [f"{i % 7},{i % 5 if i % 50 else ''}" for i in range(RECORDS)], "f,y")
    flags = {
        "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 4, "label_step": 1,
        "epsilon": 1, "mechanism": "rr", "noise_key_file": key_file, "num_shards": 2, "max_unusable_fraction": 0.1,
    }  # fmt: skip
    several = {"label": "y,f", "label_max": "4,6"}
    with pytest.MonkeyPatch.context() as patched:
        for name, most, more in (("one", 1 << 18, {}), ("several", 10, {}), ("labels", 1 << 18, several)):
            patched.setattr(dead_letter_writer, "_LETTERS", most)
            invoke(command("privatize", flags | {"output": folder / name} | more)).ok()
    return folder


@pytest.fixture
def copied(released: Path, tmp_path: Path) -> Any:
    """(name of a release) -> a copy, which a test may damage."""
    return lambda name: shutil.copytree(released / name, tmp_path / name)


def problems(folder: Path) -> str:
    return "; ".join(audit_path(str(folder), data=True).problems)


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "release.json").read_text())


def test_dead_letters_of_a_job_pass(released: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(path.name for path in (released / "several").glob("dead_letters*"))
    assert len(files) > 1
    assert sum(manifest_of(released / "several")["dead_letters"].values()) == UNUSABLE
    for name, shown in (("one", "1 file"), ("several", f"{len(files)} files"), ("labels", "1 file")):
        assert main(["audit", str(released / name), "--data"]) == 0
        assert f"dead letters {UNUSABLE} in {shown}, as in the manifest" in capsys.readouterr().out
    assert problems(released / "labels" / "labels" / "f") == ""


LINE = '{"source": "/log.csv", "row": 9, "stage": "privatize", "error": "unusable label"}\n'


def test_missing_and_foreign_files_are_found(copied: Any) -> None:
    folder = copied("several")
    first, second, *_ = sorted(folder.glob("dead_letters*"))
    content = first.read_bytes()
    first.unlink()
    assert problems(folder) == f"{first.name} is missing"
    first.mkdir()
    assert problems(folder) == f"{first.name} is not a regular file"
    first.rmdir()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    (folder / "dead_letters.jsonl").write_text(LINE)
    assert "dead_letters.jsonl is not one of release.dead_letters" in problems(folder)
