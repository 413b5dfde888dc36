"""Records of a release, read from its shards: public features, and released columns that depend on one label.

A large release is sampled: its numbers of records are public, so the rows to keep are drawn before any is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..audit.audit_release import audit_path
from ..mechanisms.center.feature_rows import Columns
from ..mechanisms.core.label_classes import LabelClasses
from ..mechanisms.release.label_column import LabelColumn
from ..pipelines.errors import UsageError, did_you_mean
from ..pipelines.publish.manifest import LABELS_FORMAT, Manifest, parse_manifest
from ..pipelines.spec.label_folders import DATA_OF_LABEL, MANIFEST_NAME
from ..pipelines.spec.machine import check_tfrecord
from ..pipelines.spec.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from ..transforms.arrow_values import is_list
from ..transforms.batches import LabelledBatch, center_values, label_values
from ..transforms.errors import InputError
from ..transforms.io.input_format import Format, file_parts
from ..transforms.progress_log import advance
from ..transforms.readers.file_reader import FileReader
from .record_features import places_of, read_columns, read_features
from .released_channel import ReleasedLabels, channel_column

_BY_ROW = "file and row"


@dataclass(frozen=True)
class ReleaseFiles:
    """A release of one label, or one of several labels of a release, that has passed its audit.

    Attributes:
      name: Name of the release in messages.
      data: Folder of the shards.
      manifest: Its manifest.
      mechanism: Its mechanism file.
      column: The label with its public domain and center.
      epsilon: Certified epsilon of all that was released of this label of one record: center, histogram and label.
      unit: Column of the privacy units; None without them.
      labels: Names of all labels that were released together.
      made: Names of the columns that the release computed from labels: centers and probabilities.
      probabilities: Column of the probabilities that classes were drawn from; None for labels that were randomized.
      classes: Classes of those labels that were released together and have classes, by name.
    """

    name: str
    data: Path
    manifest: Manifest
    mechanism: MechanismFile
    column: LabelColumn
    epsilon: float
    unit: str | None
    labels: tuple[str, ...]
    made: frozenset[str]
    probabilities: str | None
    classes: Mapping[str, LabelClasses]

    @property
    def label(self) -> str:
        """Name of the label that is attacked."""
        return self.manifest.label

    @property
    def id_column(self) -> str | None:
        """Column by which the release names records; None if it names them by file and row."""
        return None if self.manifest.identity == _BY_ROW else self.manifest.identity


def open_release(path: str, name: str, label: str | None) -> ReleaseFiles:
    """Finds the files of a release and audits what its documents claim.

    `path` is an output folder, or the folder of one of several labels, or the manifest in it, `name` its name in
    messages. Raises UsageError if it is no release, or has several labels and `label` names none of them, and
    InputError if the audit fails.
    """
    folder = Path(path)
    # Resolved, because the folder above one of several labels is not always above its relative path or link.
    folder = (folder.parent if folder.name == MANIFEST_NAME else folder).resolve()
    if not (folder / MANIFEST_NAME).is_file():
        raise UsageError(f"--truth needs a release, but {name} has no {MANIFEST_NAME}: name an output folder")
    audit = audit_path(str(folder))
    if audit.problems:
        raise InputError(f"{name} fails the audit, so it is not attacked: {'; '.join(audit.problems)}")
    document = _document(folder)
    if document.get("format") != LABELS_FORMAT:
        above = folder.parent.parent if document.get("data") == DATA_OF_LABEL else None
        parts = {document["label"]: folder} if above is None else _parts(above, _document(above))
        if label not in (None, document["label"]):
            raise UsageError(
                f"--label {label} is not the label of {name}, which is {document['label']!r}: leave it out"
            )
        return _release_files(name, folder, parts)
    parts = _parts(folder, document)
    if label not in parts:
        problem = "give --label" if label is None else f"--label {label} is none of them{did_you_mean(label, parts)}"
        raise UsageError(f"{name} holds the labels {', '.join(parts)}, and one of them is attacked: {problem}")
    return _release_files(name, parts[label], parts)


def _document(folder: Path) -> dict[str, Any]:
    """A manifest, which has passed its audit."""
    return json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))


def _parts(folder: Path, document: dict[str, Any]) -> dict[str, Path]:
    return {part["label"]: folder / part["folder"] for part in document["labels"]}


def _release_files(name: str, folder: Path, parts: Mapping[str, Path]) -> ReleaseFiles:
    document = _document(folder)
    documents = [_document(path) for path in parts.values()]
    try:
        mechanism, manifest = read_mechanism_file(str(folder / MECHANISM_NAME)), parse_manifest(document)
        others = {
            label: _audited_classes(path, f"{name}, label {label!r}")
            for (label, path), each in zip(parts.items(), documents, strict=True)
            if "classes" in each and label != manifest.label
        }
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    unit = document.get("unit", {})
    return ReleaseFiles(
        name,
        (folder / document.get("data", "data")).resolve(),
        manifest,
        mechanism,
        channel_column(mechanism, document["label"]),
        unit.get("record_epsilon", manifest.certified_epsilon),
        unit.get("column"),
        tuple(parts),
        frozenset(column for each in documents for column in _made_columns(each)),
        document.get("class_center", {}).get("column"),
        {
            label: classes
            for label, classes in {**others, manifest.label: mechanism.classes}.items()
            if classes is not None
        },
    )


def _audited_classes(folder: Path, name: str) -> LabelClasses | None:
    """Classes of another label that was released together. Raises ValueError if its audit finds a fault."""
    problems = audit_path(str(folder)).problems
    if problems:
        raise ValueError(f"{name} fails the audit, so it is not attacked: {'; '.join(problems)}")
    return read_mechanism_file(str(folder / MECHANISM_NAME)).classes


def _made_columns(document: dict[str, Any]) -> Iterator[str]:
    """Columns of centers that a release made; one that was given as a column was public before."""
    if "class_center" in document:
        yield document["class_center"]["column"]
    if "linear" in document.get("center", {}):
        yield document["center"]["column"]


@dataclass(frozen=True, eq=False)
class ReleasedRecords:
    """Records of a release, or a sample of them.

    Attributes:
      rows: Number of each record in the release, in the order of the shards; shape (n,), int64, ascending.
      columns: Public features, which were public before the release.
      places: Shard of each record, and its row in it and in all, as features.
      unread: Columns that are not read, as text.
      released: Released columns that depend on the label.
      ids: Values of the id column, one for each record; None without one.
      groups: Column by which groups are shown; None without one.
    """

    rows: np.ndarray
    columns: Columns
    places: Columns
    unread: list[str]
    released: ReleasedLabels
    ids: pa.ChunkedArray | None
    groups: Any


def read_release(
    files: ReleaseFiles, most: int, seed: int, id_column: str | None, group_column: str | None
) -> ReleasedRecords:
    """Reads the shards; at most `most` records are drawn from them by the seed.

    Features are all columns but labels, ids, units, and columns that the release made of labels. Raises UsageError if
    a column is missing, and InputError if a shard cannot be read, or its labels are no outputs of the mechanism.
    """
    rows = np.arange(files.manifest.records)
    if files.manifest.records > most:
        rows = np.sort(np.random.default_rng(seed).choice(files.manifest.records, most, replace=False))
    batches = list(_chosen(_batches(files), rows))
    if sum(batch.batch.num_rows for batch in batches) != len(rows):
        raise InputError(f"{files.name} does not hold the records of its manifest: run labeldp audit --data")
    schema = batches[0].batch.schema
    for flag, name in (("id_column", id_column), ("group_column", group_column)):
        if name is not None and name not in schema.names:
            raise UsageError(f"--{flag}: the release has no column {name!r}{did_you_mean(name, schema.names)}")
    others = {*files.labels, *files.made, *filter(None, (files.id_column, files.unit, id_column))}
    columns, unread = read_features(batches, others)
    ends = np.cumsum([0, *files.manifest.shards.values()])
    shard = np.searchsorted(ends, rows, side="right") - 1
    groups = None
    if group_column is not None:
        if group_column in files.labels:
            raise UsageError(f"--group_column {group_column} is a label: name a public column")
        groups = read_columns(batches, [group_column]).get(group_column)
    return ReleasedRecords(
        rows,
        columns,
        places_of(np.array([*files.manifest.shards], object)[shard], rows - ends[shard], rows),
        unread,
        _released(files, batches),
        None if id_column is None else pa.chunked_array([batch.column(id_column) for batch in batches]),
        groups,
    )


def _batches(files: ReleaseFiles) -> Iterator[LabelledBatch]:
    paths = [str(files.data / name) for name, records in files.manifest.shards.items() if records]
    if not paths:
        raise InputError(f"{files.name} holds no record")
    parquet = paths[0].endswith(".parquet")
    if not parquet:
        check_tfrecord("a release of TFRecords", "release Parquet files")
    classes = files.mechanism.classes
    known = None if classes is None else {files.label: classes}
    format = Format("parquet" if parquet else "tfrecord", root=str(files.data), classes=known)
    reader = FileReader(format)
    for part in file_parts(paths, format):
        for batch in reader.read(part):
            advance("read", batch.batch.num_rows, files.manifest.records)
            yield batch


def _chosen(batches: Iterator[LabelledBatch], rows: np.ndarray) -> Iterator[LabelledBatch]:
    """Some records of consecutive batches, by their ascending numbers from 0 on."""
    first = 0
    for batch in batches:
        size = batch.batch.num_rows
        start, stop = np.searchsorted(rows, [first, first + size])
        mask = np.zeros(size, bool)
        mask[rows[start:stop] - first] = True
        first += size
        if stop > start:
            yield batch.keep(mask)


def _released(files: ReleaseFiles, batches: Sequence[LabelledBatch]) -> ReleasedLabels:
    mechanism, column = files.mechanism, files.column
    labels = np.concatenate([label_values(batch, files.label, mechanism.classes) for batch in batches])
    if not np.isfinite(labels).all():
        raise InputError(f"{files.name} has records without a label: run labeldp audit --data")
    if mechanism.drawing.solved is None:
        parts = [_probabilities(batch, str(files.probabilities), len(mechanism.classes or ())) for batch in batches]
        return ReleasedLabels(labels, probabilities=np.concatenate(parts))
    if column.center is None:
        return ReleasedLabels(labels)
    centers = np.concatenate([center_values(batch, column.center) for batch in batches])
    return ReleasedLabels(labels, centers)


def _probabilities(batch: LabelledBatch, name: str, size: int) -> np.ndarray:
    """Probabilities of the classes of each record, shape (n, size)."""
    column = batch.column(name)
    if column is None or not is_list(column.type) or len(column.flatten()) != size * len(column):
        raise InputError(f"{batch.source}: {name!r} does not hold {size} probabilities of each record")
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, size)
