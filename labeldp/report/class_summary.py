"""Summary of released classes for their report: cards, charts and table by class, and losses of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from labeldp import LabelClasses

from ..mechanisms.analysis.class_utility import ClassUtility
from .charts import MOST_NAMES, Bars, bars_chart, heat_map, square_names
from .number_text import clipped, number, percent
from .release_summary import (
    MOST_ROWS,
    RECORDS_PER_PARAMETER,
    Table,
    all_or_some,
    count,
    model_sizes,
    most_frequent,
    short,
)

_MAX_VALUE = 40  # characters of a class in a text


@dataclass(frozen=True)
class ClassSummary:
    """Summary of a mechanism of classes.

    Attributes:
      classes: The classes.
      utility: What released classes say about true ones, under the prior.
      records: Number of released records; None where no labels were released.
      features: Number of feature columns; None where it is unknown.
      prior_name: Name of the prior in texts.
    """

    classes: LabelClasses
    utility: ClassUtility
    records: int | None
    features: int | None
    prior_name: str = "the prior"

    @property
    def lost(self) -> int:
        """Number of classes that are never released."""
        return len(self.utility.lost)

    @property
    def even(self) -> tuple[str, str] | None:
        """Probability that a class is kept, and that it becomes each other one; None if they depend on the class."""
        kept, becomes = self._kept, self._becomes
        if self.lost or np.ptp(kept) > 1e-12 or np.ptp(becomes) > 1e-12:
            return None
        return percent(float(kept[0])), percent(float(becomes[0]))

    def cards(self) -> list[tuple[str, str, str]]:
        """Title, value and explanation of the figures at the head of the page."""
        values, utility, records = len(self.classes.values), self.utility, self.records
        right = f"of the records, under {self.prior_name}"
        if self.even:
            others = "the other one" if values == 2 else "each other one"
            right += (
                f": each class is kept with a probability of {self.even[0]} and becomes {others} with {self.even[1]}"
            )
        elif self.lost:
            right += f"; {count(self.lost)} of {count(values)} classes are never released"
        cards = [("Released class is the true one", percent(utility.kept), right)]
        error = math.inf if records is None else utility.share_error(records)
        whole = (
            "" if records is None else f": all {count(records)} are worth {count(utility.worth * records)} true ones"
        )
        if records is not None and not math.isinf(error):
            of_what = f"standard error by the noise, at most, of the share of a class in all {count(records)} records"
            cards.append(("Error of a corrected share", f"\u00b1 {percent(error)}", of_what))
        worth = f"true ones, for a model with corrected losses{whole}"
        return [*cards, ("Worth of one released class", number(utility.worth), worth)]

    @property
    def drawn(self) -> list[int]:
        """Places of the classes in the charts, in their order: all, or 12 with the largest shares."""
        return most_frequent(self.utility.prior.weights, MOST_NAMES)

    def example(self) -> str:
        """Probability that the most likely class is kept."""
        place = int(self.utility.prior.weights.argmax())
        kept = f"released as it is with a probability of {percent(float(self._kept[place]))}"
        return "never released" if place in self.utility.lost else kept

    @property
    def likeliest(self) -> str:
        """The class with the largest share."""
        return self.classes.values[int(self.utility.prior.weights.argmax())]

    def by_class(self) -> Table:
        """All classes in their order, or the 21 with the largest shares."""
        utility, places = self.utility, most_frequent(self.utility.prior.weights, MOST_ROWS)
        right = ["never released" if i in utility.lost else percent(float(utility.posterior[i, i])) for i in places]
        columns = (utility.prior.weights, utility.released, self._kept, self._becomes)
        rows = [
            [short(self.classes.values[i]), *(percent(float(values[i])) for values in columns), last]
            for i, last in zip(places, right, strict=True)
        ]
        heads = ["Class", "share", "share in released labels", "released, if it is true"]
        heads += ["each other one, if it is true, at most", "true, if it is released"]
        caption = f"{all_or_some(len(rows), len(self.classes.values), 'classes')}, under {self.prior_name}"
        return Table("Classes", caption, heads, rows)

    def losses(self) -> Table:
        """Losses by the size of the model: its parameters for each class, or the records for each of these."""
        entropy, others = self.utility.entropy, self.utility.classes - 1
        sizes = [] if self.records is None else model_sizes(self.records, self.features)
        ratios: Sequence[float] = RECORDS_PER_PARAMETER
        if self.records is not None:
            ratios = [self.records / size for size in sizes]
        on_true = [others / (2 * ratio * entropy) if entropy > 0 else math.inf for ratio in ratios]
        rows = [
            [
                number(ratio),
                *("more than all" if loss > 1 else percent(loss) for loss in (self.utility.loss(ratio), true)),
            ]
            for ratio, true in zip(ratios, on_true, strict=True)
        ]
        heads = ["records per parameter", "loss: share of the entropy", "on true labels"]
        if self.records is None:
            return Table("Loss of a model", "Loss of a model by records per parameter", heads, rows, ())
        rows = [[count(size), *row] for size, row in zip(sizes, rows, strict=True)]
        return Table("Loss of a model", "Loss of a model by its size", ["Parameters for each class", *heads], rows, ())

    def value(self, label: float) -> str:
        """Beginning of the class whose place is a label or an output."""
        return clipped(self.classes.values[int(label)], _MAX_VALUE)

    def charts(self, name: str) -> dict[str, str]:
        """Draws the pictures of shares, channel and posterior, by these names, as SVG.

        `name` is that of the label column.
        """
        utility, places = self.utility, self.drawn
        names = [self.classes.values[place] for place in places]
        square, (rows, columns) = np.ix_(places, places), square_names(names)
        shares = [
            Bars("true, by the histogram", utility.prior.weights[places].tolist()),
            Bars("released", utility.released[places].tolist()),
        ]
        released, true = f"released {name}", f"true {name}"

        def matrix(probabilities: np.ndarray, axes: tuple[str, str], title: str) -> str:
            likeliest = " ".join(
                f"{value}: {names[int(row.argmax())]}, with probability {percent(float(row.max()))}."
                for value, row in zip(names, probabilities, strict=True)
            )
            described = f"Most likely {axes[0]} by {axes[1]}: {likeliest}"
            return heat_map(rows, columns, probabilities, axes, title, described)

        return {
            "shares": bars_chart(names, shares, "share of the records", name, f"Shares of the classes of {name}"),
            "channel": matrix(utility.square[square], (released, true), f"Channel from {true} to {released}"),
            "posterior": matrix(utility.posterior[square], (true, released), f"{true} by {released}"),
        }

    @cached_property
    def _kept(self) -> np.ndarray:
        return np.diag(self.utility.square)

    @cached_property
    def _becomes(self) -> np.ndarray:
        others = self.utility.square.copy()
        np.fill_diagonal(others, 0.0)
        return others.max(axis=1)
