"""Center of a released mechanism: its column, the label domain, and the noised histogram of the residuals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...mechanisms.center.cell_center import CellCenter
from ...mechanisms.center.center_model import center_document, read_center
from ...mechanisms.center.class_center import ClassCenter
from ...mechanisms.center.class_document import class_document, read_class_center
from ...mechanisms.center.linear_center import Explained, LinearCenter
from ...mechanisms.center.residuals import ClippingError, ResidualDomain, clipping_error
from ...mechanisms.core.budget import MIN_EPSILON
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.prior_release import PriorRelease, restricted_prior

MOST_COUNT = 1 << 62
"""Noised counts and numbers of records are below it."""


def read_counts(counts: Any, name: str) -> tuple[int, ...]:
    """Reads noised counts. Raises ValueError, which names the member, if they are anything else."""
    if not isinstance(counts, list) or not all(type(count) is int and abs(count) < MOST_COUNT for count in counts):
        raise ValueError(f"its {name} is not an array of integers")
    return tuple(counts)


@dataclass(frozen=True)
class CenterStatement:
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
    def of_release(cls, release: PriorRelease) -> CenterStatement | None:
        """Makes the statement for a released prior; None for labels without a center."""
        if release.center is None or not release.around_center:
            return None
        linear = release.made if isinstance(release.made, LinearCenter) else None
        return cls(release.center, release.domain, release.counts, release.budget.prior, linear)

    @classmethod
    def from_document(cls, document: Any, prior_epsilon: float) -> CenterStatement:
        """Reads the member of an untrusted mechanism file, whose prior has spent `prior_epsilon`.

        Raises ValueError if the member does not have the form of a center.
        """
        needed = {"column", "domain", "counts"}
        if not isinstance(document, dict) or not needed <= set(document) <= {*needed, "linear"}:
            raise ValueError("its center does not have exactly a column, a domain, counts and perhaps a linear center")
        column, domain, counts = document["column"], document["domain"], document["counts"]
        if not isinstance(column, str):
            raise ValueError("its center.column is not text")
        if not isinstance(domain, list) or not all(isinstance(label, float) for label in domain):
            raise ValueError("its center.domain is not an array of floats")
        counts = read_counts(counts, "center.counts")
        if not prior_epsilon >= MIN_EPSILON:
            raise ValueError("its prior has no epsilon, but its center has noised counts")
        linear = read_center(document["linear"]) if "linear" in document else None
        if linear is not None and linear.labels != len(domain):
            raise ValueError("its center.linear is for another number of labels")
        statement = cls(column, tuple(domain), counts, prior_epsilon, linear)
        if len(counts) != statement.residuals.cells:
            raise ValueError("its center.counts has not one count for each cell of residuals")
        return statement

    def to_document(self) -> dict[str, Any]:
        """JSON object of the statement, a member of a mechanism file."""
        linear = {} if self.linear is None else {"linear": center_document(self.linear)}
        return {"column": self.column, "domain": list(self.domain), "counts": list(self.counts), **linear}

    @property
    def epsilon(self) -> float:
        """Epsilon that the linear center has spent; 0 for a column of the input."""
        return 0.0 if self.linear is None else self.linear.epsilon

    @property
    def has_cells(self) -> bool:
        """Tells whether sums of residuals in cells were released."""
        return isinstance(self.linear, CellCenter) and bool(self.linear.cells.sums)

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
        if self.linear is None or not self.linear.sums:
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

    def mechanism_prior(self, randomizer: Randomizer) -> Prior:
        """Distribution that a mechanism was solved for: of clipped residuals.

        Raises ValueError if the mechanism is not for residuals of this domain.
        """
        return restricted_prior(self.prior, randomizer.labels)

    def check(self, randomizer: Randomizer, prior: Prior) -> None:
        """Compares the statement with the mechanism and the prior beside it.

        Raises ValueError if the mechanism is not for residuals of this domain, or the prior does not follow from the
        counts.
        """
        if self.mechanism_prior(randomizer).weights.tobytes() != prior.weights.tobytes():
            raise ValueError("its prior is not that of its center's counts")

    def clipping(self, randomizer: Randomizer) -> ClippingError:
        """Error of clipping residuals to the range of a mechanism, under the noised histogram."""
        return clipping_error(self.prior, float(randomizer.labels[0]), float(randomizer.labels[-1]))


@dataclass(frozen=True, eq=False)
class ClassStatement:
    """Member `class_center` of a mechanism file.

    Attributes:
      column: Column of the probabilities of each record.
      center: The center, from which the classes were drawn.
    """

    column: str
    center: ClassCenter

    @property
    def epsilon(self) -> float:
        """Epsilon that the center has spent."""
        return self.center.epsilon

    @property
    def prior(self) -> Prior:
        """Shares of the classes, by the released counts."""
        shares = self.center.shares
        return Prior(np.arange(len(shares), dtype=np.float64), shares)

    def to_document(self) -> dict[str, Any]:
        """Writes the member, which center.json holds as well."""
        return {"column": self.column, "center": class_document(self.center)}

    @classmethod
    def from_document(cls, document: Any, classes: int) -> ClassStatement:
        """Reads the member, which is untrusted, of a file of so many classes. Raises ValueError if it is wrong."""
        if not isinstance(document, dict) or set(document) != {"column", "center"}:
            raise ValueError("its class_center must have a column and a center")
        if not isinstance(document["column"], str) or not document["column"]:
            raise ValueError("the column of its class_center is not a name")
        center = read_class_center(document["center"])
        if len(center.counts) != classes:
            raise ValueError("its class_center is for another number of classes")
        return cls(document["column"], center)
