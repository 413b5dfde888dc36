"""Validation around the main job: of the features before anything is privatized, of the output before its release.

Both are pipelines of their own. No runner lets one stage of a pipeline stop the stages beside it, so features are
checked by a pipeline that ends before the label histogram is counted and its budget can be spent. The output is read
back from the files that are about to be released, by a pipeline that no raw label enters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection

from ...transforms.arrow_values import value_type
from ...transforms.batches import LabelledBatch
from ...transforms.errors import InputError, named_file, redact_errors
from ...transforms.io.filesystems import (
    complete_file,
    create,
    delete_files,
    make_directory,
    match,
    open_file,
    read_text,
    write_text,
)
from ...transforms.io.input_format import Format, file_parts
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import FileReader, ReadRecordBatches
from ...transforms.validation.tensorflow_libraries import (
    describe_anomalies,
    with_center,
    with_privatized_classes,
    with_privatized_label,
    with_probabilities,
)
from ...transforms.validation.validate_examples import ValidateExamples, Validation
from ..errors import one_line
from ..publish.output_folder import Staging
from ..publish.request import Request
from ..spec.label_folders import (
    ANOMALIES_NAME,
    DATA_NAME,
    FEATURE_STATISTICS_NAME,
    OUTPUT_STATISTICS_NAME,
    SCHEMA_NAME,
    VALIDATION_FILES,
    VALIDATION_NAME,
)
from ..spec.mechanism_file import MechanismFile
from ..spec.release import Release
from .run_pipeline import run_pipeline, run_single_threaded

_ANOMALIES_SHOWN = 5
"""In characters."""


def check_features(release: Release, options: PipelineOptions, work: str) -> None:
    """Validates the features and writes their statistics and schema into the folder of temporary files.

    The release asks for validation. Private columns are not read, those that are left out not looked at; features of
    TFRecords have single precision.
    Raises InputError, which names the features, if they do not match the schema, where one was given.
    """
    assert release.validation is not None
    input, labels, schema = release.input, release.private, release.validation.schema
    folder = FileSystems.join(work, VALIDATION_NAME)
    make_directory(folder)

    def wire(pipeline: beam.Pipeline) -> None:
        batches: PCollection[LabelledBatch] = pipeline | "ReadFeatures" >> ReadRecordBatches(
            input.source, input.format, where=input.where, label_column=labels[0], other_labels=labels[1:]
        )
        found = batches | "ValidateFeatures" >> ValidateExamples(
            (*labels, *release.output.left_out), schema, single_precision=release.output.format == "tfrecord"
        )
        _ = found | "WriteValidation" >> beam.Map(_write, folder, FEATURE_STATISTICS_NAME)

    LOGGER.info("validating the features")
    run_single_threaded(options, wire)
    _check_anomalies(
        folder, "the features", "nothing is privatized; correct them, or give another schema to --validate"
    )


def check_output(
    request: Request, mechanisms: Mapping[str, MechanismFile], options: PipelineOptions, staging: Staging
) -> None:
    """Validates the staged shards, writes their statistics and adds the privatized labels to the schema.

    The columns of linear centers are added as well. Then the files of both passes are those of the release.

    `mechanisms` are the released ones by label column. Raises InputError if the privatized records do not match the
    schema.
    """
    folder = FileSystems.join(staging.work, VALIDATION_NAME)
    schema = read_text(FileSystems.join(folder, SCHEMA_NAME))
    data, folders = FileSystems.join(staging.release, DATA_NAME), request.partitions
    format = Format(request.output_format, partitions=bool(folders), root=data)
    pattern = FileSystems.join(data, *("*" for _ in folders), "*")
    for label, mechanism in mechanisms.items():
        if mechanism.classes is None:
            schema = _with_label(schema, label, mechanism)
        else:
            schema = with_privatized_classes(schema, label, mechanism.classes, _label_type(pattern, format, label))
            if mechanism.drawing.solved is None:
                schema = with_probabilities(schema, str(mechanism.drawing.column), len(mechanism.classes))

    def wire(pipeline: beam.Pipeline) -> None:
        batches: PCollection[LabelledBatch] = pipeline | "ReadOutput" >> ReadRecordBatches(pattern, format)
        found = batches | "ValidateOutput" >> ValidateExamples([], schema)
        _ = found | "WriteValidation" >> beam.Map(_write, folder, OUTPUT_STATISTICS_NAME)

    delete_files(FileSystems.join(folder, name) for name in (SCHEMA_NAME, ANOMALIES_NAME))
    LOGGER.info("validating the privatized records")
    run_single_threaded(options, wire)
    _check_anomalies(folder, "the privatized records", "nothing is released")
    if staging.release != staging.work:
        for name in VALIDATION_FILES:
            path = FileSystems.join(staging.release, VALIDATION_NAME, name)
            with (
                named_file("writing", path),
                open_file(FileSystems.join(folder, name)) as file,
                complete_file(path, staging.work) as copy,
            ):
                copy.write(file.read())


def _label_type(pattern: str, format: Format, label: str) -> pa.DataType:
    """Type of the values of a released label, in the first shard that has a record."""
    reader = FileReader(format)
    schemas = (reader.schema(part) for part in file_parts([*match(pattern)], format))
    return value_type(next(schema.field(label).type for schema in schemas if label in schema.names))


def _with_label(schema: str, label: str, mechanism: MechanismFile) -> str:
    """The schema with a privatized label, and with its linear center."""
    drawing, outputs = mechanism.drawing, mechanism.randomizer.outputs
    if drawing.column:
        # Outputs are added to centers, which are labels of the domain.
        ends = np.array([mechanism.domain[0], mechanism.domain[-1]])
        outputs = ends + np.array([outputs.min(), outputs.max()])
        if drawing.made:
            schema = with_center(schema, drawing.column, ends)
    return with_privatized_label(schema, label, outputs)


def _check_anomalies(folder: str, subject: str, consequence: str) -> None:
    found = describe_anomalies(read_text(FileSystems.join(folder, ANOMALIES_NAME)))
    if found:
        more = f"; and {len(found) - _ANOMALIES_SHOWN} more" if len(found) > _ANOMALIES_SHOWN else ""
        raise InputError(
            f"{subject} do not match the schema, {consequence}: {'; '.join(found[:_ANOMALIES_SHOWN])}{more}"
        )


def _write(validation: Validation, folder: str, statistics_name: str) -> None:
    make_directory(folder)
    write_text(FileSystems.join(folder, SCHEMA_NAME), validation.schema)
    write_text(FileSystems.join(folder, ANOMALIES_NAME), validation.anomalies)
    path = FileSystems.join(folder, statistics_name)
    with (
        named_file("writing", path),
        create(path) as file,
    ):
        file.write(validation.statistics)


def check_values(release: Release, options: PipelineOptions) -> None:
    """Reads the columns of `Release.unsure`, and encodes them for TFRecord output.

    Raises InputError, which names the file or column and says what to do, if the output cannot hold a value exactly.
    """
    if not release.unsure or release.command == "fit":
        return
    input, labels = release.input, release.private
    LOGGER.info("checking the values of %s", one_line(", ".join(release.unsure)))
    read = ReadRecordBatches(
        input.source, input.format, release.unsure, input.where, labels[0],
        other_labels=labels[1:], together=input.files_per_read,
    )  # fmt: skip

    def wire(pipeline: beam.Pipeline) -> None:
        batches = pipeline | "ReadUnsure" >> read
        if release.output.format == "tfrecord":
            _ = batches | "CheckValues" >> beam.ParDo(_Encode())

    run_pipeline(options, wire)


class _Encode(beam.DoFn):
    @redact_errors("checking values")
    def process(self, batch: LabelledBatch) -> Iterator[None]:
        from ...transforms.tfrecord.example_encoder import encode_frames

        try:
            encode_frames(batch.batch)
        except InputError as error:
            raise InputError(f"{batch.source}: {error}") from None
        yield from ()
