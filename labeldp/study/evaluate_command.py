"""`labeldp evaluate`: scores models trained on privatized labels, over a grid of cells.

For research, on data that the user may look at: scores are measured on true labels and are not private.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from labeldp import InputError, UsageError, loss_named

from ..mechanisms.registry import CLASS_MECHANISMS
from ..mechanisms.release.drawing import DRAWN_BY_CENTER
from ..pipelines.cli.text_format import csv_text, table_lines
from ..pipelines.errors import FieldError, field_errors, one_line
from ..pipelines.flags.arguments import check_unique
from ..pipelines.spec.fields import NO_CENTER, Fields
from ..pipelines.spec.input_spec import input_format, where_filter
from ..pipelines.spec.label import loss_of
from ..pipelines.spec.label_domain import label_classes, label_domain, with_texts
from ..pipelines.spec.machine import check_extra
from ..pipelines.spec.mechanism_spec import parse_mechanism_spec
from ..pipelines.spec.target_checks import check_target
from ..pipelines.spec.written_files import write_file
from ..transforms.io.filesystems import absolute, match
from .dataset import read_dataset
from .evaluation_cell import CLEAN, MADE_CENTERS, MEAN_PREDICTOR, Cell, Task, label_of, score_cell
from .evaluation_results import WARNING, draw_evaluation, read_published, scenario_text, summarize_cells
from .study_commands import map_with_progress
from .study_flags import EVALUATED_MECHANISMS


def run(args: argparse.Namespace) -> None:
    """Computes the cells of the grid, writes the results and prints the table. Raises UsageError and InputError."""
    check_extra("evaluate", "evaluation", "sklearn", "tqdm")
    task, cells = parse_evaluation(args)
    classes = None if task.classes is None else {task.label: task.classes}
    format = dataclasses.replace(input_format(_fields(args)), classes=classes)
    where = where_filter(args.where, args.label)
    try:
        match(absolute(args.input))
        published = read_published(args.published) if args.published else []
    except InputError as error:
        raise UsageError(str(error)) from None
    folder = Path(absolute(args.output))
    check_target("output", str(folder))
    title = args.title or f"{args.label} of {os.path.basename(args.input)}"
    print("labeldp: reading the records, then evaluating: the first cell loads libraries", file=sys.stderr, flush=True)
    features, recipients = args.feature or None, args.recipient_feature or []
    dataset = read_dataset(absolute(args.input), format, args.label, features, where, args.center_column, recipients)
    scores = map_with_progress(partial(score_cell, task=task, dataset=dataset), cells, args.processes, "evaluated")
    summaries = summarize_cells(dict(zip(cells, scores, strict=True)))
    rows = [{**each.row(), "recipient_features": " ".join(recipients) or None} for each in summaries]
    folder.mkdir(exist_ok=True)
    for model in args.model:
        picture = draw_evaluation(summaries, model, task.loss, f"{title}, {model}", published)
        write_file(str(folder / f"results-{model}.svg"), picture)
    write_file(str(folder / "results.csv"), csv_text(rows))
    print("\n".join(_text(rows, title, recipients)))
    print(f"\nresults    {one_line(str(folder))}")


def _fields(args: argparse.Namespace) -> Fields:
    # Several values of a flag are several cells.
    return with_texts(Fields.of({name: value for name, value in vars(args).items() if not isinstance(value, list)}))


def parse_evaluation(args: argparse.Namespace) -> tuple[Task, list[Cell]]:
    """Checks the flags, without reading the input. Raises UsageError, which names the flag."""
    fields = _fields(args)
    classes = label_classes(fields)
    domain = tuple(label_domain(fields).tolist()) if classes is None else classes.domain
    loss = loss_of(classes is not None, args.loss)
    with field_errors("{loss}: {problem}"):
        loss_named(loss).check(np.array(domain))
    for flag in ("seeds", "processes"):
        if getattr(args, flag) < 1:
            raise UsageError(f"--{flag} must be at least 1, not {getattr(args, flag)}")
    for flag in ("mechanism", "epsilon", "model", "feature", "recipient_feature", "center"):
        check_unique(flag, getattr(args, flag) or [])
    for flag in ("feature", "recipient_feature"):
        if args.label in (getattr(args, flag) or []):
            raise UsageError(f"--{flag} names the label {args.label!r}: leave it out")
    if args.center_column in (args.recipient_feature or []):
        raise UsageError(
            f"--recipient_feature names the center column {args.center_column!r}, which the log has: leave it out"
        )
    mechanisms = args.mechanism or (EVALUATED_MECHANISMS if classes is None else CLASS_MECHANISMS)
    for text in mechanisms if classes is None else ():
        parse_mechanism_spec(text, loss, args.delta, auto=True)
    task = Task(args.label, domain, loss, args.rounding, args.prior_epsilon, args.delta, classes)
    centers, drawn = _centers(args), classes is not None
    if drawn and args.mechanism and None not in centers:
        raise FieldError("{center} draws classes by itself: leave out {mechanism}, or add none to {center}")
    pairs = ((DRAWN_BY_CENTER if drawn and center else name, center) for name in mechanisms for center in centers)
    cells = list(_grid(args, [*dict.fromkeys(pairs)]))
    for cell in dict.fromkeys(dataclasses.replace(cell, seed=0, model="") for cell in cells if cell.private):
        label_of(cell, task)
    return task, cells


def _centers(args: argparse.Namespace) -> list[str | None]:
    """Centers of the cells: None for labels without one, one of MADE_CENTERS, or the name of the center column."""
    centers = [None if name == NO_CENTER else name for name in args.center]
    if args.center_column is not None:
        if args.center_column == args.label:
            raise UsageError(f"--center_column names the label {args.label!r}: a center must not be made of the labels")
        if args.center_column in MADE_CENTERS:
            raise UsageError(
                f"--center_column must not be named {args.center_column!r}, as --center is: rename the column"
            )
        if args.label_classes is not None:
            raise UsageError("--center_column is for labels that are numbers; give --center cells")
        centers.append(args.center_column)
    return centers


def _grid(args: argparse.Namespace, pairs: Sequence[tuple[str, str | None]]) -> Iterator[Cell]:
    """Lists all cells: for each seed also those of true labels and of the mean predictor."""
    for seed in range(args.seeds):
        yield Cell(MEAN_PREDICTOR, None, seed, MEAN_PREDICTOR)
        for model in args.model:
            yield Cell(CLEAN, None, seed, model)
        for epsilon, (mechanism, center), model in itertools.product(args.epsilon, pairs, args.model):
            yield Cell(mechanism, epsilon, seed, model, center)


def _text(rows: Sequence[Any], title: str, recipients: Sequence[str]) -> list[str]:
    # Columns that no row has: reasons, and what is only known of labels around a center.
    hidden = {name for name in rows[0] if all(row[name] is None for row in rows)} | {"recipient_features"}
    columns = [name for name in rows[0] if name not in hidden]
    ordered = sorted(rows, key=lambda row: (row["model"], row["epsilon"] is not None, row["epsilon"] or 0.0))
    scenario = [scenario_text(recipients), ""] if recipients else []
    return [title, "", *scenario, *table_lines(ordered, columns), "", WARNING]
