"""`--if_exists verify` and `--result_json`: retries of a scheduler cost nothing, and say what is there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(job: Any, invoke: Any, tmp_path: Path) -> Any:
    """Function (command, flag=value, ...) -> the outcome and the result, None without one."""

    def call(command: str = "privatize", **flags: Any) -> tuple[Any, dict[str, Any] | None]:
        path = tmp_path / "result.json"
        outcome = invoke(job(command, if_exists="verify", result_json=path, **flags))
        return outcome, json.loads(path.read_text()) if path.exists() else None

    return call


def test_a_retry_finds_the_release(run: Any, outputs: Path, tree: Any) -> None:
    first, result = run()
    assert first.ok().out.startswith("Released")
    assert result is not None
    before, ledger = tree(outputs), (outputs / "labeldp_ledger.jsonl").read_text()
    again, repeated = run()
    line = f"verified   {outputs / 'released'}: the release of this request, charged before; its audit holds\n"
    assert again.ok().out == line
    assert tree(outputs) == before
    assert (outputs / "labeldp_ledger.jsonl").read_text() == ledger
    assert result["seconds"] > 0
    assert repeated == result | {"verified": True, "seconds": 0.0}
    assert {key: result[key] for key in ("output", "epsilon", "delta", "records", "records_without_label")} == {
        "output": str(outputs / "released"), "epsilon": 1.0, "delta": 0.0, "records": 1000, "records_without_label": 0,
    }  # fmt: skip
    manifest = json.loads((outputs / "released" / "release.json").read_text())
    assert result["certified_epsilon"] == manifest["certified_epsilon"]
    label = result["labels"]["y"]
    assert (label["mechanism"], label["warnings"]) == (manifest["mechanism"], manifest["warnings"])
    assert label["verdict"]["level"] in ("good", "small", "averages", "unknown")


def test_fit_and_several_labels(run: Any, outputs: Path, small_log: Path) -> None:
    several: dict[str, Any] = {"label": "y,f", "label_max": "4,1000", "epsilon": 4, "ledger": outputs / "other.jsonl"}
    for command, flags in (
        ("fit", {}),
        ("privatize", several),
    ):
        first, result = run(command, **flags)
        assert first.code == 0, first.err
        again, repeated = run(command, **flags)
        assert again.ok().out.startswith("verified   ")
        assert repeated == result | {"verified": True, "seconds": 0.0}
        assert [*result["labels"]] == flags.get("label", "y").split(",")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"epsilon": 2}, "exists, but ledger {ledger} has no run of this request with this output"),
        ({"ledger": "other.jsonl"}, "exists, but ledger {other} has no run of this request with this output"),
    ],
)
def test_another_request_is_refused(run: Any, outputs: Path, flags: Any, problem: str) -> None:
    run()[0].ok()
    other = outputs / "other.jsonl"
    outcome, result = run(**(flags | ({"ledger": other} if "ledger" in flags else {})))
    assert (outcome.code, result) == (1, None)
    assert problem.format(ledger=outputs / "labeldp_ledger.jsonl", other=other) in outcome.error


def test_a_release_that_was_changed_is_refused(run: Any, outputs: Path) -> None:
    run()[0].ok()
    shard = next((outputs / "released" / "data").iterdir())
    shard.unlink()
    outcome, result = run()
    assert (outcome.code, result) == (1, None)
    assert "exists, but its audit fails: " in outcome.error


def test_the_release_of_another_key_is_refused(run: Any, outputs: Path, other_key_file: Path, job: Any, invoke: Any):
    run()[0].ok()
    theirs = outputs / "theirs"
    invoke(job(output=theirs, noise_key_file=other_key_file, ledger=outputs / "other.jsonl")).ok()
    shutil.rmtree(outputs / "released")
    theirs.rename(outputs / "released")
    assert "its mechanism is not the one that the ledger has" in run()[0].error


def test_without_a_release_the_output_must_be_new(run: Any, outputs: Path) -> None:
    (outputs / "released").mkdir()
    (outputs / "released" / "notes.txt").write_text("mine")
    outcome, result = run()
    assert (outcome.code, result) == (2, None)
    assert "exists and is not an empty folder" in outcome.error


def test_a_run_that_fails_leaves_no_result(run: Any, tmp_path: Path, outputs: Path, small_log: Path) -> None:
    (tmp_path / "result.json").write_text('{"format": "labeldp-result-1"}')
    outcome, result = run(label="g")
    assert (outcome.code, result) == (2, None)


def test_results_that_cannot_be_written(job: Any, invoke: Any, tmp_path: Path, outputs: Path) -> None:
    assert "--result_json" in (error := invoke(job(result_json=tmp_path)).error)
    assert error.endswith("is a folder: name a file")
    assert not list(outputs.iterdir())
