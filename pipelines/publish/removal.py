"""Removal of records from a release: a new release of the others, whose bytes stay as they are.

Nothing is charged: what is published is a function of what was. mechanism.json and center.json are those of the release
before, byte by byte: histogram, sums and samples in them were made from all records.

The manifest keeps the number of records that were counted, counts the shards anew, and states each removal: its date,
its number of records, and the hash of the manifest that it changed. So removals form a chain.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...transforms.errors import InputError, named_file
from ...transforms.io.filesystems import FileSystems, complete_file, open_file
from ...transforms.progress_log import LOGGER, Progress
from ...transforms.shards.reduced_shards import write_reduced
from ..errors import FieldError, UsageError
from ..spec.label_folders import CENTER_NAME, MANIFEST_NAME, VALIDATION_FILES, VALIDATION_NAME, label_folders
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.release_files import released_file
from ..spec.signing_key import SigningKey
from .manifest import LABELS_FORMAT, REMOVALS
from .named_records import Found, find_rows, find_values, listed_lines, read_lines
from .output_folder import DATA_NAME, Staging, publish_folder, publishing, released_path, staging_folder
from .release_steps import write_document
from .signals import signals_ignored
from .signature import sign_release

_BY_PLACE = "file and row"


@dataclass(frozen=True)
class Before:
    """The release from which records are removed. It passed its audit.

    Attributes:
      folder: Path or URL of the release.
      content: Bytes of its release.json.
      manifest: The document in these.
      labels: Folders of its labels below it, "" for one label.
      manifests: Manifests of the labels, by folder.
      mechanisms: Mechanism files, as documents, by folder.
      others: Names of the further files to be copied, such as dead letters.
    """

    folder: str
    content: bytes
    manifest: dict[str, Any]
    labels: tuple[str, ...]
    manifests: dict[str, dict[str, Any]]
    mechanisms: dict[str, dict[str, Any]]
    others: tuple[str, ...]

    @property
    def data(self) -> str:
        """Folder of the shards."""
        return FileSystems.join(self.folder, DATA_NAME)

    @property
    def shards(self) -> dict[str, int]:
        """Number of records by shard, in the order of the shards."""
        return dict(sorted(self.manifest["shards"].items()))

    @property
    def first(self) -> dict[str, Any]:
        """Manifest of the first label."""
        return self.manifests[self.labels[0]]


def read_before(folder: str, local: Path, validated: bool = True) -> Before:
    """Reads the documents of a release that passed its audit; `local` has them as local files.

    Unless it is `validated`, the results of its validation are left out.
    """
    content = (local / MANIFEST_NAME).read_bytes()
    manifest = json.loads(content)
    labels = [""]
    if manifest["format"] == LABELS_FORMAT:
        labels = label_folders([entry["label"] for entry in manifest["labels"]])
    elif manifest.get("data", DATA_NAME) != DATA_NAME:
        raise UsageError(f"{folder} is one label of a release of several, which share their records: name that release")

    def documents(name: str) -> dict[str, dict[str, Any]]:
        return {label: json.loads((local / label / name).read_text()) for label in labels}

    manifests, others = documents(MANIFEST_NAME), []
    for label in labels:
        others += [released_path("", label, name) for name in (MECHANISM_NAME, CENTER_NAME)
                   if (local / label / name).exists()]  # fmt: skip
    validation = local / VALIDATION_NAME
    if validated and validation.is_dir():
        # Whatever else is there is not of the release.
        found = [entry.name for entry in os.scandir(validation) if entry.is_file(follow_symlinks=False)]
        others += [f"{VALIDATION_NAME}/{name}" for name in sorted({*found} & {*VALIDATION_FILES})]
    others += manifests[labels[0]].get("dead_letters", {})
    for name in (*others, *(f"{DATA_NAME}/{shard}" for shard in manifest["shards"])):
        released_file(folder, name)
    return Before(folder, content, manifest, tuple(labels), manifests, documents(MECHANISM_NAME), tuple(others))


def find_records(before: Before, ids: str | None, units: str | None, rows: str | None) -> Found:
    """Finds the records that a file names: one of `ids`, `units` and `rows`, those of shards.

    Raises FieldError if the release cannot be searched so, or a line of the file is wrong, and InputError if a shard is
    damaged or does not have as many records as the manifest says.
    """
    if ids is not None:
        column = before.first["identity"]
        if column == _BY_PLACE:
            raise FieldError("{ids}: the records of this release have no ids, only files and rows: name {rows}")
        found = find_values(before.data, list(before.shards), column, read_lines("ids", ids))
    elif units is not None:
        unit = before.mechanisms[before.labels[0]].get("unit")
        if unit is None:
            raise FieldError("{units}: this release has no privacy units: name {ids} or {rows}")
        found = find_values(before.data, list(before.shards), unit["column"], read_lines("units", units), units=True)
    else:
        assert rows is not None
        found = find_rows(before.data, list(before.shards), read_lines("rows", rows))
    for name, count in before.shards.items():
        if found.counts[name] != count:
            raise InputError(
                f"{before.data}/{name} does not hold as many records as {MANIFEST_NAME} says: restore the release"
            )
    return found


def check_removal(before: Before, found: Found, date: str, missing_ok: bool, field: str, path: str) -> None:
    """Checks that records may be removed on a date. Raises FieldError or InputError if not."""
    if found.missing and not missing_ok:
        raise InputError(
            f"--{field} {path}: {len(found.missing)} of {found.names} names are of no record of {before.folder} "
            f"({listed_lines(found.missing)}); nothing is removed. Check them, or give --missing_ok"
        )
    if not found.records:
        raise InputError(f"--{field} {path} names no record of {before.folder}: nothing is removed")
    if found.records == sum(before.shards.values()):
        raise InputError(f"all records of {before.folder} would be removed: delete the folder instead")
    earlier = before.manifest.get(REMOVALS, [])
    if earlier and date < earlier[-1]["date"]:
        raise FieldError("{removed_on} {date} lies before the last removal, of {last}", date=date,
                         last=earlier[-1]["date"])  # fmt: skip


def publish_removal(before: Before, found: Found, date: str, output: str, key: SigningKey | None) -> None:
    """Writes the release without some records, signs it if there is a key, and publishes it in one step.

    Raises InputError if another run writes there, or a shard is damaged, and StageError if it cannot be written.
    """
    with staging_folder(output) as staging:
        _write_shards(before, found, staging)
        for name in before.others:
            _copy(FileSystems.join(before.folder, name), FileSystems.join(staging.release, name), staging)
        files = [*before.others, *(f"{DATA_NAME}/{name}" for name in before.shards)]
        names = sign_release(staging, files, _write_manifests(before, found, date, staging), key)
        with publishing(staging, output), signals_ignored():
            publish_folder(staging, output, names)


def _write_shards(before: Before, found: Found, staging: Staging) -> None:
    progress = Progress("rewrote")
    for name in before.shards:
        target = FileSystems.join(staging.release, f"{DATA_NAME}/{name}")
        dropped = found.rows.get(name, np.zeros(0, np.int64))
        write_reduced(FileSystems.join(before.data, name), target, staging.temp, dropped, progress)
    LOGGER.info("wrote %d shards, %d of them without some records", len(before.shards), len(found.rows))


def _copy(source: str, target: str, staging: Staging) -> None:
    with named_file("writing", target), open_file(source) as file, complete_file(target, staging.temp) as copy:
        copy.write(file.read())


def _write_manifests(before: Before, found: Found, date: str, staging: Staging) -> Sequence[str]:
    """Writes the manifests. Returns their paths below the release, the one that makes it a release last."""
    removals = [
        *before.manifest.get(REMOVALS, []),
        {"date": date, "records": found.records, "manifest": hashlib.sha256(before.content).hexdigest()},
    ]
    shards = {name: count - len(found.rows.get(name, ())) for name, count in before.manifest["shards"].items()}
    names = []
    if before.labels != ("",):
        for label in before.labels:
            write_document(_reduced(before.manifests[label], shards, removals), staging, label, MANIFEST_NAME)
            names.append(f"{label}/{MANIFEST_NAME}")
    write_document(_reduced(before.manifest, shards, removals), staging, "", MANIFEST_NAME)
    return *names, MANIFEST_NAME


def _reduced(manifest: dict[str, Any], shards: dict[str, int], removals: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest with other counts of its shards, and the removals after these."""
    reduced: dict[str, Any] = {}
    for key, value in manifest.items():
        if key == "shards":
            reduced |= {"shards": shards, REMOVALS: removals}
        elif key != REMOVALS:
            reduced[key] = value
    return reduced


def remaining_records(before: Before, found: Found) -> int:
    """Number of records of the new release."""
    return sum(before.shards.values()) - found.records
