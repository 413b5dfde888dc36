"""Release functions: what the checks attack, as a function of labels, record identities and a key.

`KeyedRelease` is that of this project: digest, noise key, noisy prior, words, alias table. It calls the functions that
the stages of a job call, in the same order, without Beam. A test compares it with the stages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise.keyed_words import Identities, first_repeated, integer_identities
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
from labeldp.mechanisms.release.bound_noise import make_binding
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_column import LabelColumn, LabelMeaning
from labeldp.mechanisms.release.label_records import LabelRecords
from labeldp.mechanisms.release.unit_bound import SINGLE, PrivacyUnit, over_limit, priorities, unit_words

from tests.label_counts import count_labels

ReleaseFunction = Callable[..., Any]
"""Release function (labels, ids, key), or with a center (labels, ids, key, centers).

It takes the labels of n records (shape (n,), float64, labels of the domain, of classes their places), their ids (shape
(n,), int64) and the secret key (32 bytes). It returns the n released labels; or a pair of the released labels and the
released prior, one weight for each label of the domain (None for no prior). It raises ValueError if it refuses the
records.

For a mechanism of residuals it takes the centers as well (shape (n,), float64, labels of the domain), and in place of
the prior it returns the noised count of each cell of residuals.

For a mechanism of privacy units it takes the unit of each record as the keyword `units` as well (shape (n,), int64).
The released label of a record beyond the bound of its unit is NaN.
"""

COLUMN, ID_COLUMN, CENTER_COLUMN = "label", "id", "center"
"""Names of the label column, the id column and the center column, to which the noise is bound."""
UNIT_COLUMN = "unit"
"""Namespace of the units; their real column is that of the file, to which the noise is bound."""


class SampledLabels(NamedTuple):
    """Result of a release function.

    Attributes:
      labels: Shape (n,), float64: the released labels.
      prior: Shape (k,), float64: the weights of the released prior, with a center the noised counts of the cells of
        residuals; None if none was released.
    """

    labels: np.ndarray
    prior: np.ndarray | None


class SamplerError(Exception):
    """A release function failed, or returned something else than a release."""


class BlackBox:
    """A release function whose results are checked for their form.

    Attributes:
      domain: Shape (k,), the labels of the domain; with a center, some of them.
      residuals: Residuals of the whole domain; None for labels without a center.
      center: Index of the center of all records in the whole domain.
      has_units: Whether the function takes units.
    """

    def __init__(
        self,
        function: ReleaseFunction,
        domain: np.ndarray,
        residuals: ResidualDomain | None = None,
        center: int = 0,
        has_units: bool = False,
    ):
        """Wraps a release function; the other arguments are the attributes."""
        self.domain = domain
        self.residuals = residuals
        self.center = center
        self.has_units = has_units
        self._function = function

    @property
    def ends(self) -> tuple[int, int]:
        """Places of the first and of the last label in the released prior."""
        if self.residuals is None:
            return 0, -1
        steps = np.searchsorted(self.residuals.labels, self.domain[[0, -1]]) - self.center
        first, last = self.residuals.cells_of(steps).tolist()
        return first, last

    def release(
        self,
        indices: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        center: int | None = None,
        units: np.ndarray | None = None,
    ) -> SampledLabels:
        """Releases records by the indices of their labels in the domain, shape (n,).

        The ids and units have shape (n,), int64; the key has 32 bytes. `center`, an index in the whole domain,
        is that of all records, by default the attribute; without `units`, each record has a unit of its own. Raises
        SamplerError if the function fails, also by refusing the records, or returns something else than a release.
        """
        try:
            return self.try_release(indices, ids, key, center, units)
        except ValueError as error:
            raise SamplerError(f"the sampler refused records with different ids: {error}") from None

    def try_release(
        self,
        indices: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        center: int | None = None,
        units: np.ndarray | None = None,
    ) -> SampledLabels:
        """Releases records that the function may refuse, as `release` does.

        Raises ValueError if the function refuses the records, and SamplerError if it fails otherwise, or returns
        something else than a release.
        """
        centers, weights = [], (len(self.domain), "weights, one for each label of the domain")
        if self.residuals is not None:
            centers = [np.full(len(ids), self.residuals.labels[self.center if center is None else center])]
            weights = (self.residuals.cells, "counts, one for each cell of residuals")
        named = {"units": np.arange(len(ids)) if units is None else units} if self.has_units else {}
        try:
            result = self._function(self.domain[indices], ids, key, *centers, **named)
        except ValueError:
            raise
        except Exception as error:
            raise SamplerError(f"the sampler failed: {type(error).__name__}: {error}") from None
        labels, prior = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        return SampledLabels(
            _numbers(labels, len(ids), "released labels, one for each record"),
            None if prior is None else _numbers(prior, *weights),
        )


def _numbers(values: Any, count: int, what: str) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise SamplerError(f"the sampler must return {what}, as numbers") from None
    if array.shape != (count,):
        raise SamplerError(f"the sampler must return {what}: shape ({count},), not {array.shape}")
    return array


class KeyedRelease:
    """Release function of a mechanism file, as `apply` and `privatize` release records with an id column.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Epsilon of the released histogram; 0 for a public prior, which is not released again.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
      unit: Privacy unit.
    """

    def __init__(
        self,
        randomizer: Randomizer,
        prior_epsilon: float,
        residuals: ResidualDomain | None = None,
        unit: PrivacyUnit = SINGLE,
        classes: LabelClasses | None = None,
    ):
        """Makes the release function, for labels that are numbers, or places of classes.

        Raises ValueError if the epsilon of the prior is out of range.
        """
        self.randomizer = randomizer
        self.prior_epsilon = prior_epsilon
        self._budget = BudgetSplit(prior_epsilon, randomizer.epsilon)
        self.residuals = residuals
        self.unit = unit
        labels, center = randomizer.labels, None
        if residuals is not None:
            labels, center = residuals.labels, CENTER_COLUMN
        # In the file, the column of units may have the name that the label has here.
        bound = unit if unit.column != COLUMN else dataclasses.replace(unit, column=UNIT_COLUMN)
        domain = tuple(labels.tolist())
        self._column = LabelColumn(COLUMN, domain, ID_COLUMN, center=center, unit=bound, meaning=LabelMeaning(classes))

    def __call__(
        self,
        labels: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        centers: np.ndarray | None = None,
        units: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases n records, as labels of shape (n,), NaN beyond the bounds of their units, and the noised histogram.

        The histogram is given as weights, shape (k,), or None. With a center, there are the noised counts of the cells
        of residuals in place of the weights. The prior is not estimated from the histogram: that would take longer, and
        says no more than the counts, which are released as well.

        Labels and centers are finite, float64; ids and numbers of units are int64; all of them have shape (n,). The key
        has 32 bytes. Raises ValueError if two records have the same id, or there are centers but no residuals or the
        reverse, or units but no bound or the reverse.
        """
        identities = integer_identities(ID_COLUMN, ids)
        if first_repeated(identities.blocks) is not None:
            raise ValueError("two records have the same id")
        if (centers is None) != (self.residuals is None):
            raise ValueError("a mechanism of residuals takes centers, and no other does")
        if (units is None) != (self.unit == SINGLE):
            raise ValueError("a mechanism of privacy units takes units, and no other does")
        if units is None:
            return self._release(labels, identities, key, centers)
        hashes = unit_words(key, integer_identities(UNIT_COLUMN, units))
        kept = ~over_limit(hashes, priorities(key, identities), self.unit.max_records)
        released = np.full(len(labels), np.nan)
        of_kept = integer_identities(ID_COLUMN, ids[kept])
        centers = None if centers is None else centers[kept]
        released[kept], histogram = self._release(labels[kept], of_kept, key, centers)
        return released, histogram

    def _release(
        self, labels: np.ndarray, identities: Identities, key: bytes, centers: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases records within the bounds of their units."""
        column, randomizer, bound = self._column, self.randomizer, None
        if centers is not None:
            # They are labels of the domain, which are not rounded.
            bound = column.indices(centers, identities, key)
        records = LabelRecords(column, labels, identities, bound)
        summary = count_labels(records, key)
        noise_key = make_binding(summary, column, self._budget, key).noise_key(key)
        released = drawing_of(randomizer, column).draw(records, noise_key, key)
        if centers is None and self.prior_epsilon == 0:
            return released, None
        counts = noisy_counts(summary.sums, self.prior_epsilon, noise_key)
        return released, Prior.from_counts(randomizer.labels, counts).weights if centers is None else counts
