"""Reads of the input files by a job: in which parts, with which columns, and within the bounds of privacy units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import SINGLE
from ...transforms.batches import Carried, LabelledBatch
from ...transforms.io.input_format import ENOUGH_FILES
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.readers.file_reader import ReadRecordBatches
from ...transforms.units.unit_bounds import BoundedUnits, BoundUnits, LeaveOut
from ..spec.release import InputSpec, Release

# Units are sorted in groups, one for so many bytes of input, so that a group fits into memory.
_BYTES_A_GROUP = 1 << 26


@dataclass(frozen=True)
class InputReads:
    """Reads of the input of a release. Every pass reads the files again: no batch is kept between passes.

    Attributes:
      start: Pipeline of the job, or exactly one element, until which no file is looked at.
      release: The release.
      units: Records that are left out, so that no unit has too many; None without units.
    """

    start: beam.Pipeline | PCollection[Any]
    release: Release
    units: BoundedUnits | None

    @classmethod
    def of(cls, start: beam.Pipeline | PCollection[Any], release: Release) -> InputReads:
        """Adds the pass over the units, if the release has some."""
        return cls(start, release, bound_units(start, release.input, release.labels[0].column, release.key))

    def read(
        self,
        name: str,
        column: LabelColumn,
        columns: Sequence[str] | None,
        carried: Sequence[Carried] = (),
        **options: Any,
    ) -> PCollection[LabelledBatch]:
        """Reads records within the bounds of their units, each with some columns, None for all.

        `carried` are side inputs that batches carry from the last stage on that needs side inputs of its own; `options`
        are those of `ReadRecordBatches`.
        """
        input, bounded = self.release.input, self.units is not None
        batches: PCollection[LabelledBatch] = self.start | f"Read{name}" >> ReadRecordBatches(
            input.source, input.format, columns, input.where, column.name, other_labels=column.others,
            together=input.files_per_read, carried=() if bounded else carried, **options,
        )  # fmt: skip
        return without_excess(batches, f"Bound{name}", self.units, column, carried)

    def labels(self, columns: Sequence[str], carried: Sequence[Carried]) -> PCollection[LabelledBatch]:
        """Reads the columns that fitting needs."""
        # Where the rows of a CSV file begin takes as long to find as one pass gains.
        split = self.release.input.format.name != "csv" or reads_parts(self.release)
        return self.read("Labels", self.release.labels[0].column, columns, carried, split=split)

    def records(
        self, columns: Sequence[str], carried: Sequence[Carried], ranges: Carried | None
    ) -> PCollection[LabelledBatch]:
        """Reads whole records, of which drawing the labels needs some columns.

        `ranges` are those of the shards; None for shuffled records.
        """
        release, input, output = self.release, self.release.input, self.release.output
        # Features that are written as they were read need not be decoded; classes are not of the size of the float that
        # is overwritten, and a label that is missing has no bytes to overwrite: where they were put would tell that it
        # was.
        classes = any(label.column.classes is not None for label in release.labels)
        encoded = input.format.name == output.format == "tfrecord" and not (classes or input.format.missing)
        # A record that has a new column already would have it twice.
        centers = [label.column.center for label in release.labels if label.column.center is not None]
        needed = list(dict.fromkeys([*columns, *centers])) if encoded else None
        carried = carried if ranges is None else [*carried, ranges]
        return self.read(
            "Records", release.labels[0].column, needed, carried, encoded=encoded,
            folders=(*output.partitions.names, *output.left_out), split=reads_parts(release),
            shards=ranges if _parts_are_shards(release) else None,
        )  # fmt: skip


def reads_parts(release: Release, num_shards: int | None = None) -> bool:
    """Tells whether the records of a large TFRecord or CSV file are read in parts, if its kind of file is split.

    A shard of several parts is put together from their segments: those of TFRecords are copied, but those of Parquet
    are encoded then, which takes longer than the parts of a CSV file gain. Of files with enough shards each, parts are
    whole shards. `num_shards` asks for another number of shards than that of the release.
    """
    input, output = release.input, release.output
    shards = output.num_shards if num_shards is None else num_shards
    whole = _parts_are_shards(release) and shards >= ENOUGH_FILES * len(input.parts)
    cheap = input.format.name != "csv" or output.format == "tfrecord" or whole
    return cheap and shards > len(input.parts)


def _parts_are_shards(release: Release) -> bool:
    """Tells whether workers know the shards of the records that they read.

    Records of units are read before that, and the folder of a shard is found later. Of shuffled records, no part is a
    shard.
    """
    return release.unit == SINGLE and not release.output.partitions.names and not release.output.shuffle


def bound_units(
    start: beam.Pipeline | PCollection[Any], input: InputSpec, column: LabelColumn, key: NoiseKeyFile
) -> BoundedUnits | None:
    """Finds the records that are left out, by a pass over ids, so that no unit has too many; None without units."""
    if column.unit == SINGLE:
        return None
    columns = [name for name in (*column.private, column.id_column, *column.unit.columns) if name is not None]
    batches: PCollection[LabelledBatch] = start | "ReadUnits" >> ReadRecordBatches(
        input.source, input.format, list(dict.fromkeys(columns)), input.where, column.name, other_labels=column.others
    )
    return batches | "BoundUnits" >> BoundUnits(column, key, input.groups(_BYTES_A_GROUP))


def without_excess(
    batches: PCollection[LabelledBatch],
    name: str,
    units: BoundedUnits | None,
    column: LabelColumn,
    carried: Sequence[Carried] = (),
) -> PCollection[LabelledBatch]:
    """Leaves out the records beyond the bounds of their units; batches are unchanged without units.

    `name` is that of the stage, and `units` is what is left out, of `bound_units`. `carried` are side inputs that
    batches carry to later stages.
    """
    if units is None:
        return batches
    return batches | name >> LeaveOut(units.exclusions, column.unit, carried)
