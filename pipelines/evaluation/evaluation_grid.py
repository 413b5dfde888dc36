"""Flags of `labeldp evaluate`, checked and expanded into the grid of cells."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...mechanisms.center.residuals import check_even
from ...mechanisms.core.budget import split_budget
from ...mechanisms.core.losses import loss_named
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, is_remote, match
from ...transforms.io.input_format import Equals, Format
from ...transforms.label_column import LabelColumn
from ..cli.arguments import ArgumentParser, UsageError
from ..cli.optional_extras import check_extra, check_tfrecord
from ..job.input_flags import input_format, label_domain, where_filter
from ..job.job_flags import DEFAULTS, add_flags
from ..job.target_checks import check_target
from ..study.mechanism_spec import MECHANISM_HELP, parse_mechanism_spec
from ..study.prior_commands import check_unique
from .evaluation_cell import CLEAN, LINEAR_CENTER, MEAN_PREDICTOR, Cell, Task
from .evaluation_store import CellStore
from .models import MODELS
from .published_results import PublishedResult, read_published

DEFAULT_MECHANISMS = ("rr_on_bins", "unbiased", "bias_limited", "debiased_rr", "rp_with_prior", "laplace", "staircase")
DEFAULT_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULT_MODELS = ("linear", "trees")
DEFAULT_SEEDS = 5
NO_CENTER = "none"
"""Value of `--center` for labels without a center."""
_SHARED_FLAGS = (
    "input", "input_format", "csv_types", "csv_delimiter", "csv_encoding", "partitions", "where", "label",
    "label_min", "label_max", "label_step", "label_values", "rounding", "delta", "prior_epsilon", "loss",
)  # fmt: skip
_DESCRIPTION = (
    "Train models on privatized labels and score them on true test labels; models trained on true labels and the mean "
    "predictor are scored for comparison. For research, on data that you may look at: the scores are measured on true "
    "labels and are not private."
)


@dataclass(frozen=True)
class DatasetSource:
    """Input files and columns of a dataset.

    Attributes:
      pattern: Glob of the input files, absolute.
      format: Format of the files.
      label: Name of the label column.
      features: Names of the columns to train on; None for all others.
      where: Condition that records must meet; None for none.
      center: Name of the center column; None for none.
    """

    pattern: str
    format: Format
    label: str
    features: tuple[str, ...] | None
    where: Equals | None
    center: str | None = None

    def __hash__(self) -> int:
        # The format holds a dictionary and cannot be hashed.
        return hash((self.pattern, self.label, self.features, self.center))


@dataclass(frozen=True)
class EvaluationRequest:
    """Evaluation as requested by the flags, checked as far as possible without reading records.

    Attributes:
      source: The records.
      task: Facts that all cells share.
      cells: The grid.
      store: The output folder.
      published: Published results for comparison.
      title: Title of the table and the pictures.
    """

    source: DatasetSource
    task: Task
    cells: tuple[Cell, ...]
    store: CellStore
    published: tuple[PublishedResult, ...]
    title: str


def make_parser() -> ArgumentParser:
    """Makes the parser of all flags except those of the runner, which Beam parses.

    Returns:
      The parser.
    """
    parser = ArgumentParser("labeldp evaluate", _DESCRIPTION)
    parser.epilog = "Runner flags (--runner, --direct_num_workers, ...) pass through to Beam; each cell is one element."
    every = argparse.ArgumentParser(add_help=False)
    add_flags(every)
    for action in every._actions:
        if action.dest in _SHARED_FLAGS:
            parser._add_action(action)
    parser.set_defaults(loss=DEFAULTS["loss"])
    add = parser.add_argument
    add("--output", metavar="DIR", help="output folder; cached cells found there are reused")
    add("--feature", nargs="+", metavar="NAME", help="columns to train on; default all except the label")
    add("--mechanism", nargs="+", default=list(DEFAULT_MECHANISMS), metavar="NAME",
        help=f"{MECHANISM_HELP}; default {' '.join(DEFAULT_MECHANISMS)}")  # fmt: skip
    add("--epsilon", type=float, nargs="+", default=list(DEFAULT_EPSILONS), metavar="E",
        help=f"whole privacy budgets; default {' '.join(f'{e:g}' for e in DEFAULT_EPSILONS)}")  # fmt: skip
    add("--model", nargs="+", choices=list(MODELS), default=list(DEFAULT_MODELS),
        help=f"default {' '.join(DEFAULT_MODELS)}")  # fmt: skip
    add("--center", nargs="+", choices=[NO_CENTER, LINEAR_CENTER], default=[NO_CENTER],
        help="centers around which each mechanism privatizes labels: none, or linear, which the release makes itself "
        "from noised sums over the features to train on; default none")  # fmt: skip
    add("--center_column", metavar="NAME",
        help="privatize labels around this column, too: a prediction of each label by a model that has not seen the "
        "labels; it is also a feature, unless --feature leaves it out")  # fmt: skip
    add("--seeds", type=int, default=DEFAULT_SEEDS, metavar="N",
        help=f"number of seeds, each of a split, its noise and its models; default {DEFAULT_SEEDS}")  # fmt: skip
    add("--published", metavar="FILE", help="published results for comparison, a CSV of mechanism,epsilon,mean,std")
    add("--title", help="title of the table and the pictures; default the input")
    return parser


def parse_evaluation_request(args: argparse.Namespace) -> EvaluationRequest:
    """Checks the flags.

    Args:
      args: Parsed flags.

    Returns:
      The checked request.

    Raises:
      UsageError: If a flag is wrong; names the flag.
    """
    for name in ("input", "input_format", "label", "output"):
        if getattr(args, name) is None:
            raise UsageError(f"--{name} is missing")
    _check_extras(args)
    column = LabelColumn(args.label, label_domain(args))
    try:
        format = input_format(args)
        for epsilon in args.epsilon:
            split_budget(epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    try:
        loss_named(args.loss).check(column.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    for flag in ("mechanism", "epsilon", "model", "feature", "center"):
        check_unique(f"--{flag}", getattr(args, flag) or [])
    if args.label in (args.feature or []):
        raise UsageError(f"--feature names the label {args.label!r}: leave it out")
    centers = _centers(args, column)
    for text in args.mechanism:
        parse_mechanism_spec(text, args.loss, args.delta, auto=True)
    try:
        match(absolute(args.input))
        published = read_published(args.published) if args.published else []
    except InputError as error:
        raise UsageError(str(error)) from None
    where = where_filter(args.where, args.label)
    features = tuple(args.feature) if args.feature else None
    return EvaluationRequest(
        source=DatasetSource(absolute(args.input), format, args.label, features, where, args.center_column),
        task=Task(args.label, column.domain, args.loss, args.rounding, args.prior_epsilon, args.delta),
        cells=tuple(cell_grid(args.mechanism, args.epsilon, args.seeds, args.model, centers)),
        store=CellStore(_output(args.output)),
        published=tuple(published),
        title=args.title or f"{args.label} of {os.path.basename(args.input)}",
    )


def _centers(args: argparse.Namespace, column: LabelColumn) -> list[str | None]:
    """Centers of the cells: None for labels without one, LINEAR_CENTER, or the name of the center column."""
    found = [None if each == NO_CENTER else each for each in args.center]
    if args.center_column is not None:
        if args.center_column == args.label:
            raise UsageError(f"--center_column names the label {args.label!r}: a center must not be made of the labels")
        if args.center_column == LINEAR_CENTER:
            raise UsageError(f"--center_column must not be named {LINEAR_CENTER!r}, as --center is: rename the column")
        found.append(args.center_column)
    if any(found):
        try:
            check_even(column.labels)
        except ValueError as error:
            flag = "--center_column" if args.center_column is not None else f"--center {LINEAR_CENTER}"
            raise UsageError(f"{flag}: {error}") from None
    return found


def _check_extras(args: argparse.Namespace) -> None:
    check_extra("evaluate", "evaluation", "sklearn", "matplotlib", "tqdm")
    if "network" in args.model:
        check_extra("--model network", "network", "tensorflow")
    if args.input_format == "tfrecord":
        check_tfrecord("--input_format tfrecord")


def _output(path: str) -> str:
    """Absolute path of the folder; it must be new, empty, or the output of an evaluation."""
    folder = absolute(path)
    if is_remote(folder):
        return folder
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"--output {path} exists and is not a folder: name another")
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.isdir(os.path.join(folder, "cells")):
        raise UsageError(f"--output {path} is neither empty nor the output of an evaluation: name another folder")
    if not os.path.isdir(folder):
        check_target("--output", folder)
    return folder


def cell_grid(
    mechanisms: Sequence[str],
    epsilons: Sequence[float],
    seeds: int,
    models: Sequence[str],
    centers: Sequence[str | None] = (None,),
) -> Iterator[Cell]:
    """Lists all cells seed by seed, so that an interrupted evaluation can be completed with a smaller --seeds.

    Args:
      mechanisms: Mechanisms as on the command line.
      epsilons: Whole budgets.
      seeds: Number of seeds, >= 1.
      models: Names in `MODELS`.
      centers: Centers of each mechanism, as in `Cell`.

    Yields:
      The cells; for each seed also those of true labels and of the mean predictor.
    """
    for seed in range(seeds):
        yield Cell(MEAN_PREDICTOR, None, seed, MEAN_PREDICTOR)
        for model in models:
            yield Cell(CLEAN, None, seed, model)
        for epsilon in epsilons:
            for mechanism, center in itertools.product(mechanisms, centers):
                for model in models:
                    yield Cell(mechanism, epsilon, seed, model, center)
