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
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, is_remote, match
from ...transforms.io.input_format import Equals, Format
from ..errors import UsageError
from ..flags.arguments import check_unique
from ..flags.choices import NO_CENTER
from ..flags.optional_extras import check_extra, check_tfrecord
from ..spec.input_flags import input_format, label_domain, where_filter
from ..spec.mechanism_spec import parse_mechanism_spec
from ..spec.target_checks import check_target
from .evaluation_cell import CLEAN, LINEAR_CENTER, MEAN_PREDICTOR, Cell, CellStore, Task
from .evaluation_results import PublishedResult, read_published


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
    """Evaluation as requested by the flags, checked as far as possible without reading records."""

    source: DatasetSource
    task: Task
    cells: tuple[Cell, ...]
    store: CellStore
    published: tuple[PublishedResult, ...]
    title: str


def parse_evaluation_request(args: argparse.Namespace) -> EvaluationRequest:
    """Checks the flags. Raises UsageError, which names the flag."""
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
    check_extra("evaluate", "evaluation", "sklearn", "tqdm")
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

    For each seed, there are also the cells of true labels and of the mean predictor. `centers` are those of each
    mechanism, as in `Cell`.
    """
    for seed in range(seeds):
        yield Cell(MEAN_PREDICTOR, None, seed, MEAN_PREDICTOR)
        for model in models:
            yield Cell(CLEAN, None, seed, model)
        for epsilon in epsilons:
            for mechanism, center in itertools.product(mechanisms, centers):
                for model in models:
                    yield Cell(mechanism, epsilon, seed, model, center)
