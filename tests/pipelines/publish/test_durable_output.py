"""Outputs on a local disk: synced before they appear, private until then, and never written over another run's."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.ledger.ledger import append_line
from labeldp.pipelines.publish.output_folder import Staging, publish_file
from labeldp.transforms.errors import StageError
from labeldp.transforms.io.filesystems import make_folders

LEDGER = "labeldp_ledger.jsonl"


def mode_of(path: Path) -> int:
    """Permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Calls that sync, link and rename, in order, with their paths."""
    found: list[tuple[str, str]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    for name in ("rename", "link"):
        original = getattr(os, name)

        def moved(source: str, target: str, name: str = name, original: Any = original) -> None:
            found.append((name, str(target)))
            original(source, target)

        monkeypatch.setattr(os, name, moved)
    return found


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    """Function that sets the umask until the end of the test."""
    before = os.umask(0o022)
    yield lambda value: (os.umask(value), None)[1]
    os.umask(before)


def test_all_files_and_folders_are_synced_before_the_charge_and_the_release(
    job: Any, invoke: Any, outputs: Path, tree: Any, calls: list[tuple[str, str]]
) -> None:
    released = str(outputs / "released")
    invoke(job(num_shards=3)).ok()
    published = calls.index(("rename", released))
    staging = next(path for call, path in calls if call == "sync" and "/.released." in path)
    staging = staging[: staging.index("/.released.") + len("/.released.") + 12] + "/release"
    synced = [path for call, path in calls[:published] if call == "sync"]
    files = {f"{staging}/{name}" for name in tree(outputs / "released")}
    assert len(files) == 5
    assert files | {staging, f"{staging}/data"} <= set(synced)
    # The folders after the names in them, and all before the charge, whose new file is known to its folder as well.
    assert max(map(synced.index, files)) < min(synced.index(staging), synced.index(f"{staging}/data"))
    assert synced.index(staging) < synced.index(str(outputs)) < synced.index(str(outputs / LEDGER))
    assert ("sync", str(outputs)) in calls[published:]


@pytest.mark.parametrize("target", ["mechanism.json", "domain.json"])
def test_a_single_file_is_synced_and_replaces_none(
    job: Any, command: Any, invoke: Any, outputs: Path, small_log: Path, key_file: Path,
    calls: list[tuple[str, str]], umask: Any, target: str,
) -> None:  # fmt: skip
    argv = job("fit")
    if target == "domain.json":
        flags = {"input": small_log, "input_format": "csv", "label": "y", "epsilon": 1, "noise_key_file": key_file}
        argv = command("domain", flags | {"domain_file": outputs / target})
    umask(0)
    invoke(argv).ok()
    published = calls.index(("link", str(outputs / target)))
    assert any(call == "sync" and path.endswith(f"/{target}") for call, path in calls[:published])
    assert ("sync", str(outputs)) in calls[published:]
    assert mode_of(outputs / target) == 0o644
    assert mode_of(outputs / LEDGER) == 0o600
    assert {path.name for path in outputs.iterdir()} == {target, LEDGER}


@pytest.mark.parametrize(
    ("mask", "folders", "files"), [(0o000, 0o755, 0o644), (0o002, 0o755, 0o644), (0o077, 0o700, 0o600)]
)
def test_nobody_else_may_write_and_nobody_reads_before_the_charge(
    job: Any,
    invoke: Any,
    outputs: Path,
    umask: Any,
    monkeypatch: pytest.MonkeyPatch,
    mask: int,
    folders: int,
    files: int,
) -> None:
    from labeldp.pipelines.publish.protocol import Charge

    target, staged, made = outputs / "new" / "released", [], []
    charge, mkdir = Charge.write, os.mkdir

    def charge_and_look(*arguments: Any) -> None:
        staged.extend(mode_of(path) for path in target.parent.glob(".released.*"))
        charge(*arguments)
        staged.extend(mode_of(path) for path in target.parent.glob(".released.*"))

    def mkdir_and_look(path: str, mode: int = 0o777, **rest: Any) -> None:
        mkdir(path, mode, **rest)
        if "/.released." in str(path) and not made:
            made.append(mode_of(Path(path)))

    monkeypatch.setattr(Charge, "write", charge_and_look)
    monkeypatch.setattr(os, "mkdir", mkdir_and_look)
    umask(mask)
    invoke(job(output=target, num_shards=2, ledger=outputs / "ledgers" / "l.jsonl")).ok()
    assert made == [0o700]
    assert staged == [0o700, 0o700]
    found = {path: mode_of(path) for path in [target, *target.rglob("*")]}
    assert {mode for path, mode in found.items() if path.is_dir()} == {folders}
    assert {mode for path, mode in found.items() if path.is_file()} == {files}
    assert mode_of(outputs / "ledgers" / "l.jsonl") == 0o600
    assert mode_of(target.parent) == mode_of(outputs / "ledgers") == folders


def test_an_existing_ledger_keeps_its_mode(tmp_path: Path) -> None:
    ledger = tmp_path / LEDGER
    append_line(str(ledger), "{}")
    assert mode_of(ledger) == 0o600
    ledger.chmod(0o660)
    append_line(str(ledger), "{}")
    assert mode_of(ledger) == 0o660


def test_a_new_database_is_private(tmp_path: Path, umask: Any) -> None:
    from labeldp.pipelines.ledger.ledger import Ledger, LedgerEntry
    from labeldp.pipelines.ledger.spent_budget import Caps

    umask(0)
    path = tmp_path / "new" / "ledger.db"
    Ledger(f"sqlite:///{path}").charge([LedgerEntry("labels", 1.0, "a")], Caps(), request="r")
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o755


def test_a_fit_whose_output_another_one_has_published_meanwhile_charges_nothing(
    job: Any, invoke: Any, outputs: Path, tree: Any, spent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.pipelines.publish import output_folder

    theirs = outputs / "mechanism.json"

    def other_run(_: Staging) -> None:
        theirs.write_text("theirs")

    monkeypatch.setattr(output_folder, "_sync_staged", other_run)
    outcome = invoke(job("fit"))
    assert outcome.code == 1
    assert "another run has written it" in outcome.error
    found = tree(outputs)
    assert found.pop(LEDGER) == b""
    assert found == {str(theirs.relative_to(outputs)): b"theirs"}
    assert spent(outputs) == 0


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_appears_at_the_last_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """A filesystem without hard links says that they are not permitted."""

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    work, target = tmp_path / "work", tmp_path / "m.json"
    work.mkdir()
    for place in (target, tmp_path / "other.json"):
        (work / "mechanism.json").write_text("ours")
        publish_file(Staging(str(work), str(work)), "mechanism.json", str(place))
        assert place.read_text() == "ours"
        (work / "mechanism.json").unlink(missing_ok=True)
    target.write_text("theirs")
    (work / "mechanism.json").write_text("ours")
    with pytest.raises(StageError, match="another run has written it"):
        publish_file(Staging(str(work), str(work)), "mechanism.json", str(target))
    assert target.read_text() == "theirs"


def test_folders_are_made_or_the_reason_is_raised(tmp_path: Path) -> None:
    make_folders(str(tmp_path / "a" / "b"))
    make_folders(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folders(str(tmp_path / "file" / "c"))
    with pytest.raises(FileExistsError):
        make_folders(str(tmp_path / "file"))
