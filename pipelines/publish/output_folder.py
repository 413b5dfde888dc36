"""Output folder: staged beside its target, and moved there when it is complete.

On an object store, which cannot move, the store copies the files of a release to their names once the run has claimed
the target (`transforms/stores/claim`), the manifest last: without release.json there is no release. Local staging
folders are locked (`staging_locks`).

Functions raise StageError if the operating system or the store refuses, or another run has published to the target.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError, StageError, StoreConflict, StoreError, named_file
from ...transforms.io.filesystems import (
    is_empty_folder,
    is_remote,
    make_directory,
    move_files,
    open_mode,
    store_of,
    sync_folder,
    sync_tree,
)
from ...transforms.progress_log import LOGGER
from ...transforms.stores.claim import Output, OutputClaimed, StagedRun, claimed_error, staging_of
from ...transforms.stores.object_store import is_store, require_conditions
from ..ledger.spent_budget import CapError
from ..spec.label_folders import MANIFEST_NAME, SIGNATURE_NAME
from ..spec.release_files import plain_files
from ..spec.written_files import create_from
from .signals import ended_completely
from .staging_locks import check_not_submitted, locked_staging, new_staging_name, remove_leftovers, remove_staging

SEGMENTS_NAME = "segments"
RELEASE_NAME = "release"
"""Folder in a local staging folder that becomes the release."""
_SHOWN = 10


@dataclass
class Staging:
    """Place of a run's files until they are released.

    Attributes:
      work: Folder of temporary files.
      release: Folder in which the files of the release are written: one in it, or itself for a single file.
      left: True to leave the folder to a command that finishes the run.
      stored: The run on an object store; None elsewhere.
    """

    work: str
    release: str
    left: bool = False
    stored: StagedRun | None = None

    def has_begun(self) -> bool:
        """Tells whether another process has begun to publish these files, which do not change from then on."""
        return self.stored is not None and self.stored.has_begun()


def released_path(folder: str, label_folder: str, name: str) -> str:
    """Joins the path of a file of one label.

    `folder` is the release, or its staging folder; `label_folder` is that of the label, of `label_folders`.
    """
    return FileSystems.join(folder, f"{label_folder}/{name}" if label_folder else name)


@contextlib.contextmanager
def staging_folder(target: str, single_file: bool = False, work: str | None = None) -> Iterator[Staging]:
    """Creates a hidden folder beside the target, and deletes what is left of it when the block ends.

    What killed runs with this target have left behind is removed first, on an object store after the release. A run
    that has begun to publish on a store, and fails, is left to `labeldp finish`. With `single_file`, the output is one
    file. `work` is its path, of `new_work`. Raises InputError if another run has claimed the target on a store, or is
    to be finished.
    """
    place = _staging_on_store if is_store(target) else _staging_on_disk
    with ended_completely(place(target.rstrip("/"), single_file, work or new_work(target))) as staging:
        yield staging


@contextlib.contextmanager
def _staging_on_disk(target: str, single_file: bool, work: str) -> Iterator[Staging]:
    remove_leftovers(target)
    with contextlib.ExitStack() as until_the_end:
        with named_file("creating a folder beside", target):
            folder = until_the_end.enter_context(locked_staging(target, work))
            staging = staging_at(target, folder, single_file)
            make_directory(staging.release)
        try:
            yield staging
        finally:
            if not staging.left:
                remove_staging(folder)


def new_work(target: str) -> str:
    """Names a new folder of temporary files beside a target."""
    return f"{staging_of(target)}/{uuid.uuid4().hex}" if is_store(target) else new_staging_name(target)


def staging_at(target: str, work: str, single_file: bool = False) -> Staging:
    """The staging with a folder of temporary files, of `new_work`."""
    release = work if single_file else FileSystems.join(work, RELEASE_NAME)
    stored = None
    if is_store(work):
        stored = output_on_store(target).run(work.rpartition("/")[2])
    return Staging(work, release, stored=stored)


def output_on_store(target: str) -> Output:
    """A target on an object store, with its claim."""
    return Output(store_of(target), target.rstrip("/"))


@contextlib.contextmanager
def _staging_on_store(target: str, single_file: bool, work: str) -> Iterator[Staging]:
    staging = staging_at(target, work, single_file)
    run = staging.stored
    assert run is not None
    with named_file("creating a staging folder for", target):
        require_conditions(run.output.store, f"{run.work}/")
        if run.output.settle() is not None:
            raise claimed_error(target)
        for other in run.output.runs():
            check_not_submitted(run.output.run(other).work, target)
        run.open()
    try:
        yield staging
    except BaseException as error:
        staging.left = False
        if isinstance(error, Exception) and not isinstance(error, CapError | OutputClaimed):
            _check_not_removed(run)
        raise
    finally:
        # If the store does not answer, the next release removes its files.
        with contextlib.suppress(StoreError):
            if not staging.left and not run.give_up():
                LOGGER.warning("%s: its release is not complete: `labeldp finish %s` ends it", target, target)


def _check_not_removed(run: StagedRun) -> None:
    with contextlib.suppress(StoreError):
        if run.is_removed():
            raise InputError(
                f"another run with the output {run.output.target} was released meanwhile, and has removed the files of "
                "this one: nothing is charged for it; name another --output"
            ) from None


def staged_files(staging: Staging) -> dict[str, str]:
    """Paths of the files that are staged as the release, by their names below it.

    Raises InputError if there is a link among them.
    """
    folder = staging.release.rstrip("/")
    if is_store(folder):
        found = [info.path[len(folder) + 1 :] for info in store_of(folder).list(f"{folder}/")]
    elif is_remote(folder):
        found = [file.path[len(folder) + 1 :] for file in FileSystems.match([f"{folder}/**"])[0].metadata_list]
    else:
        found = [*plain_files(folder)]
    return {name: f"{folder}/{name}" for name in found}


def check_files(staging: Staging, files: Collection[str], manifests: Collection[str]) -> None:
    """Checks that nothing is staged but the files of the release. Called before it is signed and charged.

    Raises InputError, which names strays, or a file that is missing.
    """
    found = staged_files(staging).keys() - {SIGNATURE_NAME}
    if strays := sorted(found - {*files, *manifests}):
        raise InputError(
            f"{staging.release} has files that are not of the release: {', '.join(strays[:_SHOWN])}; nothing is "
            "released or charged. Delete them"
        )
    if missing := sorted({*files} - found):
        raise InputError(f"{staging.release}/{missing[0]} is missing: nothing is released or charged")


def _sync_staged(staging: Staging) -> None:
    """Syncs the complete files of a local staging folder to disk, so that none is empty when the folder is published.

    Nobody but the owner may write to them, whatever the umask says. Called before the ledger is charged.
    """
    if not is_remote(staging.release):
        with named_file("syncing", staging.release):
            sync_tree(staging.release)


@contextlib.contextmanager
def publishing(staging: Staging, target: str) -> Iterator[None]:
    """Makes sure that what is charged in a block is durable and can be published at its end.

    On an object store, the run claims the target for the block. It gives the target up at the end, or if a cap refuses
    the charge; after another error, `labeldp finish` ends the run. Elsewhere, runs exclude each other by the lock of
    the ledger, if it is a file. Without it, another run that publishes during the block makes `publish_folder` fail,
    after the charge.
    """
    _sync_staged(staging)
    if staging.stored is None:
        if not is_empty_folder(target):
            raise StageError(f"publishing {target} failed: another run has written it")
        yield
        return
    with named_file("publishing", target):
        staging.stored.claim()
    try:
        yield
    except CapError:
        staging.stored.end()
        raise
    staging.stored.end()


def publish_folder(staging: Staging, output: str, manifests: Sequence[str] = (MANIFEST_NAME,)) -> None:
    """Makes a complete staging folder a release; on a local disk in one atomic step, elsewhere by its manifest.

    The folder is as open to readers as the umask says; its owner alone may write to it. The target is new or an
    empty folder.

    A remote target gets the manifests last, in this order. The last one makes the others a release.
    """
    if staging.stored is not None:
        target = output.rstrip("/")
        _publish_on_store(staging.stored, {path: f"{target}/{name}" for name, path in staged_files(staging).items()},
                          f"{target}/{MANIFEST_NAME}")  # fmt: skip
        return
    if is_remote(output):
        work, target = staging.release.rstrip("/"), output.rstrip("/")
        found = FileSystems.match([f"{work}/**"])[0].metadata_list
        last = [f"{work}/{name}" for name in manifests]
        moves = [(file.path, target + file.path[len(work) :]) for file in found if file.path not in last]
        # Some filesystems rename only into folders that exist.
        for folder in sorted({moved.rpartition("/")[0] for _, moved in moves} | {target}):
            make_directory(folder)
        move_files(moves)
        for name in manifests:
            move_files([(f"{work}/{name}", f"{target}/{name}")])
        return
    # Replaces an empty folder and fails at anything else.
    with named_file("publishing", output):
        os.chmod(staging.release, (os.stat(staging.release).st_mode & 0o7000) | open_mode(0o755))
        os.rename(staging.release, output)
        _sync_parent(output)


def _publish_on_store(run: StagedRun, files: Mapping[str, str], last: str) -> None:
    with named_file("publishing", run.output.target):
        try:
            run.publish(files, last)
        except StoreConflict:
            raise StageError(f"publishing {run.output.target} failed: another run has written it") from None


def publish_file(staging: Staging, name: str, target: str) -> None:
    """Moves one file of a staging folder to its target, which must not exist."""
    with named_file("publishing", target):
        if staging.stored is not None:
            _publish_on_store(staging.stored, {f"{staging.work}/{name}": target}, target)
        elif is_remote(target):
            FileSystems.rename([FileSystems.join(staging.work, name)], [target])
        else:
            _publish_local_file(os.path.join(staging.work, name), target)


def _publish_local_file(staged: str, target: str) -> None:
    try:
        create_from(staged, target)
    except FileExistsError:
        raise StageError(f"publishing {target} failed: another run has written it") from None
    _sync_parent(target)


def _sync_parent(target: str) -> None:
    # It is released, whether this succeeds or not.
    with contextlib.suppress(OSError):
        sync_folder(os.path.dirname(os.path.abspath(target)))


def job_result_path(staging: Staging, place: int) -> str:
    """Path of the temporary job result of one private column, by its place among the requests of the job."""
    return FileSystems.join(staging.work, f"job_result_{place}.json")
