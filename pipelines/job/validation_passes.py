"""Validation around the main job: features before anything is privatized, the output before anything is released.

Two pipelines of their own, on purpose. No runner lets one stage of a pipeline veto stages beside it, so features are
checked by a pipeline that ends before the histogram is counted and its budget is at stake; and the output is read back
from the files that are about to be released, by a pipeline that no raw label enters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError
from ...transforms.io.filesystems import make_directory, read_text, write_text
from ...transforms.io.input_format import Format
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.progress_log import LOGGER
from ...transforms.validation.schema_protos import parse_anomalies, with_privatized_label
from ...transforms.validation.validate_examples import ValidateExamples, Validation
from ..release.output_folder import DATA_NAME
from .job_request import Plan

VALIDATION_NAME = "validation"


FEATURE_STATISTICS_NAME = "feature_stats.pb"


OUTPUT_STATISTICS_NAME = "output_stats.pb"


SCHEMA_NAME = "schema.pbtxt"


ANOMALIES_NAME = "anomalies.pbtxt"


_ANOMALIES_SHOWN = 5


_LONGEST_DESCRIPTION = 200


RunPipeline = Callable[[Callable[[beam.Pipeline], None]], None]
"""Runs the pipeline that a function wires, to its end."""


def check_features(plan: Plan, run: RunPipeline, staging: str) -> None:
    """Writes the statistics and the schema of the features below staging.

    Raises InputError, naming features, when they are against the plan's schema: before anything is privatized.
    """
    folder = FileSystems.join(staging, VALIDATION_NAME)
    FileSystems.mkdirs(folder)

    def wire(pipeline: beam.Pipeline) -> None:
        batches: Any = pipeline | "ReadFeatures" >> ReadRecordBatches(
            plan.pattern, plan.format, where=plan.where, label_column=plan.column.name
        )
        found = batches | "ValidateFeatures" >> ValidateExamples(
            plan.column.name, plan.schema, single_precision=plan.output_format == "tfrecord"
        )
        _ = found | "WriteValidation" >> beam.Map(_write, folder, FEATURE_STATISTICS_NAME)

    LOGGER.info("validating the features")
    run(wire)
    _check_anomalies(folder, "the features are", "nothing is privatized: mend them, or give another --schema")


def check_output(plan: Plan, run: RunPipeline, staging: str, outputs: np.ndarray) -> None:
    """Writes the statistics of the privatized records below staging, and completes the schema by their label.

    outputs: (m,) what a privatized label can be. Raises InputError when the records are against the schema.
    """
    folder = FileSystems.join(staging, VALIDATION_NAME)
    schema = with_privatized_label(read_text(FileSystems.join(folder, SCHEMA_NAME)), plan.column.name, outputs)

    def wire(pipeline: beam.Pipeline) -> None:
        batches: Any = pipeline | "ReadOutput" >> ReadRecordBatches(
            FileSystems.join(staging, DATA_NAME, "*"), Format(plan.output_format)
        )
        found = batches | "ValidateOutput" >> ValidateExamples(None, schema)
        _ = found | "WriteValidation" >> beam.Map(_write, folder, OUTPUT_STATISTICS_NAME)

    FileSystems.delete([FileSystems.join(folder, name) for name in (SCHEMA_NAME, ANOMALIES_NAME)])
    LOGGER.info("validating the privatized records")
    run(wire)
    _check_anomalies(folder, "the privatized records are", "nothing is released")


def describe_anomalies(text: str) -> list[str]:
    """One line per anomaly, naming the feature. text: a text proto of Anomalies."""
    anomalies = parse_anomalies(text)
    lines = [
        f"feature {'.'.join(info.path.step) or name}: {_one_line(info)}"
        for name, info in sorted(anomalies.anomaly_info.items())
    ]
    if anomalies.HasField("dataset_anomaly_info"):
        lines.append(f"all features: {_one_line(anomalies.dataset_anomaly_info)}")
    return lines


def _one_line(info: Any) -> str:
    text = " ".join(f"{info.short_description}: {info.description}".split())
    return text if len(text) <= _LONGEST_DESCRIPTION else text[: _LONGEST_DESCRIPTION - 3] + "..."


def _check_anomalies(folder: str, what: str, consequence: str) -> None:
    found = describe_anomalies(read_text(FileSystems.join(folder, ANOMALIES_NAME)))
    if found:
        more = f"; and {len(found) - _ANOMALIES_SHOWN} more" if len(found) > _ANOMALIES_SHOWN else ""
        raise InputError(f"{what} against the schema, {consequence}: {'; '.join(found[:_ANOMALIES_SHOWN])}{more}")


def _write(validation: Validation, folder: str, statistics_name: str) -> None:
    make_directory(folder)
    write_text(FileSystems.join(folder, SCHEMA_NAME), validation.schema)
    write_text(FileSystems.join(folder, ANOMALIES_NAME), validation.anomalies)
    path = FileSystems.join(folder, statistics_name)
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(validation.statistics)
