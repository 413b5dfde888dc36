"""Records without a usable label: how many of them are tolerated, and labels in place of missing ones. Loads no Beam.

The latter are put in where files are read, before any stage sees which records had none. A job with `--missing_label
VALUE` counts a label as VALUE that is missing, several, NaN or infinite. So whether a record has a label is protected
as its label is. Batches show nothing of it: the column is flat and has no nulls, also where no record of a batch has a
label.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import PassSums
from .arrow_values import holds_numbers, single_numbers
from .errors import InputError

# Of each source of records: what there is none of, where a label for missing ones is given, how records are left out.
_ADVICE = {
    "files": (
        "the files that match `input` contain no records, or `where` excludes all of them",
        " in privatize and fit",
        "exclude them with `where`",
    ),
    "rows": ("there are no rows with an id", "", "exclude them by a beam.Filter before"),
    "frame": ("there are no records", "", "leave them out"),
}


@dataclass(frozen=True)
class Threshold:
    """Limit on the records without a usable label.

    Attributes:
      fraction: Largest tolerated fraction of all records, in [0, 1].
      source: Files, rows of a pipeline, or a frame: advice names what each of them has.
    """

    fraction: float = 0.5
    source: Literal["files", "rows", "frame"] = "files"

    def __post_init__(self) -> None:
        """Raises ValueError for a fraction outside [0, 1]."""
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"max_unusable_fraction must be between 0 and 1, not {self.fraction:g}")

    def check(
        self,
        records: int,
        unusable: int,
        column: LabelColumn,
        several: int = 0,
        left_out: int = 0,
        missing_centers: int = 0,
    ) -> None:
        """Checks record counts against the limit.

        Args:
          records: Number of records with a usable label.
          unusable: Number of records without one.
          column: The label column.
          several: Number of records without a usable label that are known to have several.
          left_out: Number of records with a usable label that were left out for the bound of their unit.
          missing_centers: Number of records with a usable label and without a center, if there is a center column.

        Raises:
          InputError: If no record has a usable label, more than the fraction have none, or no record has a center.
        """
        if records == 0 and left_out:
            raise InputError("no record with a usable label has a unit: check `unit_column`")
        empty, commands, excluded = _ADVICE[self.source]
        if records + unusable == 0:
            raise InputError(f"the input is empty: {empty}")
        label, advice = column.described, missing_advice(column, f"`missing_label` {{}}{commands}")
        if records == 0:
            held = "hold several values" if several == unusable else "have no value or several, NaN or infinity"
            raise InputError(
                f"no record has a usable label in {label!r}: all {unusable:,} records {held}, but a label is one "
                f"{'class' if column.classes else 'number'}: {'' if several else advice}check `label`"
            )
        total = records + unusable + left_out
        if unusable > self.fraction * total:
            # Which records lack a label is released: where most do, that may say who converted.
            raise InputError(
                f"{unusable:,} of {total:,} records have no usable label in {label!r} "
                f"({f'{several:,} of them have several values; ' if several else ''}missing, several, NaN or "
                f"infinite), more than `max_unusable_fraction` {self.fraction:g}: "
                + (advice if 2 * unusable > total else "")
                + f"fix them, {excluded}"
                + (", or raise the threshold" if 2 * unusable <= total else "")
            )
        if column.center is not None and missing_centers == records:
            raise InputError(
                f"no record has a usable center in {column.center!r} (missing, NaN or infinite): check "
                "`center_column`, or with apply the center of `mechanism_file`"
            )

    def check_sums(self, sums: PassSums | None, column: LabelColumn) -> PassSums:
        """Checks the counts of a pass over the whole input.

        Args:
          sums: Sums of the pass; None if there was no record.
          column: The label column.

        Returns:
          The sums.

        Raises:
          InputError: If there is no record, or too many have no usable label.
        """
        if sums is None:
            self.check(0, 0, column)
        assert sums is not None
        self.check(sums.records, sums.unusable, column, sums.several, sums.left_out, sums.missing_centers)
        return sums


def missing_advice(column: LabelColumn, setting: str) -> str:
    """Advice where most labels are missing; empty where they cannot count as a label.

    `setting` is how the caller gives the label, of which {} is the place. It is 0 where that is a label.
    """
    if column.others or column.missing_label is not None:
        return ""
    classes = column.classes
    zero = "0" in classes.values if classes else 0.0 in column.domain
    given = setting.format("0" if zero else "CLASS (one of the classes)" if classes else "LABEL (one of the domain)")
    return f"if a missing label means a value that is still to come, as no conversion yet, give {given}; otherwise "


def with_numbers(column: pa.Array, value: float) -> pa.Array:
    """The single numbers of a column, shape (n,), float64, with `value` where there is none.

    A column of anything but numbers stays as it is: the stages that read it refuse it.
    """
    if not holds_numbers(column.type):
        return column
    numbers = single_numbers(column, len(column))
    return pa.array(np.where(np.isnan(numbers), float(value), numbers))


def with_columns(batch: pa.RecordBatch, labels: Collection[str]) -> pa.RecordBatch:
    """The batch with a column of nulls for each label that it lacks, at its place among features in order of names."""
    for label in sorted(labels):
        if label not in batch.schema.names:
            place = bisect.bisect(batch.schema.names, label)
            columns, fields = [*batch.columns], [*batch.schema]
            columns.insert(place, pa.nulls(batch.num_rows))
            fields.insert(place, pa.field(label, pa.null()))
            batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return batch


def with_fields(schema: pa.Schema, labels: Collection[str]) -> pa.Schema:
    """The schema of `with_columns`."""
    for label in sorted(labels):
        if label not in schema.names:
            schema = schema.insert(bisect.bisect(schema.names, label), pa.field(label, pa.null()))
    return schema


def filled(batch: pa.RecordBatch, missing: Mapping[str, float]) -> pa.RecordBatch:
    """The batch with the value of each label of `missing` where it has no single number."""
    columns = [
        with_numbers(column, missing[name]) if name in missing else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
