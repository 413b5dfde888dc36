"""Checks of columns before anything is counted: those that flags name exist, and the output can hold the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...transforms.arrow_values import value_type
from ...transforms.csv_input.csv_header import are_names, delimiter_advice, missing_column, spaced_names
from ...transforms.errors import InputError
from ...transforms.io.input_format import listed
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import FileReader
from ...transforms.readers.parquet_reader import int96_columns
from ..errors import UsageError, one_line
from ..flags.suggestions import did_you_mean
from .job_request import InputSpec


def read_schema(input: InputSpec, labels: Sequence[str]) -> pa.Schema:
    """Columns of the first file that has some, found without reading a label; none if all files are empty.

    There is at least one private column. Raises InputError if a file cannot be read.
    """
    reader, schema = FileReader(input.format, label_column=labels[0], other_labels=labels[1:]), pa.schema([])
    for part in input.parts:
        schema = reader.schema(part)
        if schema.names:
            break
    return schema


def check_columns(named: Mapping[str, str | None], input: InputSpec, schema: pa.Schema) -> None:
    """Checks that the columns exist that flags name, and that of the filter. Raises UsageError if one does not.

    Records of a TFRecord file may lack a feature, so a name that the first records do not have is only warned of.

    `named` has the column by name of the flag; None where none is given. The message names the flag and lists the
    columns.
    """
    if not schema.names:
        return
    where = None if input.where is None else input.where.column
    for flag, name in {**named, "where": where}.items():
        if name is not None and name not in schema.names:
            problem = _describe(flag, name, input, schema.names)
            if input.format.name != "tfrecord":
                raise UsageError(problem)
            LOGGER.warning("warning: %s", problem)


def _describe(flag: str, name: str, input: InputSpec, names: list[str]) -> str:
    dialect = input.format.dialect
    if input.format.name == "csv" and (
        dialect.columns or not are_names(names) or delimiter_advice(name, names, dialect) or spaced_names(name, names)
    ):
        return f"--{flag}: {input.paths[0]}: {missing_column(name, names, dialect)}" + (
            did_you_mean(name, names) if are_names(names) and not spaced_names(name, names) else ""
        )
    records = "the first records of " if input.format.name == "tfrecord" else ""
    where = f"{records}{input.paths[0]}"
    return f"--{flag}: there is no column {name!r} in {where}; it has: {listed(names)}{did_you_mean(name, names)}"


def unsure_columns(schema: pa.Schema, input: InputSpec, labels: Sequence[str], output_format: str) -> tuple[str, ...]:
    """Names the columns of which only the values tell whether the output can hold them.

    These are timestamps of the type INT96, and for TFRecords integers that may be beyond int64; not private columns,
    which are replaced. Raises UsageError, which names the column, if the output can hold no value of it, and InputError
    if the first file cannot be read.
    """
    names = []
    if output_format == "tfrecord" != input.format.name:
        # Imports the extra `tfrecord`.
        from ...transforms.tfrecord.example_encoder import kind_of, may_not_fit, not_held

        for field in schema:
            if field.name not in labels and kind_of(value_type(field.type)) is None:
                raise UsageError(f"--output_format tfrecord: {one_line(not_held(field.name, field.type))}")
        names = [field.name for field in schema if may_not_fit(field.type)]
    if input.format.name == "parquet":
        names += int96_columns(input.paths[0])
    return tuple(name for name in names if name not in labels)


def announce_csv_columns(input: InputSpec, labels: Sequence[str]) -> None:
    """Warns of columns of numbers that CSV files have as text; `labels` are the private columns."""
    reader = FileReader(input.format, label_column=labels[0], other_labels=labels[1:])
    try:
        notes = reader.notes(input.parts[0])
    except InputError:
        # The job reports the file.
        return
    for note in notes:
        LOGGER.warning("warning: %s", one_line(note))
