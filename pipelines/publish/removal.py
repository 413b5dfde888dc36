"""Removal of records from a release: a new release of the others, whose bytes stay as they are.

Nothing is charged: what is published is a function of what was. mechanism.json and center.json are those of the release
before, byte by byte: histogram, sums and samples in them were made from all records.

The manifest keeps the number of records that were counted, counts the shards anew, and states each removal: its date,
its number of records, and the hash of the manifest that it changed. So removals form a chain.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, write_text
from ...transforms.progress_log import LOGGER, Progress
from ...transforms.shards.reduced_shards import write_reduced
from ..errors import FieldError, UsageError
from ..spec.label_folders import (
    CENTER_NAME,
    DATA_NAME,
    MANIFEST_NAME,
    VALIDATION_FILES,
    VALIDATION_NAME,
)
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.release_files import released_file
from ..spec.signing_key import SigningKey
from .manifest import REMOVALS
from .named_records import NamedRecords, find_rows, find_values, listed_lines, read_lines
from .output_folder import Staging, publish_folder, publishing, released_path, staging_folder
from .release_steps import write_document
from .released import Released, read_labels
from .signals import signals_ignored
from .signature import sign_release
from .unfinished_run import REMOVAL_NAME


@dataclass(frozen=True)
class EarlierRelease:
    """Release from which records are removed, which passed its audit.

    `content` are the bytes of its release.json, and `manifest` the document in these. Its labels are by their folders
    below it, "" for a release of one. `others` are the further files to be copied.
    """

    folder: str
    content: bytes
    manifest: dict[str, Any]
    labels: dict[str, Released]
    others: tuple[str, ...]

    @property
    def data(self) -> str:
        """Folder of the shards."""
        return FileSystems.join(self.folder, DATA_NAME)

    @property
    def shards(self) -> dict[str, int]:
        """Number of records by shard, in their order."""
        return dict(sorted(self.manifest["shards"].items()))

    @property
    def first(self) -> Released:
        """The first label."""
        return next(iter(self.labels.values()))


def read_before(folder: str, local: Path, validated: bool = True) -> EarlierRelease:
    """Reads the documents of a release that passed its audit; `local` has them as local files.

    Unless it is `validated`, the results of its validation are left out.
    """
    content = (local / MANIFEST_NAME).read_bytes()
    manifest, folders = read_labels(str(local))
    if manifest.get("data", DATA_NAME) != DATA_NAME:
        raise UsageError(f"{folder} is one label of a release of several, which share their records: name that release")
    labels = {os.path.relpath(path, local).removeprefix("."): Released.open(path) for path in folders.values()}
    others = list[str]()
    for label in labels:
        others += [released_path("", label, name) for name in (MECHANISM_NAME, CENTER_NAME)
                   if (local / label / name).exists()]  # fmt: skip
    validation = local / VALIDATION_NAME
    if validated and validation.is_dir():
        # Whatever else is there is not of the release.
        found = [entry.name for entry in os.scandir(validation) if entry.is_file(follow_symlinks=False)]
        others += [f"{VALIDATION_NAME}/{name}" for name in sorted({*found} & {*VALIDATION_FILES})]
    before = EarlierRelease(folder, content, manifest, labels, ())
    others += before.first.document.get("dead_letters", {})
    for name in (*others, *(f"{DATA_NAME}/{shard}" for shard in manifest["shards"])):
        released_file(folder, name)
    return replace(before, others=tuple(others))


def find_records(before: EarlierRelease, field: str, path: str) -> NamedRecords:
    """Finds the records that a file names, by `field`: ids, units, or rows, those of shards.

    Raises FieldError if the release cannot be searched so, or a line of the file is wrong, and InputError if a shard is
    damaged or does not have as many records as the manifest says.
    """
    column = before.first.id_column
    if field == "ids" and column is None:
        raise FieldError("{ids}: the records of this release have no ids, only files and rows: name {rows}")
    if field == "units":
        column = before.first.unit_column
        if column is None:
            raise FieldError("{units}: this release has no privacy units: name {ids} or {rows}")
    if field != "rows" and column in before.manifest.get("left_out", ()):
        raise FieldError(
            f"{{{field}}}: the column {{column}} was left out of this release, so its records cannot be found by it: "
            "name {rows}. Shards have the records of the log in its order, without those that were not released",
            column=column,
        )
    lines = read_lines(field, path)
    if field == "rows":
        return find_rows(before.data, before.shards, lines)
    return find_values(before.data, before.shards, str(column), lines, units=field == "units")


def check_removal(before: EarlierRelease, found: NamedRecords, date: str, missing_ok: bool, named: str) -> None:
    """Checks that records, which a flag and its file have `named`, may be removed on a date.

    Raises FieldError or InputError if not.
    """
    if found.missing and not missing_ok:
        raise InputError(
            f"{named}: {len(found.missing)} of {found.names} names are of no record of {before.folder} "
            f"({listed_lines(found.missing)}); nothing is removed. Check them, or give --missing_ok"
        )
    if not found.records:
        raise InputError(f"{named} names no record of {before.folder}: nothing is removed")
    if found.records == sum(before.shards.values()):
        raise InputError(f"all records of {before.folder} would be removed: delete the folder instead")
    earlier = before.manifest.get(REMOVALS, [])
    if earlier and date < earlier[-1]["date"]:
        raise FieldError("{removed_on} {date} lies before the last removal, of {last}", date=date,
                         last=earlier[-1]["date"])  # fmt: skip


def publish_removal(
    before: EarlierRelease, found: NamedRecords, date: str, output: str, key: SigningKey | None
) -> None:
    """Writes the release without some records, signs it if there is a key, and publishes it in one step.

    Raises InputError if another run writes there, or a shard is damaged, and StageError if it cannot be written.
    """
    progress, none = Progress("rewrote"), np.zeros(0, np.int64)
    with staging_folder(output) as staging:
        dropped = {f"{DATA_NAME}/{name}": found.rows.get(name, none) for name in before.shards}
        files = [*before.others, *dropped]
        for name in files:
            source, target = (FileSystems.join(folder, name) for folder in (before.folder, staging.release))
            write_reduced(source, target, staging.work, dropped.get(name, none), progress)
        LOGGER.info("wrote %d shards, %d of them without some records", len(dropped), len(found.rows))
        write_text(FileSystems.join(staging.work, REMOVAL_NAME), "{}\n")
        names = sign_release(staging, files, _write_manifests(before, found, date, staging), key)
        with ExitStack() as until_the_end, publishing(staging, output):
            # As in `charged`: what it did would be reported as not done.
            until_the_end.enter_context(signals_ignored())
            publish_folder(staging, output, names)


def _write_manifests(before: EarlierRelease, found: NamedRecords, date: str, staging: Staging) -> Sequence[str]:
    """Writes the manifests. Returns their paths below the release, the one that makes it a release last."""
    removals = [
        *before.manifest.get(REMOVALS, []),
        {"date": date, "records": found.records, "manifest": hashlib.sha256(before.content).hexdigest()},
    ]
    shards = {name: count - len(found.rows.get(name, ())) for name, count in before.manifest["shards"].items()}
    of_labels = [label for label in before.labels if label]
    for label in of_labels:
        write_document(_reduced(before.labels[label].document, shards, removals), staging, label, MANIFEST_NAME)
    write_document(_reduced(before.manifest, shards, removals), staging, "", MANIFEST_NAME)
    return [*(f"{label}/{MANIFEST_NAME}" for label in of_labels), MANIFEST_NAME]


def _reduced(manifest: Mapping[str, Any], shards: dict[str, int], removals: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest with other counts of its shards, and the removals after these."""
    reduced: dict[str, Any] = {}
    for key, value in manifest.items():
        if key == "shards":
            reduced |= {"shards": shards, REMOVALS: removals}
        elif key != REMOVALS:
            reduced[key] = value
    return reduced
