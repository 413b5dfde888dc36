"""Output files of a request: their format, number and folders.

Functions raise FieldError if a field is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from ...transforms.errors import listed
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ..errors import FieldError, did_you_mean
from .fields import Fields, names_of, shown
from .label import Label
from .machine import check_tfrecord
from .release import InputSpec, OutputSpec
from .table_input import output_table

_MOST_SHARDS = 99_999
"""Shard names have five digits."""


def output_format(fields: Fields) -> str:
    """Format of the shards: by default that of the input, and for CSV Parquet, which can hold its types."""
    return fields.output_format or ("tfrecord" if fields.input_format == "tfrecord" else "parquet")


def output_spec(fields: Fields, target: str, input: InputSpec) -> OutputSpec:
    """Reads format, shards and folders of the output `target`."""
    if fields.num_shards is not None and not 1 <= fields.num_shards <= _MOST_SHARDS:
        raise FieldError(
            "{num_shards} must be from 1 to {most:,}, not {given:,}", most=_MOST_SHARDS, given=fields.num_shards
        )
    format = output_format(fields)
    if format == "tfrecord":
        check_tfrecord("--output_format tfrecord", "give --output_format parquet")
    columns = _partition_columns(fields, input)
    files = Counter(folder_of(path, columns) for path in input.paths)
    num_shards = fields.num_shards or max(files.values())
    partitions = OutputPartitions(columns, tuple(sorted(files)))
    table, left_out = output_table(fields, format), tuple(dict.fromkeys(names_of(fields.leave_out)))
    return OutputSpec(target, format, num_shards, fields.compression, partitions, table, left_out, bool(fields.shuffle))


def check_left_out(fields: Fields, labels: Sequence[Label], input: InputSpec, schema: pa.Schema) -> None:
    """Checks the columns of `leave_out`: they are in the input, and the output can do without them.

    A name that the input does not have may be misspelled, and the column meant would be released.
    """
    for name in names_of(fields.leave_out):
        if any(name == label.name for label in labels):
            raise FieldError("{leave_out} {name}: the label is what is released, privatized", name=name)
        if any(name in _of_center(label) for label in labels):
            raise FieldError(
                "{leave_out} {name}: labels are released around a center that is this column, or made of it: leave it "
                "out of the center as well, or keep it",
                name=name,
            )
        if name in names_of(fields.partition_output):
            raise FieldError("{leave_out} {name}: {partition_output} writes it into the names of folders", name=name)
        if schema.names and name not in schema.names:
            records = "the first records of " if input.format.name == "tfrecord" else ""
            raise FieldError(
                "{leave_out}: there is no column {name!r} in {records}{path}; it has: {names}{meant}",
                name=name,
                records=records,
                path=input.paths[0],
                names=listed(schema.names),
                meant=did_you_mean(name, schema.names),
            )


def _of_center(label: Label) -> tuple[str, ...]:
    """Columns of the input that recipients need to compute or to use the center of a label."""
    column, fitted = label.column, label.mechanism.fitted
    made = None if fitted is None else fitted.made_center
    used = () if made is None else tuple(made.map.columns)
    used += () if label.features is None else tuple(label.features.names)
    return used if column.center is None else (*used, column.center)


def _partition_columns(fields: Fields, input: InputSpec) -> tuple[tuple[str, bool], ...]:
    """Reads `partition_output`: name of each column, and whether it is of int32."""
    if fields.partition_output is None:
        return ()
    names = names_of(fields.partition_output)
    known = {partition.name: partition.integer for partition in input.parts[0].partitions}
    if not known:
        given = shown(fields.partition_output)
        problem = "{partition_output} {given}: the input has no partition columns, "
        if input.table is not None:
            raise FieldError(f"{problem}a table has none in the names of folders", given=given)
        if input.format.partitions:
            raise FieldError(f"{problem}no folder is named KEY=VALUE", given=given)
        raise FieldError(f"{problem}{{partitions}} none ignores them", given=given)
    for name in names:
        if name not in known:
            raise FieldError(
                "{partition_output}: {name!r} is no partition column of the input; these are: {known}{meant}",
                name=name,
                known=listed([*known]),
                meant=did_you_mean(name, [*known]),
            )
        if names.count(name) > 1:
            raise FieldError("{partition_output} names {name!r} twice: give every column once", name=name)
    return tuple((name, known[name]) for name in names)
