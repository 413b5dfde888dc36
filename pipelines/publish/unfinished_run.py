"""Runs without a client: found by their staging folders, claimed by one command at a time, and ended there.

A job that was submitted writes into its staging folder, whether its client lives or not. Once all its results are
there, a command claims the run and does what the client would have done:

- A local staging folder is locked and renamed, so that nothing changes after it was checked: workers know it by its
  former name.
- On an object store, several commands may end a run; each does what is left to do (`transforms/stores/claim`).

A claim that ends with an error leaves all files for the next one, unless the run can never be released.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError, named_file
from ...transforms.io.filesystems import absolute, exists, is_remote, read_text
from ...transforms.stores.object_store import is_store
from ..errors import UsageError
from ..spec.label_folders import DATA_NAME, MANIFEST_NAME
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.release_files import plain_files
from .job_result import NeverReleased
from .output_folder import (
    Staging,
    job_result_path,
    output_on_store,
    publish_folder,
    publishing,
    released_path,
    staging_at,
)
from .request import REQUEST_NAME, Run, read_run
from .staging_locks import lock_folder, new_staging_name, remove_staging, staging_folders, submission

_LOCAL = re.compile(r"\.(.+)\.[0-9a-f]{12}", re.DOTALL)
_ON_STORE = re.compile(r"(.+)/\.([^/]+)\.labeldp(?:/.*)?", re.DOTALL)


REMOVAL_NAME = "removal.json"
"""File of a staging folder of `labeldp remove`, whose release is a function of another one and charged with it."""


class RunBusy(InputError):
    """Another command has the run: it may end, or leave the run to the next one."""


@dataclass(frozen=True)
class UnfinishedRun:
    """A run in its staging folder.

    Attributes:
      run: Its request.
      work: Its folder of temporary files.
      job: Facts on its job, of `submission`.
    """

    run: Run
    work: str
    job: Mapping[str, Any]

    @property
    def staging(self) -> Staging:
        """Place of the files, to look at them without a claim."""
        return _staging(self.run, self.work)


def _staging(run: Run, work: str) -> Staging:
    return staging_at(run.request.target, work, run.request.command == "fit")


def place_of(path: str) -> tuple[str, str | None]:
    """Target of a run, and its staging folder if `path` names that, or may name it."""
    place = absolute(path).rstrip("/")
    if is_store(place):
        found = _ON_STORE.fullmatch(place)
        return (place, None) if found is None else (f"{found[1]}/{found[2]}", None)
    if is_remote(place):
        raise UsageError(f"{path}: name a local folder, or one on s3:// or gs://")
    parent, name = os.path.split(place)
    found = _LOCAL.fullmatch(name)
    return (place, None) if found is None else (os.path.join(parent, found[1]), place)


def find_run(target: str, folder: str | None = None) -> UnfinishedRun | None:
    """Finds the unfinished run of a target, in its staging folder if that is named and still there.

    Raises UsageError if there are several, and InputError if its request cannot be read, or names another target.
    """
    works = _store_folders(target) if is_store(target) else _local_folders(target, folder)
    if len(works) > 1:
        raise UsageError(f"several runs write to {target}: name the folder of one, {', '.join(works)}")
    if not works:
        return None
    if not is_store(works[0]):
        # Before any file of it is read: a link would publish, or write, what is elsewhere.
        for _ in plain_files(works[0]):
            pass
    run = read_run(works[0])
    if run.request.target.rstrip("/") != target:
        raise InputError(f"{works[0]} has the request of a run with the output {run.request.target}, not {target}")
    return UnfinishedRun(run, works[0], submission(works[0]))


def _local_folders(target: str, folder: str | None) -> list[str]:
    found = [each for each in staging_folders(target) if os.path.exists(os.path.join(each, REQUEST_NAME))]
    return [folder] if folder in found else found


def _store_folders(target: str) -> list[str]:
    """The run that has claimed a target, else all that may."""
    output = output_on_store(target)
    owner = output.settle()
    works = [output.run(name).work for name in ([owner] if owner else output.runs())]
    return [work for work in works if exists(f"{work}/{REQUEST_NAME}")]


def claimed_run(target: str) -> UnfinishedRun | None:
    """The run of a job that has claimed a target on an object store, if there is one.

    A run without a job is ended: a removal is published, a proposal of `domain` is not, whose repetition costs nothing.
    """
    output = output_on_store(target)
    owner = output.settle()
    if owner is None:
        return None
    work = output.run(owner).work
    if exists(f"{work}/{REQUEST_NAME}"):
        return find_run(target)
    if exists(f"{work}/{REMOVAL_NAME}"):
        staging = staging_at(target, work)
        with publishing(staging, target):
            publish_folder(staging, target)
    output.run(owner).end()
    return None


def is_complete(found: UnfinishedRun) -> bool:
    """Tells whether all results of a job are there, and it has written no shard after them, as a job that restarts."""
    staging = found.staging
    results = [job_result_path(staging, place) for place in range(len(found.run.request.labels))]
    mechanisms = [released_path(staging.release, each, MECHANISM_NAME) for each in found.run.request.folders]
    if not all(map(exists, [*results, *mechanisms])):
        return False
    if is_store(staging.work):
        # No object of a release is written twice.
        return True
    with contextlib.suppress(FileNotFoundError):
        written = min(os.stat(path).st_mtime_ns for path in results)
        data = os.path.join(staging.release, DATA_NAME)
        return all(entry.stat().st_mtime_ns <= written for entry in _files(data))
    return False


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError):
        for entry in [*os.scandir(folder)]:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            else:
                yield entry


def is_published(run: Run, staging: Staging) -> bool:
    """Tells whether a command that was killed right after it had published this run has left the rest behind."""
    single, target = run.request.command == "fit", run.request.target.rstrip("/")
    last = target if single else f"{target}/{MANIFEST_NAME}"
    if staging.stored is not None:
        return staging.stored.is_published(last)
    if not single:
        return not exists(staging.release) and exists(last)
    staged = FileSystems.join(staging.work, MECHANISM_NAME)
    return exists(staged) and exists(target) and read_text(staged) == read_text(target)


@contextlib.contextmanager
def claimed(found: UnfinishedRun) -> Iterator[Staging]:
    """Claims a run for a block, which publishes it.

    Its files are deleted at the end of the block, and if that raises NeverReleased; after other errors they are left to
    the next claim. Raises RunBusy if another command has the run.
    """
    claim = _joined if is_store(found.work) else _claimed_folder
    with claim(found) as staging:
        yield staging


@contextlib.contextmanager
def _claimed_folder(found: UnfinishedRun) -> Iterator[Staging]:
    target = found.run.request.target.rstrip("/")
    with lock_folder(found.work) as state:
        if state == "held":
            raise RunBusy(f"{found.work}: its run, or another command that finishes it, is going")
        renamed = new_staging_name(target)
        try:
            with named_file("claiming", found.work):
                os.rename(found.work, renamed)
        except InputError:
            raise
        except Exception:
            if os.path.exists(found.work):
                raise
            # Another command was faster.
            raise RunBusy(f"{found.work}: another command finishes this run") from None
        try:
            yield _staging(found.run, renamed)
        except NeverReleased:
            remove_staging(renamed)
            raise
        remove_staging(renamed)


@contextlib.contextmanager
def _joined(found: UnfinishedRun) -> Iterator[Staging]:
    staging = found.staging
    run = staging.stored
    assert run is not None
    try:
        yield staging
    except NeverReleased:
        run.give_up()
        raise
    # Without effect if the block has ended it.
    run.end()
