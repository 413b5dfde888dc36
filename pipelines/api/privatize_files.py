"""Beam transform that does what `labeldp privatize` does: reads files, releases a folder, charges the ledger."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, PBegin, PCollection

from ...mechanisms.analysis.release_warnings import release_warnings
from ...transforms.errors import InputError, redact_errors
from ...transforms.io.filesystems import exists, is_remote
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import is_store
from ..errors import FieldError, UsageError, as_parameter
from ..job.job_graph import build
from ..job.runner_options import check_runner
from ..ledger.ledger import Ledger, is_database
from ..publish.output_folder import Staging, check_files, job_result_path, publish_folder, publishing, staging_folder
from ..publish.protocol import charged, check_caps
from ..publish.release_steps import (
    charge_of,
    earlier_of_release,
    read_results,
    release_files,
    remove_segments,
    write_manifests,
)
from ..publish.request import Request, Run, new_run
from ..publish.staging_locks import remove_staging
from ..spec.fields import Fields, declared, keywords_of, shown
from ..spec.input_spec import announce_csv_columns
from ..spec.label_folders import MANIFEST_NAME
from ..spec.make_release import make_release
from ..spec.release import Release

_OF_THE_COMMAND = ("output_table", "validate", "mechanism_file", "sign", "dry_run")


class PrivatizeFiles(beam.PTransform):
    """Releases files with randomized labels, as `labeldp privatize`: shards, mechanism, manifest, ledger entry.

    Takes a pipeline and returns a PCollection of one text, the output folder, once it is published. The folder and its
    charges are those of the command with the same flags, byte for byte, so a repeated run costs nothing. Flags are
    keyword arguments of the same names, `for_` for `--for`; `--validate` and `--sign` are left to the command.

    The output folder appears in one step at the end, after the ledger was charged. A pipeline that fails releases
    nothing. Wait for its end: the process that made the pipeline cleans up a local output.

    Raises ValueError when it is applied if an argument is wrong, the ledger's caps would be exceeded, or the runner
    would show labels. The job fails with InputError if the input is at fault.
    """

    # Beam YAML asks for it.
    _yaml_requires_inputs = False

    def __init__(
        self,
        input: str | os.PathLike[str],
        output: str | os.PathLike[str],
        *,
        label: str,
        epsilon: float,
        input_format: str | None = None,
        output_format: str = "parquet",
        noise_key_file: str | os.PathLike[str] | None = None,
        **flags: Any,
    ):
        super().__init__()
        named = {
            "input": input, "output": output, "label": label, "epsilon": epsilon, "input_format": input_format,
            "output_format": output_format, "noise_key_file": noise_key_file,
        }  # fmt: skip
        for name in flags:
            if name in _OF_THE_COMMAND:
                raise ValueError(f"PrivatizeFiles has no {name}: run the command labeldp")
        try:
            self._fields = Fields.of_keywords({**named, **flags}, type(self).__name__)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None

    def default_label(self) -> str:
        """Names the step by its output: two of them in one pipeline need no labels of their own."""
        return f"{super().default_label()}({shown(self._fields.label)}, {self._fields.output})"

    def expand(self, pbegin: PBegin) -> PCollection[str]:
        """Raises ValueError if an argument is wrong, a cap would be exceeded, or the runner would show labels."""
        if not isinstance(pbegin, PBegin):
            raise ValueError(
                f"{type(self).__name__} takes a pipeline, not a PCollection, as it would not wait for it: run what "
                "writes the input in a pipeline before"
            )
        pipeline = pbegin.pipeline
        try:
            here = check_runner(pipeline)
            release = make_release("privatize", self._fields)
            announce_csv_columns(release.input, release.private)
            if len(release.labels) > 1:
                raise FieldError(
                    "{label} {names}: PrivatizeFiles takes one label; use labeldp privatize",
                    names=shown(self._fields.label),
                )
            _check_places(release, here)
            ledger = Ledger(release.ledger)
            check_caps(ledger, release.name, release.budget, release.caps, release.unit)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None
        except (UsageError, InputError) as error:
            raise ValueError(str(error)) from None
        cleanup = contextlib.ExitStack()
        staging = cleanup.enter_context(staging_folder(release.output.target))
        if not is_remote(staging.work):
            # Also at the end of the process: a pipeline that failed leaves nothing behind.
            weakref.finalize(pipeline, cleanup.close)
        run = new_run(Request.of(release))
        first, *others = build(pipeline, release, staging, earlier_of_release(ledger, release), run.digest)
        done = [AsList(written) for written in others]
        return first | "Release" >> beam.ParDo(_Publish(run, staging), *done).with_output_types(str)


keywords_of(
    PrivatizeFiles.__init__, [name for name in declared(Fields) if name not in _OF_THE_COMMAND], "Stores the arguments."
)


def _check_places(release: Release, here: bool) -> None:
    """Checks that the stage that charges and publishes can do both, and that no password gets into the job graph."""
    ledger, target = release.ledger, release.output.target
    if is_database(ledger):
        from ..ledger.ledger_database import parse_database_url

        if parse_database_url(ledger).password is not None:
            raise FieldError("{ledger} has a password, which the job graph would show: set PGPASSWORD or ~/.pgpass")
    elif not here and not is_remote(ledger):
        raise FieldError("{ledger} {path} is not on a filesystem that workers of this runner share", path=ledger)
    if not here and not is_remote(target):
        raise FieldError("{output} {path} is not on a filesystem that workers of this runner share", path=target)
    if is_store(target):
        raise FieldError(
            "{output} {path}: PrivatizeFiles writes no object store, because it cannot hold a lease on the target "
            "until the end of the pipeline; use labeldp privatize",
            path=target,
        )


class _Publish(beam.DoFn):
    """Last stage: checks the job's result, writes the manifest, charges the ledger and publishes the folder.

    A retry of the stage continues where it was: charges are named by what was released, so one is not added twice.
    """

    def __init__(self, run: Run, staging: Staging):
        self._run = run
        self._staging = staging

    @redact_errors("releasing")
    def process(self, _: None, *written: Any) -> Iterator[str]:
        request, staging = self._run.request, self._staging
        path, output = job_result_path(staging, 0), request.output
        if exists(path):
            released = read_results(self._run, staging)
            check_files(staging, release_files(request, released), write_manifests(request, released, staging))
            remove_segments(staging)
            charge, target = charge_of(request, released), publishing(staging, output)
            # A retry of the stage publishes what it finds charged.
            with charged(Ledger(request.ledger), charge, request.caps, target):
                pass
            for warning in release_warnings(released[0].facts):
                LOGGER.warning("warning: %s", warning.text)
            FileSystems.delete([path])
        if exists(FileSystems.join(staging.manifests, MANIFEST_NAME)):
            publish_folder(staging, output)
        remove_staging(staging.work)
        yield output
