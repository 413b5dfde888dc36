"""Evaluation of a dataset: its source, what is evaluated, and the grid of its cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..transforms.io.input_format import Equals, Format
from .evaluation_cell import CLEAN, MEAN_PREDICTOR, Cell, CellStore, Task
from .evaluation_results import PublishedResult


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
      recipient_features: Names of the columns to train on that the log lacks: centers are made without them.
    """

    pattern: str
    format: Format
    label: str
    features: tuple[str, ...] | None
    where: Equals | None
    center: str | None = None
    recipient_features: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # The format holds a dictionary and cannot be hashed.
        return hash((self.pattern, self.label, self.features, self.center, self.recipient_features))


@dataclass(frozen=True)
class EvaluationRequest:
    """Evaluation as requested by the flags, checked as far as possible without reading records."""

    source: DatasetSource
    task: Task
    cells: tuple[Cell, ...]
    store: CellStore
    published: tuple[PublishedResult, ...]
    title: str


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
