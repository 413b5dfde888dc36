"""Checks that the output can hold the values of a job's columns exactly, before anything is counted.

Types tell most of it. Columns whose types do not tell it are read by a pipeline of its own: a job that finds such a
value among its records has counted labels before that. Most inputs have no such column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.arrow_values import value_type
from ...transforms.batches import LabelledBatch
from ...transforms.errors import InputError, redact_errors
from ...transforms.io.parquet_reader import int96_columns
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..cli.one_line import one_line
from ..job.job_request import InputSpec, JobRequest
from ..runner.run_pipeline import run_pipeline


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


def check_values(request: JobRequest, options: PipelineOptions) -> None:
    """Reads the columns of `JobRequest.unsure`, and encodes them for TFRecord output.

    Raises InputError, which names the file or column and says what to do, if the output cannot hold a value exactly.
    """
    if not request.unsure or request.command == "fit":
        return
    input, column = request.input, request.column
    LOGGER.info("checking the values of %s", one_line(", ".join(request.unsure)))
    read = ReadRecordBatches(
        input.pattern, input.format, request.unsure, input.where, column.name,
        other_labels=column.others, together=input.together,
    )  # fmt: skip

    def wire(pipeline: beam.Pipeline) -> None:
        batches = pipeline | "ReadUnsure" >> read
        if request.output.format == "tfrecord":
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
