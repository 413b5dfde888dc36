"""Measures a release on a sample of its records: the first of shards, of Parquet those of evenly spaced parts of them.

All of it is public.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from apache_beam.io.filesystem import BeamIOError

from ...mechanisms.analysis.explained import MOST_RECORDS, Measured
from ...mechanisms.core.label_classes import LabelClasses
from ...transforms.batches import LabelledBatch, center_values, label_values
from ...transforms.center.feature_columns import concatenated, feature_columns, is_feature
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems
from ...transforms.io.input_format import FilePart, Format, file_parts
from ...transforms.readers.file_reader import FileReader
from ..spec.measured_labels import measured
from ..spec.mechanism_file import MechanismFile

# Features, shards, and parts of a shard that are looked at.
_MOST_FEATURES, _MOST_SHARDS, _MOST_PARTS = 256, 64, 8
# Values of features in memory.
_MOST_VALUES = 1 << 24


def measured_shards(
    data: str, shards: Mapping[str, int], labels: Mapping[str, MechanismFile], others: Collection[str]
) -> dict[str, Measured | None]:
    """Measures each label of a release. Nothing fails for it: where shards cannot be read, nothing is measured.

    Args:
      data: Folder of the shards.
      shards: Number of records of each shard, by its name.
      labels: Mechanism of each label, by its name.
      others: Columns that are no features: labels, id, unit and centers.

    Returns:
      What a ridge explains of each label; None where that is not measured.
    """
    try:
        return _measured(data, shards, labels, others)
    except (BeamIOError, InputError, OSError, ValueError):
        return dict.fromkeys(labels)


def _measured(
    data: str, shards: Mapping[str, int], labels: Mapping[str, MechanismFile], others: Collection[str]
) -> dict[str, Measured | None]:
    randomized = {name: file for name, file in labels.items() if file.drawing.solved}
    found: dict[str, Measured | None] = dict.fromkeys(labels)
    if not randomized or not any(shards.values()):
        return found
    private = {name for file in randomized.values() for name in (file.drawing.column,) if name} | {*randomized}
    classes = {name: file.classes for name, file in labels.items() if file.classes is not None}
    batches, features = _sample(data, shards, classes, private, others)
    sizes = [batch.batch.num_rows for batch in batches]
    columns, positions = concatenated([feature_columns(batch, features) for batch in batches], sizes), []
    if sum(sizes):
        positions = _positions(data, shards, batches)
    for name, file in randomized.items():
        released = np.concatenate([label_values(batch, name, file.classes) for batch in batches])
        center, centers = file.drawing.column, None
        if center is not None:
            centers = np.concatenate([center_values(batch, center) for batch in batches])
        if np.isfinite(released).all():
            found[name] = measured(file, released, centers, columns, positions)
    return found


def _positions(data: str, shards: Mapping[str, int], batches: Sequence[LabelledBatch]) -> list[np.ndarray]:
    """Positions of records in their shards, and in all shards unless these lie in folders, which features name."""
    records = {FileSystems.join(data, name): size for name, size in shards.items()}
    within = np.concatenate([batch.rows / records[batch.source] for batch in batches])
    if any("/" in name for name in shards):
        return [within]
    return [within, np.arange(len(within)) / len(within)]


def _sample(
    data: str,
    shards: Mapping[str, int],
    classes: Mapping[str, LabelClasses],
    private: Collection[str],
    others: Collection[str],
) -> tuple[list[LabelledBatch], list[str]]:
    """Reads records with their private columns and features, and the names of the features."""
    names = [name for name, records in shards.items() if records]
    format = Format("parquet" if names[0].endswith(".parquet") else "tfrecord", root=data, classes=classes)
    files = file_parts([FileSystems.join(data, name) for name in names], format)
    schema = FileReader(format).schema(files[0])
    features = [field.name for field in schema if field.name not in {*others, *private} and is_feature(field.type)]
    features = features[:_MOST_FEATURES]
    reader = FileReader(format, [*private, *features])
    records = min(MOST_RECORDS, _MOST_VALUES // max(len(features), 1))
    whole = sum(shards.values()) <= records
    parts = files if whole else [part for file in _spread(files, _MOST_SHARDS) for part in _parts(reader, file)]
    most = records if whole else -(-records // len(parts))
    return [batch for part in parts for batch in _first(reader.read(part), most)], features


def _parts(reader: FileReader, file: FilePart) -> Sequence[FilePart]:
    """Evenly spaced parts of a shard; of a TFRecord file, which has no index, the whole."""
    return _spread([*reader.split(file)], _MOST_PARTS) if reader.format.name == "parquet" else [file]


def _spread(parts: Sequence[FilePart], most: int) -> Sequence[FilePart]:
    return parts[:: -(-len(parts) // most)]


def _first(batches: Iterator[LabelledBatch], most: int) -> Iterator[LabelledBatch]:
    """The first records of consecutive batches."""
    for batch in batches:
        size = batch.batch.num_rows
        yield batch if size <= most else batch.keep(np.arange(size) < most)
        most -= size
        if most <= 0:
            return
