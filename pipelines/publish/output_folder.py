"""Output folder: staged beside its target, and moved there when it is complete.

On an object store, which cannot move, the files of a release are written under their final names, and the manifest
last: without release.json there is no release. Temporary files are staged beside the target there, too.

Local staging folders are locked (`staging_locks`); object stores have leases (`transforms/stores/lease`).

Functions raise StageError if the operating system or the store refuses, or another run has published to the target or
taken it over.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError, StageError, StoreConflict, StoreError, named_file
from ...transforms.io.filesystems import (
    delete_folder,
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
from ...transforms.stores.lease import Lease, lease_path, staging_of
from ...transforms.stores.object_store import ABSENT, is_store
from ..spec.label_folders import MANIFEST_NAME, SIGNATURE_NAME
from ..spec.release_files import RELEASE_FILE, plain_files
from ..spec.written_files import create_from
from .signals import ended_completely
from .staging_locks import locked_staging, new_staging_name, remove_leftovers, remove_staging

SEGMENTS_NAME = "segments"
RELEASE_NAME = "release"
"""Folder in a local staging folder that becomes the release."""
_DELETIONS = 3
_SHOWN = 10


@dataclass
class Staging:
    """Place of a run's files until they are released.

    Attributes:
      work: Folder of temporary files.
      release: Folder in which the files of the release are written: one in it, but on an object store the target.
      lease: Lease on the target, on an object store.
      left: True to leave the folder and the lease to a command that finishes the run.
    """

    work: str
    release: str
    lease: Lease | None = field(default=None, repr=False)
    left: bool = False

    @property
    def manifests(self) -> str:
        """Folder of the manifests until the release is published."""
        return self.release if self.lease is None else self.work

    @property
    def temp(self) -> str:
        """Folder that names this run for files of the release that it writes itself."""
        return self.work if self.lease is None else self.lease.temporary(self.work)

    def check(self) -> None:
        """Checks that the run may still write to the target, before it reads or charges what it has written there.

        Raises StoreError if the store does not answer.
        """
        if self.lease is not None:
            self.lease.check()


def released_path(folder: str, label_folder: str, name: str) -> str:
    """Joins the path of a file of one label.

    `folder` is the release, or its staging folder; `label_folder` is that of the label, of `label_folders`.
    """
    return FileSystems.join(folder, f"{label_folder}/{name}" if label_folder else name)


@contextlib.contextmanager
def staging_folder(target: str, single_file: bool = False, work: str | None = None) -> Iterator[Staging]:
    """Creates a hidden folder beside the target, and deletes what is left of it when the block ends.

    What killed runs with this target have left behind is removed first. On an object store, the files under the target
    are deleted as well when the block raises. With `single_file`, the output is one file. `work` is its path, of
    `new_work`. Raises InputError if, on an object store, another run is writing to the target.
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


def staging_at(target: str, work: str, single_file: bool = False, lease: Lease | None = None) -> Staging:
    """The staging with a folder of temporary files, of `new_work`; a `lease` is that of a run on an object store."""
    release = target.rstrip("/") if is_store(work) else FileSystems.join(work, RELEASE_NAME)
    return Staging(work, work if single_file else release, lease)


@contextlib.contextmanager
def _staging_on_store(target: str, single_file: bool, work: str) -> Iterator[Staging]:
    folder, store = staging_of(target), store_of(target)
    lease = Lease(store, lease_path(target), run=work.rpartition("/")[2])
    with named_file("creating a staging folder for", target):
        killed = lease.acquire(
            lambda: LOGGER.info("%s: another run may be writing there; waiting for up to a minute", target)
        )
    with lease.renewed():
        # If it refuses to remove them, the next run still knows that a run was killed.
        lease.left = lease.idle = killed
        with named_file("removing what a killed run has left in", target):
            _remove_store_leftovers(target, folder, single_file, killed, lease)
        lease.left = lease.idle = False
        staging = staging_at(target, work, single_file, lease)
        try:
            yield staging
        except BaseException as error:
            # Threads of a runner that was interrupted may write after this process has deleted what they wrote.
            lease.left, staging.left = not isinstance(error, Exception), False
            if not single_file and not lease.published:
                retract(target, lease)
            raise
        finally:
            if staging.left:
                lease.left = lease.idle = True
                lease.job = lease.run
            else:
                remove_store_staging(work)


def remove_store_staging(work: str) -> None:
    """Deletes the temporary files of a run on an object store, and aborts its unfinished uploads there."""
    # Repeated, because a runner that was interrupted may still be writing.
    for _ in range(_DELETIONS):
        with contextlib.suppress(StoreError):
            store_of(work).abort_uploads(f"{work}/")
            delete_folder(work)


def _remove_store_leftovers(target: str, folder: str, single_file: bool, killed: bool, lease: Lease) -> None:
    store = store_of(target)
    # A stopped run of which these are left writes nothing below the target from here on, also when it continues. So
    # they are removed before anyone looks there.
    if not single_file:
        store.abort_uploads(f"{target}/")
    with contextlib.suppress(StoreError):
        store.abort_uploads(f"{folder}/")
    old = [info.path for info in store.list(f"{folder}/") if info.path != lease_path(target)]
    store.delete(old)
    if not single_file:
        found = {info.path[len(target) + 1 :]: info.path for info in store.list(f"{target}/")}
        others = sorted(name for name in found if not RELEASE_FILE.fullmatch(name))
        if MANIFEST_NAME in found or others or (found and not killed):
            first = MANIFEST_NAME if MANIFEST_NAME in found else next(iter(others or found))
            if first == MANIFEST_NAME:
                # A complete release has no leftovers.
                lease.left = False
            raise InputError(f"{target}/{first} exists: name another --output, or delete it")
        if found:
            with lease.held():
                store.delete(found.values())
            old += found.values()
    if old:
        LOGGER.info("removed %d objects in %s and %s, which a killed run had left behind", len(old), target, folder)


def retract(target: str, lease: Lease) -> None:
    """Deletes the files of a run that failed: the manifest first, without which the others are no release."""
    store = store_of(target)
    # Another run that has taken over deletes them itself, and writes its own.
    with contextlib.suppress(StoreError, StageError), lease.held():
        for _ in range(_DELETIONS):
            with contextlib.suppress(StoreError):
                store.delete([f"{target}/{MANIFEST_NAME}"])
                store.abort_uploads(f"{target}/")
                delete_folder(target)


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

    Raises InputError, which names strays, or a file that is missing, and StageError if the lease was lost: then they
    are files of another run.
    """
    if staging.lease is not None:
        staging.lease.check()
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

    On an object store no other run takes over during the block. Elsewhere, runs exclude each other by the lock of the
    ledger, if it is a file. Without it, another run that publishes during the block makes `publish_folder` fail, after
    the charge.
    """
    _sync_staged(staging)
    with contextlib.ExitStack() as block:
        if staging.lease is not None:
            with named_file("publishing", target):
                block.enter_context(staging.lease.held())
        elif not is_empty_folder(target):
            raise StageError(f"publishing {target} failed: another run has written it")
        yield


def publish_folder(staging: Staging, output: str, manifests: Sequence[str] = (MANIFEST_NAME,)) -> None:
    """Makes a complete staging folder a release; on a local disk in one atomic step, on a store by its manifest.

    The folder is as open to readers as the umask says; its owner alone may write to it. The target is new or an
    empty folder.

    A remote target gets the manifests last, in this order. The last one makes the others a release.
    """
    if staging.lease is not None:
        with named_file("publishing", output):
            for name in manifests:
                _commit(staging, f"{output.rstrip('/')}/{name}", name)
        staging.lease.published = True
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


def publish_file(staging: Staging, name: str, target: str) -> None:
    """Moves one file of a staging folder to its target, which must not exist."""
    with named_file("publishing", target):
        if staging.lease is not None:
            _commit(staging, target, name)
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


def _commit(staging: Staging, target: str, name: str) -> None:
    """Writes a file of the staging folder to its target, unless another run has. The lease is held."""
    store = store_of(target)
    found = store.read(f"{staging.work}/{name}")
    if found is None:
        raise StageError(f"publishing {target} failed: the staged {name} is missing")
    try:
        store.write(target, found[0], ABSENT)
    except StoreConflict:
        # Written by an attempt whose answer was lost, if it is the same.
        existing = store.read(target)
        if existing is None or existing[0] != found[0]:
            raise StageError(f"publishing {target} failed: another run has written it") from None


def job_result_path(staging: Staging, place: int) -> str:
    """Path of the temporary job result of one private column, by its place among the requests of the job."""
    return FileSystems.join(staging.work, f"job_result_{place}.json")
