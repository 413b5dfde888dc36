"""One cell of an evaluation: labels privatized as the product does it, a model trained on them, its test loss."""

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
"""Stands for a mechanism: the true labels, without privacy."""


MEAN = "mean_predictor"
"""Stands for a mechanism, and its model: the mean of the true training labels for every record."""


@dataclass(frozen=True)
class Cell:
    """mechanism: as on the command line, CLEAN or MEAN. epsilon: the whole budget; None without privacy. seed: of the
    split, the noise and the model."""

    mechanism: str
    epsilon: float | None
    seed: int
    model: str

    @property
    def private(self) -> bool:
        """Whether labels are privatized."""
        return self.epsilon is not None


@dataclass(frozen=True)
class Task:
    """What all cells of an evaluation share, besides the records.

    label: the column's name. domain: (k,) ascending labels. rounding: None for each mechanism's own. loss: by name;
    what models are scored by, and what mechanisms that know it minimise. prior_epsilon, delta: as for `privatize`.
    """

    label: str
    domain: tuple[float, ...]
    loss: str = "squared"
    rounding: str | None = None
    prior_epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Score:
    """What became of a cell; None for what does not apply.

    test_loss: the mean loss on true test labels. mechanism_error: the mean squared distance of privatized to true
    training labels. bias: the mean of privatized minus true training labels. rms_bias: the root mean square, over the
    training labels, of the randomizer's exact bias. reason: why there is no score.
    """

    test_loss: float | None = None
    mechanism_error: float | None = None
    bias: float | None = None
    rms_bias: float | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Privatized:
    """Training labels as a release would give them: (n,) outputs, the noised prior, what it spent, the randomizer."""

    outputs: np.ndarray
    prior: Prior
    prior_epsilon: float
    randomizer: Randomizer


def cell_key(cell: Cell, task: Task, dataset: Dataset, versions: Mapping[str, str]) -> str:
    """Names all that determines a cell's score: the same key, the same score."""
    facts = [asdict(cell), asdict(task), dataset.digest, dict(versions)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def score(cell: Cell, task: Task, dataset: Dataset) -> Score:
    """Computes a cell. A mechanism that refuses the prior or the epsilon makes a score with a reason."""
    train, test = dataset.split(cell.seed)
    # As the product clamps them.
    truth = np.clip(dataset.labels, task.domain[0], task.domain[-1])
    if cell.mechanism == MEAN:
        return Score(_test_loss(np.full(len(test), truth[train].mean()), truth[test], task))
    outcome = Score()
    if cell.private:
        try:
            privatized = privatize(_batch(dataset.labels[train], task), cell, task)
        except (ValueError, ArithmeticError, MemoryError) as error:
            # Solvers see released facts only, so what they say may be shown.
            return Score(reason=str(error) or type(error).__name__)
        labels = _known(privatized, len(train))
        outcome = _errors(privatized, truth[train])
    else:
        values = truth[train]
        labels = TrainingLabels(values, float(values.mean()), float(values.var()), 0.0, 0.0)
    predictions = MODELS[cell.model](dataset.features[train], labels, dataset.features[test], cell.seed)
    return Score(**{**asdict(outcome), "test_loss": _test_loss(predictions, truth[test], task)})


def privatize(batch: LabelledBatch, cell: Cell, task: Task) -> Privatized:
    """The labels of one batch as `labeldp privatize` releases them, under a secret that the seed makes.

    Anyone can make that secret: a release needs another. Raises ValueError when the mechanism refuses.
    """
    assert cell.epsilon is not None
    named = parse_mechanism_spec(cell.mechanism, task.loss, task.delta)
    column = LabelColumn(task.label, task.domain, rounding=task.rounding or default_rounding(named.name))
    secret = seed_secret(cell.seed)
    summary = summarize(batch, column, secret)
    epsilons = split_budget(cell.epsilon, len(task.domain), summary.records, task.prior_epsilon)
    binding = NoiseBinding(
        input_digest(secret, summary.sums),
        column.name,
        column.domain,
        epsilons,
        summary.records,
        summary.unusable,
        column.rounding,
    )
    noise_key = binding.noise_key(secret)
    prior = noisy_prior(column.labels, summary.counts, epsilons[0], noise_key)
    randomizer = named.mechanism(task.loss).solve(prior, epsilons[1])
    values = batch.batch.column(0).to_numpy()
    identities = record_identities(batch, None)
    released = privatize_batch(batch, values, identities, column, randomizer, noise_key, secret)
    return Privatized(released.batch.column(0).to_numpy(), prior, epsilons[0], randomizer)


def seed_secret(seed: int) -> bytes:
    """32 bytes that anyone can make: for evaluations, never for a release."""
    return hashlib.blake2b(f"labeldp evaluate, seed {seed}".encode(), digest_size=32).digest()


def _batch(labels: np.ndarray, task: Task) -> LabelledBatch:
    return LabelledBatch.whole("training records", 0, pa.RecordBatch.from_arrays([pa.array(labels)], [task.label]))


def _known(privatized: Privatized, records: int) -> TrainingLabels:
    """What a model may know: privatized labels, and facts of the release."""
    prior = privatized.prior
    facts = utility(privatized.randomizer, prior)
    mean = float(prior.weights @ prior.labels)
    of_mean = mean_variance(prior, records, privatized.prior_epsilon)
    return TrainingLabels(privatized.outputs, mean, facts.variance, of_mean, facts.noise)


def _errors(privatized: Privatized, truth: np.ndarray) -> Score:
    distances = privatized.outputs - truth
    labels, bias = privatized.randomizer.labels, privatized.randomizer.bias()
    at_truth = np.interp(truth, labels, bias)
    return Score(
        mechanism_error=float((distances**2).mean()),
        bias=float(distances.mean()),
        rms_bias=float(np.sqrt((at_truth**2).mean())),
    )


def _test_loss(predictions: np.ndarray, truth: np.ndarray, task: Task) -> float:
    """Predictions are brought into the public domain first, and above 0 for a loss that needs it."""
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
