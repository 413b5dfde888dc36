"""Job that counts the records of each privacy unit of an input, whose ids are public. It releases nothing."""

from __future__ import annotations

import json
import tempfile
import uuid
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.pvalue import PCollection

from ...transforms.errors import InputError, StageError, describe_failure
from ...transforms.io.filesystems import absolute, read_text, write_text
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.readers.file_reader import ReadRecordBatches
from ...transforms.units.unit_counts import CountUnits
from ..errors import UsageError
from ..publish.output_folder import staging_folder
from ..publish.signals import signals_as_interrupts
from ..spec.fields import Fields
from ..spec.input_spec import check_columns, input_spec, read_schema
from ..spec.label_domain import with_texts
from ..spec.release import InputSpec
from ..spec.store_access import open_stores
from ..spec.target_checks import resolve_noise_key
from .run_pipeline import run_pipeline
from .runner_options import runner_name, runner_options, runs_here


@dataclass(frozen=True)
class UnitCountJob:
    """Checked job that counts units by their number of records with a usable label.

    Attributes:
      fields: Fields of the request, with the texts of its files.
      input: Input files.
      key: Reference to the secret key, which names units within the job.
      options: Options of the runner.
    """

    fields: Fields
    input: InputSpec
    key: NoiseKeyFile
    options: PipelineOptions

    @classmethod
    def of(cls, args: Namespace, runner_flags: Sequence[str]) -> UnitCountJob:
        """Makes the job of parsed flags. Raises UsageError or InputError if a flag or the input is wrong.

        `csv` and `json` are files to write, and no files of the input.
        """
        open_stores(vars(args), runner_flags)
        if args.unit_column == args.label:
            raise UsageError("--unit_column must be another column than --label")
        fields = with_texts(Fields.of({**vars(args), "epsilon": None, "mechanism": None}))
        source = input_spec(fields)
        for flag in ("csv", "json"):
            path = getattr(args, flag)
            if path is not None and absolute(path) in source.paths:
                raise UsageError(f"--{flag} {path} is a file of --input: name another")
        named = {"label": args.label, "unit_column": args.unit_column}
        check_columns(named, source, read_schema(source, [args.label]))
        folder, mode = tempfile.gettempdir(), args.noise_key_mode
        key = resolve_noise_key(args.noise_key_file, _work_file(folder), create_named=False, mode=mode)
        return cls(fields, source, key, runner_options(runner_flags, source.format.name, source.file_size))

    def run(self) -> dict[int, int]:
        """Number of units by their number of records; the counts come back through a file that workers can reach."""
        folder = self.options.view_as(GoogleCloudOptions).temp_location
        if folder is None and not runs_here(self.options):
            raise UsageError(
                f"--temp_location is missing: name a folder that this process and the workers of "
                f"{runner_name(self.options)} can reach"
            )
        work = _work_file(folder or tempfile.gettempdir())
        with signals_as_interrupts(), staging_folder(work, single_file=True) as staging:
            path = FileSystems.join(staging.work, "counts.json")
            try:
                run_pipeline(self.options, lambda pipeline: self._build(pipeline, path))
            except OSError as error:
                # The text of a library's error in the job could quote a label.
                raise StageError(describe_failure(error)) from None
            units = {int(records): number for records, number in json.loads(read_text(path)).items()}
        if not units:
            raise InputError("no record has both a usable label and a unit: check --label, --unit_column and --where")
        return units

    def _build(self, pipeline: beam.Pipeline, path: str) -> None:
        """Reads of a label whether there is one."""
        source, label, unit = self.input, str(self.fields.label), str(self.fields.unit_column)
        read = ReadRecordBatches(source.source, source.format, [label, unit], source.where, label)
        counts: PCollection[dict[int, int]] = (
            pipeline | "ReadUnits" >> read | "CountUnits" >> CountUnits(label, unit, self.key)
        )
        _ = counts | "WriteCounts" >> beam.Map(_write_counts, path)


def _work_file(folder: str) -> str:
    return FileSystems.join(folder, f"labeldp-units-{uuid.uuid4().hex[:12]}")


def _write_counts(counts: dict[int, int], path: str) -> None:
    write_text(path, json.dumps(counts))
