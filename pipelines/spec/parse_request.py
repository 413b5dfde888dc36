"""Construction of a checked `JobRequest` from the flags, one function per part.

Functions raise UsageError, which names the flag, if a flag is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from ...mechanisms.analysis.automatic import default_mechanism
from ...mechanisms.core.budget import split_budget
from ...mechanisms.core.losses import loss_named
from ...mechanisms.registry import AUTO, MECHANISMS, mechanism_named
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import UnitBound
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, read_text
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ...transforms.io.input_format import listed
from ...transforms.noise_binding import Threshold
from ...transforms.validation.schema_protos import without_features
from ..errors import UsageError
from ..flags.arguments import parse_parameters
from ..flags.job_flags import DEFAULTS, check_flags
from ..flags.optional_extras import check_extra, check_tfrecord
from ..flags.suggestions import did_you_mean
from ..ledger.spent_budget import Caps, Window
from .center_flags import center_features, new_center, unused_columns, with_groups
from .column_checks import check_columns, read_schema, unsure_columns
from .input_flags import input_spec, label_column, working_domain
from .job_request import BudgetRequest, InputSpec, JobRequest, MechanismRequest, OutputSpec, ValidationRequest
from .mechanism_file import MechanismFile, read_mechanism_file
from .mechanism_spec import takes_delta
from .target_checks import check_target, resolve_ledger, resolve_noise_key
from .unit_flags import check_record_budget, unit_bound, with_delta

_MOST_SHARDS = 99_999
"""Shard names have five digits."""


def parse_request(
    command: str,
    args: argparse.Namespace,
    input: InputSpec | None = None,
    schema: pa.Schema | None = None,
    others: tuple[str, ...] = (),
) -> JobRequest:
    """Checks the flags of `privatize`, `fit` or `apply` for one label.

    Creates the user's default noise key file if none is named, but not in a dry run. Without `input`, finds it by the
    flags. `schema` holds its columns, of `read_schema`, if they are known already. `others` are further private columns
    that are released with this one. Raises InputError, which names the file, if the first records of the input are read
    and cannot be.
    """
    check_flags(args)
    threshold = read_threshold(args)
    _check_tfrecord_support(args)
    fitted = _fitted(args.mechanism_file) if command == "apply" else None
    unit = unit_bound(args, fitted)
    if fitted is not None:
        _check_delta(args, fitted, unit)
        # Its labels are those of units now, and its file says so.
        fitted = dataclasses.replace(fitted, unit=unit)
    mechanism = _mechanism(args, fitted, unit)
    if unit is not None and fitted is None and args.delta is not None and not takes_delta(mechanism.name):
        unit = with_delta(unit, args.delta)
    if mechanism.fitted is None:
        domain, declared = working_domain(args, args.epsilon)
    else:
        domain, declared = mechanism.fitted.domain, mechanism.fitted.declared
    column = label_column(args, domain, mechanism.name, mechanism.fitted, others, declared)
    column = dataclasses.replace(column, unit=unit)
    _check_loss(mechanism, column)
    budget = _budget(args, mechanism.fitted, unit)
    validation = _validation(args, column.private)
    target = _target(command, args)
    input = input_spec(args) if input is None else input
    schema = read_schema(input, column.private) if schema is None else schema
    check_columns(_named_columns(args, mechanism.fitted), input, schema)
    output = _output(args, target, input)
    unsure = () if command == "fit" else unsure_columns(schema, input, column.private, output.format)
    if mechanism.fitted is not None:
        _check_fitted_center(mechanism.fitted, column)
    features = None
    if mechanism.fitted is None:
        # A dry run reads no label, so it finds the features in the schema instead of the first records.
        features = center_features(args, input, column, mechanism.name, schema if args.dry_run else None)
    if features is not None and column.center is None:
        column = dataclasses.replace(column, center=new_center(args))
    return JobRequest(
        command=command,
        input=input,
        column=with_groups(args, input, column),
        threshold=threshold,
        budget=budget,
        mechanism=mechanism,
        output=output,
        validation=validation,
        ledger=resolve_ledger(args.ledger, target),
        key=resolve_noise_key(args.noise_key_file, target, create=not args.dry_run),
        features=features,
        unused=unused_columns(args, column, features, schema),
        unsure=unsure,
    )


def read_threshold(args: argparse.Namespace) -> Threshold:
    """Reads `--max_unusable_fraction`, from 0 to 1: the limit on records without a usable label."""
    try:
        return Threshold(args.max_unusable_fraction)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _check_tfrecord_support(args: argparse.Namespace) -> None:
    formats = {"--input_format": args.input_format}
    if args.output is not None:
        formats["--output_format"] = output_format(args)
    for flag, format in formats.items():
        if format == "tfrecord":
            check_tfrecord(f"{flag} tfrecord")


def _fitted(path: str) -> MechanismFile:
    try:
        return read_mechanism_file(path)
    except InputError as error:
        raise UsageError(f"--mechanism_file {error}") from None


def _check_delta(args: argparse.Namespace, fitted: MechanismFile, unit: UnitBound | None) -> None:
    needed = dataclasses.replace(fitted, unit=unit).labels_budget[1]
    if needed > (args.delta or 0.0):
        raise UsageError(
            f"--mechanism_file {args.mechanism_file} is not pure DP: its epsilon holds with delta {needed:g}. "
            f"Give --delta {needed:g} to accept that"
        )


def _mechanism(args: argparse.Namespace, fitted: MechanismFile | None, unit: UnitBound | None) -> MechanismRequest:
    loss = args.loss or DEFAULTS["loss"]
    if fitted is not None:
        return MechanismRequest(fitted.randomizer.mechanism, loss, {"loss": loss}, fitted)
    name = args.mechanism or default_mechanism(args.purpose, loss)
    if name == AUTO:
        _check_auto(args, loss, unit)
        return MechanismRequest(name, loss, {})
    pure = name in MECHANISMS and not takes_delta(name)
    if args.delta is not None and pure and unit is None:
        raise UsageError(f"--delta is for mechanisms of (epsilon, delta)-DP, such as gaussian; {name} is pure DP")
    delta = args.delta
    if unit is not None and delta is not None:
        # Of a pure mechanism it is the delta with which the epsilons of a unit's labels are composed.
        delta = None if pure else unit.record_share(delta)
    parameters = {"loss": loss, **parse_parameters(args.mechanism_parameters, delta)}
    try:
        mechanism_named(name, **parameters)
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    return MechanismRequest(name, loss, parameters)


def _check_auto(args: argparse.Namespace, loss: str, unit: UnitBound | None) -> None:
    if args.mechanism_parameters is not None:
        raise UsageError("--mechanism_parameters needs --mechanism: auto finds them itself")
    if loss != DEFAULTS["loss"]:
        raise UsageError(f"--mechanism auto is for models of the squared loss, not {loss}: name a mechanism")
    if args.delta is not None and unit is None:
        raise UsageError("--delta is for mechanisms of (epsilon, delta)-DP, such as gaussian; auto is pure DP")


def _check_loss(mechanism: MechanismRequest, column: LabelColumn) -> None:
    if mechanism.fitted is not None:
        return
    try:
        loss_named(mechanism.loss).check(column.labels if column.center is None else column.residuals.grid)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None


def _named_columns(args: argparse.Namespace, fitted: MechanismFile | None) -> dict[str, str | None]:
    """Columns of the input by the flags that name them, without the features of a linear center."""
    named = {"label": args.label, "id_column": args.id_column, "unit_column": args.unit_column}
    center = None if fitted is None else fitted.center
    if center is not None and center.linear is None:
        named["mechanism_file"] = center.column
    elif args.center != "linear" and not args.center_features:
        # Otherwise it is the name of a column that the job adds.
        named["center_column"] = args.center_column
    return named


def _check_fitted_center(fitted: MechanismFile, column: LabelColumn) -> None:
    """Refuses a label that the center would be computed from: a function of it would be released without noise."""
    linear = None if fitted.center is None else fitted.center.linear
    if linear is not None and column.name in linear.design.map.columns:
        raise UsageError(
            f"--label {column.name} is a feature of the center of --mechanism_file, which is released as it is: "
            "name the label that the file was fitted for"
        )


def _budget(args: argparse.Namespace, fitted: MechanismFile | None, unit: UnitBound | None) -> BudgetRequest:
    caps = read_caps(args)
    if fitted is not None:
        return BudgetRequest(*fitted.labels_budget, None, caps)
    try:
        split_budget(args.epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    if unit is not None:
        check_record_budget(args.epsilon, args.prior_epsilon, unit)
    return BudgetRequest(args.epsilon, args.delta or 0.0, args.prior_epsilon, caps)


def read_caps(args: argparse.Namespace) -> Caps:
    """Reads the caps on what the ledger adds up to.

    UsageError is also raised if a window has no cap.
    """
    if args.epsilon_cap is not None and not args.epsilon_cap > 0:
        raise UsageError(f"--epsilon_cap must be above 0, not {args.epsilon_cap:g}")
    if args.delta_cap is not None and not 0 <= args.delta_cap < 1:
        raise UsageError(f"--delta_cap must be at least 0 and below 1, not {args.delta_cap:g}")
    # A user who caps epsilon alone expects pure DP.
    pure = args.delta_cap is None and args.epsilon_cap is not None
    return Caps(args.epsilon_cap, 0.0 if pure else args.delta_cap, _cap_window(args))


def _cap_window(args: argparse.Namespace) -> Window | None:
    if args.cap_window is None:
        return None
    if args.epsilon_cap is None and args.delta_cap is None:
        raise UsageError("--cap_window is the time in which a cap holds: give --epsilon_cap or --delta_cap")
    try:
        return Window.parse(args.cap_window)
    except ValueError as error:
        raise UsageError(f"--cap_window {error}") from None


def _validation(args: argparse.Namespace, labels: Sequence[str]) -> ValidationRequest | None:
    if not args.validate and args.schema is None:
        return None
    check_extra("--validate", "validation", "tensorflow_data_validation", "tensorflow_metadata")
    if args.schema is None:
        return ValidationRequest(None)
    try:
        return ValidationRequest(without_features(read_text(args.schema), labels))
    except InputError as error:
        raise UsageError(f"--schema {error}") from None
    except ValueError as error:
        raise UsageError(f"--schema {args.schema}: {error}") from None


def _target(command: str, args: argparse.Namespace) -> str:
    if command == "fit":
        check_target("--mechanism_file", args.mechanism_file)
        return args.mechanism_file
    check_target("--output", args.output)
    return absolute(args.output)


def output_format(args: argparse.Namespace) -> str:
    """Format of the shards: `--output_format`, by default that of the input.

    For CSV, the default is Parquet, which can hold its types.
    """
    return args.output_format or ("tfrecord" if args.input_format == "tfrecord" else "parquet")


def _output(args: argparse.Namespace, target: str, input: InputSpec) -> OutputSpec:
    if args.num_shards is not None and not 1 <= args.num_shards <= _MOST_SHARDS:
        raise UsageError(f"--num_shards must be from 1 to {_MOST_SHARDS:,}, not {args.num_shards:,}")
    columns = _partition_columns(args.partition_output, input)
    files = Counter(folder_of(path, columns) for path in input.paths)
    num_shards = args.num_shards or max(files.values())
    partitions = OutputPartitions(columns, tuple(sorted(files)))
    return OutputSpec(target, output_format(args), num_shards, args.compression, partitions)


def _partition_columns(text: str | None, input: InputSpec) -> tuple[tuple[str, bool], ...]:
    """Reads `--partition_output`: name of each column, and whether it is of int32."""
    if text is None:
        return ()
    names, known = text.split(","), {each.name: each.integer for each in input.parts[0].partitions}
    if not known:
        reason = "--partitions none ignores them" if not input.format.partitions else "no folder is named KEY=VALUE"
        raise UsageError(f"--partition_output {text}: the input has no partition columns, {reason}")
    for name in names:
        if name not in known:
            raise UsageError(
                f"--partition_output: {name!r} is no partition column of the input; these are: "
                f"{listed([*known])}{did_you_mean(name, [*known])}"
            )
        if names.count(name) > 1:
            raise UsageError(f"--partition_output names {name!r} twice: give every column once")
    return tuple((name, known[name]) for name in names)
