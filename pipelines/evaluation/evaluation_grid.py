"""The flags of `labeldp evaluate`, and the checked grid that they make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...mechanisms.core.budget import check_epsilon, split_budget
from ...mechanisms.core.losses import loss_named
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, is_remote, match
from ...transforms.io.input_format import Equals, Format
from ..cli.arguments import ArgumentParser, UsageError
from ..cli.optional_extras import check_extra, check_tfx
from ..job.job_flags import DEFAULTS, add_flags
from ..job.job_request import _column, _csv_types, _where
from ..job.target_checks import check_target
from ..study.mechanism_spec import HELP, parse_mechanism_spec
from ..study.prior_commands import check_once
from .evaluation_cell import CLEAN, MEAN, Cell, Task
from .evaluation_store import Store
from .models import MODELS
from .published_results import Published, read_published

DEFAULT_MECHANISMS = ("rr_on_bins", "unbiased", "bias_limited", "debiased_rr", "rp_with_prior", "laplace", "staircase")


DEFAULT_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


DEFAULT_MODELS = ("linear", "trees")


DEFAULT_SEEDS = 5


_SHARED_FLAGS = (
    "input", "input_format", "csv_types", "where", "label", "label_min", "label_max", "label_step", "label_values",
    "rounding", "delta", "prior_epsilon", "loss",
)  # fmt: skip


_DESCRIPTION = (
    "Train models on privatized labels and score them on true test labels, beside true training labels and the mean "
    "predictor. For research, on data that you may look at: the scores are measured on true labels and are not private."
)


@dataclass(frozen=True)
class Source:
    """Where the records are, and which of their columns models train on: None for all."""

    pattern: str
    format: Format
    label: str
    features: tuple[str, ...] | None
    where: Equals | None

    def __hash__(self) -> int:
        # A format holds a dictionary.
        return hash((self.pattern, self.label, self.features))


@dataclass(frozen=True)
class Plan:
    """An evaluation that was checked as far as that is possible without reading records."""

    source: Source
    task: Task
    cells: tuple[Cell, ...]
    store: Store
    published: tuple[Published, ...]
    title: str


def make_parser() -> ArgumentParser:
    """All flags; the runner's are left to Beam."""
    parser = ArgumentParser("labeldp evaluate", _DESCRIPTION)
    parser.epilog = "Runner flags (--runner, --direct_num_workers, ...) pass through to Beam; each cell is an element."
    every = argparse.ArgumentParser(add_help=False)
    add_flags(every)
    for action in every._actions:
        if action.dest in _SHARED_FLAGS:
            parser._add_action(action)
    parser.set_defaults(loss=DEFAULTS["loss"])
    add = parser.add_argument
    add("--output", metavar="DIR", help="for tables, pictures and finished cells; what it has is not computed again")
    add("--feature", nargs="+", metavar="NAME", help="columns to train on; default all others than the label")
    add("--mechanism", nargs="+", default=list(DEFAULT_MECHANISMS), metavar="NAME",
        help=f"{HELP}; default {' '.join(DEFAULT_MECHANISMS)}")  # fmt: skip
    add("--epsilon", type=float, nargs="+", default=list(DEFAULT_EPSILONS), metavar="E",
        help=f"whole budgets; default {' '.join(f'{e:g}' for e in DEFAULT_EPSILONS)}")  # fmt: skip
    add("--model", nargs="+", choices=list(MODELS), default=list(DEFAULT_MODELS),
        help=f"default {' '.join(DEFAULT_MODELS)}")  # fmt: skip
    add("--seeds", type=int, default=DEFAULT_SEEDS, metavar="N",
        help=f"of split, noise and model; default {DEFAULT_SEEDS}")  # fmt: skip
    add("--published", metavar="FILE", help="CSV of mechanism,epsilon,mean,std to show beside ours")
    add("--title", help="of the table and the pictures; default the input")
    return parser


def make_plan(args: argparse.Namespace) -> Plan:
    """Checks the flags. Raises UsageError, naming the flag."""
    for name in ("input", "input_format", "label", "output"):
        if getattr(args, name) is None:
            raise UsageError(f"--{name} is missing")
    _check_extras(args)
    # Mechanisms round in their own ways here, and records have no names.
    column = _column(argparse.Namespace(**{**vars(args), "mechanism": "", "id_column": None}), None)
    try:
        format = Format(args.input_format, _csv_types(args.csv_types))
        for epsilon in args.epsilon:
            check_epsilon(epsilon)
            if args.prior_epsilon is not None:
                split_budget(epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    try:
        loss_named(args.loss).check(column.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    for flag in ("mechanism", "epsilon", "model", "feature"):
        check_once(f"--{flag}", getattr(args, flag) or [])
    if args.label in (args.feature or []):
        raise UsageError(f"--feature names the label {args.label!r}: models would only have to copy it")
    for text in args.mechanism:
        parse_mechanism_spec(text, args.loss, args.delta)
    try:
        match(absolute(args.input))
        published = read_published(args.published) if args.published else []
    except InputError as error:
        raise UsageError(str(error)) from None
    where = _where(args.where, column)
    features = tuple(args.feature) if args.feature else None
    return Plan(
        source=Source(absolute(args.input), format, args.label, features, where),
        task=Task(args.label, column.domain, args.loss, args.rounding, args.prior_epsilon, args.delta),
        cells=tuple(grid(args.mechanism, args.epsilon, args.seeds, args.model)),
        store=Store(_output(args.output)),
        published=tuple(published),
        title=args.title or f"{args.label} of {os.path.basename(args.input)}",
    )


def _check_extras(args: argparse.Namespace) -> None:
    check_extra("evaluate", "evaluation", "sklearn", "matplotlib", "tqdm")
    if "network" in args.model:
        check_extra("--model network", "tfx", "tensorflow")
    if args.input_format == "tfrecord":
        check_tfx("--input_format tfrecord")


def _output(path: str) -> str:
    """The folder, absolute. Raises UsageError unless it is new, empty, or an evaluation's."""
    folder = absolute(path)
    if is_remote(folder):
        return folder
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"--output {path} exists and is not a folder: name another")
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.isdir(os.path.join(folder, "cells")):
        raise UsageError(f"--output {path} holds other things than an evaluation: name another folder")
    if not os.path.isdir(folder):
        check_target("--output", folder)
    return folder


def grid(mechanisms: Sequence[str], epsilons: Sequence[float], seeds: int, models: Sequence[str]) -> Iterator[Cell]:
    """All cells, seed by seed: what is shown after an interruption and a smaller --seeds is whole."""
    for seed in range(seeds):
        yield Cell(MEAN, None, seed, MEAN)
        for model in models:
            yield Cell(CLEAN, None, seed, model)
        for epsilon in epsilons:
            for mechanism in mechanisms:
                for model in models:
                    yield Cell(mechanism, epsilon, seed, model)
