"""Summary of released numbers for their report: cards, charts, table by label, and worth for models."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from labeldp import Randomizer

from ..mechanisms.analysis.utility import ReleasedFacts
from ..mechanisms.analysis.verdict import parameters_of
from ..mechanisms.center.residuals import ClippingError
from ..mechanisms.core.integer_weights import TOTAL
from .charts import MOST_NAMES, Bars, Line, bars_chart, evenly_spaced, heat_map, lines_chart, range_names
from .number_text import exact, label_range, number, percent
from .release_summary import MOST_ROWS, RECORDS_PER_PARAMETER, Table, count, model_sizes

_EXPLAINED_SHARES = (0.5, 0.9)  # of the label variance, by features, for which the worth of a label is stated
_MAX_LISTED_OUTPUTS = 4  # of the example
_MAX_CELLS = 50  # rows and columns of the heat map
_MAX_POINTS = 400

Ranges = list[tuple[float, float]]


@dataclass(frozen=True)
class Worth:
    """Worth of one released label for a model.

    Attributes:
      records_per_parameter: Records n divided by parameters p of the model.
      error: Error of the model beyond that of the best model, as a share of `ReleasedFacts.label_variance`; a bound.
      bias: Part of it that is bias.
      less_than_nothing: True if the model is worse than the mean of the noised histogram, which needs no label.
      worth: True labels that one released label is equivalent to, whatever the features explain.
      by_share: The same for features that explain 50 % and 90 % of the label variance.
    """

    records_per_parameter: float
    error: float
    bias: float
    less_than_nothing: bool
    worth: float
    by_share: tuple[float, ...]


def worth_of_label(facts: ReleasedFacts, records_per_parameter: float) -> Worth | None:
    """Worth of one released label for n / p > 0 records per parameter of a model; None for a prior of one label."""
    moments = facts.whole_utility
    if not (moments.variance > 0 and facts.label_variance > 0):
        return None
    error, _ = moments.best_use(records_per_parameter)
    return Worth(
        records_per_parameter,
        error.total / facts.label_variance,
        error.bias / facts.label_variance,
        error.total >= moments.variance,
        moments.worth(records_per_parameter),
        tuple(moments.worth(records_per_parameter, share) for share in _EXPLAINED_SHARES),
    )


def run_starts(probabilities: np.ndarray) -> np.ndarray:
    """Index of the first row of each run of equal rows."""
    return np.concatenate(([0], np.flatnonzero((probabilities[1:] != probabilities[:-1]).any(axis=1)) + 1))


def group_starts(items: int, max_groups: int) -> np.ndarray:
    """Divides consecutive items into groups of equal size, except for the last: the index of the first of each."""
    return np.arange(0, items, -(-items // max_groups))


def _ranges(values: np.ndarray, starts: np.ndarray) -> Ranges:
    ends = np.append(starts[1:], len(values)) - 1
    return list(zip(values[starts].tolist(), values[ends].tolist(), strict=True))


def channel_cells(randomizer: Randomizer, max_cells: int = _MAX_CELLS) -> tuple[np.ndarray, Ranges, Ranges]:
    """Reduces a channel to at most `max_cells` rows and columns.

    Neighboring labels with equal rows share a row. If there are more than `max_cells` such rows, rows hold equally many
    labels instead, except for the last. Columns hold equally many outputs, except for the last. The result has the mean
    probability of one output of the column given a label of the row, and the first and last label or output of each.
    """
    probabilities = randomizer.probabilities()
    rows = run_starts(probabilities)
    if len(rows) > max_cells:
        rows = group_starts(len(probabilities), max_cells)
    columns = group_starts(len(randomizer.outputs), max_cells)
    sums = np.add.reduceat(np.add.reduceat(probabilities, columns, axis=1), rows, axis=0)
    shape = [
        np.diff(np.append(starts, size)) for starts, size in zip((rows, columns), probabilities.shape, strict=True)
    ]
    return sums / np.outer(*shape), _ranges(randomizer.labels, rows), _ranges(randomizer.outputs, columns)


@dataclass(frozen=True)
class NumberSummary:
    """Summary of a mechanism of numbers, under its prior.

    Attributes:
      facts: The mechanism and what is known of its release.
      thing: What the randomizer takes: a label, or with a center, a residual.
      prior_name: Name of the prior in texts.
      clipping: What clips residuals; None without a center.
    """

    facts: ReleasedFacts
    thing: str
    prior_name: str
    clipping: ClippingError | None = None

    def small(self, value: float) -> str:
        """Formats a number; values below a billionth of the range of labels come from rounding and are shown as 0."""
        labels = self.facts.prior.labels
        return number(value if abs(value) > 1e-9 * float(labels[-1] - labels[0]) else 0.0)

    @property
    def bins(self) -> int:
        """Number of bins of labels with the same rows; 0 if they do not group labels, or are too many to be shown."""
        bins = len(run_starts(self.facts.randomizer.probabilities()))
        return bins if 1 < bins <= min(MOST_NAMES, len(self.facts.randomizer.labels) - 1) else 0

    @property
    def typical_error(self) -> float:
        """Root mean squared error."""
        return math.sqrt(self.facts.utility.squared_error)

    @property
    def expected_mean(self) -> float:
        """Mean of the released labels that the prior and the mechanism predict."""
        moments = self.facts.utility
        return float(moments.weights @ (moments.labels + moments.bias))

    @property
    def remaining(self) -> tuple[str, str]:
        """Bias that the debiasing line leaves: its root mean square over the prior, and its maximum."""
        moments = self.facts.whole_utility
        left = moments.remaining_bias
        return self.small(math.sqrt(moments.weights @ left**2)), self.small(float(np.abs(left).max()))

    def cards(self) -> list[tuple[str, str, str]]:
        """Title, value and explanation of the figures at the head of the page."""
        facts, thing, prior = self.facts, self.thing, self.prior_name
        labels, moments, clipping = facts.randomizer.labels, facts.utility, self.clipping
        deviation = number(math.sqrt(moments.variance))
        error = (
            f"of one released {thing}; under {prior}, {thing}s have a standard deviation of {deviation}; "
            f"they range from {exact(labels[0])} to {exact(labels[-1])}"
        )
        averages, biased = "the noise averages out over many records", "averages of released labels are biased"
        bias, worth = ("none", averages), self._headline()
        if not moments.unbiased:
            if 0 < moments.slope < 1:
                center = self.small(moments.intercept / (1 - moments.slope))
                biased = f"released {thing}s are biased towards {center}; averages can be corrected"
            bias = (f"up to {number(facts.randomizer.certificate().max_bias)}", biased)
        elif clipping is not None and clipping.share:
            clipped = f"{percent(clipping.share)} of the residuals are clipped to the range"
            moved = f"which moves a released label by {self.small(clipping.bias)} on average"
            bias = ("none but from clipping", f"{clipped}, {moved}; {averages}")
        return [
            ("Root mean squared error", number(self.typical_error), error),
            ("Bias", bias[0], bias[1]),
            ("Worth of one released label", worth[0], worth[1]),
        ]

    def _headline(self) -> tuple[str, str]:
        """Worth of a label for the model of the verdict; without records, that where most noise has averaged out."""
        facts = self.facts
        records, parameters = facts.records, parameters_of(facts)
        worth = worth_of_label(facts, RECORDS_PER_PARAMETER[2] if records is None else records / parameters)
        model = f"a model of {parameters} parameters"
        if records is None:
            each = "any" if worth is None else count(worth.records_per_parameter)
            model = f"a model with {each} records per parameter"
        if worth is None or worth.less_than_nothing:
            better = f"the mean of {self.prior_name} predicts better than such a model"
            return "less than nothing", f"for {model}: {better}"
        whole = (
            "" if records is None else f": all {count(records)} are worth {count(worth.worth * records)} true labels"
        )
        return number(worth.worth), f"true labels, for {model}{whole}; the bias that remains is counted"

    def example(self) -> str:
        """Describes the output for the most likely label."""
        randomizer, prior = self.facts.randomizer, self.facts.prior
        place = int(prior.weights.argmax())
        row, outputs = randomizer.weights[place] / float(TOTAL), randomizer.outputs
        start = f"a {self.thing} of {exact(float(prior.labels[place]))} becomes"
        if len(outputs) <= _MAX_LISTED_OUTPUTS:
            listed = [f"{number(outputs[i])} (probability {percent(row[i])})" for i in np.argsort(-row)]
            return f"{start} {' or '.join(filter(None, [', '.join(listed[:-1]), listed[-1]]))}"
        cumulated = np.cumsum(row)
        first, last = outputs[np.searchsorted(cumulated, [0.05, 0.95 * cumulated[-1]])].tolist()
        central = number(first) if first == last else f"a value from {number(first)} to {number(last)}"
        return f"{start} {central} with a probability of at least 90%"

    def charts(self, name: str) -> dict[str, str]:
        """Draws the pictures of shares, channel and errors, by these names, as SVG.

        `name` is that of what the randomizer takes. Biases that come from rounding are drawn as 0.
        """
        randomizer, moments = self.facts.randomizer, self.facts.utility
        labels, outputs = randomizer.labels, randomizer.outputs
        names, shares, title = *self._shares(), f"Shares of the values of {name}"
        cells, rows, columns = channel_cells(randomizer)
        likeliest = " ".join(
            f"{label_range(*rows[row])}: {number(sum(columns[column]) / 2)}, with probability "
            f"{percent(float(cells[row, column]))}."
            for row in map(int, evenly_spaced(len(rows), MOST_NAMES))
            for column in [int(cells[row].argmax())]
        )
        described = f"{len(rows)} rows of true labels and {len(columns)} columns of outputs, darker for a larger "
        described += (
            f"probability, at most {percent(float(cells.max()))}. Most likely outputs by true label: {likeliest}"
        )
        shown = evenly_spaced(len(labels), _MAX_POINTS)
        tiny = 1e-9 * float(labels[-1] - labels[0])
        lines = [
            Line(measure, labels[shown].tolist(), values[shown].tolist())
            for measure, values in (
                ("total error", moments.error),
                ("noise (averages out)", moments.deviation),
                ("bias (does not)", np.where(np.abs(moments.bias) > tiny, moments.bias, 0.0)),
            )
        ]
        axes = (f"released {name}", f"true {name}")
        column_names = (
            [number(sum(ends) / 2) for ends in columns]
            if len(columns) < len(outputs)
            else [number(value) for value in outputs]
        )
        return {
            "shares": bars_chart(names, shares, "share of the records", name, title),
            "channel": heat_map(
                range_names(rows), column_names, cells, axes, f"Channel from true to {axes[0]}", described
            ),
            "errors": lines_chart(
                lines,
                f"Error of a {axes[0]} by its true value",
                axes[1],
                "error, in units of the label",
                from_zero=True,
            ),
        }

    def _shares(self) -> tuple[list[str], list[Bars]]:
        """Shares of ranges of labels under the prior, and of the outputs in and outside of them."""
        randomizer, weights = self.facts.randomizer, self.facts.prior.weights
        labels, outputs, probabilities = randomizer.labels, randomizer.outputs, randomizer.probabilities()
        starts = run_starts(probabilities) if self.bins else group_starts(len(labels), MOST_NAMES)
        ranges, released = _ranges(labels, starts), weights @ probabilities
        edges = [(last + first) / 2 for (_, last), (first, _) in itertools.pairwise(ranges)]
        places = np.searchsorted(edges, outputs) + 1
        places[outputs < labels[0]], places[outputs > labels[-1]] = 0, len(ranges) + 1
        drawn = np.bincount(places, released, len(ranges) + 2).tolist()
        names = [f"below {number(labels[0])}", *range_names(ranges), f"above {number(labels[-1])}"]
        true = [0.0, *np.add.reduceat(weights, starts).tolist(), 0.0]
        shown = slice(0 if (outputs < labels[0]).any() else 1, None if (outputs > labels[-1]).any() else -1)
        return names[shown], [Bars(f"true, by {self.prior_name}", true[shown]), Bars("released", drawn[shown])]

    def by_label(self) -> Table:
        """Errors by ascending label, for all labels or for 21 at even distances, both ends included."""
        randomizer, moments, thing = self.facts.randomizer, self.facts.utility, self.thing
        shown, labels = evenly_spaced(len(moments.labels), MOST_ROWS).tolist(), len(moments.labels)
        likeliest = randomizer.weights[shown].argmax(axis=1).tolist()
        rows = [
            [
                exact(moments.labels[i]),
                percent(moments.weights[i]),
                self.small(randomizer.outputs[output]),
                percent(randomizer.weights[i, output] / float(TOTAL)),
                *(self.small(values[i]) for values in (moments.bias, moments.deviation, moments.error)),
            ]
            for i, output in zip(shown, likeliest, strict=True)
        ]
        heads = ["prior probability", "most likely output", "its probability", "bias", "standard deviation"]
        some = f"All {thing}s" if len(rows) == labels else f"{len(rows)} of {labels} {thing}s"
        caption = f"{some}. Values below a billionth of their range are shown as 0."
        return Table("Errors by label", caption, [f"True {thing}", *heads, "root mean squared error"], rows, ())

    @cached_property
    def worths(self) -> Table:
        """Worth of a label by the size of a model, or by its records per parameter."""
        facts = self.facts
        sizes = [] if facts.records is None else model_sizes(facts.records, facts.features)
        ratios = RECORDS_PER_PARAMETER if facts.records is None else [facts.records / size for size in sizes]
        rows = [
            [
                number(worth.records_per_parameter),
                percent(worth.error),
                percent(worth.bias),
                "less than nothing" if worth.less_than_nothing else number(worth.worth),
                *map(number, worth.by_share),
            ]
            for worth in (worth_of_label(facts, ratio) for ratio in ratios)
            if worth is not None
        ]
        heads = ["records per parameter", f"loss: share of the variance of the {facts.of_what}", "of which bias"]
        heads += ["worth, any features", *(f"if they explain {percent(share)}" for share in _EXPLAINED_SHARES)]
        name, by = "Worth of one released label", " by records per parameter of the model"
        if sizes:
            rows = [[count(size), *row] for size, row in zip(sizes, rows, strict=True)]
            heads, by = ["Parameters of the model", *heads], " by size of the model"
        return Table(name, name + by, heads, rows, ())
