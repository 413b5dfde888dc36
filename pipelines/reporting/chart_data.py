"""Data behind the charts: channels reduced to cells, and bins of labels with equal rows.

A channel is the matrix of the probabilities of the outputs given the labels. It is reduced so that the size of a chart
does not grow with the size of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ChannelCells:
    """A channel reduced to at most a given number of rows and columns.

    Attributes:
      probabilities: Mean probability of one output of the column, given a label of the row, shape (r, c).
      rows: First and last label of each row.
      columns: First and last output of each column.
    """

    probabilities: np.ndarray
    rows: list[tuple[float, float]]
    columns: list[tuple[float, float]]


@dataclass(frozen=True)
class Bin:
    """Neighboring labels whose rows of the channel are equal.

    Attributes:
      first: Lowest label.
      last: Highest label.
      output: Most likely output.
      probability: Probability of that output, given any label of the bin.
    """

    first: float
    last: float
    output: float
    probability: float


def channel_cells(
    labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, max_cells: int = 100
) -> ChannelCells:
    """Reduces a channel to cells that can be drawn.

    Neighboring labels with equal rows share a row of cells. If there are more than `max_cells` such rows, rows hold
    equally many labels instead, except for the last. Columns hold equally many outputs, except for the last.

    Args:
      labels: Ascending, shape (k,).
      outputs: Ascending, shape (m,).
      probabilities: Of each output given each label, shape (k, m); rows sum to 1.
      max_cells: Limit of rows, and of columns.

    Returns:
      The cells.
    """
    rows = _run_starts(probabilities)
    if len(rows) > max_cells:
        rows = group_starts(len(labels), max_cells)
    columns = group_starts(len(outputs), max_cells)
    sums = np.add.reduceat(np.add.reduceat(probabilities, columns, axis=1), rows, axis=0)
    sizes = np.outer(np.diff(np.append(rows, len(labels))), np.diff(np.append(columns, len(outputs))))
    return ChannelCells(sums / sizes, _ranges(labels, rows), _ranges(outputs, columns))


def label_bins(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, max_bins: int = 12) -> list[Bin]:
    """Finds the bins of a mechanism such as randomized response on bins.

    Args:
      labels: Ascending, shape (k,).
      outputs: Ascending, shape (m,).
      probabilities: Of each output given each label, shape (k, m).
      max_bins: Limit of bins that are worth showing.

    Returns:
      The bins in ascending order. Empty if there is one bin only, one per label, or more than `max_bins`.
    """
    starts = _run_starts(probabilities)
    if not 1 < len(starts) <= min(max_bins, len(labels) - 1):
        return []
    likeliest = probabilities[starts].argmax(axis=1)
    highest = probabilities[starts, likeliest]
    rows = zip(_ranges(labels, starts), outputs[likeliest].tolist(), highest.tolist(), strict=True)
    return [Bin(first, last, output, probability) for (first, last), output, probability in rows]


def group_starts(count: int, max_groups: int) -> np.ndarray:
    """Divides consecutive items into groups of equal size, except for the last.

    Args:
      count: Number of items, >= 1.
      max_groups: Limit of groups.

    Returns:
      Index of the first item of each group, int64.
    """
    return np.arange(0, count, -(-count // max_groups))


def evenly_spaced(count: int, max_items: int) -> np.ndarray:
    """Chooses items at even distances, the first and the last among them.

    Args:
      count: Number of items, >= 1.
      max_items: Limit of chosen items, >= 2.

    Returns:
      Their indices, ascending, int64.
    """
    return np.unique(np.linspace(0, count - 1, min(count, max_items)).round().astype(int))


def bar_edges(labels: np.ndarray) -> np.ndarray:
    """Edges of the labels' bars, halfway between neighboring labels.

    Args:
      labels: Ascending, shape (k,).

    Returns:
      The edges, shape (k + 1,).
    """
    if len(labels) == 1:
        return np.array([labels[0] - 0.5, labels[0] + 0.5])
    middles = (labels[1:] + labels[:-1]) / 2
    return np.concatenate(([labels[0] - (middles[0] - labels[0])], middles, [labels[-1] + labels[-1] - middles[-1]]))


def _run_starts(probabilities: np.ndarray) -> np.ndarray:
    """Index of the first row of each run of equal rows."""
    return np.concatenate(([0], np.flatnonzero((probabilities[1:] != probabilities[:-1]).any(axis=1)) + 1))


def _ranges(values: np.ndarray, starts: np.ndarray) -> list[tuple[float, float]]:
    ends = np.append(starts[1:], len(values)) - 1
    return list(zip(values[starts].tolist(), values[ends].tolist(), strict=True))
