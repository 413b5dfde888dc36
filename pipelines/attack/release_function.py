"""Release functions: what the checks attack, as a function of labels, record identities and a key.

`KeyedRelease` is that of this project: digest, noise key, noisy prior, words, alias table. It calls the functions that
the stages of a job call, in the same order, without Beam. A test compares it with the stages.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...mechanisms.center.group_ranges import GroupRanges
from ...mechanisms.center.residuals import ResidualDomain
from ...mechanisms.core.budget import BudgetSplit
from ...mechanisms.core.label_grid import NEAREST, LabelRounder
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.input_digest import digest_sums, input_digest
from ...mechanisms.noise.keyed_words import Identities, derive_noise_key, first_repeated, integer_identities, words
from ...mechanisms.noise.noisy_histogram import noisy_counts
from ...mechanisms.release.unit_bound import UnitBound, over_limit, priorities, unit_words
from ..errors import UsageError

ReleaseFunction = Callable[..., Any]
"""Release function (labels, ids, key), or with a center (labels, ids, key, centers), or with groups as well
(labels, ids, key, centers, groups), as users write it.

It takes the labels of n records (shape (n,), float64, labels of the domain), their ids (shape (n,), int64) and the
secret key (32 bytes). It returns the n released labels; or a pair of the released labels and the released prior, one
weight for each label of the domain (None for no prior). It raises ValueError if it refuses the records.

For a mechanism of residuals it takes the centers as well (shape (n,), float64, labels of the domain), and in place of
the prior it returns the noised count of each cell of residuals. With groups it takes the number of the group of each
record (shape (n,), int64), and returns the counts of the cells of the first group, then of the second, and so on.

For a mechanism of privacy units it takes the unit of each record as the keyword `units` as well (shape (n,), int64).
The released label of a record beyond the bound of its unit is NaN.
"""

COLUMN, ID_COLUMN, CENTER_COLUMN, GROUP_COLUMN = "label", "id", "center", "group"
"""Names of the label column, the id column, the center column and that of the groups, to which the noise is bound."""
UNIT_COLUMN = "unit"
"""Namespace of the units; their real column is that of the file, to which the noise is bound."""


class Release(NamedTuple):
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
      groups: Number of groups; 0 without groups.
      group: Group of all records.
      has_units: Whether the function takes units.
    """

    def __init__(
        self,
        function: ReleaseFunction,
        domain: np.ndarray,
        residuals: ResidualDomain | None = None,
        center: int = 0,
        groups: int = 0,
        group: int = 0,
        has_units: bool = False,
    ):
        """Wraps a release function; the other arguments are the attributes."""
        self.domain = domain
        self.residuals = residuals
        self.center = center
        self.groups = groups
        self.group = group
        self.has_units = has_units
        self._function = function

    @property
    def ends(self) -> tuple[int, int]:
        """Places of the first and of the last label in the released prior."""
        if self.residuals is None:
            return 0, -1
        steps = np.searchsorted(self.residuals.labels, self.domain[[0, -1]]) - self.center
        first, last = (self.group * self.residuals.cells + self.residuals.cells_of(steps)).tolist()
        return first, last

    def release(
        self,
        indices: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        center: int | None = None,
        group: int | None = None,
        units: np.ndarray | None = None,
    ) -> Release:
        """Releases records by the indices of their labels in the domain, shape (n,).

        The ids and units have shape (n,), int64; the key has 32 bytes. `center`, an index in the whole domain, and
        `group` are those of all records, by default the attributes; without `units`, each record has a unit of its own.
        Raises SamplerError if the function fails, also by refusing the records, or returns something else than a
        release.
        """
        try:
            return self.try_release(indices, ids, key, center, group, units)
        except ValueError as error:
            raise SamplerError(f"the sampler refused records with different ids: {error}") from None

    def try_release(
        self,
        indices: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        center: int | None = None,
        group: int | None = None,
        units: np.ndarray | None = None,
    ) -> Release:
        """Releases records that the function may refuse, as `release` does.

        Raises ValueError if the function refuses the records, and SamplerError if it fails otherwise, or returns
        something else than a release.
        """
        centers, weights = [], (len(self.domain), "weights, one for each label of the domain")
        if self.residuals is not None:
            centers = [np.full(len(ids), self.residuals.labels[self.center if center is None else center])]
            weights = (self.residuals.cells * max(self.groups, 1), "counts, one for each cell of residuals")
        if self.groups:
            centers.append(np.full(len(ids), self.group if group is None else group))
        named = {"units": np.arange(len(ids)) if units is None else units} if self.has_units else {}
        try:
            result = self._function(self.domain[indices], ids, key, *centers, **named)
        except ValueError:
            raise
        except Exception as error:
            raise SamplerError(f"the sampler failed: {type(error).__name__}: {error}") from None
        labels, prior = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        return Release(
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


def load_sampler(name: str) -> ReleaseFunction:
    """Imports the release function MODULE:FUNCTION of `--sampler`; modules of the current folder can be named.

    Raises UsageError if the name is malformed, or the module or the function cannot be imported.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"--sampler takes MODULE:FUNCTION, not {name!r}")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(f"--sampler {name}: the module cannot be imported ({type(error).__name__}: {error})") from None
    finally:
        sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"--sampler {name}: {module_name} has no function {function_name}")
    return function


class KeyedRelease:
    """Release function of a mechanism file, as `apply` and `privatize` release records with an id column.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Epsilon of the released histogram; 0 for a public prior, which is not released again.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
      unit: Privacy unit; None for single records.
    """

    def __init__(
        self,
        randomizer: Randomizer,
        prior_epsilon: float,
        residuals: ResidualDomain | None = None,
        unit: UnitBound | None = None,
    ):
        """Makes the release function. Raises ValueError if the epsilon of the prior is out of range."""
        self.randomizer = randomizer
        self.prior_epsilon = prior_epsilon
        self._budget = BudgetSplit(prior_epsilon, randomizer.epsilon)
        self.residuals = residuals
        self.unit = unit
        self._request_of_unit = None if unit is None else unit.request
        self._domain = randomizer.labels if residuals is None else residuals.labels
        self._rounder = LabelRounder(self._domain)
        self._ranges = None if randomizer.group_ranges is None else GroupRanges(randomizer.group_ranges)
        if self._ranges is not None and residuals is not None:
            self._table = self._ranges.outputs(randomizer, residuals)

    def __call__(
        self,
        labels: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        centers: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        units: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases n records, as labels of shape (n,), NaN beyond the bounds of their units, and the noised histogram.

        The histogram is given as weights, shape (k,), or None. With a center, there are the noised counts of the cells
        of residuals in place of the weights, with groups group after group. The prior is not estimated from the
        histogram: that would take longer, and says no more than the counts, which are released as well.

        Labels and centers are finite, float64; ids, numbers of groups and numbers of units are int64; all of them have
        shape (n,). The key has 32 bytes. Raises ValueError if two records have the same id, or there are centers but no
        residuals or the reverse, or groups but no ranges or the reverse, or units but no bound or the reverse.
        """
        identities = integer_identities(ID_COLUMN, ids)
        if first_repeated(identities.blocks) is not None:
            raise ValueError("two records have the same id")
        if (centers is None) != (self.residuals is None):
            raise ValueError("a mechanism of residuals takes centers, and no other does")
        if (groups is None) != (self._ranges is None):
            raise ValueError("a mechanism of groups takes groups, and no other does")
        if (units is None) != (self.unit is None):
            raise ValueError("a mechanism of privacy units takes units, and no other does")
        if units is None or self.unit is None:
            return self._release(labels, identities, key, centers, groups)
        hashes = unit_words(key, integer_identities(UNIT_COLUMN, units))
        kept = ~over_limit(hashes, priorities(key, identities), self.unit.max_records)
        released = np.full(len(labels), np.nan)
        centers, groups = (None if values is None else values[kept] for values in (centers, groups))
        of_kept = integer_identities(ID_COLUMN, ids[kept])
        released[kept], histogram = self._release(labels[kept], of_kept, key, centers, groups)
        return released, histogram

    def _release(
        self,
        labels: np.ndarray,
        identities: Identities,
        key: bytes,
        centers: np.ndarray | None,
        groups: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases records within the bounds of their units."""
        randomizer, indices = self.randomizer, self._rounder.nearest(labels)
        request = (COLUMN, self._domain, self._budget, NEAREST)
        if centers is None or self.residuals is None:
            request = (*request, None, None, self._request_of_unit)
            sums = digest_sums(key, COLUMN, identities, labels)
            noise_key = derive_noise_key(key, input_digest(key, sums, *request), *request)
            released = randomizer.sample(indices, words(noise_key, randomizer.fingerprint, identities))
            if self.prior_epsilon == 0:
                return released, None
            counts = np.bincount(indices, minlength=len(randomizer.labels))
            noised = noisy_counts(counts, self.prior_epsilon, noise_key)
            return released, Prior.from_counts(randomizer.labels, noised).weights
        places, around = self._rounder.nearest(centers), (*request, CENTER_COLUMN, None, self._request_of_unit)
        if groups is not None and self._ranges is not None:
            return self._release_groups(labels, identities, key, places, groups)
        sums = digest_sums(key, COLUMN, identities, labels, (CENTER_COLUMN, places))
        noise_key = derive_noise_key(key, input_digest(key, sums, *around), *around)
        first = self.residuals.place(randomizer.labels) - self.residuals.most
        clipped = np.clip(indices - places - first, 0, len(randomizer.labels) - 1)
        drawn = randomizer.sample(clipped, words(noise_key, randomizer.fingerprint, identities))
        counts = self.residuals.count(indices - places)
        return self._domain[places] + drawn, noisy_counts(counts, self.prior_epsilon, noise_key)

    def _release_groups(
        self, labels: np.ndarray, identities: Identities, key: bytes, places: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Releases records of groups, around the centers of some indices."""
        residuals, ranges, randomizer = self.residuals, self._ranges, self.randomizer
        indices = self._rounder.nearest(labels)
        assert residuals is not None
        assert ranges is not None
        size = len(ranges.ends)
        declared = GROUP_COLUMN, tuple(map(str, range(size - 1)))
        request = (COLUMN, self._domain, self._budget, NEAREST, CENTER_COLUMN, declared, self._request_of_unit)
        sums = digest_sums(key, COLUMN, identities, labels, (CENTER_COLUMN, places * size + groups))
        noise_key = derive_noise_key(key, input_digest(key, sums, *request), *request)
        coins = words(key, f"position {COLUMN}".encode(), identities)
        positions = ranges.find(indices - places, groups, len(randomizer.labels), coins)
        drawn = randomizer.draw(positions, words(noise_key, randomizer.fingerprint, identities))
        cells = groups * residuals.cells + residuals.cells_of(indices - places)
        counts = np.bincount(cells, minlength=size * residuals.cells)
        released = self._domain[places] + self._table[groups, drawn]
        return released, noisy_counts(counts, self.prior_epsilon, noise_key)
