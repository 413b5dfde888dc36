"""Output files of a request: their format, number and folders.

Functions raise FieldError if a field is wrong.
"""

from __future__ import annotations

from collections import Counter

from ...transforms.errors import listed
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ..errors import FieldError, did_you_mean
from .fields import Fields, names_of, shown
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
        check_tfrecord("--output_format tfrecord")
    columns = _partition_columns(fields, input)
    files = Counter(folder_of(path, columns) for path in input.paths)
    num_shards = fields.num_shards or max(files.values())
    partitions = OutputPartitions(columns, tuple(sorted(files)))
    return OutputSpec(target, format, num_shards, fields.compression, partitions, output_table(fields, format))


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
