"""The keyed path of a mechanism file as a function of labels, record identities and a key: what the checks attack.

`KeyedRelease` calls the functions that the stages of a job call, in the same order, without Beam. A test compares it
with a job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise.keyed_words import first_repeated, integer_identities
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
from labeldp.mechanisms.release.bound_noise import make_binding
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.label_records import LabelRecords

from tests.label_counts import count_labels

ReleaseFunction = Callable[[np.ndarray, np.ndarray, bytes], Any]
"""Release function (labels, ids, key).

It takes the labels of n records (shape (n,), float64, labels of the domain), their ids (shape (n,), int64) and the
secret key (32 bytes). It returns the n released labels, or a pair of them and the released prior, one weight for each
label of the domain (None for no prior). It raises ValueError if it refuses the records.
"""

COLUMN, ID_COLUMN = "label", "id"
"""Names of the label column and the id column, to which the noise is bound."""


class KeyedRelease:
    """Release function of a mechanism file, as `apply` and `privatize` release records with an id column.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Epsilon of the released histogram; 0 for a public prior, which is not released again.
    """

    def __init__(self, randomizer: Randomizer, prior_epsilon: float):
        """Makes the release function."""
        self.randomizer = randomizer
        self.prior_epsilon = prior_epsilon
        self._budget = BudgetSplit(prior_epsilon, randomizer.epsilon)
        self._column = LabelColumn(COLUMN, tuple(randomizer.labels.tolist()), ID_COLUMN)

    def __call__(self, labels: np.ndarray, ids: np.ndarray, key: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases n records. Raises ValueError if two of them have the same id."""
        identities = integer_identities(ID_COLUMN, ids)
        if first_repeated(identities.blocks) is not None:
            raise ValueError("two records have the same id")
        records = LabelRecords(self._column, labels, identities)
        summary = count_labels(records, key)
        noise_key = make_binding(summary, self._column, self._budget, key).noise_key(key)
        released = drawing_of(self.randomizer, self._column).draw(records, noise_key, key)
        if self.prior_epsilon == 0:
            return released, None
        counts = noisy_counts(summary.sums, self.prior_epsilon, noise_key)
        return released, Prior.from_counts(self.randomizer.labels, counts).weights


class BlackBox:
    """A release function of labels that are named by their places in `domain`, shape (k,)."""

    def __init__(self, function: ReleaseFunction, domain: np.ndarray):
        """Wraps a release function."""
        self.domain = domain
        self._function = function

    def release(self, indices: np.ndarray, ids: np.ndarray, key: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases records; released labels and prior, or None for no prior."""
        result = self._function(self.domain[indices], ids, key)
        return result if isinstance(result, tuple) else (result, None)
