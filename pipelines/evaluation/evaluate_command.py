"""`labeldp evaluate`: how well models do that are trained on privatized labels, over a grid that runs on Beam.

For research, on data that one may look at: the scores are measured on true labels, and are not private.
"""

from __future__ import annotations

import functools
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

from ...transforms.errors import InputError, redact_errors
from ..cli.arguments import log_to_stderr
from ..cli.exit_codes import run_command
from ..cli.progress_bar import progress
from ..cli.signals import signals_as_interrupts
from ..job.privatize_command import failure
from ..job.run_pipeline import make_pipeline
from ..job.runner_options import parse_known
from ..release.manifest import versions
from ..study.tables import csv_text, json_text, table_lines
from .dataset import Dataset, read_dataset
from .evaluation_cell import Cell, Score, Task, cell_key, score
from .evaluation_figure import draw_evaluation
from .evaluation_grid import Plan, Source, make_parser, make_plan
from .evaluation_store import Store
from .evaluation_table import WARNING, markdown, summarize_cells

_LIBRARIES = ("labeldp", "numpy", "scipy", "highspy", "scikit-learn", "keras", "tensorflow")


_LOOK_SECONDS = 0.5


@functools.lru_cache(maxsize=1)
def _dataset(source: Source) -> Dataset:
    """Read once per process, however many cells it computes."""
    return read_dataset(source.pattern, source.format, source.label, source.features, source.where)


@dataclass
class EvaluateCells(beam.PTransform):
    """Takes a PCollection of (key, Cell); gives the keys as the cells are done, each kept in the store first.

    Every cell is an element of its own, after a Reshuffle: cells spread over all workers, and each worker reads the
    records once. digest: of the records that the keys are for; others fail the job.
    """

    source: Source
    task: Task
    store: Store
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
    def __init__(self, source: Source, task: Task, store: Store, digest: str):
        self._source = source
        self._task = task
        self._store = store
        self._digest = digest

    @redact_errors("evaluating")
    def process(self, element: tuple[str, Cell]) -> Iterator[str]:
        key, cell = element
        dataset = _dataset(self._source)
        if dataset.digest != self._digest:
            raise InputError("the records of --input changed while they were evaluated: run again")
        started = time.perf_counter()
        found = score(cell, self._task, dataset)
        self._store.add(key, cell, found, time.perf_counter() - started)
        yield key


def run(argv: Sequence[str] | None = None) -> int:
    """Evaluates the missing cells of the grid, writes the results and prints the table. Returns the exit code."""
    log_to_stderr()
    parser = make_parser()

    def work() -> None:
        args, others = parse_known(parser, argv)
        plan = make_plan(args)
        with signals_as_interrupts():
            _evaluate(plan, PipelineOptions(others))

    kept = "finished cells are kept: run again to go on"
    return run_command(parser.prog, work, (InputError, OSError), kept, failure)


def _evaluate(plan: Plan, options: PipelineOptions) -> None:
    # Files may have changed since another run in this process.
    _dataset.cache_clear()
    dataset = _dataset(plan.source)
    made_with = _versions()
    keys = {cell: cell_key(cell, plan.task, dataset, made_with) for cell in plan.cells}
    missing = set(keys.values()) - plan.store.finished(keys.values())
    todo = [(key, cell) for cell, key in keys.items() if key in missing]
    if len(todo) < len(keys):
        print(f"labeldp: {len(keys) - len(todo)} of {len(keys)} cells are there already", file=sys.stderr)
    if todo:
        stage = EvaluateCells(plan.source, plan.task, plan.store, dataset.digest)
        pipeline = make_pipeline(options)
        _ = pipeline | "Cells" >> beam.Create(todo) | "EvaluateCells" >> stage
        for _ in progress(_done(pipeline, plan.store, [key for key, _ in todo]), len(todo), "evaluated"):
            pass
    scores = {cell: plan.store.score(key) for cell, key in keys.items()}
    _write(plan, scores, dataset, made_with)


def _versions() -> dict[str, str]:
    """Of what computes the scores, as far as it is installed."""
    found = versions()
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return {name: found[name] for name in _LIBRARIES if name in found}


def _done(pipeline: beam.Pipeline, store: Store, keys: Sequence[str]) -> Iterator[str]:
    """Runs the pipeline in another thread, and gives each key when its cell is kept. Raises what the job raised."""
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
        # First, so that what was kept before the thread ended is seen.
        alive = thread.is_alive()
        new = store.finished(keys) - seen
        seen |= new
        yield from new
        if not alive:
            break
        thread.join(_LOOK_SECONDS)
    if failed:
        error = failed[0]
        text = f"InputError: {error}" if isinstance(error, InputError) else str(error)
        found = re.search(r"\bInputError: (.*?)(?: \[while running |\n|$)", text)
        if found:
            raise InputError(found[1]) from None
        raise error


def _write(plan: Plan, scores: dict[Cell, Score], dataset: Dataset, made_with: dict[str, str]) -> None:
    summaries = summarize_cells(scores)
    rows = [each.row() for each in summaries]
    models = list(dict.fromkeys(cell.model for cell in plan.cells if cell.private))
    facts: dict[str, Any] = {
        "warning": WARNING,
        "title": plan.title,
        "label": plan.task.label,
        "domain": {"min": plan.task.domain[0], "max": plan.task.domain[-1], "labels": len(plan.task.domain)},
        "loss": plan.task.loss,
        "records": len(dataset.labels),
        "features": dataset.features.shape[1],
        "versions": made_with,
    }
    text = "\n".join(_text(rows, plan))
    plan.store.put("results.csv", csv_text(rows))
    plan.store.put("results.json", json_text(rows, **facts))
    plan.store.put("results.md", markdown(plan.title, summaries, plan.task.loss, plan.published))
    plan.store.put("results.txt", text + "\n")
    for model in models:
        title = f"{plan.title}, {model}"
        picture = draw_evaluation(summaries, model, plan.task.loss, title, plan.published)
        plan.store.put(f"results-{model}.png", picture)
    print(text)
    print(f"\nresults    {plan.store.folder}")


def _text(rows: Sequence[Any], plan: Plan) -> list[str]:
    hidden = {"reason"} if all(row["reason"] is None for row in rows) else set()
    columns = [name for name in rows[0] if name not in hidden]
    ordered = sorted(rows, key=lambda row: (row["model"], row["epsilon"] is not None, row["epsilon"] or 0.0))
    return [plan.title, "", *table_lines(ordered, columns), "", WARNING]
