"""One cell of an evaluation: privatizes labels as `labeldp privatize` does, trains a model, measures its test loss."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.utility import utility
from ...mechanisms.core.budget import split_budget
from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.input_digest import input_digest
from ...mechanisms.noise.noisy_histogram import mean_variance, noisy_prior
from ...mechanisms.registry import default_rounding
from ...transforms.batches import LabelledBatch, record_identities
from ...transforms.label_column import LabelColumn
from ...transforms.label_summary import summarize
from ...transforms.noise_binding import NoiseBinding
from ...transforms.privatize_labels import privatize_batch
from ..study.mechanism_spec import parse_mechanism_spec
from .dataset import Dataset
from .models import MODELS, TrainingLabels

CLEAN = "clean"
"""In place of a mechanism: true labels, without privacy."""
MEAN_PREDICTOR = "mean_predictor"
"""In place of a mechanism and of its model: the mean of the true training labels for every record."""


@dataclass(frozen=True)
class Cell:
    """One mechanism at one epsilon, one seed and one model.

    Attributes:
      mechanism: Mechanism as on the command line, CLEAN or MEAN_PREDICTOR.
      epsilon: The whole budget; None without privacy.
      seed: Seed of the split, the noise and the model.
      model: Name in `MODELS`, or MEAN_PREDICTOR.
    """

    mechanism: str
    epsilon: float | None
    seed: int
    model: str

    @property
    def private(self) -> bool:
        """True if labels are privatized."""
        return self.epsilon is not None


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
      rms_bias: Root mean square of the randomizer's exact bias over the training labels.
      reason: Message of the solver where the mechanism could not be solved.
    """

    test_loss: float | None = None
    mechanism_error: float | None = None
    bias: float | None = None
    rms_bias: float | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class ReleasedLabels:
    """Training labels as a release would give them, with its public facts.

    Attributes:
      outputs: Privatized labels, shape (n,), float64.
      prior: The noised prior.
      prior_epsilon: Epsilon of the prior.
      randomizer: The randomizer solved for the prior.
    """

    outputs: np.ndarray
    prior: Prior
    prior_epsilon: float
    randomizer: Randomizer


def cell_key(cell: Cell, task: Task, dataset: Dataset, versions: Mapping[str, str]) -> str:
    """Hashes everything that determines the score of a cell: equal keys have equal scores.

    Args:
      cell: The cell.
      task: Facts that all cells share.
      dataset: The records.
      versions: Versions of the libraries that compute the score.

    Returns:
      32 hexadecimal digits.
    """
    facts = [asdict(cell), asdict(task), dataset.digest, dict(versions)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def score_cell(cell: Cell, task: Task, dataset: Dataset) -> Score:
    """Computes one cell.

    Args:
      cell: The cell.
      task: Facts that all cells share.
      dataset: The records.

    Returns:
      The score; it has a reason instead of values where the mechanism could not be solved.
    """
    train, test = dataset.split(cell.seed)
    # A release clamps labels in the same way.
    truth = np.clip(dataset.labels, task.domain[0], task.domain[-1])
    if cell.mechanism == MEAN_PREDICTOR:
        return Score(_test_loss(np.full(len(test), truth[train].mean()), truth[test], task))
    errors = Score()
    if cell.private:
        try:
            released = privatize_labels(_batch(dataset.labels[train], task), cell, task)
        except (ValueError, ArithmeticError, MemoryError) as error:
            # Solvers see released facts only, so their messages may be shown.
            return Score(reason=str(error) or type(error).__name__)
        labels = _training_labels(released, len(train))
        errors = _errors(released, truth[train])
    else:
        values = truth[train]
        labels = TrainingLabels(values, float(values.mean()), float(values.var()), 0.0, 0.0)
    predictions = MODELS[cell.model](dataset.features[train], labels, dataset.features[test], cell.seed)
    return Score(**{**asdict(errors), "test_loss": _test_loss(predictions, truth[test], task)})


def privatize_labels(batch: LabelledBatch, cell: Cell, task: Task) -> ReleasedLabels:
    """Privatizes the labels of one batch exactly as `labeldp privatize` does, under a key derived from the seed.

    Anyone can derive that key: it must never protect a release.

    Args:
      batch: One column of labels.
      cell: The cell; its epsilon is not None.
      task: Facts that all cells share.

    Returns:
      The privatized labels and the facts of the release.

    Raises:
      UsageError: If the mechanism is unknown.
      ValueError: If the mechanism cannot be solved for the prior and the epsilon.
    """
    assert cell.epsilon is not None
    spec = parse_mechanism_spec(cell.mechanism, task.loss, task.delta)
    column = LabelColumn(task.label, task.domain, rounding=task.rounding or default_rounding(spec.name))
    secret = seed_secret(cell.seed)
    summary = summarize(batch, column, secret)
    budget = split_budget(cell.epsilon, len(task.domain), summary.records, task.prior_epsilon)
    binding = NoiseBinding(
        input_digest(secret, summary.sums),
        column.name,
        column.domain,
        budget,
        summary.records,
        summary.unusable,
        column.rounding,
    )
    noise_key = binding.noise_key(secret)
    prior = noisy_prior(column.labels, summary.counts, budget.prior, noise_key)
    randomizer = spec.mechanism(task.loss).solve(prior, budget.labels)
    values = batch.batch.column(0).to_numpy()
    identities = record_identities(batch, None)
    privatized = privatize_batch(batch, values, identities, column, randomizer, noise_key, secret)
    return ReleasedLabels(privatized.batch.column(0).to_numpy(), prior, budget.prior, randomizer)


def seed_secret(seed: int) -> bytes:
    """Derives the key of an evaluation, in place of a secret key, from its seed. It must never protect a release.

    Args:
      seed: The seed of a cell.

    Returns:
      32 bytes.
    """
    return hashlib.blake2b(f"labeldp evaluate, seed {seed}".encode(), digest_size=32).digest()


def _batch(labels: np.ndarray, task: Task) -> LabelledBatch:
    return LabelledBatch.whole("training records", 0, pa.RecordBatch.from_arrays([pa.array(labels)], [task.label]))


def _training_labels(released: ReleasedLabels, records: int) -> TrainingLabels:
    """Labels and facts that a model may use: all of them are released."""
    prior = released.prior
    facts = utility(released.randomizer, prior)
    mean = float(prior.weights @ prior.labels)
    of_mean = mean_variance(prior, records, released.prior_epsilon)
    return TrainingLabels(released.outputs, mean, facts.variance, of_mean, facts.noise)


def _errors(released: ReleasedLabels, truth: np.ndarray) -> Score:
    distances = released.outputs - truth
    labels, bias = released.randomizer.labels, released.randomizer.bias()
    at_truth = np.interp(truth, labels, bias)
    return Score(
        mechanism_error=float((distances**2).mean()),
        bias=float(distances.mean()),
        rms_bias=float(np.sqrt((at_truth**2).mean())),
    )


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
