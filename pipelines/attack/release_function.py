"""Release functions: what the checks attack, as a function of labels, record identities and a key."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...mechanisms.center.residuals import ResidualDomain
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
