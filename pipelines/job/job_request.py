"""The flags of `privatize`, `fit` and `apply`, in Beam's conventions, and the validated plan that they make."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from apache_beam.io.filesystems import FileSystems

from ...mechanisms.core.budget import check_epsilon, split_budget
from ...mechanisms.core.label_grid import check_domain, label_grid
from ...mechanisms.core.losses import loss_named
from ...mechanisms.registry import MECHANISMS, default_rounding, mechanism_named
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, match, read_text
from ...transforms.io.input_format import Equals, Format
from ...transforms.label_column import LabelColumn
from ...transforms.noise_binding import Threshold
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.validation.schema_protos import without_feature
from ..cli.arguments import UsageError, parse_parameters
from ..cli.optional_extras import check_extra, check_tfx
from ..release.ledger import Caps
from ..release.mechanism_file import MechanismFile, read_mechanism_file
from ..study.mechanism_spec import takes_delta
from .job_flags import DEFAULTS, check_required
from .target_checks import check_target, resolve_ledger, resolve_noise_key

_MOST_SHARDS = 99_999
"""Their names have five digits."""


@dataclass(frozen=True)
class Plan:
    """A job that was checked as far as that is possible without reading records.

    Fields are named after the flags. paths: what the input matches now. file_size: of one on average, in bytes. fitted:
    the mechanism file of `apply`. schema: the text of the file, without the label.
    """

    command: str
    pattern: str
    paths: tuple[str, ...]
    file_size: float
    format: Format
    where: Equals | None
    column: LabelColumn
    key: NoiseKeyFile
    threshold: Threshold
    ledger: str
    epsilon: float = 0.0
    delta: float = 0.0
    prior_epsilon: float | None = None
    mechanism: str = ""
    loss: str = "squared"
    own_parameters: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None
    output_format: str = "tfrecord"
    num_shards: int = 1
    compression: str = "none"
    mechanism_file: str | None = None
    caps: Caps = field(default_factory=Caps)
    fitted: MechanismFile | None = None
    validate: bool = False
    schema: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The mechanism's parameters."""
        return {"loss": self.loss, **self.own_parameters}


def make_plan(command: str, args: argparse.Namespace) -> Plan:
    """Checks the flags of a command. Raises UsageError, naming the flag."""
    check_required(command, args)
    args = argparse.Namespace(**vars(args) | {name: getattr(args, name) or DEFAULTS[name] for name in DEFAULTS})
    try:
        threshold = Threshold(args.max_unusable_fraction)
        format = Format(args.input_format, _csv_types(args.csv_types))
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    _check_extra(args)
    fitted = _fitted(args.mechanism_file, args.delta) if command == "apply" else None
    column = _column(args, fitted)
    where = _where(args.where, column)
    schema = _schema(args)
    if command != "apply":
        _check_solvable(args, column)
    if args.epsilon_cap is not None and not args.epsilon_cap > 0:
        raise UsageError(f"--epsilon_cap must be above 0, not {args.epsilon_cap:g}")
    if args.delta_cap is not None and not 0 <= args.delta_cap < 1:
        raise UsageError(f"--delta_cap must be at least 0 and below 1, not {args.delta_cap:g}")
    target = args.mechanism_file if command == "fit" else args.output
    check_target("--mechanism_file" if command == "fit" else "--output", target)
    if args.num_shards is not None and not 1 <= args.num_shards <= _MOST_SHARDS:
        raise UsageError(f"--num_shards must be from 1 to {_MOST_SHARDS:,}, not {args.num_shards:,}")
    try:
        paths = match(absolute(args.input))
    except InputError as error:
        raise UsageError(str(error)) from None
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(f"--input {path!a}: the name is not UTF-8: rename the file") from None
    return Plan(
        command=command,
        pattern=absolute(args.input),
        paths=tuple(paths),
        file_size=sum(paths.values()) / len(paths),
        format=format,
        where=where,
        column=column,
        key=resolve_noise_key(args.noise_key_file, target),
        threshold=threshold,
        ledger=resolve_ledger(args.ledger, target),
        epsilon=fitted.randomizer.epsilon if fitted else args.epsilon,
        delta=fitted.randomizer.delta if fitted else args.delta or 0.0,
        prior_epsilon=args.prior_epsilon,
        mechanism=fitted.randomizer.mechanism if fitted else args.mechanism,
        loss=args.loss,
        own_parameters=parse_parameters(args.mechanism_parameters, args.delta if fitted is None else None),
        output=args.output and absolute(args.output),
        output_format=args.output_format,
        num_shards=args.num_shards or len(paths),
        compression=args.compression,
        mechanism_file=args.mechanism_file,
        # Who caps epsilon alone expects pure DP.
        caps=Caps(args.epsilon_cap, 0.0 if args.delta_cap is None and args.epsilon_cap is not None else args.delta_cap),
        fitted=fitted,
        validate=args.validate or args.schema is not None,
        schema=schema,
    )


def _check_extra(args: argparse.Namespace) -> None:
    formats = {"--input_format": args.input_format}
    if args.output is not None:
        formats["--output_format"] = args.output_format
    for flag, format in formats.items():
        if format == "tfrecord":
            check_tfx(f"{flag} tfrecord")


def _csv_types(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    types = {}
    for pair in text.split(","):
        name, _, kind = pair.partition("=")
        if not kind:
            raise ValueError(f"csv_types takes NAME=TYPE, not {pair!r}")
        types[name] = kind
    return types


def _fitted(path: str, delta: float | None) -> MechanismFile:
    try:
        fitted = read_mechanism_file(path)
    except InputError as error:
        raise UsageError(f"--mechanism_file {error}") from None
    needed = fitted.randomizer.delta
    if needed > (delta or 0.0):
        raise UsageError(
            f"--mechanism_file {path} is not pure: its epsilon holds with delta {needed:g}. "
            f"Give --delta {needed:g} to accept that"
        )
    return fitted


def _column(args: argparse.Namespace, fitted: MechanismFile | None) -> LabelColumn:
    if args.id_column == args.label:
        raise UsageError("--id_column must be another column than --label")
    if fitted is not None:
        return LabelColumn(args.label, tuple(fitted.randomizer.labels.tolist()), args.id_column, fitted.rounding)
    grid = [args.label_min, args.label_max, args.label_step]
    if args.label_values is not None:
        if any(flag is not None for flag in grid):
            raise UsageError("--label_values replaces --label_min, --label_max and --label_step: give one or the other")
        labels = _label_values(args.label_values)
    elif any(flag is None for flag in grid):
        raise UsageError(
            "the public label domain is missing: give --label_min, --label_max and --label_step, or --label_values"
        )
    else:
        try:
            labels = label_grid(*grid)
        except ValueError as error:
            raise UsageError(f"--{error}") from None
    rounding = args.rounding or default_rounding(args.mechanism)
    return LabelColumn(args.label, tuple(labels.tolist()), args.id_column, rounding)


def _label_values(path: str) -> np.ndarray:
    try:
        with FileSystems.open(path) as file:
            labels = np.array([float(line) for line in file.read().decode().split()])
        check_domain(labels)
    except ValueError as error:
        raise UsageError(f"--label_values {path}: one number a line, strictly ascending ({error})") from None
    except Exception:
        raise UsageError(f"--label_values {path} cannot be read: check the path") from None
    return labels


def _where(text: str | None, column: LabelColumn) -> Equals | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--where takes NAME=VALUE, not {text!r}")
    if name == column.name:
        raise UsageError("--where must not look at the label: which records are released would depend on it")
    return Equals(name, value)


def _check_solvable(args: argparse.Namespace, column: LabelColumn) -> None:
    if args.delta is not None and args.mechanism in MECHANISMS and not takes_delta(args.mechanism):
        raise UsageError(f"--delta is for mechanisms that are not pure, as gaussian, and {args.mechanism} is")
    try:
        mechanism_named(args.mechanism, loss=args.loss, **parse_parameters(args.mechanism_parameters, args.delta))
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    try:
        loss_named(args.loss).check(column.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    try:
        check_epsilon(args.epsilon)
        if args.prior_epsilon is not None:
            split_budget(args.epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _schema(args: argparse.Namespace) -> str | None:
    """The schema of the features; None when none was given."""
    if args.validate or args.schema is not None:
        check_extra("--validate", "tfx", "tensorflow_data_validation", "tensorflow_metadata")
    if args.schema is None:
        return None
    try:
        return without_feature(read_text(args.schema), args.label)
    except InputError as error:
        raise UsageError(f"--schema {error}") from None
    except ValueError as error:
        raise UsageError(f"--schema {args.schema}: {error}") from None
