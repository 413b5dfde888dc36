"""Locks on staging folders: folders of killed runs are removed and named, those of running jobs are kept."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileMetadata, MatchResult
from labeldp.pipelines.publish import staging_locks
from labeldp.pipelines.publish.staging_locks import locked_staging, remove_leftovers

DEAD = "0123456789ab"

# A process that stages beside a target until it is killed.
STAGES = """
import sys, time
from labeldp.pipelines.publish.staging_locks import locked_staging

with locked_staging(sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Log lines from here on."""
    monkeypatch.setattr(logging.getLogger("labeldp"), "propagate", True)
    caplog.set_level(logging.INFO, "labeldp")
    return caplog


def test_a_process_keeps_its_folder_until_it_is_killed(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    target = str(tmp_path / "released")
    with subprocess.Popen([sys.executable, "-c", STAGES, target], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().rstrip("\n"))
        (folder / "part").write_text("part")
        remove_leftovers(target)
        assert (folder / "part").read_text() == "part"
        assert log.messages == [
            f"another run with this output is going, in {folder}: only one of the two can be released"
        ]
        process.send_signal(signal.SIGKILL)

    log.clear()
    remove_leftovers(target)
    assert list(tmp_path.iterdir()) == []
    assert log.messages == [f"removed {folder}, which a killed run had left behind"]


def test_only_staging_folders_of_the_target_are_removed(tmp_path: Path) -> None:
    kept = [f".other.{DEAD}", f".released.{DEAD}0", f"released.{DEAD}", ".released.0123456789aB", f".released.x.{DEAD}"]
    with locked_staging(str(tmp_path / "released")) as folder:
        marked = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    for name in kept:
        (tmp_path / name).mkdir()
        for mark, text in marked.items():
            (tmp_path / name / mark).write_bytes(text)
    file, link, other = (f".released.{digit * 12}" for digit in "123")
    (tmp_path / other).mkdir()
    (tmp_path / other / "thesis.txt").write_text("a file of somebody else")
    (tmp_path / file).write_text("a file")
    (tmp_path / link).symlink_to(tmp_path / kept[0])

    remove_leftovers(str(tmp_path / "released") + "/")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, file, link, other])
    assert os.listdir(tmp_path / other) == ["thesis.txt"]


def test_a_target_whose_parent_does_not_exist(tmp_path: Path) -> None:
    remove_leftovers(str(tmp_path / "new" / "released"))
    with locked_staging(str(tmp_path / "new" / "released")) as folder:
        assert Path(folder).parent == tmp_path / "new"


def test_a_folder_that_another_run_removes_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, made = str(tmp_path / "released"), []
    mkdir = os.mkdir

    def mkdir_then_removed(path: str, mode: int) -> None:
        mkdir(path, mode)
        made.append(path)
        if len(made) == 1:
            remove_leftovers(target)

    monkeypatch.setattr(os, "mkdir", mkdir_then_removed)
    with locked_staging(target) as folder:
        assert made == [made[0], folder]
        assert [str(path) for path in tmp_path.iterdir()] == [folder]


def test_without_locks_a_folder_is_named_and_kept(
    tmp_path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def no_locks(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked_staging(str(tmp_path / "released")) as killed:
        assert os.path.isdir(killed)
    remove_leftovers(str(tmp_path / "released"))
    assert log.messages == [f"{killed} may be the staging folder of a killed run: delete it if no run is going"]
    assert os.path.isdir(killed)


def test_on_a_remote_filesystem_folders_are_named_only(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can know there whether the run is going."""
    found = [
        f"hdfs://b/.released.{DEAD}/data/part",
        f"hdfs://b/.released.{DEAD}/mechanism.json",
        "hdfs://b/.released.x/y",
    ]
    matched = []

    def match(patterns: list[str]) -> list[MatchResult]:
        matched.extend(patterns)
        return [MatchResult(patterns[0], [FileMetadata(path, 1) for path in found])]

    monkeypatch.setattr(staging_locks.FileSystems, "match", match)
    monkeypatch.setattr(staging_locks.FileSystems, "split", lambda path: ("hdfs://b", "released"))
    monkeypatch.setattr(staging_locks.FileSystems, "join", lambda *parts: "/".join(parts))
    remove_leftovers("hdfs://b/released")
    assert matched == ["hdfs://b/.released.*/**"]
    assert log.messages == [
        f"hdfs://b/.released.{DEAD} is the staging folder of another run: delete it if no such run is going"
    ]
