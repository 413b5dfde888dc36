"""`labeldp plan --units`: what each number of records per unit is worth, from public ids of the input."""

from __future__ import annotations

import argparse
import json
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from ..mechanisms.center.residuals import MODEL_PARAMETERS
from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import label_variance
from ..mechanisms.release.records_per_unit import BoundOption, best_bound, bound_options
from ..pipelines.cli.exit_codes import SUCCESS, run_command
from ..pipelines.cli.text_format import Row, table_lines
from ..pipelines.errors import UsageError
from ..pipelines.flags.arguments import log_to_stderr
from ..pipelines.job.run_pipeline import describe_failure, run_pipeline
from ..pipelines.job.runner_options import runner_name, runner_options, runs_here
from ..pipelines.publish.output_folder import staging_folder
from ..pipelines.publish.signals import signals_as_interrupts
from ..pipelines.spec.fields import Fields
from ..pipelines.spec.input_spec import check_columns, input_spec, read_schema
from ..pipelines.spec.label_domain import GRID, label_domain, with_texts, working_domain
from ..pipelines.spec.prior_file import PriorFile
from ..pipelines.spec.release import InputSpec
from ..pipelines.spec.store_access import open_stores
from ..pipelines.spec.target_checks import resolve_noise_key
from ..transforms.errors import InputError
from ..transforms.io.filesystems import absolute, read_text, write_text
from ..transforms.noise_key_file import NoiseKeyFile
from ..transforms.readers.file_reader import ReadRecordBatches
from ..transforms.units.unit_counts import CountUnits
from .study_commands import check_study_flags, describe_prior, load_prior, map_with_progress, write_results

_COLUMNS = ("epsilon", "max_records", "records", "units_cut", "record_epsilon", "model_error", "best")
# Numbers of records that are shown for each epsilon, so that their curves can be compared.
_SHOWN = 8


@dataclass(frozen=True)
class UnitsTask:
    """One epsilon of a unit to compare numbers of records for; `units` has the number of units by number of records."""

    units: Mapping[int, int]
    prior: Prior
    epsilon: float
    parameters: int


@dataclass(frozen=True)
class UnitsPlan:
    """Result of one task.

    Attributes:
      epsilon: Budget of a unit.
      options: The numbers of records, ascending; empty where they could not be compared.
      reason: Why they could not.
    """

    epsilon: float
    options: Sequence[BoundOption] = ()
    reason: str | None = None

    def rows(self) -> list[Row]:
        """Table rows of the result: one for each number of records; a single one with the reason if there is none."""
        if not self.options:
            return [{**dict.fromkeys(_COLUMNS), "epsilon": self.epsilon, "reason": self.reason}]
        best = best_bound(list(self.options))
        return [
            {
                "epsilon": self.epsilon,
                "max_records": option.max_records,
                "records": option.records,
                "units_cut": option.units_cut,
                "record_epsilon": option.epsilon,
                "model_error": option.model_error,
                "best": option == best,
                "reason": None,
            }
            for option in self.options
        ]


@dataclass(frozen=True)
class _Request:
    input: InputSpec
    key: NoiseKeyFile
    prior: PriorFile
    parameters: int


def run_units(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Counts the records of the units, prints what each number of records is worth, and writes the requested files.

    Takes the parsed flags of `plan`; returns the exit code.
    """
    log_to_stderr()
    found: list[tuple[_Request, dict[int, int]]] = []

    def count() -> None:
        check_study_flags(args)
        open_stores(vars(args), runner_flags)
        request = _parse(args)
        input = request.input
        options = runner_options(runner_flags, input.format.name, input.file_size)
        with signals_as_interrupts():
            found.append((request, _count(args, request, options)))

    # The text of an unforeseen exception of the job could quote a label; its class and line cannot.
    code = run_command("labeldp plan", count, (InputError,), "nothing is written", describe_failure)
    return code if code != SUCCESS else run_command("labeldp plan", lambda: _report(args, *found[0]))


def _parse(args: argparse.Namespace) -> _Request:
    if args.features is not None and args.features < 0:
        raise UsageError(f"--features must be at least 0, not {args.features}")
    if args.unit_column == args.label:
        raise UsageError("--unit_column must be another column than --label")
    fields = with_texts(Fields.of({**vars(args), "epsilon": None, "mechanism": None}))
    prior = _prior(args, fields)
    input = input_spec(fields)
    for flag in ("csv", "json"):
        path = getattr(args, flag)
        if path is not None and absolute(path) in input.paths:
            raise UsageError(f"--{flag} {path} is a file of --input: name another")
    named = {"label": args.label, "unit_column": args.unit_column}
    check_columns(named, input, read_schema(input, [args.label]))
    parameters = MODEL_PARAMETERS if args.features is None else args.features + 1
    return _Request(
        input,
        resolve_noise_key(
            args.noise_key_file, _work_file(tempfile.gettempdir()), create_named=False, mode=args.noise_key_mode
        ),
        prior,
        parameters,
    )


def _prior(args: argparse.Namespace, fields: Fields) -> PriorFile:
    """The prior of --prior, or a flat one over the label domain."""
    if args.prior is None:
        labels = np.array(working_domain(fields, max(args.epsilon)).labels)
        return PriorFile(Prior(labels, np.ones(len(labels))))
    try:
        found = load_prior(args)
    except ValueError as error:
        raise InputError(str(error)) from None
    given = [name for name in (*GRID, "label_values") if getattr(args, name) is not None]
    labels = tuple(found.prior.labels.tolist())
    if given and labels not in _domains(args, fields):
        raise UsageError(f"--prior {args.prior} is over other labels than --{given[0]} says: leave one of them out")
    return found


def _domains(args: argparse.Namespace, fields: Fields) -> list[tuple[float, ...]]:
    """The declared label domain, and those that mechanisms use of it."""
    return [tuple(label_domain(fields).tolist()), *(working_domain(fields, each).labels for each in args.epsilon)]


def _work_file(folder: str) -> str:
    return FileSystems.join(folder, f"labeldp-units-{uuid.uuid4().hex[:12]}")


def _count(args: argparse.Namespace, request: _Request, options: PipelineOptions) -> dict[int, int]:
    """Counts units; the counts come back through a file that workers can reach."""
    folder = options.view_as(GoogleCloudOptions).temp_location
    if folder is None and not runs_here(options):
        raise UsageError(
            f"--temp_location is missing: name a folder that this process and the workers of {runner_name(options)} "
            "can reach"
        )
    with staging_folder(_work_file(folder or tempfile.gettempdir()), single_file=True) as staging:
        path = FileSystems.join(staging.work, "counts.json")
        run_pipeline(options, lambda pipeline: _build(pipeline, args, request, path))
        units = {int(records): number for records, number in json.loads(read_text(path)).items()}
    if not units:
        raise InputError("no record has both a usable label and a unit: check --label, --unit_column and --where")
    return units


def _build(pipeline: beam.Pipeline, args: argparse.Namespace, request: _Request, path: str) -> None:
    """Reads of a label whether there is one."""
    input, label, unit = request.input, args.label, args.unit_column
    read = ReadRecordBatches(input.source, input.format, [label, unit], input.where, label)
    counts: Any = pipeline | "ReadUnits" >> read | "CountUnits" >> CountUnits(label, unit, request.key)
    _ = counts | "WriteCounts" >> beam.Map(_write_counts, path)


def _write_counts(counts: dict[int, int], path: str) -> None:
    write_text(path, json.dumps(counts))


def compare_bounds(task: UnitsTask) -> UnitsPlan:
    """Compares numbers of records for one epsilon; gives a reason instead of options if epsilon is too small."""
    try:
        options = bound_options(task.units, task.prior, task.epsilon, task.parameters, _SHOWN)
        return UnitsPlan(task.epsilon, options)
    except ValueError as error:
        return UnitsPlan(task.epsilon, reason=str(error))


def _report(args: argparse.Namespace, request: _Request, units: dict[int, int]) -> None:
    prior, parameters = request.prior.prior, request.parameters
    tasks = [UnitsTask(units, prior, epsilon, parameters) for epsilon in args.epsilon]
    plans = map_with_progress(compare_bounds, tasks, args.processes, "planned")
    rows = [row for plan in plans for row in plan.rows()]
    total, largest = sum(records * number for records, number in units.items()), max(units)
    counted = f"{sum(units.values()):,} units with {total:,} records"
    write_results(
        args, request.prior, rows,
        label=args.label, unit_column=args.unit_column, units=sum(units.values()), records=total,
        most_records_of_a_unit=largest, parameters=parameters,
    )  # fmt: skip
    about = describe_prior(args, request.prior) if args.prior else f"a flat prior of {len(prior.labels)} labels"
    reasons = ["reason"] if any(plan.reason for plan in plans) else []
    text = [
        f"{counted}; a unit has at most {largest:,}",
        "",
        f"squared error of a model of {parameters} parameters on labels of --mechanism auto, expected over {about}; "
        "record_epsilon is for histogram and label of one record",
        *table_lines([{**row, "best": "*" if row["best"] else ""} for row in rows], [*_COLUMNS, *reasons]),
        f"for scale: the labels' variance is {label_variance(prior):.5g}. Larger max_records than listed are not "
        "better",
    ]
    print("\n".join(text))
    if all(plan.reason for plan in plans):
        raise ValueError("no epsilon could be planned for: see the reasons in the table")
