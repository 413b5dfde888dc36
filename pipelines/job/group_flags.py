"""Groups of records for `--center_groups`: declared values, or the most frequent ones, found by a pass of its own."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.label_groups import MOST_VALUES, LabelGroups
from ...transforms.arrow_values import value_type
from ...transforms.batches import LabelledBatch
from ...transforms.center.group_indices import group_values, is_group_type
from ...transforms.errors import InputError, redact_errors
from ...transforms.io.filesystems import read_text, write_text
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..release.output_folder import staging_folder
from ..runner.run_pipeline import run_pipeline
from .center_flags import first_schema
from .job_request import InputSpec, JobRequest

# Values that are counted in memory, at most.
_MOST_COUNTED = 100_000
_BOOLEANS = {"true": "1", "false": "0", "1": "1", "0": "0"}


def with_declared_groups(
    args: argparse.Namespace, input: InputSpec, column: LabelColumn
) -> tuple[LabelColumn, str | None]:
    """Reads `--center_groups`.

    Args:
      args: Parsed flags.
      input: The input files. The first records of the first one are read for their schema.
      column: The label column, with its center.

    Returns:
      The label column, with groups if their values are declared; and the column whose most frequent values are to be
      found, None if there is none.

    Raises:
      UsageError: If the flag is wrong, there is no center, or the column cannot be grouped by.
      InputError: If the first records cannot be read; names the file.
    """
    if args.center_groups is None:
        return column, None
    name, declared, text = args.center_groups.partition("=")
    if not name or (declared and not text):
        raise UsageError(f"--center_groups takes NAME or NAME=V1,V2,..., not {args.center_groups!r}")
    if column.center is None:
        raise UsageError("--center_groups needs a center: give --center linear or --center_column")
    if name in (column.name, column.id_column):
        flag = "--label" if name == column.name else "--id_column"
        raise UsageError(f"--center_groups must be another column than {flag}")
    schema = first_schema(input, column)
    if name not in schema.names:
        raise UsageError(f"--center_groups: {input.paths[0]} has no column {name!r} in its first records")
    kind = value_type(schema.field(name).type)
    if not (is_group_type(kind) or pa.types.is_null(kind)):
        raise UsageError(
            f"--center_groups: {name!r} holds {kind}, neither text nor integers nor booleans: name another column, or "
            f"for a CSV file give --csv_types {name}=string"
        )
    if not declared:
        return column, name
    try:
        values = tuple(_canonical(value, kind) for value in text.split(","))
        return dataclasses.replace(column, groups=LabelGroups(name, values)), None
    except ValueError as error:
        raise UsageError(f"--center_groups: {error}") from None


def _canonical(value: str, kind: pa.DataType) -> str:
    """The value as records of that type have it."""
    if pa.types.is_boolean(kind):
        if value.lower() not in _BOOLEANS:
            raise ValueError(f"{value!r} is neither true nor false")
        return _BOOLEANS[value.lower()]
    if pa.types.is_integer(kind):
        try:
            return str(int(value))
        except ValueError:
            raise ValueError(f"the column holds integers, and {value!r} is none") from None
    return value


def with_frequent_groups(request: JobRequest, options: PipelineOptions) -> JobRequest:
    """Finds the most frequent values of the column that is grouped by, which are public, in a pipeline of its own.

    Args:
      request: The request.
      options: Options of the runner.

    Returns:
      The request with groups: of the 15 most frequent values, and of equally frequent ones the first; the request
      itself if their values are declared, or there are none.

    Raises:
      InputError: If the column has no value, or too many, or cannot be grouped by.
    """
    name = request.group_column
    if name is None:
        return request
    LOGGER.info("counting the values of the column of --center_groups")
    with staging_folder(request.output.target, single_file=True) as staging:
        path = FileSystems.join(staging.work, "groups.json")
        run_pipeline(options, lambda pipeline: _count_values(pipeline, request, name, path))
        counts: dict[str, int] = json.loads(read_text(path))
    if not counts:
        raise InputError(f"--center_groups: no record has a value of {name!r}")
    values = sorted(counts, key=lambda value: (-counts[value], value))[:MOST_VALUES]
    column = dataclasses.replace(request.column, groups=LabelGroups(name, tuple(values)))
    return dataclasses.replace(request, column=column, group_column=None)


def _count_values(pipeline: beam.Pipeline, request: JobRequest, name: str, path: str) -> None:
    input, column = request.input, request.column
    read = ReadRecordBatches(input.pattern, input.format, [name], input.where, column.name, other_labels=column.others)
    counts: Any = pipeline | "ReadGroups" >> read | "CountValues" >> beam.ParDo(_CountValues(name))
    _ = counts | "AddCounts" >> beam.CombineGlobally(_add) | "WriteCounts" >> beam.Map(_write, path)


class _CountValues(beam.DoFn):
    def __init__(self, name: str):
        self._name = name

    @redact_errors("counting the values of groups")
    def process(self, batch: LabelledBatch) -> Iterator[dict[str, int]]:
        values, _ = group_values(batch, self._name)
        counted: dict[str, int] = {}
        for each in values.value_counts().to_pylist():
            value = each["values"]
            counted[value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)] = each["counts"]
        yield counted


def _add(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
        if len(total) > _MOST_COUNTED:
            raise InputError(
                f"--center_groups: the column has more than {_MOST_COUNTED:,} values: declare those to group by, "
                "--center_groups NAME=V1,V2,..."
            )
    return dict(total)


def _write(counts: dict[str, int], path: str) -> None:
    write_text(path, json.dumps(counts))
