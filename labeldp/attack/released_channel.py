"""Channel of a release, record by record: the probability of the released label for each label of the domain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from labeldp import InputError, LabelColumn, Randomizer

# Relative to the largest label: labels of TFRecords are float32.
_FLOAT32 = 2.0**-22


@dataclass(frozen=True, eq=False)
class ReleasedLabels:
    """Released columns that depend on the labels of n records.

    Attributes:
      labels: Released labels, shape (n,), float64; of classes, their places.
      centers: Centers, shape (n,), float64, NaN where missing; None without a center of numbers.
      probabilities: Probabilities that classes were drawn from, shape (n, K); None for all other labels.
    """

    labels: np.ndarray
    centers: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    @property
    def columns(self) -> np.ndarray:
        """All of it as numbers to learn from, shape (n, c)."""
        found = [self.labels[:, None]]
        if self.centers is not None:
            found += [self.centers[:, None], (self.labels - self.centers)[:, None]]
        if self.probabilities is not None:
            found.append(self.probabilities)
        return np.concatenate(found, axis=1)

    @property
    def known_before(self) -> np.ndarray | None:
        """Columns that a center adds to the features, without the label, shape (n, c); None without a center."""
        return self.probabilities if self.centers is None else self.centers[:, None]


class ReleasedChannel:
    """Likelihoods of the released labels of n records.

    Attributes:
      domain: Labels of the public domain, shape (K,), float64.
    """

    def __init__(self, randomizer: Randomizer, released: ReleasedLabels, column: LabelColumn):
        """Finds the output of each record.

        Raises InputError, which names the record, if a released label is no output of the randomizer.
        """
        self._randomizer, self._column = randomizer, column
        self.domain = column.labels
        self._centers = np.zeros(len(released.labels), np.intp)
        if column.center is not None and released.centers is not None:
            self._centers = column.center_indices(released.centers)[0]
        self._outputs = self._find_outputs(released.labels)

    def _find_outputs(self, labels: np.ndarray) -> np.ndarray:
        around = self.domain[self._centers] if self._column.center is not None else np.zeros(len(labels))
        drawn, outputs = labels - around, self._randomizer.outputs
        places = np.searchsorted((outputs[1:] + outputs[:-1]) / 2, drawn)
        largest = np.abs(labels).max(initial=0.0) + np.abs(outputs).max()
        wrong = np.abs(outputs[places] - drawn) > _FLOAT32 * largest
        if wrong.any():
            raise InputError(
                f"record {int(wrong.argmax())} of the release has a label that is no output of its mechanism: run "
                "labeldp audit --data"
            )
        return places

    @cached_property
    def _probabilities(self) -> np.ndarray:
        return self._randomizer.probabilities()

    @cached_property
    def _rows_of_steps(self) -> np.ndarray:
        """Probabilities of the outputs for each residual of the domain, shape (2 K - 1, m)."""
        chances = self._probabilities
        first = self._column.residuals.place(self._randomizer.labels)
        return chances[np.clip(np.arange(2 * len(self.domain) - 1) - first, 0, len(chances) - 1)]

    def likelihood(self, rows: np.ndarray) -> np.ndarray:
        """Probability of the released label of some records for each label of the domain, shape (m, K)."""
        outputs = self._outputs[rows]
        if self._column.center is None:
            return self._probabilities.T[outputs]
        most = len(self.domain) - 1
        steps = np.arange(most + 1)[None, :] - self._centers[rows][:, None] + most
        return self._rows_of_steps[steps, outputs[:, None]]
