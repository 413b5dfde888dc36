"""Summary of released classes for their report: table and charts by class, and losses of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..mechanisms.analysis.class_utility import ClassUtility
from ..mechanisms.core.label_classes import LabelClasses
from ..pipelines.cli.text_format import clipped
from .class_charts import MOST_CLASSES, Bars, bars_chart, matrix_chart

_MAX_ROWS = 21
_PARAMETERS = (1, 10, 100, 1000)
_RECORDS_PER_PARAMETER = (10, 100, 1000, 10_000, 100_000)
_MAX_VALUE = 40  # characters of a class in a text


@dataclass(frozen=True)
class ClassRow:
    """A class under the prior.

    Attributes:
      value: The class.
      share: Its share by the noised histogram.
      released: Probability that it is released.
      kept: Probability that it is released if it is the true one.
      becomes: Largest probability of any other class to be released if it is the true one.
      right: Probability that it is the true one if it is released; None if it never is.
    """

    value: str
    share: float
    released: float
    kept: float
    becomes: float
    right: float | None


@dataclass(frozen=True)
class ModelLoss:
    """Loss of a model that is trained with corrected losses, as a share of the entropy; infinite for no information.

    Attributes:
      parameters: Parameters for each class; None where the number of records is unknown.
      records_per_parameter: Records for each of them.
      loss: What the model loses on released classes.
      on_true: What it loses on true ones.
    """

    parameters: int | None
    records_per_parameter: float
    loss: float
    on_true: float


@dataclass(frozen=True)
class ClassSummary:
    """Summary of a mechanism of classes.

    Attributes:
      classes: The classes.
      utility: What released classes say about true ones, under the prior.
      records: Number of released records; None where no labels were released.
      features: Number of feature columns; None where it is unknown.
    """

    classes: LabelClasses
    utility: ClassUtility
    records: int | None
    features: int | None

    @property
    def other(self) -> str:
        """Class that all values count as that are not listed."""
        return self.classes.values[self.classes.other]

    @property
    def lost(self) -> int:
        """Number of classes that are never released."""
        return len(self.utility.lost)

    @property
    def even(self) -> tuple[float, float] | None:
        """Probability that a class is kept, and that it becomes each other one; None if they depend on the class."""
        kept, becomes = self._kept, self._becomes
        if self.lost or np.ptp(kept) > 1e-12 or np.ptp(becomes) > 1e-12:
            return None
        return float(kept[0]), float(becomes[0])

    @property
    def share_error(self) -> float | None:
        """Largest standard error of a corrected share, from the noise; None if shares cannot be corrected."""
        error = math.inf if self.records is None else self.utility.share_error(self.records)
        return None if math.isinf(error) else error

    @property
    def shown(self) -> list[int]:
        """Places of the classes in the table, in their order: all, or 21 with the largest shares."""
        return self._most_frequent(_MAX_ROWS)

    @property
    def drawn(self) -> list[int]:
        """Places of the classes in the charts, in their order: all, or 12 with the largest shares."""
        return self._most_frequent(MOST_CLASSES)

    def rows(self) -> list[ClassRow]:
        """Rows of the table."""
        return [self._row(place) for place in self.shown]

    @property
    def likeliest(self) -> ClassRow:
        """The class with the largest share."""
        return self._row(int(self.utility.prior.weights.argmax()))

    def _row(self, place: int) -> ClassRow:
        return ClassRow(
            self.classes.values[place],
            float(self.utility.prior.weights[place]),
            float(self.utility.released[place]),
            float(self._kept[place]),
            float(self._becomes[place]),
            None if place in self.utility.lost else float(self.utility.posterior[place, place]),
        )

    def losses(self) -> list[ModelLoss]:
        """Losses by the size of the model: its parameters for each class, or the records for each of these."""
        if self.records is None:
            return [self._loss(None, ratio) for ratio in _RECORDS_PER_PARAMETER]
        models = sorted({*_PARAMETERS, *(() if self.features is None else (self.features + 1,))})
        return [self._loss(each, self.records / each) for each in models if each <= self.records]

    def _loss(self, parameters: int | None, ratio: float) -> ModelLoss:
        entropy = self.utility.entropy
        on_true = (self.utility.classes - 1) / (2 * ratio * entropy) if entropy > 0 else math.inf
        return ModelLoss(parameters, ratio, self.utility.loss(ratio), on_true)

    def value(self, label: float) -> str:
        """Beginning of the class whose place is a label or an output."""
        return clipped(self.classes.values[int(label)], _MAX_VALUE)

    def charts(self, name: str) -> dict[str, str]:
        """Draws the pictures of shares, channel, posterior and correctness, by these names, as SVG.

        `name` is that of the label column.
        """
        utility, places = self.utility, self.drawn
        names = [self.classes.values[place] for place in places]
        square = np.ix_(places, places)
        shares = [
            Bars("prior", "true, by the histogram", utility.prior.weights[places].tolist()),
            Bars("output", "released", utility.released[places].tolist()),
        ]
        right = [
            Bars("prior", "released, if it is true", self._kept[places].tolist()),
            Bars("output", "true, if it is released", np.diag(utility.posterior)[places].tolist()),
        ]
        released, true = f"released {name}", f"true {name}"
        return {
            "shares": bars_chart(names, shares, "share of the records", name, f"Shares of the classes of {name}"),
            "right": bars_chart(names, right, "probability", name, f"Probabilities that a class of {name} is right"),
            "channel": matrix_chart(
                names, utility.square[square], true, released, f"Channel from {true} to {released}"
            ),
            "posterior": matrix_chart(names, utility.posterior[square], released, true, f"{true} by {released}"),
        }

    @cached_property
    def _kept(self) -> np.ndarray:
        return np.diag(self.utility.square)

    @cached_property
    def _becomes(self) -> np.ndarray:
        others = self.utility.square.copy()
        np.fill_diagonal(others, 0.0)
        return others.max(axis=1)

    def _most_frequent(self, count: int) -> list[int]:
        order: Sequence[int] = np.argsort(-self.utility.prior.weights, kind="stable")[:count].tolist()
        return sorted(order)
