"""Beam transform that does what `labeldp privatize` does: reads files, releases a folder, charges the ledger."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, PBegin, PCollection
from apache_beam.transforms.window import GlobalWindows

from ...mechanisms.analysis.release_warnings import measured_warnings, release_warnings
from ...transforms.errors import InputError, StageError, redact_errors
from ...transforms.io.filesystems import exists, is_remote, match, write_text
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import is_store
from ..errors import FieldError, FieldNames, UsageError, as_parameter
from ..job.job_graph import build
from ..job.runner_options import check_runner
from ..ledger.ledger import Ledger, is_database
from ..ledger.spent_budget import CapError
from ..publish.job_result import NeverReleased
from ..publish.output_folder import Staging, new_work, staging_at, staging_folder
from ..publish.protocol import check_caps
from ..publish.release_steps import earlier_of_release, publish_release, read_results
from ..publish.request import REQUEST_NAME, Request, Run, new_run
from ..publish.staging_locks import SUBMITTED_NAME, remove_staging
from ..publish.unfinished_run import UnfinishedRun, claimed, is_published
from ..spec.fields import Fields, declared, keywords_of, shown
from ..spec.input_spec import announce_csv_columns, read_schema
from ..spec.label_folders import MANIFEST_NAME
from ..spec.make_release import make_release
from ..spec.release import InputSpec, Release
from ..spec.target_checks import check_target, create_key

_OF_THE_COMMAND = ("output_table", "validate", "mechanism_file", "sign", "dry_run")
_HELD: dict[str, tuple[Staging, contextlib.ExitStack]] = {}
"""Staging folders of runs in this process, by their path, and what ends each of them."""


class PrivatizeFiles(beam.PTransform):
    """Releases files with randomized labels, as `labeldp privatize`: shards, mechanism, manifest, ledger entry.

    Takes a pipeline, or a bounded PCollection whose end it waits for, and returns a PCollection of one text, the
    output folder, once it is published. The folder and its charges are those of the command with the same flags, byte
    for byte, so a repeated run costs nothing. Flags are keyword arguments of the same names, `for_` for `--for`;
    `--validate` and `--sign` are left to the command, and the verdict to `labeldp report`.

    The output folder appears in one step at the end, after the ledger was charged. A pipeline that fails releases
    nothing, and one that never runs leaves nothing, not even a key. When it is applied, it looks at the names of the
    input files, their columns and first records, and at the ledger: the graph follows from them, and the job fails with
    InputError if files or columns differ when it runs.

    With workers elsewhere, output and ledger are on an object store, the ledger may be in a database, and the key is
    there before. A run that was lost there is ended by `labeldp finish`.

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

    def expand(self, start: PBegin | PCollection[Any]) -> PCollection[str]:
        """Raises ValueError if an argument is wrong, a cap would be exceeded, or the runner would show labels."""
        pipeline = start.pipeline
        if isinstance(start, PCollection) and not start.is_bounded:
            raise ValueError(f"{type(self).__name__} waits for the end of a PCollection, and an unbounded one has none")
        try:
            here = check_runner(pipeline)
            release = make_release("privatize", self._fields, creates_key=False)
            announce_csv_columns(release.input, release.private)
            if len(release.labels) > 1:
                raise FieldError(
                    "{label} {names}: PrivatizeFiles takes one label; use labeldp privatize",
                    names=shown(self._fields.label),
                )
            _check_places(release, here)
            ledger = Ledger(release.ledger)
            check_caps(ledger, release.name, release.budget, release.caps, release.unit)
            earlier = earlier_of_release(ledger, release)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None
        except (UsageError, InputError) as error:
            raise ValueError(str(error)) from None
        run, work = new_run(Request.of(release)), new_work(release.output.target)
        if isinstance(start, PCollection):
            once: PCollection[int] = (
                start | "Global" >> beam.WindowInto(GlobalWindows()) | "End" >> beam.combiners.Count.Globally()
            )
        else:
            once = pipeline | "Once" >> beam.Create([0])
        begin = _Begin(run, work, here, release.input, release.schema)
        begun: PCollection[int] = once | "Begin" >> beam.ParDo(begin).with_output_types(int)
        # A run in this process that failed leaves nothing behind, at the end of the process at the latest.
        weakref.finalize(pipeline, _give_up, work)
        first, *others = build(begun, release, staging_at(release.output.target, work), earlier, run.digest)
        done = [AsList(written) for written in others]
        return first | "Release" >> beam.ParDo(_Publish(run, work), *done).with_output_types(str)


keywords_of(
    PrivatizeFiles.__init__, [name for name in declared(Fields) if name not in _OF_THE_COMMAND], "Stores the arguments."
)


def check_ledger_place(ledger: str, here: bool) -> None:
    """Checks that workers can charge a ledger, and that no password gets into the job graph. Raises FieldError."""
    shared = is_remote(ledger)
    if is_database(ledger):
        from ..ledger.ledger_database import parse_database_url

        url = parse_database_url(ledger)
        if url.password is not None:
            raise FieldError("{ledger} has a password, which the job graph would show: set PGPASSWORD or ~/.pgpass")
        shared = url.drivername != "sqlite"
    _check_shared("ledger", ledger, here or shared)


def _check_shared(field: str, path: str, usable: bool) -> None:
    if not usable:
        raise FieldError(
            f"{{{field}}} {{path}} is not on a filesystem that workers of this runner share: name an object store",
            path=path,
        )


def _check_places(release: Release, here: bool) -> None:
    """Checks that workers can read the key, charge and publish."""
    target, key = release.output.target, release.key
    check_ledger_place(release.ledger, here)
    _check_shared("output", target, here or is_remote(target))
    if not here and not _is_there(key):
        raise FieldError("{noise_key_file} {path} does not exist: create it where all workers read it", path=key.path)


def _is_there(key: NoiseKeyFile) -> bool:
    return is_remote(key.path) or os.path.lexists(key.path)


def _give_up(work: str) -> None:
    """Removes what a run of this process that released nothing has left, if it has begun."""
    if work in _HELD:
        with contextlib.suppress(InputError, StageError):
            _HELD.pop(work)[1].__exit__(StageError, StageError("the run has failed"), None)


class _Begin(beam.DoFn):
    """First stage: checks the request again, makes key and staging folder, and holds the target until it is released.

    With workers elsewhere, the run is one that was submitted. A retry changes nothing.
    """

    def __init__(self, run: Run, work: str, here: bool, files: InputSpec, columns: pa.Schema):
        self._run = run
        self._work = work
        self._here = here
        self._files = files
        self._columns = columns

    @redact_errors("beginning")
    def process(self, element: int) -> Iterator[int]:
        # Another run of this pipeline has failed.
        _give_up(self._work)
        if self._here or not exists(FileSystems.join(self._work, SUBMITTED_NAME)):
            try:
                self._begin()
            except FieldNames as error:
                raise InputError(error.text(as_parameter)) from None
        yield element

    def _begin(self) -> None:
        request = self._run.request
        check_target("output", request.target)
        self._check_files()
        check_caps(Ledger(request.ledger), request.name, request.budget, request.caps, request.unit)
        if self._here and not _is_there(request.key):
            create_key(request.key)
        request.key.load()
        with contextlib.ExitStack() as block:
            staging = block.enter_context(staging_folder(request.target, work=self._work))
            self._run.write(staging)
            if self._here:
                _HELD[self._work] = staging, block.pop_all()
            else:
                write_text(FileSystems.join(self._work, SUBMITTED_NAME), json.dumps({"waits": False}))
                staging.left = True

    def _check_files(self) -> None:
        """Checks that the input has the files and columns that the graph was made for."""
        files, labels = self._files, [label.name for label in self._run.request.labels]
        changed = None
        if files.table is None and (*match(files.pattern),) != files.paths:
            changed = "there are other files"
        elif not read_schema(files, labels).equals(self._columns):
            changed = "the files have other columns"
        if changed is not None:
            raise InputError(f"input {files.pattern}: {changed} than when the pipeline was built: build it again")


class _Publish(beam.DoFn):
    """Last stage: checks the job's result, writes the manifest, charges the ledger and publishes the folder.

    A retry of the stage continues where it was: charges are named by what was released, so one is not added twice.
    """

    def __init__(self, run: Run, work: str):
        self._run = run
        self._work = work

    @redact_errors("releasing")
    def process(self, _: None, *written: list[None]) -> Iterator[str]:
        run = self._run
        with self._claimed() as staging:
            if staging is not None and not is_published(run, staging):
                try:
                    _publish(run, staging)
                except CapError as error:
                    raise NeverReleased(error.text(as_parameter)) from None
        yield run.request.output

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[Staging | None]:
        """Claims the files of the run for a block, and deletes them at its end; None if they were released before."""
        target, work = self._run.request.target, self._work
        if work in _HELD:
            staging, block = _HELD[work]
            yield staging
            del _HELD[work]
            block.close()
        elif exists(FileSystems.join(target, MANIFEST_NAME)) and not exists(FileSystems.join(work, REQUEST_NAME)):
            yield None
        elif is_store(work):
            with claimed(UnfinishedRun(self._run, work, {})) as staging:
                yield staging
        else:
            yield staging_at(target, work)
            remove_staging(work)


def _publish(run: Run, staging: Staging) -> None:
    released = read_results(run, staging)
    publish_release(run.request, released, staging)
    for warning in (*release_warnings(released[0].facts), *measured_warnings(released[0].measured)):
        LOGGER.warning("warning: %s", warning.text)
