"""Release of records in memory along the keyed path of a job: digest, noise key, noisy prior, words, alias table.

It calls the functions that the stages of a job call, in the same order, without Beam. A test compares it with the
stages.
"""

from __future__ import annotations

import numpy as np

from ...mechanisms.center.residuals import ResidualDomain
from ...mechanisms.core.budget import BudgetSplit
from ...mechanisms.core.label_rounding import NEAREST, LabelRounder
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.input_digest import digest_sums, input_digest
from ...mechanisms.noise.keyed_words import derive_noise_key, words
from ...mechanisms.noise.noisy_histogram import noisy_counts
from ...mechanisms.noise.record_identities import first_repeated, integer_identities

COLUMN, ID_COLUMN, CENTER_COLUMN = "label", "id", "center"
"""Names of the label column, of the id column and of the center column, to which the noise is bound."""


class KeyedRelease:
    """Release function of a mechanism file, as `apply` and `privatize` release records with an id column.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Epsilon of the released histogram; 0 for a public prior, which is not released again.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
    """

    def __init__(self, randomizer: Randomizer, prior_epsilon: float, residuals: ResidualDomain | None = None):
        """Makes the release function.

        Args:
          randomizer: The randomizer.
          prior_epsilon: Epsilon of the released histogram; 0 for a public prior.
          residuals: Residuals of the label domain; None for labels without a center.

        Raises:
          ValueError: If the epsilon of the prior is out of range.
        """
        self.randomizer = randomizer
        self.prior_epsilon = prior_epsilon
        self._budget = BudgetSplit(prior_epsilon, randomizer.epsilon)
        self.residuals = residuals
        self._domain = randomizer.labels if residuals is None else residuals.labels
        self._rounder = LabelRounder(self._domain)

    def __call__(
        self, labels: np.ndarray, ids: np.ndarray, key: bytes, centers: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases records.

        Args:
          labels: Shape (n,), float64, finite.
          ids: Shape (n,), int64.
          key: Secret key, 32 bytes.
          centers: Shape (n,), float64, finite; None for labels without a center.

        Returns:
          The released labels, shape (n,), and the noised histogram as weights, shape (k,), or None; with a center, in
          place of the weights the noised counts of the cells of residuals. The prior is not estimated from the
          histogram: that would take longer, and says no more than the counts, which are released as well.

        Raises:
          ValueError: If two records have the same id, or there are centers but no residuals or the reverse.
        """
        identities = integer_identities(ID_COLUMN, ids)
        if first_repeated(identities.blocks) is not None:
            raise ValueError("two records have the same id")
        if (centers is None) != (self.residuals is None):
            raise ValueError("a mechanism of residuals takes centers, and no other does")
        randomizer, indices = self.randomizer, self._rounder.nearest(labels)
        request = (COLUMN, self._domain, self._budget, NEAREST)
        if centers is None or self.residuals is None:
            sums = digest_sums(key, COLUMN, identities, labels)
            noise_key = derive_noise_key(key, input_digest(key, sums, *request), *request)
            released = randomizer.sample(indices, words(noise_key, randomizer.fingerprint, identities))
            if self.prior_epsilon == 0:
                return released, None
            counts = np.bincount(indices, minlength=len(randomizer.labels))
            noised = noisy_counts(counts, self.prior_epsilon, noise_key)
            return released, Prior.from_counts(randomizer.labels, noised).weights
        places, around = self._rounder.nearest(centers), (*request, CENTER_COLUMN)
        sums = digest_sums(key, COLUMN, identities, labels, (CENTER_COLUMN, places))
        noise_key = derive_noise_key(key, input_digest(key, sums, *around), *around)
        first = self.residuals.place(randomizer.labels) - self.residuals.most
        clipped = np.clip(indices - places - first, 0, len(randomizer.labels) - 1)
        drawn = randomizer.sample(clipped, words(noise_key, randomizer.fingerprint, identities))
        counts = self.residuals.count(indices - places)
        return self._domain[places] + drawn, noisy_counts(counts, self.prior_epsilon, noise_key)
