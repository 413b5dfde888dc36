"""One cell of an evaluation: privatizes labels as `labeldp privatize` does, trains a model, measures its test loss."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from labeldp import LabelClasses, loss_named

from ..mechanisms.analysis.utility import utility
from ..mechanisms.noise.noisy_histogram import mean_variance
from ..mechanisms.registry import AUTO
from ..mechanisms.release.drawing import DRAWN_BY_CENTER
from ..pipelines.api.array_release import ArrayRelease, label_around, release_arrays
from ..pipelines.spec.fields import CELL_CENTER, LINEAR_CENTER, MARGINAL_CENTER, MODELS_OF_LOG, NO_CENTER, Fields
from ..pipelines.spec.label import Label
from ..pipelines.spec.machine import one_thread_for_fits
from ..pipelines.spec.mechanism_spec import takes_delta
from .dataset import Dataset
from .models import MODELS, TrainingLabels

CLEAN = "clean"
"""In place of a mechanism: true labels, without privacy."""
MEAN_PREDICTOR = "mean_predictor"
"""In place of a mechanism and of its model: the mean of the true training labels, or their most frequent class."""
MADE_CENTERS = (LINEAR_CENTER, CELL_CENTER, MARGINAL_CENTER, MODELS_OF_LOG)
"""Centers that a release makes of features, the last one as `--for` does; any other one is the name of a column."""


@dataclass(frozen=True)
class Cell:
    """One mechanism at one epsilon, one seed and one model.

    Attributes:
      mechanism: Mechanism as on the command line, CLEAN or MEAN_PREDICTOR; DRAWN_BY_CENTER for classes with a center.
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
        drawn = self.center is None or self.mechanism == DRAWN_BY_CENTER
        return self.mechanism if drawn else f"{self.mechanism} around {self.center}"


@dataclass(frozen=True)
class Task:
    """Facts that all cells of an evaluation share, besides the records.

    Attributes:
      label: Name of the label column.
      domain: Public label domain, k ascending labels; of classes their places.
      loss: Name of the loss that scores models and that mechanisms with a loss minimize.
      rounding: Rounding of labels to the domain; None for the default of each mechanism.
      prior_epsilon: Epsilon of the histogram, as for `privatize`.
      delta: Delta of the budget, as for `privatize`.
      classes: Classes of the label; None for numbers.
    """

    label: str
    domain: tuple[float, ...]
    loss: str = "squared"
    rounding: str | None = None
    prior_epsilon: float | None = None
    delta: float | None = None
    classes: LabelClasses | None = None


@dataclass(frozen=True)
class Score:
    """Result of one cell; None for a value that does not apply.

    Attributes:
      test_loss: Mean loss on true test labels.
      mechanism_error: Mean squared distance of privatized from true training labels; of classes the share of others.
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


@one_thread_for_fits()
def score_cell(cell: Cell, task: Task, dataset: Dataset) -> Score:
    """Computes one cell; the score has a reason instead of values where the mechanism could not be solved."""
    train, test = (dataset.part(half) for half in dataset.split(cell.seed))
    # A release clamps labels in the same way.
    truth, tested = (np.clip(part.labels, task.domain[0], task.domain[-1]) for part in (train, test))
    if cell.mechanism == MEAN_PREDICTOR:
        constant = truth.mean() if task.classes is None else np.bincount(truth.astype(np.int64)).argmax()
        return Score(_test_loss(np.full(len(tested), float(constant)), tested, task))
    facts: dict[str, Any] = {}
    features, new, offset = train.features, test.features, np.zeros((len(tested), 1))
    if cell.private:
        try:
            released = privatize_labels(cell, task, train)
        except (ValueError, ArithmeticError, MemoryError) as error:
            # Solvers see released facts only, so their messages may be shown.
            return Score(reason=str(error) or type(error).__name__)
        known, unseen = (released.center_of(part.columns, part.center) for part in (train, test))
        labels = _training_labels(released, known, task)
        facts |= _errors(released, truth, task)
        if known is not None and unseen is not None:
            # A release has it as a column. With it, models may find what features say without the center.
            features, new, offset = np.column_stack([features, known]), np.column_stack([new, unseen]), unseen
            alone = _test_loss(_decided(unseen), tested, task)
            facts |= {"center_loss": alone, "center_epsilon": released.drawing.center_epsilon}
        facts |= _clipping(released, truth, task)
    elif task.classes is not None:
        classes = len(task.classes)
        shares = np.bincount(truth.astype(np.int64), minlength=classes) / len(truth)
        labels = _class_labels(truth, np.eye(classes), shares)
    else:
        labels = [TrainingLabels(truth, float(truth.mean()), float(truth.var()), 0.0, 0.0)]
    scores = [MODELS[cell.model](features, target, new, cell.seed) for target in labels]
    return Score(_test_loss(_decided(offset + np.stack(scores, axis=1)), tested, task), **facts)


def label_of(cell: Cell, task: Task, features: Sequence[str] = ()) -> Label:
    """The label of a cell, with the features of its center, as `labeldp privatize` takes it.

    The cell's epsilon is not None. Raises FieldError where `privatize` refuses such a label.
    """
    name, of_log = cell.mechanism.partition(":")[0], cell.center == MODELS_OF_LOG
    fields: dict[str, Any] = {
        "label": task.label, "epsilon": cell.epsilon, "prior_epsilon": task.prior_epsilon,
        "mechanism": None if name == DRAWN_BY_CENTER or (of_log and name == AUTO) else cell.mechanism,
        "for_": MODELS_OF_LOG if of_log else None,
        "center": None if of_log else cell.center if cell.center in MADE_CENTERS else NO_CENTER,
        "delta": task.delta if takes_delta(name) else None,
    }  # fmt: skip
    if task.classes is None:
        loss = None if name == AUTO else task.loss
        fields |= {"label_values": task.domain, "rounding": task.rounding, "loss": loss}
    else:
        fields |= {"label_classes": task.classes.values, "other_class": task.classes.values[task.classes.other]}
    return label_around(Fields.of(fields), features, cell.center is not None)


def privatize_labels(cell: Cell, task: Task, records: Dataset, source: str = "training records") -> ArrayRelease:
    """Privatizes labels exactly as `labeldp privatize` does those of a file, under a key derived from the seed.

    Anyone can derive that key: it must never protect a release.

    The cell's epsilon is not None, and its center is made of the features of these records, or their center column.
    Raises UsageError if the mechanism is unknown, and ValueError if it cannot be solved for the prior and the epsilon,
    or the budget is out of range.
    """
    label, secret = label_of(cell, task, tuple(records.columns)), seed_secret(cell.seed)
    return release_arrays(label, records.labels, records.columns, records.center, secret, source)


def seed_secret(seed: int) -> bytes:
    """Derives the 32-byte key of an evaluation, in place of a secret key, from its seed.

    It must never protect a release.
    """
    return hashlib.blake2b(f"labeldp evaluate, seed {seed}".encode(), digest_size=32).digest()


def _training_labels(released: ArrayRelease, offset: np.ndarray | None, task: Task) -> list[TrainingLabels]:
    """Labels and facts that models may use: all of them are released. With a center, labels are residuals."""
    drawing, records = released.drawing, len(released.outputs)
    if task.classes is not None and offset is not None:
        # They are drawn from these probabilities.
        return _class_labels(released.outputs, offset, np.full(records, 1 / records), offset)
    prior, randomizer = drawing.prior, drawing.randomizer
    if task.classes is not None:
        channel = np.zeros((len(task.classes), len(task.classes)))
        channel[:, randomizer.outputs.astype(np.int64)] = randomizer.probabilities()
        return _class_labels(released.outputs, channel, prior.weights)
    facts = utility(randomizer, prior)
    mean = float(prior.weights @ prior.labels)
    of_mean = mean_variance(prior, records, drawing.prior_epsilon)
    # The center as it is, not rounded to the grid: released labels are unbiased around any center, up to clipping.
    values = released.outputs if offset is None else released.outputs - offset[:, 0]
    return [TrainingLabels(values, mean, facts.variance, of_mean, facts.noise, residuals=offset is not None)]


def _class_labels(
    places: np.ndarray, chances: np.ndarray, weights: np.ndarray, offset: np.ndarray | None = None
) -> list[TrainingLabels]:
    """Indicators of the K classes as labels of K models, the highest of whose predictions is a class.

    `chances` are the probabilities of the released classes, shape (r, K), in r cases of these weights. Released classes
    are not corrected: randomized response keeps the order of the probabilities of the classes that it draws.
    """
    centered, values = offset is not None, (places[:, None] == np.arange(chances.shape[1])).astype(np.float64)
    means = np.zeros(len(values.T)) if centered else values.mean(axis=0)
    values = values if offset is None else values - offset
    variances = np.maximum(weights @ chances**2 - (weights @ chances) ** 2, 0.0)
    facts = zip(values.T, *np.stack([means, variances, weights @ (chances * (1 - chances))]).tolist(), strict=True)
    return [TrainingLabels(own, mean, variance, 0.0, noise, centered) for own, mean, variance, noise in facts]


def _decided(scores: np.ndarray) -> np.ndarray:
    """Predicted labels by the outputs of models, shape (n, 1), or of one for each class, shape (n, K)."""
    return scores[:, 0] if scores.shape[1] == 1 else scores.argmax(axis=1).astype(np.float64)


def _errors(released: ArrayRelease, truth: np.ndarray, task: Task) -> dict[str, float]:
    if task.classes is not None:
        return {"mechanism_error": float((released.outputs != truth).mean())}
    distances = released.outputs - truth
    randomizer = released.drawing.randomizer
    labels, bias = randomizer.labels, randomizer.bias()
    private = truth if released.centers is None else truth - released.centers
    at_truth = np.clip(private, labels[0], labels[-1]) - private + np.interp(private, labels, bias)
    return {
        "mechanism_error": float((distances**2).mean()),
        "bias": float(distances.mean()),
        "rms_bias": float(np.sqrt((at_truth**2).mean())),
    }


def _clipping(released: ArrayRelease, truth: np.ndarray, task: Task) -> dict[str, float]:
    """Range of the residuals, relative to that of the labels, and the share of the true ones outside; if any."""
    if released.centers is None:
        return {}
    low, high = released.drawing.randomizer.labels[[0, -1]]
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
