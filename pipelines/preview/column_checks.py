"""Checks that the columns that flags name exist, before anything is read or counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...transforms.csv_input.csv_header import are_names, delimiter_advice, missing_column, spaced_names
from ...transforms.io.file_reader import FileReader
from ...transforms.io.input_format import listed
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..cli.suggestions import did_you_mean
from ..job.job_request import InputSpec


def read_schema(input: InputSpec, labels: Sequence[str]) -> pa.Schema:
    """Finds the columns of the first file that has some, without reading a label.

    Args:
      input: The input files.
      labels: The private columns, at least one.

    Returns:
      The columns; none if all files are empty.

    Raises:
      InputError: If a file cannot be read.
    """
    reader, schema = FileReader(input.format, label_column=labels[0], other_labels=labels[1:]), pa.schema([])
    for part in input.parts:
        schema = reader.schema(part)
        if schema.names:
            break
    return schema


def check_columns(named: Mapping[str, str | None], input: InputSpec, schema: pa.Schema) -> None:
    """Checks that the columns exist that flags name, and that of the filter.

    Records of a TFRecord file may lack a feature, so a name that the first records do not have is only warned of.

    Args:
      named: Column by name of the flag; None where none is given.
      input: The input files and the filter.
      schema: Columns of the first file.

    Raises:
      UsageError: If a column does not exist; names the flag and lists the columns.
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
