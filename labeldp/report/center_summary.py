"""Summary of a center of classes for its report: what it predicts by class.

All of it follows from the mechanism file: noised counts, class sums and counts of cells, and the public sample of the
features that the center was designed on. Probabilities are those of the sample, from its rounded rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..mechanisms.center.class_center import PROBABILITY_UNIT, ClassCenter, ReleasedClassCells
from ..mechanisms.center.class_trees import CellCounts
from ..mechanisms.core.label_classes import LabelClasses
from ..mechanisms.noise.sum_zero_laplace import sum_zero_variance
from .center_charts import AGAINST, Group, Strip, groups_chart, strips_chart
from .class_charts import MOST_CLASSES, Bars, bars_chart

_MAX_ROWS = 21
_MOST_GROUPS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the records below the marks of a strip."""


@dataclass(frozen=True)
class CenterRow:
    """A class as the center knows it.

    Attributes:
      value: The class.
      share: Its share by the noised counts, which noise may take below 0.
      mean: Its mean probability in the sample.
      low, high: 5 % and 95 % of the records of the sample have a smaller probability.
    """

    value: str
    share: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class CenterSummary:
    """Summary of a center of classes.

    Attributes:
      classes: The classes.
      column: Column of their probabilities.
      center: The center.
    """

    classes: LabelClasses
    column: str
    center: ClassCenter

    @property
    def records(self) -> int:
        """Number of records that the center was made of."""
        return self.center.linear.design.records

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [*self.center.linear.design.map.columns]

    @property
    def has_sums(self) -> bool:
        """True if class sums were released."""
        return bool(self.center.linear.sums)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return 0 if self.center.cells is None else len(self.center.cells.counts)

    @property
    def trees(self) -> int:
        """Number of trees that were fitted to the counts of the cells."""
        return 0 if self.center.cells is None else len(self.center.cells.trees.leaves)

    @property
    def sampled(self) -> int:
        """Number of records of the sample."""
        return len(self._probabilities)

    @property
    def share_error(self) -> float:
        """Standard error of a share by the noised counts, from their noise."""
        return self.center.parts[0].deviation / self.records

    @property
    def told(self) -> float:
        """Share of the entropy of the classes that features tell, by the center's probabilities of its sample."""
        whole = _entropy(self._probabilities.mean(axis=0))
        return max(1 - float(_entropy(self._probabilities).mean() / whole), 0.0)

    def rows(self) -> list[CenterRow]:
        """Rows of the table: all classes in their order, or the 21 of the largest shares."""
        return [self._row(place) for place in self._most_frequent(_MAX_ROWS)]

    @property
    def drawn(self) -> list[int]:
        """Places of the classes in the charts, in their order: all, or 12 with the largest shares."""
        return self._most_frequent(MOST_CLASSES)

    @property
    def telling(self) -> str:
        """The class whose probability differs the most between records."""
        return self.classes.values[self._telling]

    def charts(self, name: str) -> dict[str, str]:
        """Draws the pictures of shares, of probabilities and, with cells, of their counts, by name, as SVG.

        `name` is that of the label column.
        """
        places = self.drawn
        names = [self.classes.values[place] for place in places]
        means, errors = self._probabilities.mean(axis=0), [self.share_error] * len(places)
        shares = [
            Bars("prior", "true, by noised counts", self._shares[places].tolist(), errors),
            Bars("output", "mean probability", means[places].tolist()),
        ]
        strips = [
            Strip(float(means[place]), tuple(np.quantile(self._probabilities[:, place], QUANTILES).tolist()))
            for place in places
        ]
        charts = {
            "shares": bars_chart(names, shares, "share of the records", name, f"Shares of the classes of {name}"),
            "strips": strips_chart(names, strips, "probability of the class", name, f"Probabilities of {name}"),
        }
        if self.center.cells is not None:
            groups, title = self._groups(self.center.cells), f"Noised counts of cells against probabilities of {name}"
            charts["cells"] = groups_chart(groups, "mean probability", f"share by {AGAINST}", title)
        return charts

    @cached_property
    def _probabilities(self) -> np.ndarray:
        return self.center.sample_probabilities() / PROBABILITY_UNIT

    @property
    def _shares(self) -> np.ndarray:
        return self.center.counts / self.records

    @cached_property
    def _telling(self) -> int:
        # Of two classes, which differ as much, the rarer one.
        spreads = np.round(self._probabilities.std(axis=0), 9)
        return min(np.flatnonzero(spreads == spreads.max()).tolist(), key=lambda place: self._shares[place])

    def _groups(self, cells: ReleasedClassCells) -> list[Group]:
        """Cells of similar probability of the telling class, about as many records in each group."""
        place, sample = self._telling, cells.design.sample
        noise = sum_zero_variance(cells.design.noise, len(self.classes))
        counts = CellCounts(sample.partition.tree.cells(sample.codes), cells.counts.astype(np.float64), noise)
        means = counts.means(self._probabilities)[:, place]
        order = np.argsort(means, kind="stable")
        # A group begins where so many tenths of the records are passed.
        passed = np.cumsum(counts.records[order]) - counts.records[order] / 2
        tenth = np.minimum(passed * _MOST_GROUPS // self.records, _MOST_GROUPS - 1)
        found = []
        for number in range(_MOST_GROUPS):
            members = order[tenth == number]
            records, own = float(counts.records[members].sum()), means[members]
            if records > 0:
                weights = counts.records[members]
                chance = float((weights * own * (1 - own)).sum())
                error = math.sqrt(noise * len(members) + chance) / records
                noised = float(counts.counts[members, place].sum()) / records
                found.append(Group(float((weights * own).sum()) / records, noised, error))
        return found

    def _row(self, place: int) -> CenterRow:
        own = self._probabilities[:, place]
        low, high = np.quantile(own, (QUANTILES[0], QUANTILES[-1])).tolist()
        return CenterRow(self.classes.values[place], float(self._shares[place]), float(own.mean()), low, high)

    def _most_frequent(self, count: int) -> list[int]:
        return sorted(np.argsort(-self._shares, kind="stable")[:count].tolist())


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropies of probabilities > 0, along the last axis."""
    return -(probabilities * np.log(probabilities)).sum(axis=-1)
