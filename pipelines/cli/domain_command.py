"""`labeldp domain`: a label range, privately. Releases a noised histogram over public, log-spaced cells."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton

from ...mechanisms.analysis.label_range import DomainProposal, log_spaced_labels, propose_domain
from ...mechanisms.core.budget import MIN_EPSILON, check_epsilon, round_up
from ...mechanisms.core.label_grid import OUTWARD
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.unit_bound import UnitCounts
from ...transforms.errors import InputError, describe_failure
from ...transforms.io.filesystems import read_text, write_text
from ...transforms.missing_labels import Threshold
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import ReadRecordBatches
from ...transforms.release_passes import NoisyPrior
from ..errors import FieldError, one_line
from ..flags.arguments import log_to_stderr
from ..job.input_reads import bound_units, without_excess
from ..job.run_pipeline import run_pipeline
from ..job.runner_options import runner_options
from ..ledger.ledger import Ledger, LedgerEntry
from ..ledger.spent_budget import Caps
from ..publish.job_result import JobResult
from ..publish.output_folder import publish_file, publishing, staging_folder
from ..publish.protocol import Charge, charged, check_caps
from ..publish.signals import signals_as_interrupts
from ..spec.fields import Fields
from ..spec.input_spec import check_columns, input_spec, read_as, read_schema
from ..spec.label import Budget, unit_bound
from ..spec.release import InputSpec
from ..spec.store_access import open_stores
from ..spec.target_checks import (
    check_target,
    read_caps,
    read_unusable_fraction,
    resolve_ledger,
    resolve_noise_key,
)
from .announcement import unusable_share
from .exit_codes import names_of_flags, run_command

FORMAT = "labeldp-domain-2"
"""Cells end at round numbers; those of the first format had these numbers in the middle."""
_RELEASE_NAME, _DOMAIN_NAME = "release.json", "domain.json"


@dataclass(frozen=True)
class DomainRequest:
    """Request for a label range.

    Attributes:
      input: Input files.
      column: Label column; its domain are the ends of the cells.
      threshold: Tolerated fraction of records without a usable label.
      budget: Budget of the histogram.
      caps: Caps on what the ledger adds up to.
      clamped: Share of the labels that may lie outside the proposed domain.
      target: File to write.
      ledger: Path of the ledger, or URL of its database, which may hold a password.
      key: Reference to the secret key.
    """

    input: InputSpec
    column: LabelColumn
    threshold: Threshold
    budget: Budget
    caps: Caps
    clamped: float
    target: str
    ledger: str = field(repr=False)
    key: NoiseKeyFile

    @property
    def record_epsilon(self) -> float:
        """Budget of the histogram for the label of one record."""
        return self.column.unit.record_epsilon(self.budget.epsilon)

    @property
    def name(self) -> str:
        """Name of the request in the ledger; `clamped` is not a part of it, because it changes nothing released."""
        where = self.input.where
        asked: list[Any] = [
            "domain", self.input.request, self.column.name, self.column.domain, self.column.id_column,
            self.budget.epsilon, where and [where.column, where.value],
        ]  # fmt: skip
        if self.column.unit.request:
            asked.append(self.column.unit.request)
        if self.column.meaning.reading:
            asked.append({"reading": self.column.meaning.reading})
        return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()


def run(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    log_to_stderr()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        request = _parse(args)
        input = request.input
        options = runner_options(runner_flags, input.format.name, input.file_size)
        with signals_as_interrupts():
            _release(request, options)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    names = names_of_flags(args)
    return run_command("labeldp domain", work, (InputError,), "nothing is released", describe_failure, names)


def _parse(args: argparse.Namespace) -> DomainRequest:
    fields = Fields.of(vars(args))
    threshold = Threshold(read_unusable_fraction(fields.max_unusable_fraction))
    caps = read_caps(fields.epsilon_cap, fields.delta_cap, fields.cap_window)
    if not 0 <= args.clamped < 1:
        raise FieldError("{clamped} must be at least 0 and below 1, not {value:g}", value=args.clamped)
    unit = unit_bound(fields.label, fields.unit_column, fields.max_records_per_unit)
    try:
        check_epsilon(args.epsilon)
        check_epsilon(unit.record_epsilon(args.epsilon))
        # The noise is bound to a budget of the labels as well: the least one, of which nothing is spent.
        check_epsilon(_total(args.epsilon))
    except ValueError as error:
        raise FieldError.of(error) from None
    if args.id_column == args.label:
        raise FieldError("{id_column} must be another column than {label}")
    check_target("domain_file", args.domain_file)
    input = input_spec(fields)
    named = {"label": args.label, "id_column": args.id_column, "unit_column": args.unit_column}
    check_columns(named, input, read_schema(input, [args.label]))
    domain = tuple(log_spaced_labels().tolist())
    return DomainRequest(
        input=input,
        column=read_as(LabelColumn(args.label, domain, args.id_column, OUTWARD, unit=unit), input.format),
        threshold=threshold,
        budget=Budget(args.epsilon, prior_epsilon=args.epsilon),
        caps=caps,
        clamped=args.clamped,
        target=args.domain_file,
        ledger=resolve_ledger(args.ledger, args.domain_file),
        key=resolve_noise_key(args.noise_key_file, args.domain_file, mode=args.noise_key_mode),
    )


def _total(epsilon: float) -> float:
    return round_up(Fraction(epsilon) + 2 * Fraction(MIN_EPSILON))


def _release(request: DomainRequest, options: PipelineOptions) -> None:
    ledger = Ledger(request.ledger)
    check_caps(ledger, request.name, request.budget, request.caps, request.column.unit)
    with staging_folder(request.target, single_file=True) as staging:
        path = FileSystems.join(staging.work, _RELEASE_NAME)
        run_pipeline(options, lambda pipeline: build(pipeline, request, path))
        released = json.loads(read_text(path))
        result, counts = JobResult.from_json(released["result"]), np.array(released["counts"])
        # Whether there is a proposal follows from the released counts: they are charged before it is said.
        proposal, reason = _proposed(counts, result.binding.records, request)
        document = _document(request, result, counts, proposal)
        write_text(FileSystems.join(staging.release, _DOMAIN_NAME), json.dumps(document, indent=2) + "\n")
        charge = _charge(request, result.binding)
        with charged(ledger, charge, request.caps, publishing(staging, request.target)):
            publish_file(staging, _DOMAIN_NAME, request.target)
            _announce(request, result, proposal, reason)


def build(pipeline: beam.Pipeline, request: DomainRequest, path: str) -> None:
    """Adds the job to a pipeline; it writes the noised counts to the file `path`."""
    input, column = request.input, request.column
    units = bound_units(pipeline, input, column, request.key)
    read = ReadRecordBatches(input.source, input.format, column.columns, input.where, column.name)
    batches = without_excess(pipeline | "ReadLabels" >> read, "BoundLabels", units, column)
    epsilon = request.record_epsilon
    release = batches | "NoisyHistogram" >> NoisyPrior(
        column, _total(epsilon), request.key, epsilon, request.threshold, id_groups=input.id_groups
    )
    _ = release | "WriteRelease" >> beam.Map(_write_release, path, None if units is None else AsSingleton(units.counts))


def _write_release(release: PriorRelease, path: str, units: UnitCounts | None) -> None:
    result = JobResult(release, None, {}, units=units)
    write_text(path, json.dumps({"result": result.to_json(), "counts": list(release.counts)}))


def _proposed(counts: np.ndarray, records: int, request: DomainRequest) -> tuple[DomainProposal | None, str]:
    try:
        return propose_domain(counts, records, request.record_epsilon, request.clamped), ""
    except ValueError as error:
        return None, str(error)


def _charge(request: DomainRequest, binding: NoiseBinding) -> Charge:
    return Charge(
        "domain",
        request.name,
        request.column.name,
        request.column.unit,
        binding.records,
        f"{binding.digest:064x}",
        request.target,
        [LedgerEntry("domain", request.budget.epsilon, binding.release_name)],
    )


def _document(
    request: DomainRequest, result: JobResult, counts: np.ndarray, proposal: DomainProposal | None
) -> dict[str, Any]:
    found = None
    if proposal is not None:
        found = {
            "label_min": f"{proposal.low:f}",
            "label_max": f"{proposal.high:f}",
            "label_step": f"{proposal.step:f}",
            "share_below": proposal.below,
            "share_above": proposal.above,
            "standard_deviation_of_shares": proposal.error,
            "median": proposal.median,
        }
    return {
        "format": FORMAT,
        "label": request.column.name,
        "epsilon": request.budget.epsilon,
        **request.column.unit.stated,
        "records": result.binding.records,
        "input_digest": f"{result.binding.digest:064x}",
        "cells": list(request.column.domain),
        "counts": counts.tolist(),
        "proposal": found,
    }


def _announce(request: DomainRequest, result: JobResult, proposal: DomainProposal | None, reason: str) -> None:
    binding = result.binding
    print(f"released   {one_line(request.target)}")
    left_out = f"{binding.unusable:,}{unusable_share(result)} without a usable label left out"
    print(f"records    {binding.records:,}; {left_out}")
    unit = result.binding.unit
    whom = f", for all labels of a unit of {one_line(str(unit.column))}" if unit.request else ""
    cells = len(request.column.domain)
    print(f"budget     epsilon {request.budget.epsilon!r} for the histogram of {cells} cells{whom}")
    if proposal is None:
        print(f"domain     none: {reason}")
        return
    print(f"domain     {proposal.flags} ({proposal.labels:,} labels)")
    print(
        f"clamped    {100 * proposal.above:.2g} % of the labels above it and {100 * proposal.below:.2g} % below it, "
        f"each with a standard deviation of {100 * proposal.error:.2g} %"
    )
    print(f"median     in the cell that ends at {proposal.median:g}")
    if proposal.step < 1 and proposal.low % 1 == proposal.high % 1 == 0:
        print("step       --label_step 1, if the labels are whole numbers: the histogram cannot tell")
    if proposal.error > request.clamped:
        LOGGER.warning(
            "warning: shares of %.2g %% cannot be told from noise here: use a larger --epsilon, or allow more with "
            "--clamped", 100 * request.clamped,
        )  # fmt: skip
    if proposal.skewed:
        LOGGER.warning(
            "warning: most labels are within a small part of this domain: a column of their logarithm may train a "
            "better model, or clamp more with --clamped"
        )
