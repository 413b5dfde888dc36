"""Nothing that a flag names is deleted or overwritten, unless labeldp wrote it: every flag is tried."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.cli.commands import COMMANDS, command_parser
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.spec.written_files import LEDGER, RESULT, write_file

READ = {
    "check_claim", "claim_facts", "config", "file", "folder", "ids", "input", "label_classes",
    "label_values", "noise_key_file", "path", "place", "prior", "published", "rows", "sign", "validate",
    "signer", "truth", "units",
}  # fmt: skip
# Commits of the library of the table add to a table, or fail.
COMMITTED = {"output_table"}
# `apply` and `attack` read a mechanism file, `report` a ledger.
ALSO_READ = {("apply", "mechanism_file"), ("report", "ledger"), ("plan", "ledger")}
WRITTEN = [(name, flag) for name in COMMANDS for flag in command_parser(name).writes]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_path_is_read_or_guarded(name: str) -> None:
    parser = command_parser(name)
    unknown = parser.paths().keys() - parser.writes.keys() - READ - COMMITTED
    assert {(name, flag) for flag in unknown} <= ALSO_READ
    assert not parser.writes.keys() - parser.paths().keys()


@pytest.fixture
def lines(job: Any, after_job: Any, outputs: Path, small_log: Path, tmp_path: Path) -> Mapping[str, list[str]]:
    """Arguments of each command that writes; `privatize` has written the release that others read."""
    after_job("privatize")
    (outputs / "released").rename(tmp_path / "before")
    before, prior, facts = tmp_path / "before", tmp_path / "prior.csv", tmp_path / "facts.yaml"
    prior.write_text("0,1\n1,2\n2,1\n")
    facts.write_text("")
    (tmp_path / "rows.txt").write_text("part-00000-of-00001.parquet,1\n")
    grid = ["--label_min=0", "--label_max=4", "--label_step=1"]
    records = [f"--input={small_log}", "--input_format=csv", "--label=y"]
    study = [f"--prior={prior}", "--epsilon=1", "--processes=1"]
    return {
        "init": ["init", str(small_log)],
        **{name: job(name) for name in ("privatize", "fit")},
        "apply": job("apply", mechanism_file=before / "mechanism.json"),
        "finish": ["finish", str(before)],
        "domain": ["domain", *records, "--epsilon=1", f"--domain_file={tmp_path / 'domain.json'}"],
        "solve": ["solve", f"--prior={prior}", "--epsilon=1", f"--output={tmp_path / 'solved.json'}"],
        "compare": ["compare", *study, "--mechanism=rr"],
        "plan": ["plan", *study, "--records=100"],
        "evaluate": ["evaluate", *records, *grid, f"--output={tmp_path / 'evaluated'}"],
        "report": ["report", str(before), f"--claim_facts={facts}"],
        "ledger": ["ledger", str(outputs / "labeldp_ledger.jsonl")],
        "remove": ["remove", str(before), f"--rows={tmp_path / 'rows.txt'}", f"--output={tmp_path / 'removed'}"],
        "demo": ["demo", "--clicks=10", f"--output={tmp_path / 'demo'}"],
    }


@pytest.fixture
def foreign(tmp_path: Path, key_file: Path, small_log: Path) -> Callable[[], dict[str, Path]]:
    """Function -> files that a user may name by mistake, by what they are; the release of `lines` is one of them."""

    def make() -> dict[str, Path]:
        files = {"key": tmp_path / "noise.key", "input": tmp_path / "log.csv", "ledger": tmp_path / "spent.jsonl"}
        shutil.copy(key_file, files["key"])
        shutil.copy(small_log, files["input"])
        shutil.copy(tmp_path / "outputs" / "labeldp_ledger.jsonl", files["ledger"])
        files |= {"link": tmp_path / "link", "dangling": tmp_path / "dangling"}
        files["link"].symlink_to(files["key"])
        files["dangling"].symlink_to(tmp_path / "nothing")
        return files | {"release": tmp_path / "before" / "release.json"}

    return make


@pytest.mark.parametrize(("name", "flag"), WRITTEN)
def test_a_foreign_file_stays(
    name: str, flag: str, lines: Mapping[str, list[str]], foreign: Any, invoke: Any, tmp_path: Path, tree: Any
) -> None:
    files, arguments = foreign(), [each for each in lines[name] if flag == "claim" or "claim_facts" not in each]
    if command_parser(name).writes[flag] == LEDGER:
        # It may be a link; a new one is made where none leads to.
        del files["ledger"], files["dangling"]
    before = tree(tmp_path / "before")
    content = {what: path.read_bytes() for what, path in files.items() if path.exists()}
    for what, path in files.items():
        outcome = invoke([*arguments, f"--{flag}={path}"])
        assert outcome.code == 2, (what, outcome)
        assert str(path) in outcome.error, what
        assert {what: path.read_bytes() for what, path in files.items() if path.exists()} == content, what
        assert os.path.islink(files["link"])
        assert not (tmp_path / "nothing").exists()
    assert tree(tmp_path / "before") == before


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("privatize", {"result_json": "{outputs}/x", "ledger": "{outputs}/x"}, "are the same file"),
        ("privatize", {"result_json": "{log}"}, "--result_json and --input are the same file"),
        ("privatize", {"ledger": "{log}"}, "are the same file"),
        ("privatize", {"result_json": "{outputs}/released/x.json"}, "lies inside --output"),
        ("privatize", {"result_json": "{outputs}/labeldp_ledger.jsonl"}, "--result_json and the ledger are the same"),
        ("privatize", {"result_json": "{outputs}/new.key", "noise_key_file": "{outputs}/new.key"}, "are the same file"),
        ("fit", {"mechanism_file": "{outputs}/x", "result_json": "{outputs}/./x"}, "are the same file"),
    ],
)
def test_one_file_for_two_flags(
    name: str, flags: dict[str, str], said: str, job: Any, invoke: Any, outputs: Path, small_log: Path
) -> None:
    content = small_log.read_bytes()
    outcome = invoke(job(name, **{flag: value.format(outputs=outputs, log=small_log) for flag, value in flags.items()}))
    assert outcome.code == 2, outcome
    assert said in outcome.error
    assert small_log.read_bytes() == content
    assert not list(outputs.iterdir())


def test_own_files_are_replaced(lines: Mapping[str, list[str]], invoke: Any, tmp_path: Path) -> None:
    files = {flag: tmp_path / f"{flag}" for flag in ("csv", "json")}
    flags = [f"--{flag}={path}" for flag, path in files.items()]
    for name in ("compare", "plan"):
        for _ in range(2):
            invoke([*lines[name], *flags]).ok()
    for _ in range(2):
        invoke([*lines["ledger"], flags[1]]).ok()
    assert "releases" in json.loads(files["json"].read_text())


def test_a_file_that_appears_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"format": "labeldp-result-1"}')
    write_file(str(path), "{}", RESULT, "--result_json")
    with pytest.raises(UsageError, match=r"--result_json .* is not labeldp-result-1"):
        write_file(str(path), "[]", RESULT, "--result_json")
    assert path.read_text() == "{}"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_folder_of_others(lines: Mapping[str, list[str]], invoke: Any, tmp_path: Path, tree: Any) -> None:
    folder = tmp_path / "evaluated"
    folder.mkdir()
    (folder / "results.csv").write_text("of others")
    outcome = invoke(lines["evaluate"])
    assert (outcome.code, "exists and is not an empty folder" in outcome.error) == (2, True)
    assert tree(folder) == {"results.csv": b"of others"}
