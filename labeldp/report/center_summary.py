"""Summary of a center of classes for its report: what it predicts by class.

All of it follows from the mechanism file: noised counts, class sums and counts of cells, and the public sample of the
features that the center was designed on. Probabilities are those of the sample, from its rounded rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from labeldp import LabelClasses

from ..mechanisms.center.class_center import PROBABILITY_UNIT, ClassCenter, ReleasedClassCells
from ..mechanisms.center.class_trees import CellCounts
from ..mechanisms.noise.sum_zero_laplace import sum_zero_variance
from .charts import MOST_NAMES, Bars, Line, bars_chart, lines_chart
from .number_text import number, percent
from .release_summary import MOST_ROWS, Table, all_or_some, count, most_frequent, short

_MOST_GROUPS = 10


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

    @property
    def drawn(self) -> list[int]:
        """Places of the classes in the charts, in their order: all, or 12 with the largest shares."""
        return most_frequent(self._shares, MOST_NAMES)

    def cards(self) -> list[tuple[str, str, str]]:
        """Title, value and explanation of the figures at the head of the page."""
        cells = ("none", "there are too few records for their counts")
        if self.cells:
            trees = f"{count(self.trees)} trees follow from them"
            if not self.trees:
                trees = "No trees follow from them: they would not predict the counts better"
            deviation = number(self.center.parts[-1].deviation)
            average = f"of {number(self.records / self.cells)} records on average"
            noise = f"the noise of a count has a standard deviation of {deviation}"
            cells = (count(self.cells), f"{average}; {noise}. {trees}")
        told = f"of the entropy of the classes, by the center's own probabilities of {count(self.sampled)} records; "
        own = "than the probabilities beside it, which it was drawn from: train on these"
        return [
            ("What features tell of the class", percent(self.told), f"{told}0% if all records have the same ones"),
            ("Cells", cells[0], cells[1]),
            ("What a released class says of its own record", "nothing more", own),
        ]

    def by_class(self) -> Table:
        """All classes in their order, or the 21 with the largest shares."""
        places, low, high = most_frequent(self._shares, MOST_ROWS), *self._ends
        columns = (self._probabilities.mean(axis=0), low, high)
        rows = [
            [
                short(self.classes.values[i]),
                percent(float(self._shares[i])),
                percent(self.share_error),
                *(percent(float(values[i])) for values in columns),
            ]
            for i in places
        ]
        heads = ["Class", "share, by noised counts", "its standard error", "mean probability"]
        heads += ["5% of the records have less than", "5% of the records have more than"]
        return Table("Classes", all_or_some(len(rows), len(self.classes.values), "classes"), heads, rows)

    @property
    def telling(self) -> str:
        """The class whose probability differs the most between records."""
        return self.classes.values[self._telling]

    def charts(self, name: str) -> dict[str, str]:
        """Draws the pictures of shares and, with cells, of their counts, by name, as SVG.

        `name` is that of the label column.
        """
        places, error = self.drawn, self.share_error
        names = [self.classes.values[place] for place in places]
        noised, (low, high) = self._shares[places], self._ends[:, places]
        shares = [
            Bars(
                "true, by noised counts", noised.tolist(), [(share - error, share + error) for share in noised.tolist()]
            ),
            Bars(
                "mean probability",
                self._probabilities.mean(axis=0)[places].tolist(),
                list(zip(low.tolist(), high.tolist(), strict=True)),
            ),
        ]
        charts = {"shares": bars_chart(names, shares, "share of the records", name, f"Shares of the classes of {name}")}
        if self.center.cells is not None:
            means, noised_shares, errors = zip(*self.groups(self.center.cells), strict=True)
            lines = [
                Line("cells of similar probability", means, noised_shares, errors),
                Line("equal", [0.0, max(means)], [0.0, max(means)], guide=True),
            ]
            title = f"Noised counts of cells against probabilities of {name}"
            charts["cells"] = lines_chart(lines, title, "mean probability", "share by noised counts", from_zero=True)
        return charts

    @cached_property
    def _probabilities(self) -> np.ndarray:
        return self.center.sample_probabilities() / PROBABILITY_UNIT

    @cached_property
    def _ends(self) -> np.ndarray:
        """Probabilities that 5 % and 95 % of the records of the sample have less than, by class."""
        return np.quantile(self._probabilities, (0.05, 0.95), axis=0)

    @property
    def _shares(self) -> np.ndarray:
        return self.center.counts / self.records

    @cached_property
    def _telling(self) -> int:
        # Of two classes, which differ as much, the rarer one.
        spreads = np.round(self._probabilities.std(axis=0), 9)
        return min(np.flatnonzero(spreads == spreads.max()).tolist(), key=lambda place: self._shares[place])

    def groups(self, cells: ReleasedClassCells) -> list[tuple[float, float, float]]:
        """Groups of cells of similar probability of the telling class, with about as many records each.

        Each has the mean probability of the class, its share by the noised counts, and the standard error of that, from
        the noise and from chance.
        """
        place, sample = self._telling, cells.design.sample
        noise = sum_zero_variance(cells.design.noise, len(self.classes))
        counts = CellCounts(sample.partition.tree.cells(sample.codes), cells.counts.astype(np.float64), noise)
        means = counts.means(self._probabilities)[:, place]
        order = np.argsort(means, kind="stable")
        # A group begins where so many tenths of the records are passed.
        passed = np.cumsum(counts.records[order]) - counts.records[order] / 2
        tenth = np.minimum(passed * _MOST_GROUPS // self.records, _MOST_GROUPS - 1)
        found = []
        for group in range(_MOST_GROUPS):
            members = order[tenth == group]
            records, own = float(counts.records[members].sum()), means[members]
            if records > 0:
                weights = counts.records[members]
                chance = float((weights * own * (1 - own)).sum())
                error = math.sqrt(noise * len(members) + chance) / records
                noised = float(counts.counts[members, place].sum()) / records
                found.append((float((weights * own).sum()) / records, noised, error))
        return found


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropies of probabilities > 0, along the last axis."""
    return -(probabilities * np.log(probabilities)).sum(axis=-1)
