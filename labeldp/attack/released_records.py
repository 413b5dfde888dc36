"""Records of a release, read from its shards: public features, and released columns that depend on one label.

A large release is sampled: its numbers of records are public, so the rows to keep are drawn before any is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from labeldp import InputError, LabelledBatch, UsageError

from ..audit.audit_release import audit_path
from ..mechanisms.center.feature_rows import Columns
from ..pipelines.errors import did_you_mean
from ..pipelines.publish.released import Released, read_labels
from ..transforms.progress_log import advance
from .record_features import places_of, read_columns, read_features
from .released_channel import ReleasedLabels


def open_release(path: str, name: str, label: str | None) -> Released:
    """Audits what the documents of a release claim, and reads them.

    `path` is an output folder, or the folder of one of several labels, or the manifest in it, `name` its name in
    messages. Raises UsageError if it is no release, or has several labels and `label` names none of them, and
    InputError if the audit fails.
    """
    # Resolved, because a name may be that of a folder elsewhere.
    folder = (Path(path).parent if Path(path).name == "release.json" else Path(path)).resolve()
    if not (folder / "release.json").is_file():
        raise UsageError(f"--truth needs a release, but {name} has no release.json: name an output folder")
    audit = audit_path(str(folder))
    if audit.problems:
        raise InputError(f"{name} fails the audit, so it is not attacked: {'; '.join(audit.problems)}")
    document, folders = read_labels(str(folder))
    if "labels" in document:
        if label not in folders:
            problem = "give --label"
            if label is not None:
                problem = f"--label {label} is none of them{did_you_mean(label, folders)}"
            raise UsageError(f"{name} holds the labels {', '.join(folders)}, and one of them is attacked: {problem}")
        released = Released.open(folders[label], name)
    else:
        released = Released.open(folder, name)
        if label not in (None, released.label):
            raise UsageError(f"--label {label} is not the label of {name}, which is {released.label!r}: leave it out")
    for other in released.together:
        problems = () if other is released or other.classes is None else audit_path(str(other.path)).problems
        if problems:
            raise InputError(f"{other.name} fails the audit, so it is not attacked: {'; '.join(problems)}")
    return released


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
    released: Released, most: int, seed: int, id_column: str | None, group_column: str | None
) -> ReleasedRecords:
    """Reads the shards; at most `most` records are drawn from them by the seed.

    Features are all columns but labels, ids, units, and columns that the release made of labels. Raises UsageError if
    a column is missing, and InputError if a shard cannot be read, or its labels are no outputs of the mechanism.
    """
    stated = released.stated
    rows = np.arange(stated.records)
    if stated.records > most:
        rows = np.sort(np.random.default_rng(seed).choice(stated.records, most, replace=False))
    batches = list(_chosen(_counted(released), rows))
    if sum(batch.batch.num_rows for batch in batches) != len(rows):
        raise InputError(f"{released.name} does not hold the records of its manifest: run labeldp audit --data")
    schema = batches[0].batch.schema
    for flag, name in (("id_column", id_column), ("group_column", group_column)):
        if name is not None and name not in schema.names:
            raise UsageError(f"--{flag}: the release has no column {name!r}{did_you_mean(name, schema.names)}")
    labels, made = [label.label for label in released.together], [label.made for label in released.together]
    others = {*labels, *filter(None, (*made, released.id_column, released.unit_column, id_column))}
    columns, unread = read_features(batches, others)
    ends = np.cumsum([0, *stated.shards.values()])
    shard = np.searchsorted(ends, rows, side="right") - 1
    groups = None
    if group_column is not None:
        if group_column in labels:
            raise UsageError(f"--group_column {group_column} is a label: name a public column")
        groups = read_columns(batches, [group_column]).get(group_column)
    return ReleasedRecords(
        rows,
        columns,
        places_of(np.array([*stated.shards], object)[shard], rows - ends[shard], rows),
        unread,
        _released(released, batches),
        None if id_column is None else pa.chunked_array([batch.column(id_column) for batch in batches]),
        groups,
    )


def _counted(released: Released) -> Iterator[LabelledBatch]:
    for batch in released.batches():
        advance("read", batch.batch.num_rows, released.stated.records)
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


def _released(released: Released, batches: Sequence[LabelledBatch]) -> ReleasedLabels:
    labels = np.concatenate([released.labels_in(batch) for batch in batches])
    if not np.isfinite(labels).all():
        raise InputError(f"{released.name} has records without a label: run labeldp audit --data")
    if released.probabilities is None and released.column.center is None:
        return ReleasedLabels(labels)
    centers = np.concatenate([released.centers_in(batch) for batch in batches])
    return ReleasedLabels(labels, centers) if released.probabilities is None else ReleasedLabels(labels, None, centers)
