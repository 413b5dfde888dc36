"""Noised histograms of a mechanism file, of labels or of residuals around a center; documents are untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..center.cell_center import CellCenter
from ..center.center_model import center_document, read_center
from ..center.linear_center import Explained, LinearCenter
from ..center.residuals import ClippingError, ResidualDomain, clipped_prior, clipping_error
from ..core.budget import MIN_EPSILON
from ..core.prior import Prior
from ..noise.noisy_histogram import estimated_prior

# Relative to the largest weight. Weights have the same bits on every CPU; another numpy may add in another order.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class NoisedCounts:
    """Noised histogram of labels, from which a released prior was estimated.

    Attributes:
      counts: Noised number of records of each label; some may be negative.
      records: Number of records, which is public.
    """

    counts: tuple[int, ...]
    records: int

    @classmethod
    def from_document(cls, noised: dict[str, Any], counted: bool) -> NoisedCounts | None:
        """Reads the counts from the member `prior` of a mechanism file, which has its form.

        Only a released prior of labels was `counted`; for others, the result is None. Raises ValueError if the counts
        or the number of records are missing, or there without having been counted.
        """
        if {"counts", "records"} & noised.keys() and not counted:
            raise ValueError("its prior has noised counts, but no epsilon, or a center with counts of its own")
        if not counted:
            return None
        if not {"counts", "records"} <= noised.keys():
            raise ValueError("its prior.counts or its prior.records is missing")
        return cls(tuple(noised["counts"]), noised["records"])

    def to_document(self) -> dict[str, Any]:
        """Entries of the member `prior` of a mechanism file."""
        return {"counts": list(self.counts), "records": self.records}

    def check(self, prior: Prior, prior_epsilon: float) -> None:
        """Compares the counts with the prior beside them, for whose release `prior_epsilon` was spent.

        Raises ValueError if the prior does not follow from the counts.
        """
        if len(self.counts) != len(prior.labels):
            raise ValueError("its prior.counts has not one count for each label")
        expected = estimated_prior(prior.labels, np.array(self.counts), self.records, prior_epsilon).weights
        if np.abs(expected - prior.weights).max() > _TOLERANCE * expected.max():
            raise ValueError("its prior does not follow from its counts")


@dataclass(frozen=True)
class NoisedResiduals:
    """Member `center` of a mechanism file: everything that residuals and their range follow from.

    Attributes:
      column: Name of the center column.
      domain: The k labels of the public domain, ascending and evenly spaced.
      counts: Noised number of records of each cell of residuals; some may be negative.
      prior_epsilon: Epsilon that their release spent; stated in the member `prior`.
      linear: The linear center that made the column; None for a column of the input.
    """

    column: str
    domain: tuple[float, ...]
    counts: tuple[int, ...]
    prior_epsilon: float
    linear: LinearCenter | None = None

    @classmethod
    def from_document(cls, document: dict[str, Any], prior_epsilon: float) -> NoisedResiduals:
        """Reads the member, which has its form, of an untrusted mechanism file whose prior has spent `prior_epsilon`.

        Raises ValueError if it contradicts itself.
        """
        column, domain, counts = document["column"], tuple(document["domain"]), tuple(document["counts"])
        if not prior_epsilon >= MIN_EPSILON:
            raise ValueError("its prior has no epsilon, but its center has noised counts")
        linear = read_center(document["linear"]) if "linear" in document else None
        if linear is not None and linear.labels != len(domain):
            raise ValueError("its center.linear is for another number of labels")
        residuals = cls(column, domain, counts, prior_epsilon, linear)
        if len(counts) != residuals.residuals.cells:
            raise ValueError("its center.counts has not one count for each cell of residuals")
        return residuals

    def to_document(self) -> dict[str, Any]:
        """JSON object of the member."""
        linear = {} if self.linear is None else {"linear": center_document(self.linear)}
        return {"column": self.column, "domain": list(self.domain), "counts": list(self.counts), **linear}

    @property
    def epsilon(self) -> float:
        """Epsilon that the linear center has spent; 0 for a column of the input."""
        return 0.0 if self.linear is None else self.linear.epsilon

    @property
    def has_cells(self) -> bool:
        """Tells whether sums of labels, or of residuals in cells, were released, which make the center a model."""
        return self.linear is not None and self.linear.is_model

    @cached_property
    def residuals(self) -> ResidualDomain:
        """Residuals of the labels around their centers."""
        return ResidualDomain(np.array(self.domain))

    @cached_property
    def prior(self) -> Prior:
        """Distribution of the residuals over all of their grid, before they are clipped."""
        return self.residuals.prior(np.array(self.counts), self.prior_epsilon)

    @cached_property
    def explained(self) -> Explained | None:
        """Estimated variance of the labels, in squared units of the label, and what the center explains of it.

        None for a column of the input, and for a linear center without sums.
        """
        if self.linear is None:
            return None
        left = self.residuals.mean_square(np.array(self.counts), self.prior_epsilon)
        if isinstance(self.linear, CellCenter):
            cells = self.linear.cells
            around = self.residuals.mean_square(np.array(cells.counts), cells.design.histogram)
            explained = self.linear.explained(around, left)
        else:
            explained = self.linear.explained(left)
        step = float(self.residuals.grid[-1]) / self.residuals.most
        return None if explained is None else explained._replace(variance=explained.variance * step**2)

    def check(self, prior: Prior) -> None:
        """Compares the counts with the prior of a mechanism beside them, over the range that it takes.

        Raises ValueError if the mechanism is not for residuals of this domain, or the prior does not follow.
        """
        if restricted_prior(self.prior, prior.labels).weights.tobytes() != prior.weights.tobytes():
            raise ValueError("its prior is not that of its center's counts")

    def clipping(self, labels: np.ndarray) -> ClippingError:
        """Error of clipping residuals to the range of a mechanism with these labels, under the noised histogram."""
        return clipping_error(self.prior, float(labels[0]), float(labels[-1]))


def restricted_prior(prior: Prior, labels: np.ndarray) -> Prior:
    """Clips a distribution of residuals, over all of their grid, to the range of a mechanism.

    `labels` are those of the mechanism: the residuals of the range. Raises ValueError if they are not consecutive
    residuals of the grid.
    """
    first = int(np.searchsorted(prior.labels, labels[0]))
    clipped = clipped_prior(prior, first, min(first + len(labels), len(prior.labels)) - 1)
    if not np.array_equal(clipped.labels, labels):
        raise ValueError("the mechanism is not for consecutive residuals of the label domain")
    return clipped
