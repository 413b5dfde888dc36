"""Requests of a job for several labels of a record: `--label a,b,c`, with one budget for all."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...mechanisms.analysis.automatic import CANDIDATES, default_mechanism
from ...mechanisms.analysis.planning import label_shares, split_exactly
from ...mechanisms.core.budget import split_budget
from ...mechanisms.registry import AUTO, Mechanism, mechanism_named
from ..errors import UsageError
from ..flags.command_parser import GRID
from ..flags.job_flags import DEFAULTS
from .column_checks import read_schema
from .input_flags import check_no_folder, input_spec, working_domain
from .job_request import JobRequest
from .parse_request import parse_request

_PER_LABEL = (*GRID, "label_values", "center_column")
"""Flags that take one value for all labels, or one for each."""
_PUBLIC = ("id_column", "unit_column", "center_features", "center_groups", "where")
"""Flags that name public columns, none of which may be a label."""
_MOST_LABELS = 32


def parse_requests(command: str, args: argparse.Namespace) -> list[JobRequest]:
    """Checks the flags of a command; one checked request for each label, in the order of `--label`.

    Raises UsageError, which names the flag, and InputError as `parse_request` does.
    """
    names = args.label.split(",")
    if len(names) == 1:
        return [parse_request(command, args)]
    input = input_spec(args)
    schema = read_schema(input, names)
    if args.label in schema.names:
        # A column has the whole text as its name.
        return [parse_request(command, args, input)]
    _check_several(command, args, names)
    for name in names:
        check_no_folder(input, "label", name)
    parts = _namespaces(args, names)
    domains = [np.array(working_domain(part, args.epsilon)[0]) for part in parts]
    mechanism = _planned_mechanism(parts[0])
    for part, epsilon, delta, prior in zip(parts, *_budgets(args, domains, mechanism), strict=True):
        part.epsilon, part.delta, part.prior_epsilon = epsilon, delta, prior
    return [
        parse_request(command, part, input, schema, tuple(other for other in names if other != part.label))
        for part in parts
    ]


def _check_several(command: str, args: argparse.Namespace, names: Sequence[str]) -> None:
    if command != "privatize":
        raise UsageError(
            f"--label {args.label}: {command} takes one label; run it for each of them, or privatize for all together"
        )
    if not all(names):
        raise UsageError(f"--label {args.label}: a name between two commas is empty")
    if len({*names}) < len(names):
        raise UsageError(f"--label {args.label} names a column twice: give every label once")
    if len(names) > _MOST_LABELS:
        raise UsageError(f"--label: at most {_MOST_LABELS} labels, not {len(names)}: each gets a part of epsilon")
    for flag in _PUBLIC:
        for name in (getattr(args, flag) or "").split(","):
            if name.partition("=")[0] in names:
                raise UsageError(f"--{flag} must not name the label {name.partition('=')[0]}: it is private")


def _namespaces(args: argparse.Namespace, names: Sequence[str]) -> list[argparse.Namespace]:
    """The flags of each label."""
    parts = [argparse.Namespace(**{**vars(args), "label": name}) for name in names]
    for flag in _PER_LABEL:
        text = getattr(args, flag)
        if text is None:
            continue
        values = str(text).split(",")
        if len(values) not in (1, len(names)):
            raise UsageError(f"--{flag} {text}: give one value for all labels, or {len(names)}, one for each")
        for part, value in zip(parts, values * (len(names) if len(values) == 1 else 1), strict=True):
            setattr(part, flag, value)
    centers = [part.center_column for part in parts if part.center_column is not None]
    if len({*centers, *names}) < len(centers) + len(names):
        raise UsageError(
            f"--center_column {args.center_column}: give {len(names)} different columns, one for each label, none of "
            "which is a label"
        )
    return parts


def _planned_mechanism(args: argparse.Namespace) -> Mechanism:
    """The mechanism whose errors decide the split; of auto, the first candidate for models."""
    name = args.mechanism or default_mechanism(args.purpose, args.loss or DEFAULTS["loss"])
    if name != AUTO:
        # One with parameters that it must be given is not compared by its own errors.
        with contextlib.suppress(TypeError, ValueError):
            return mechanism_named(name)
    return next(iter(CANDIDATES.values()))


def _budgets(
    args: argparse.Namespace, domains: Sequence[np.ndarray], mechanism: Mechanism
) -> tuple[Sequence[float], Sequence[float | None], Sequence[float | None]]:
    """Epsilon, delta and epsilon of the histogram of each label."""
    count = len(domains)
    try:
        split_budget(args.epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    shares = label_shares(args.epsilon, domains, mechanism)
    # A delta out of range is refused for each label.
    deltas: Sequence[float | None] = [args.delta] * count
    if args.delta is not None and 0 < args.delta < 1:
        deltas = split_exactly(args.delta, [Fraction(1, count)] * count)
    priors = [None] * count if args.prior_epsilon is None else split_exactly(args.prior_epsilon, shares)
    return split_exactly(args.epsilon, shares), deltas, priors
