"""One cell of an evaluation: privatizes labels as `labeldp privatize` does, trains a model, measures its test loss."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..mechanisms.analysis.utility import utility
from ..mechanisms.center.linear_center import LinearCenter
from ..mechanisms.core.label_grid import working_grid
from ..mechanisms.core.losses import loss_named
from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.noise.noisy_histogram import mean_variance
from ..mechanisms.registry import AUTO, default_rounding
from ..mechanisms.release.conclude import drawing_for, solved
from ..mechanisms.release.feature_sample import NO_SAMPLE, CenterFeatures, sample_words, smallest
from ..mechanisms.release.label_column import LabelColumn, LabelMeaning
from ..mechanisms.release.plan import Histogram, passes_of, run_passes
from ..pipelines.spec.machine import one_thread_for_fits
from ..pipelines.spec.mechanism_spec import parse_mechanism_spec
from ..transforms.batches import LabelledBatch
from ..transforms.usable_records import usable_records
from .dataset import Dataset, select_records
from .models import MODELS, TrainingLabels

CLEAN = "clean"
"""In place of a mechanism: true labels, without privacy."""
MEAN_PREDICTOR = "mean_predictor"
"""In place of a mechanism and of its model: the mean of the true training labels for every record."""
LINEAR_CENTER, CELL_CENTER = "linear", "cells"
MADE_CENTERS = (LINEAR_CENTER, CELL_CENTER)
"""Centers that a release makes of features; any other one is the name of a column."""


@dataclass(frozen=True)
class Cell:
    """One mechanism at one epsilon, one seed and one model.

    Attributes:
      mechanism: Mechanism as on the command line, CLEAN or MEAN_PREDICTOR.
      epsilon: The whole budget; None without privacy.
      seed: Seed of the split, the noise and the model.
      model: Name in `MODELS`, or MEAN_PREDICTOR.
      center: One of MADE_CENTERS, or the name of the center column; None for labels without a center.
    """

    mechanism: str
    epsilon: float | None
    seed: int
    model: str
    center: str | None = None

    @property
    def private(self) -> bool:
        """True if labels are privatized."""
        return self.epsilon is not None

    @property
    def name(self) -> str:
        """Name of mechanism and center in tables and pictures."""
        return self.mechanism if self.center is None else f"{self.mechanism} around {self.center}"


@dataclass(frozen=True)
class Task:
    """Facts that all cells of an evaluation share, besides the records.

    Attributes:
      label: Name of the label column.
      domain: Public label domain, k ascending labels.
      loss: Name of the loss that scores models and that mechanisms with a loss minimize.
      rounding: Rounding of labels to the domain; None for the default of each mechanism.
      prior_epsilon: Epsilon of the histogram, as for `privatize`.
      delta: Delta of the budget, as for `privatize`.
    """

    label: str
    domain: tuple[float, ...]
    loss: str = "squared"
    rounding: str | None = None
    prior_epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Score:
    """Result of one cell; None for a value that does not apply.

    Attributes:
      test_loss: Mean loss on true test labels.
      mechanism_error: Mean squared distance of privatized from true training labels.
      bias: Mean of privatized minus true training labels.
      rms_bias: Root mean square of the exact bias over the training labels: that of the randomizer, and with a center
        that of clipping.
      reason: Message of the solver where the mechanism could not be solved.
      center_loss: Mean loss of the center alone on true test labels.
      center_epsilon: Budget that the center has spent; 0 for a center column.
      range: Length of the range that residuals are clipped to, divided by that of the label range.
      clipped: Share of the training records whose residual is outside that range.
    """

    test_loss: float | None = None
    mechanism_error: float | None = None
    bias: float | None = None
    rms_bias: float | None = None
    reason: str | None = None
    center_loss: float | None = None
    center_epsilon: float | None = None
    range: float | None = None
    clipped: float | None = None


@dataclass(frozen=True, eq=False)
class ReleasedLabels:
    """Training labels as a release would give them, with its public facts.

    Attributes:
      outputs: Privatized labels, shape (n,), float64.
      prior: The noised prior over the labels of the randomizer.
      prior_epsilon: Epsilon of the prior.
      randomizer: The randomizer solved for the prior; with a center, its labels are residuals.
      centers: Centers on the label grid, shape (n,), float64, to which the randomizer's outputs were added; None for
        labels without a center.
    """

    outputs: np.ndarray
    prior: Prior
    prior_epsilon: float
    randomizer: Randomizer
    centers: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Center:
    """Public center of the records of a dataset.

    Attributes:
      column: The center column of the release, shape (n,), float64.
      offset: The same for models: within the domain, never missing, and not rounded to the label grid.
      made: The center, if it was made of features.
    """

    column: np.ndarray
    offset: np.ndarray
    made: LinearCenter | None = None

    @property
    def epsilon(self) -> float:
        """Budget that it has cost."""
        return 0.0 if self.made is None else self.made.epsilon

    def part(self, records: np.ndarray) -> Center:
        """Center of the records with these indices."""
        return Center(self.column[records], self.offset[records], self.made)


@one_thread_for_fits()
def score_cell(cell: Cell, task: Task, dataset: Dataset) -> Score:
    """Computes one cell; the score has a reason instead of values where the mechanism could not be solved."""
    train, test = dataset.split(cell.seed)
    # A release clamps labels in the same way.
    truth = np.clip(dataset.labels, task.domain[0], task.domain[-1])
    if cell.mechanism == MEAN_PREDICTOR:
        return Score(_test_loss(np.full(len(test), truth[train].mean()), truth[test], task))
    facts: dict[str, Any] = {}
    features, offset = dataset.features, np.zeros(len(test))
    if cell.private:
        try:
            center = find_center(cell, task, dataset)
            training = None if center is None else center.part(train)
            released = privatize_labels(_batch(dataset.labels[train], task), cell, task, training)
        except (ValueError, ArithmeticError, MemoryError) as error:
            # Solvers see released facts only, so their messages may be shown.
            return Score(reason=str(error) or type(error).__name__)
        labels = _training_labels(released, training)
        facts |= _errors(released, truth[train])
        if center is not None:
            # A release has it as a column. With it, models may find what features say without the center.
            features, offset = np.column_stack([features, center.offset]), center.offset[test]
            facts |= {"center_loss": _test_loss(offset, truth[test], task), "center_epsilon": center.epsilon}
            facts |= _clipping(released, truth[train], task)
    else:
        values = truth[train]
        labels = TrainingLabels(values, float(values.mean()), float(values.var()), 0.0, 0.0)
    predictions = offset + MODELS[cell.model](features[train], labels, features[test], cell.seed)
    return Score(_test_loss(predictions, truth[test], task), **facts)


def find_center(cell: Cell, task: Task, dataset: Dataset) -> Center | None:
    """Center of all records: that of the center column, or one of features, made from the training records.

    None for labels without one. The cell's epsilon is not None. Raises ValueError if the budget is out of range.
    """
    if cell.center is None:
        return None
    assert cell.epsilon is not None
    column = _column(cell, task)
    domain = column.labels
    if cell.center not in MADE_CENTERS:
        assert dataset.center is not None
        # As in a release, where a missing center is the label in the middle.
        middle = domain[(len(domain) - 1) // 2]
        offset = np.where(np.isfinite(dataset.center), np.clip(dataset.center, domain[0], domain[-1]), middle)
        return Center(dataset.center, offset)
    train, _ = dataset.split(cell.seed)
    batch, columns = _batch(dataset.labels[train], task), select_records(dataset.columns, train)
    secret = seed_secret(cell.seed)
    records = usable_records(batch, column, centered=False).labels
    drawn = sample_words(secret, records.identities)
    names = CenterFeatures(tuple(columns), cells=cell.center == CELL_CENTER)
    sample = smallest(drawn, columns, len(drawn), names.most)
    passes = [step for step in passes_of(column, _histogram(cell, task), names) if not step.binds]
    made = run_passes(passes, sample, column, secret, lambda *_: iter([(records, columns)]))
    offset = np.interp(made.positions(dataset.columns), np.arange(len(domain)), domain)
    return Center(domain[made.indices(dataset.columns)], offset, made)


def _column(cell: Cell, task: Task) -> LabelColumn:
    spec = parse_mechanism_spec(cell.mechanism, task.loss, task.delta, auto=True)
    center = None if cell.center is None else f"center of {task.label}"
    assert cell.epsilon is not None
    labels, declared = working_grid(np.array(task.domain), cell.epsilon)
    rounding = task.rounding or default_rounding(spec.name, declared is not None)
    meaning = LabelMeaning(declared=declared)
    return LabelColumn(task.label, tuple(labels.tolist()), rounding=rounding, center=center, meaning=meaning)


def privatize_labels(batch: LabelledBatch, cell: Cell, task: Task, center: Center | None = None) -> ReleasedLabels:
    """Privatizes the labels of one batch exactly as `labeldp privatize` does, under a key derived from the seed.

    Anyone can derive that key: it must never protect a release.

    The batch has one column of labels; the cell's epsilon is not None. Raises UsageError if the mechanism is unknown,
    and ValueError if it cannot be solved for the prior and the epsilon.
    """
    assert cell.epsilon is not None
    spec = parse_mechanism_spec(cell.mechanism, task.loss, task.delta, auto=True)
    column = _column(cell, task)
    secret = seed_secret(cell.seed)
    if center is not None:
        assert column.center is not None
        both = [batch.batch.column(0), pa.array(center.column)]
        batch = dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays(both, [column.name, column.center]))
    records = usable_records(batch, column).labels
    made = None if center is None else center.made
    release = run_passes([_histogram(cell, task)], NO_SAMPLE, column, secret, lambda *_: iter([(records, {})]), made)
    randomizer = solved(release, None if spec.name == AUTO else spec.mechanism(task.loss))
    drawing = drawing_for(release, randomizer)
    outputs = drawing.draw(records, release.noise_key(secret), secret)
    on_grid = None if records.centers is None else column.labels[records.centers]
    return ReleasedLabels(outputs, drawing.prior, release.budget.prior, randomizer, on_grid)


def _histogram(cell: Cell, task: Task) -> Histogram:
    assert cell.epsilon is not None
    spec = parse_mechanism_spec(cell.mechanism, task.loss, task.delta, auto=True)
    return Histogram(cell.epsilon, task.prior_epsilon, spec.name)


def seed_secret(seed: int) -> bytes:
    """Derives the 32-byte key of an evaluation, in place of a secret key, from its seed.

    It must never protect a release.
    """
    return hashlib.blake2b(f"labeldp evaluate, seed {seed}".encode(), digest_size=32).digest()


def _batch(labels: np.ndarray, task: Task) -> LabelledBatch:
    return LabelledBatch.whole("training records", 0, pa.RecordBatch.from_arrays([pa.array(labels)], [task.label]))


def _training_labels(released: ReleasedLabels, center: Center | None) -> TrainingLabels:
    """Labels and facts that a model may use: all of them are released. With a center, labels are residuals."""
    prior = released.prior
    facts = utility(released.randomizer, prior)
    mean = float(prior.weights @ prior.labels)
    of_mean = mean_variance(prior, len(released.outputs), released.prior_epsilon)
    # The center as it is, not rounded to the grid: released labels are unbiased around any center, up to clipping.
    values = released.outputs if center is None else released.outputs - center.offset
    return TrainingLabels(values, mean, facts.variance, of_mean, facts.noise, residuals=center is not None)


def _errors(released: ReleasedLabels, truth: np.ndarray) -> dict[str, float]:
    distances = released.outputs - truth
    labels, bias = released.randomizer.labels, released.randomizer.bias()
    private = truth if released.centers is None else truth - released.centers
    at_truth = np.clip(private, labels[0], labels[-1]) - private + np.interp(private, labels, bias)
    return {
        "mechanism_error": float((distances**2).mean()),
        "bias": float(distances.mean()),
        "rms_bias": float(np.sqrt((at_truth**2).mean())),
    }


def _clipping(released: ReleasedLabels, truth: np.ndarray, task: Task) -> dict[str, float]:
    """Range of the residuals, relative to that of the labels, and the share of the true ones outside."""
    low, high = released.randomizer.labels[[0, -1]]
    residuals = truth - released.centers
    return {
        "range": float((high - low) / (task.domain[-1] - task.domain[0])),
        "clipped": float(((residuals < low) | (residuals > high)).mean()),
    }


def _test_loss(predictions: np.ndarray, truth: np.ndarray, task: Task) -> float:
    """Mean loss of predictions clipped to the public domain, and to values above 0 for a loss that needs them."""
    domain = np.array(task.domain)
    loss = loss_named(task.loss)
    least = domain[0]
    if loss.nonnegative and least <= 0:
        positive = domain[domain > 0]
        least = positive[0] / 2 if len(positive) else 0.0
    value = float(loss.value(np.clip(predictions, least, domain[-1]), truth).mean())
    if not math.isfinite(value):
        raise ValueError(f"the {task.loss} loss of the test labels is not finite")
    return value
