"""Beam transform that does what `labeldp privatize` does: reads files, releases a folder, charges the ledger."""

from __future__ import annotations

import argparse
import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, PBegin, PCollection

from ...mechanisms.analysis.verdict import release_warnings
from ...transforms.errors import InputError, redact_errors
from ...transforms.io.filesystems import absolute, exists, is_remote
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import is_store
from ..errors import UsageError
from ..flags.command_parser import CommandParser
from ..flags.job_flags import privatize_flags
from ..job.job_graph import build
from ..job.runner_options import forbid_ports, forbid_sampling, runs_here
from ..ledger.ledger import Ledger, is_database
from ..publish.output_folder import Staging, job_result_path, publish_folder, publishing, staging_folder
from ..publish.protocol import charged, check_caps
from ..publish.release_steps import charge_of, earlier_of_requests, read_results, remove_segments, write_manifests
from ..spec.column_checks import announce_csv_columns
from ..spec.job_request import JobRequest, request_id
from ..spec.label_folders import MANIFEST_NAME
from ..spec.label_requests import parse_requests

_OF_THE_COMMAND_LINE = ("help", "config", "dry_run")
_OF_THE_COMMAND = ("validate", "schema", "mechanism_file")


class PrivatizeFiles(beam.PTransform):
    """Releases files with randomized labels, as `labeldp privatize`: shards, mechanism, manifest, ledger entry.

    Takes a pipeline and returns a PCollection of one text, the output folder, once it is published. The folder and its
    charges are those of the command with the same flags, byte for byte, so a repeated run costs nothing. Flags are
    keyword arguments of the same names, `for_` for `--for`; `--validate` is left to the command.

    The output folder appears in one step at the end, after the ledger was charged. A pipeline that fails releases
    nothing. Wait for its end: the process that made the pipeline cleans up a local output.

    Raises ValueError when it is applied if an argument is wrong, the ledger's caps would be exceeded, or the runner
    would show labels. The job fails with InputError if the input is at fault.
    """

    def __init__(
        self,
        input: str | os.PathLike[str],
        output: str | os.PathLike[str],
        *,
        label: str,
        epsilon: float,
        input_format: str = "parquet",
        output_format: str = "parquet",
        noise_key_file: str | os.PathLike[str] | None = None,
        **flags: Any,
    ):
        """Stores the arguments.

        Args:
          input: Path or glob of the input files.
          output: Output folder; new or empty.
          label: Label column.
          epsilon: Privacy budget of the release.
          input_format: Format of the input: "parquet", "csv" or "tfrecord".
          output_format: Format of the shards: "parquet" or "tfrecord".
          noise_key_file: File of the secret key; a local one is created if it does not exist. None for the user's
            default file.
          **flags: Further flags of `labeldp privatize`, `label_min`, `label_max` and `label_step` among them. Lists of
            names are sequences, `mechanism_parameters` is a mapping; None leaves a flag out.

        Raises:
          ValueError: If there is no such flag, or a value cannot be that of its flag.
        """
        super().__init__()
        named = {
            "input": input, "output": output, "label": label, "epsilon": epsilon, "input_format": input_format,
            "output_format": output_format, "noise_key_file": noise_key_file,
        }  # fmt: skip
        for name in flags:
            if name in _OF_THE_COMMAND:
                raise ValueError(f"PrivatizeFiles has no {name}: run the command labeldp")
        self._args = _parsed({**named, **flags})

    def default_label(self) -> str:
        """Names the step by its output: two of them in one pipeline need no labels of their own."""
        return f"{super().default_label()}({self._args.label}, {self._args.output})"

    def expand(self, pbegin: PBegin) -> PCollection[str]:
        """Raises ValueError if an argument is wrong, a cap would be exceeded, or the runner would show labels."""
        pipeline = pbegin.pipeline
        try:
            forbid_sampling(pipeline.options)
            forbid_ports(pipeline.options)
            _create_key(self._args.noise_key_file)
            requests = parse_requests("privatize", self._args)
            request = requests[0]
            announce_csv_columns(request.input, request.column.private)
            if len(requests) > 1:
                raise UsageError(f"--label {self._args.label}: PrivatizeFiles takes one label; use labeldp privatize")
            _check_places(request, runs_here(pipeline.options))
            ledger, name = Ledger(request.ledger), request_id(requests)
            check_caps(ledger, name, request.budget, None, request.column.unit)
        except (UsageError, InputError) as error:
            raise ValueError(str(error)) from None
        if is_store(request.output.target):
            raise ValueError(
                f"--output {request.output.target}: PrivatizeFiles writes no object store, because it cannot "
                "hold a lease on the target until the end of the pipeline; use labeldp privatize"
            )
        cleanup = contextlib.ExitStack()
        staging = cleanup.enter_context(staging_folder(request.output.target))
        if not is_remote(staging.work):
            # Also at the end of the process: a pipeline that failed leaves nothing behind.
            weakref.finalize(pipeline, cleanup.close)
        built = build(pipeline, requests, staging, earlier_of_requests(ledger, name, requests))
        done = [AsList(written) for written in built[1:]]
        return built[0] | "Release" >> beam.ParDo(_Release(request, staging), *done).with_output_types(str)


class _Parser(CommandParser):
    """Raises ValueError in place of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parsed(flags: dict[str, Any]) -> argparse.Namespace:
    parser = _Parser(privatize_flags, prog="PrivatizeFiles")
    known, argv = parser.flags(), []
    for keyword, value in flags.items():
        name = keyword.removesuffix("_")
        if name not in known or name in _OF_THE_COMMAND_LINE:
            raise ValueError(f"PrivatizeFiles has no parameter {keyword!r}: see labeldp privatize --help")
        if value is not None:
            argv.append(f"--{name}={_text(value)}")
    return parser.parse_args(argv)


def _text(value: Any) -> str:
    """The value of a flag as text on the command line."""
    if isinstance(value, dict):
        return ",".join(f"{name}={_text(each)}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _create_key(path: str | None) -> None:
    if path is not None and not is_remote(path):
        key = NoiseKeyFile(absolute(path))
        try:
            created = key.create()
        except OSError as error:
            raise UsageError(f"--noise_key_file {path} cannot be created ({error.strerror}): name another") from None
        if created:
            LOGGER.info("created a noise key file: %s (keep it secret; the README says when to destroy it)", key.path)


def _check_places(request: JobRequest, here: bool) -> None:
    """Checks that the stage that charges and publishes can do both, and that no password gets into the job graph."""
    if is_database(request.ledger):
        from ..ledger.ledger_database import parse_database_url

        if parse_database_url(request.ledger).password is not None:
            raise UsageError("--ledger has a password, which the job graph would show: set PGPASSWORD or ~/.pgpass")
    elif not here and not is_remote(request.ledger):
        raise UsageError(f"--ledger {request.ledger} is not on a filesystem that workers of this runner share")
    if not here and not is_remote(request.output.target):
        raise UsageError(f"--output {request.output.target} is not on a filesystem that workers of this runner share")


class _Release(beam.DoFn):
    """Last stage: checks the job's result, writes the manifest, charges the ledger and publishes the folder.

    A retry of the stage continues where it was: charges are named by what was released, so one is not added twice.
    """

    def __init__(self, request: JobRequest, staging: Staging):
        self._request = request
        self._staging = staging

    @redact_errors("releasing")
    def process(self, _: None, *written: Any) -> Iterator[str]:
        request, staging = self._request, self._staging
        path = job_result_path(staging, 0)
        if exists(path):
            released = read_results([request], staging)
            write_manifests(released, staging)
            remove_segments(staging)
            charge, target = charge_of(request_id([request]), released), publishing(staging, request.output.target)
            # A retry of the stage publishes what it finds charged.
            with charged(Ledger(request.ledger), charge, request.budget.caps, target):
                pass
            for warning in release_warnings(released[0].facts):
                LOGGER.warning("warning: %s", warning.text)
            FileSystems.delete([path])
        if exists(FileSystems.join(staging.work, MANIFEST_NAME)):
            publish_folder(staging, request.output.target)
        yield request.output.target
