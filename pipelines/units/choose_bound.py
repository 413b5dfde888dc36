"""Choice of `--max_records_per_unit auto`, from the numbers of records of the units, by a pass of its own."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ...mechanisms.composition.unit_bounds import best_bound, bound_options
from ...mechanisms.core.prior import Prior
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text, write_text
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER
from ...transforms.units.count_units import CountUnits
from ..job.job_request import InputSpec, JobRequest
from ..release.output_folder import staging_folder
from ..runner.run_pipeline import run_pipeline


def count_units(
    input: InputSpec, label: str, unit: str, key: NoiseKeyFile, options: PipelineOptions, path: str
) -> dict[int, int]:
    """Counts the units with each number of records, in a pipeline of its own. Reads of a label whether there is one.

    Args:
      input: The input files.
      label: Name of the label column.
      unit: Name of the column of units.
      key: Reference to the secret key, under which units are hashed.
      options: Options of the runner.
      path: Temporary file of the counts.

    Returns:
      Number of units by number of records.

    Raises:
      InputError: If the columns cannot be read, or have the wrong type.
    """

    def build(pipeline: beam.Pipeline) -> None:
        read = ReadRecordBatches(input.pattern, input.format, [label, unit], input.where, label)
        counts: Any = pipeline | "ReadUnits" >> read | "CountUnits" >> CountUnits(label, unit, key)
        _ = counts | "WriteCounts" >> beam.Map(_write, path)

    run_pipeline(options, build)
    return {int(records): units for records, units in json.loads(read_text(path)).items()}


def _write(counts: dict[int, int], path: str) -> None:
    write_text(path, json.dumps(counts))


def with_chosen_bound(request: JobRequest, options: PipelineOptions) -> JobRequest:
    """Chooses the number of records per unit for which a model trained on the labels has the least expected error.

    Args:
      request: The request.
      options: Options of the runner.

    Returns:
      The request with the number; the request itself if it is given.

    Raises:
      InputError: If no record has a unit.
    """
    unit = request.column.unit
    if not request.choose_bound or unit is None:
        return request
    LOGGER.info("counting the records of the units")
    with staging_folder(request.output.target, single_file=True) as staging:
        path = FileSystems.join(staging.work, "units.json")
        units = count_units(request.input, request.column.name, unit.column, request.key, options, path)
    labels = request.column.labels
    try:
        tried = bound_options(units, Prior(labels, np.ones(len(labels))), request.budget.epsilon)
    except ValueError as error:
        raise InputError(f"--max_records_per_unit auto: {error}: check --unit_column") from None
    best, total = best_bound(tried), sum(records * number for records, number in units.items())
    LOGGER.info(
        "--max_records_per_unit auto: %s, with which %s of %s records are released",
        *(f"{number:,}" for number in (best.max_records, best.records, total)),
    )  # fmt: skip
    column = dataclasses.replace(request.column, unit=dataclasses.replace(unit, max_records=best.max_records))
    return dataclasses.replace(request, column=column, choose_bound=False)
