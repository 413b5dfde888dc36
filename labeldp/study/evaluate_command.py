"""`labeldp evaluate`: scores models trained on privatized labels, over a grid of cells that runs on Beam.

For research, on data that the user may look at: scores are measured on true labels and are not private.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection

from ..mechanisms.center.residuals import check_even
from ..mechanisms.core.losses import loss_named
from ..mechanisms.release.label_column import LabelColumn
from ..pipelines.cli.exit_codes import run_command
from ..pipelines.cli.text_format import csv_text, json_text, table_lines
from ..pipelines.errors import UsageError, one_line
from ..pipelines.flags.arguments import check_unique, log_to_stderr
from ..pipelines.job.run_pipeline import beam_of_a_job, describe_failure, make_pipeline
from ..pipelines.publish.manifest import versions
from ..pipelines.publish.signals import signals_as_interrupts
from ..pipelines.spec.fields import NO_CENTER, Fields
from ..pipelines.spec.input_spec import input_format, where_filter
from ..pipelines.spec.label import check_split
from ..pipelines.spec.label_domain import label_domain
from ..pipelines.spec.machine import check_extra
from ..pipelines.spec.mechanism_spec import parse_mechanism_spec
from ..pipelines.spec.store_access import open_stores
from ..pipelines.spec.target_checks import check_target
from ..transforms.errors import InputError, redact_errors
from ..transforms.io.filesystems import absolute, is_remote, match
from .dataset import Dataset, read_dataset
from .evaluation_cell import MADE_CENTERS, Cell, CellStore, Score, Task, cell_key, is_evaluation, score_cell
from .evaluation_grid import DatasetSource, EvaluationRequest, cell_grid
from .evaluation_results import (
    WARNING,
    draw_evaluation,
    markdown_page,
    read_published,
    scenario_text,
    summarize_cells,
)
from .study_commands import progress

_LIBRARIES = ("labeldp", "numpy", "scipy", "scikit-learn", "keras", "tensorflow")
_POLL_SECONDS = 0.5


@functools.lru_cache(maxsize=1)
def _dataset(source: DatasetSource) -> Dataset:
    """Reads the dataset once per process, for all of its cells."""
    return read_dataset(
        source.pattern,
        source.format,
        source.label,
        source.features,
        source.where,
        source.center,
        source.recipient_features,
    )


@dataclass
class EvaluateCells(beam.PTransform):
    """Computes and stores cells: takes a PCollection of (key, Cell), gives the keys of stored cells.

    Each cell is one element after a Reshuffle, so that cells spread over all workers. Each worker process reads the
    records once.

    Attributes:
      source: The records.
      task: Facts that all cells share.
      store: Where finished cells go.
      digest: `Dataset.whole_digest` of the records that the keys are for; any other fails the job.
    """

    source: DatasetSource
    task: Task
    store: CellStore
    digest: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, cells: PCollection[tuple[str, Cell]]) -> PCollection[str]:
        return (
            cells
            | "Spread" >> beam.Reshuffle()
            | "Evaluate"
            >> beam.ParDo(_Evaluate(self.source, self.task, self.store, self.digest)).with_output_types(str)
        )


class _Evaluate(beam.DoFn):
    def __init__(self, source: DatasetSource, task: Task, store: CellStore, digest: str):
        self._source = source
        self._task = task
        self._store = store
        self._digest = digest

    @redact_errors("evaluating")
    def process(self, element: tuple[str, Cell]) -> Iterator[str]:
        key, cell = element
        dataset = _dataset(self._source)
        if dataset.whole_digest != self._digest:
            raise InputError("the records of --input changed while they were evaluated: run again")
        started = time.perf_counter()
        result = score_cell(cell, self._task, dataset)
        self._store.add(key, cell, result, time.perf_counter() - started)
        yield key


def run(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Computes the missing cells of the grid, writes the results and prints the table; returns the exit code."""
    log_to_stderr()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        request = parse_evaluation(args)
        with signals_as_interrupts():
            _evaluate(request, PipelineOptions(runner_flags))

    kept = "finished cells are kept: run again to continue"
    return run_command("labeldp evaluate", work, (InputError, OSError), kept, describe_failure)


def parse_evaluation(args: argparse.Namespace) -> EvaluationRequest:
    """Checks the flags. Raises UsageError, which names the flag."""
    _check_extras(args)
    # Several values of a flag are several cells.
    fields = Fields.of({name: value for name, value in vars(args).items() if not isinstance(value, list)})
    column = LabelColumn(args.label, tuple(label_domain(fields).tolist()))
    format = input_format(fields)
    for epsilon in args.epsilon:
        check_split(epsilon, args.prior_epsilon)
    try:
        loss_named(args.loss).check(column.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {args.seeds}")
    for flag in ("mechanism", "epsilon", "model", "feature", "recipient_feature", "center"):
        check_unique(flag, getattr(args, flag) or [])
    for flag in ("feature", "recipient_feature"):
        if args.label in (getattr(args, flag) or []):
            raise UsageError(f"--{flag} names the label {args.label!r}: leave it out")
    if args.center_column in (args.recipient_feature or []):
        raise UsageError(
            f"--recipient_feature names the center column {args.center_column!r}, which the log has: leave it out"
        )
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
        source=DatasetSource(
            absolute(args.input),
            format,
            args.label,
            features,
            where,
            args.center_column,
            tuple(args.recipient_feature or []),
        ),
        task=Task(args.label, column.domain, args.loss, args.rounding, args.prior_epsilon, args.delta),
        cells=tuple(cell_grid(args.mechanism, args.epsilon, args.seeds, args.model, centers)),
        store=CellStore(_output(args.output)),
        published=tuple(published),
        title=args.title or f"{args.label} of {os.path.basename(args.input)}",
    )


def _centers(args: argparse.Namespace, column: LabelColumn) -> list[str | None]:
    """Centers of the cells: None for labels without one, one of MADE_CENTERS, or the name of the center column."""
    found = [None if each == NO_CENTER else each for each in args.center]
    if args.center_column is not None:
        if args.center_column == args.label:
            raise UsageError(f"--center_column names the label {args.label!r}: a center must not be made of the labels")
        if args.center_column in MADE_CENTERS:
            raise UsageError(
                f"--center_column must not be named {args.center_column!r}, as --center is: rename the column"
            )
        found.append(args.center_column)
    if any(found):
        try:
            check_even(column.labels)
        except ValueError as error:
            flag = "--center_column" if args.center_column is not None else f"--center {next(filter(None, found))}"
            raise UsageError(f"{flag}: {error}") from None
    return found


def _check_extras(args: argparse.Namespace) -> None:
    check_extra("evaluate", "evaluation", "sklearn", "tqdm")
    if "network" in args.model:
        check_extra("--model network", "network", "tensorflow")


def _output(path: str) -> str:
    """Absolute path of the folder; it must be new, empty, or the output of an evaluation."""
    folder = absolute(path)
    if is_remote(folder):
        return folder
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"--output {path} exists and is not a folder: name another")
    if os.path.isdir(folder) and os.listdir(folder) and not is_evaluation(folder):
        raise UsageError(f"--output {path} is neither empty nor the output of an evaluation: name another folder")
    if not os.path.isdir(folder):
        check_target("output", folder)
    return folder


def _evaluate(request: EvaluationRequest, options: PipelineOptions) -> None:
    print("labeldp: reading the records, then evaluating: the first cell loads libraries", file=sys.stderr, flush=True)
    # Files may have changed since a previous run in this process.
    _dataset.cache_clear()
    dataset = _dataset(request.source)
    made_with = _versions()
    keys = {cell: cell_key(cell, request.task, dataset, made_with) for cell in request.cells}
    missing = set(keys.values()) - request.store.finished(keys.values())
    todo = [(key, cell) for cell, key in keys.items() if key in missing]
    if len(todo) < len(keys):
        print(f"labeldp: {len(keys) - len(todo)} of {len(keys)} cells were computed before", file=sys.stderr)
    if todo:
        stage = EvaluateCells(request.source, request.task, request.store, dataset.whole_digest)
        pipeline = make_pipeline(options)
        _ = pipeline | "Cells" >> beam.Create(todo) | "EvaluateCells" >> stage
        with beam_of_a_job():
            for _ in progress(_done(pipeline, request.store, [key for key, _ in todo]), len(todo), "evaluated"):
                pass
    scores = {cell: request.store.score(key) for cell, key in keys.items()}
    _write(request, scores, dataset, made_with)


def _versions() -> dict[str, str]:
    """Versions of the installed libraries that compute the scores."""
    found = versions()
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return {name: found[name] for name in _LIBRARIES if name in found}


def _done(pipeline: beam.Pipeline, store: CellStore, keys: Sequence[str]) -> Iterator[str]:
    """Runs the pipeline in another thread; gives each key when its cell is stored; raises the error of the job."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            pipeline.run().wait_until_finish()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    seen: set[str] = set()
    while True:
        # Checked before the store, so that the cells of a finished thread are all seen.
        alive = thread.is_alive()
        new = store.finished(keys) - seen
        seen |= new
        yield from new
        if not alive:
            break
        thread.join(_POLL_SECONDS)
    if failed:
        error = failed[0]
        text = f"InputError: {error}" if isinstance(error, InputError) else str(error)
        found = re.search(r"\bInputError: (.*?)(?: \[while running |\n|$)", text)
        if found:
            raise InputError(found[1]) from None
        raise error


def _write(request: EvaluationRequest, scores: dict[Cell, Score], dataset: Dataset, made_with: dict[str, str]) -> None:
    summaries, recipients = summarize_cells(scores), request.source.recipient_features
    rows = [{**each.row(), "recipient_features": " ".join(recipients) or None} for each in summaries]
    models = list(dict.fromkeys(cell.model for cell in request.cells if cell.private))
    facts: dict[str, Any] = {
        "warning": WARNING,
        "title": request.title,
        "label": request.task.label,
        "domain": {"min": request.task.domain[0], "max": request.task.domain[-1], "labels": len(request.task.domain)},
        "loss": request.task.loss,
        "records": len(dataset.labels),
        "features": dataset.features.shape[1],
        "recipient_features": list(recipients),
        "versions": made_with,
    }
    text = "\n".join(_text(rows, request))
    request.store.write("results.csv", csv_text(rows))
    request.store.write("results.json", json_text(rows, **facts))
    page = markdown_page(request.title, summaries, request.task.loss, request.published, recipients)
    request.store.write("results.md", page)
    request.store.write("results.txt", text + "\n")
    for model in models:
        title = f"{request.title}, {model}"
        picture = draw_evaluation(summaries, model, request.task.loss, title, request.published)
        request.store.write(f"results-{model}.svg", picture)
    print(text)
    print(f"\nresults    {one_line(str(request.store.folder))}")


def _text(rows: Sequence[Any], request: EvaluationRequest) -> list[str]:
    # Columns that no row has: reasons, and what is only known of labels around a center.
    hidden = {name for name in rows[0] if all(row[name] is None for row in rows)} | {"recipient_features"}
    columns = [name for name in rows[0] if name not in hidden]
    ordered = sorted(rows, key=lambda row: (row["model"], row["epsilon"] is not None, row["epsilon"] or 0.0))
    recipients = request.source.recipient_features
    scenario = [scenario_text(recipients), ""] if recipients else []
    return [request.title, "", *scenario, *table_lines(ordered, columns), "", WARNING]
