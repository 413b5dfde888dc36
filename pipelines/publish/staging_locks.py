"""Staging folders beside a local output: their names, their locks, and those that ended runs have left behind.

Locks tell the staging folder of a running job from one that a killed run has left behind. The kernel releases the lock
of a process that ends in any way, so a local folder without a lock is dead, unless its job was submitted and goes on
without the command that did. Remote filesystems have no locks: there, folders are only named.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from typing import Any, Literal

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError, describe
from ...transforms.io.filesystems import delete_folder, is_remote, make_folders, read_text
from ...transforms.progress_log import LOGGER

SUBMITTED_NAME = "submitted.json"
"""File of a staging folder whose job was submitted to a cluster: public facts with which it is found there."""
_MARK_NAME = "staging.txt"
_MARK = "Temporary files of labeldp: a run that was killed left them, and the next one with this output deletes them.\n"
"""File of a local staging folder that tells it from a folder of somebody else with such a name."""
_DELETIONS = 3

LockState = Literal["locked", "held", "no locks", "gone"]


@contextlib.contextmanager
def locked_staging(target: str, name: str | None = None) -> Iterator[str]:
    """Creates an empty staging folder beside a target, and holds its lock until the block ends.

    A local one is open to its owner only. It has a new name unless `name` is given. Raises OSError if it cannot be
    created.
    """
    while True:
        folder = name or new_staging_name(target)
        if is_remote(folder):
            FileSystems.mkdirs(folder)
            yield folder
            return
        _make_private(folder)
        with contextlib.ExitStack() as unmarked:
            # An interrupt or an error before the run has marked it leaves nothing either.
            unmarked.callback(remove_staging, folder)
            with lock_folder(folder) as state:
                # Another run may have removed the folder before it was locked.
                if state in ("locked", "no locks") and os.path.isdir(folder):
                    with open(os.path.join(folder, _MARK_NAME), "w", encoding="utf-8") as file:
                        file.write(_MARK)
                    unmarked.pop_all()
                    yield folder
                    return


def _make_private(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        make_folders(os.path.dirname(folder))
        os.mkdir(folder, 0o700)


def remove_leftovers(target: str) -> None:
    """Removes the staging folders that killed runs with this target have left behind, and names them in the log.

    A folder is kept, and named, if its run is still going or if that cannot be known, or if no run has marked it.
    Raises InputError if its job was submitted, to be ended by `labeldp finish`.
    """
    for folder in staging_folders(target):
        if is_remote(folder):
            LOGGER.info("%s is the staging folder of another run: delete it if no such run is going", folder)
            continue
        with lock_folder(folder) as state:
            if state == "locked" and not _is_marked(folder):
                LOGGER.info("%s has the name of a staging folder, but no run has marked it: it is kept", folder)
            elif state == "locked":
                check_not_submitted(folder, target)
                _remove(folder, target)
            elif state == "held":
                LOGGER.info("another run with this output is going, in %s: only one of the two can be released", folder)
            elif state == "no locks":
                LOGGER.info("%s may be the staging folder of a killed run: delete it if no run is going", folder)


def _is_marked(folder: str) -> bool:
    """Tells whether a run has made a folder. One that is empty, or its mark, may have been killed as it made it."""
    try:
        names = os.listdir(folder)
        mark = read_text(os.path.join(folder, _MARK_NAME)) if names else ""
        return mark == _MARK or (len(names) <= 1 and _MARK.startswith(mark))
    except (InputError, OSError):
        return False


def _remove(folder: str, target: str) -> None:
    # Renamed first: should the lock fail to exclude its run, that run fails as a whole and releases nothing in parts.
    renamed = new_staging_name(target)
    try:
        os.rename(folder, renamed)
        shutil.rmtree(renamed)
    except OSError as error:
        LOGGER.info("%s was left behind by a killed run and cannot be removed: %s", folder, describe(error))
    else:
        LOGGER.info("removed %s, which a killed run had left behind", folder)


def check_not_submitted(folder: str, target: str) -> None:
    """Refuses a run whose target is that of a job that was submitted and not waited for, with a staging folder."""
    if submission(folder).get("waits") is False:
        raise submitted_error(target, folder)


def submitted_error(target: str, folder: str) -> InputError:
    """Error of a run whose target is that of a job that was submitted, to be ended by `labeldp finish`."""
    return InputError(
        f"a job that was submitted, and not waited for, writes to {target}: `labeldp finish {target}` publishes "
        f"its release; to give it up, delete {folder}"
    )


def submission(folder: str) -> dict[str, Any]:
    """Facts on the submitted job of a staging folder, with `waits`: whether the command waited; empty without a job."""
    try:
        found = json.loads(read_text(FileSystems.join(folder, SUBMITTED_NAME)))
    except (InputError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def remove_staging(folder: str) -> None:
    """Deletes a staging folder, again if a runner that was interrupted is still writing there."""
    for _ in range(_DELETIONS):
        with contextlib.suppress(BeamIOError, OSError):
            delete_folder(folder)


def new_staging_name(target: str) -> str:
    """Names a new staging folder of a target."""
    parent, name = FileSystems.split(target.rstrip("/"))
    return FileSystems.join(parent, f".{name}.{uuid.uuid4().hex[:12]}")


def staging_folders(target: str) -> list[str]:
    """Staging folders of a target, of killed and running jobs."""
    parent, name = FileSystems.split(target.rstrip("/"))
    pattern = re.compile(re.escape(f".{name}.") + "[0-9a-f]{12}")
    if is_remote(target):
        inside = FileSystems.match([FileSystems.join(parent, f".{name}.*", "**")])[0].metadata_list
        names = {entry.path[len(parent) :].lstrip("/").split("/")[0] for entry in inside}
    else:
        names = set()
        # The parent may not exist yet.
        with contextlib.suppress(OSError):
            names = {entry.name for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)}
    return [FileSystems.join(parent, found) for found in sorted(names) if pattern.fullmatch(found)]


@contextlib.contextmanager
def lock_folder(folder: str) -> Iterator[LockState]:
    """Locks a local folder for the block. Yields "held" if another run has the lock, "no locks" if none is possible."""
    try:
        import fcntl
    except ImportError:
        # Windows locks no folders.
        yield "no locks"
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield "gone"
        return
    except OSError:
        yield "no locks"
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state: LockState = "held"
        except OSError:
            # Network filesystems may have no locks on folders.
            state = "no locks"
        else:
            state = "locked"
        yield state
    finally:
        os.close(descriptor)
