"""Drawing of the labels of a release: from a table, around a center, or from a center of classes.

A drawing is released with the labels: it has everything that was released before them, and spends nothing more but on
the labels. Secret key and noise key have 32 bytes. Epsilons are those of one record.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from ..analysis.explained import NoisedHistogram
from ..analysis.utility import CenterFacts
from ..center.center_model import CenterModel
from ..center.class_center import PROBABILITY_UNIT, ClassCenter, draw_classes
from ..center.class_document import class_document, read_class_center
from ..center.class_model import ClassModel, center_fingerprint
from ..center.feature_rows import MappedColumns, RowMap
from ..center.linear_center import LinearCenter
from ..center.residuals import ClippingError
from ..core.budget import BudgetSplit, round_up
from ..core.label_classes import LabelClasses
from ..core.label_grid import NEAREST
from ..core.prior import Prior
from ..core.randomizer import Randomizer, solved_randomizer
from ..noise.keyed_words import labelled_words, words
from ..noise.noised_part import NoisedPart
from .label_column import LabelColumn
from .label_records import LabelRecords
from .noised_counts import NoisedCounts, NoisedResiduals, restricted_prior
from .prior_release import PriorRelease

DRAWN_BY_CENTER = "class_center"
"""Name of what draws classes from the probabilities of their center, in place of that of a mechanism."""
CENTER_FORMAT = "labeldp-mechanism-2"
"""Format of a mechanism file whose classes are drawn from a center: it has no randomizer, and no prior."""

ReadFeatures: TypeAlias = Callable[[RowMap], MappedColumns]
"""Reads the features of a map for some records."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing(ABC):
    """Way in which the labels of a release are drawn: by a Table, Around a center, or FromCenter.

    Here is what holds for labels without a center, and where draws cost nothing.

    Attributes:
      prior: Prior that was solved for; of classes that are drawn from a center, their shares by its counts.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior, and where the center has counts.
      rounding: Rounding of labels that are not in the domain: nearest or randomized.
      prior_release: Name of the prior's release in ledgers; None for a public prior.
    """

    prior: Prior
    prior_epsilon: float = 0.0
    rounding: str = NEAREST
    prior_release: str | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the mechanism, or DRAWN_BY_CENTER."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Fingerprint of what draws the labels, 64 hexadecimal digits: labels of two of them are two releases."""

    @property
    def solved(self) -> Randomizer | None:
        """The randomizer; None for classes that are drawn from a center."""
        return None

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer. Raises ValueError for classes that are drawn from a center: they have none."""
        return solved_randomizer(self.solved)

    @property
    def domain(self) -> tuple[float, ...]:
        """The k labels of the public domain, ascending; of classes their places."""
        return tuple(self.prior.labels.tolist())

    @property
    def column(self) -> str | None:
        """Column of the center, or of the probabilities of classes; None without a center."""
        return None

    @property
    def given_column(self) -> str | None:
        """Column of the input that is the center; None without a center, and for one that is made of features."""
        return None

    @property
    def made(self) -> LinearCenter | ClassCenter | None:
        """The center that was made of features; None without one."""
        return None

    @property
    def model(self) -> CenterModel | ClassModel | None:
        """The center that was made of features as a model of its own, which center.json holds; None without one."""
        return None

    @property
    def center_epsilon(self) -> float:
        """Epsilon that the center has spent; 0 where there is none, or where it is a column of the input."""
        return 0.0 if self.made is None else self.made.epsilon

    @property
    @abstractmethod
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise before the labels, in its order: of the center, and the histogram."""

    @property
    @abstractmethod
    def budget(self) -> BudgetSplit:
        """Epsilon of the prior and of what it leaves for the labels: of the randomizer, or of a center of classes."""

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of the labels that were asked for."""
        return 0.0, 0.0

    @property
    def certified(self) -> tuple[float, float]:
        """Certified epsilon and delta of the labels."""
        return 0.0, 0.0

    @property
    def histogram(self) -> NoisedHistogram | None:
        """Noised counts of the labels, of the classes or of the cells of residuals; None if the prior is public."""
        return None

    @property
    def whole(self) -> Prior | None:
        """Distribution of the residuals before they are clipped to the randomizer's range; None without a center."""
        return None

    @property
    def clipping(self) -> ClippingError:
        """Error of clipping residuals to the randomizer's range, under the noised histogram; 0 without a center."""
        return ClippingError(0.0, 0.0, 0.0)

    def facts(self, missing: int | None) -> CenterFacts:
        """Facts of the center around which labels are drawn, which so many records miss."""
        return CenterFacts()

    def summary(self, missing: int) -> dict[str, Any]:
        """Member `center` or `class_center` of a manifest; mechanism.json and center.json have all of it."""
        return {}

    @abstractmethod
    def fits(self, column: LabelColumn) -> bool:
        """True if labels of the column can be drawn."""

    def centers(self, read: ReadFeatures) -> np.ndarray | None:
        """Centers of n records as they are released: labels of the domain, shape (n,), of classes shares, shape (n, K).

        None without a center that is made of features.
        """
        return None

    def probabilities(self, read: ReadFeatures) -> np.ndarray | None:
        """Coded probabilities of n records that classes are drawn from, shape (n, K), int64, of the features read.

        None for labels that are drawn from a table: they need no features.
        """
        return None

    @abstractmethod
    def draw(
        self,
        records: LabelRecords,
        noise_key: bytes,
        secret: bytes,
        probabilities: np.ndarray | None = None,
        streaming: bool = False,
    ) -> np.ndarray:
        """Draws a label for each record, by the random word of its identity.

        Args:
          records: The n records, with centers if they are drawn around one.
          noise_key: Noise key of the release.
          secret: Secret key, for randomized rounding.
          probabilities: Coded probabilities of the classes, shape (n, K), if they are drawn from them.
          streaming: Whether the noise key is that of a StreamBinding: words are then bound to labels and centers too.

        Returns:
          Released labels, shape (n,), float64; of classes their places.
        """

    def repeats(self, release: PriorRelease) -> bool:
        """True if this release asks for it again: with an equal budget, and a prior that is equal bit for bit."""
        return False

    def members(self) -> dict[str, Any]:
        """Members of a mechanism file that its center has."""
        return {}

    @abstractmethod
    def to_json(self, named: Mapping[str, Any], members: Mapping[str, Any]) -> str:
        """Text of a mechanism file; `named` are members on what was counted, the others include `members()`."""


@dataclass(frozen=True, eq=False)
class Table(Drawing):
    """Draws each label, or the place of a class, from its row in a randomizer.

    Attributes:
      table: The randomizer.
      noised: Noised counts of the labels, from which the prior follows; None for a public prior.
    """

    table: Randomizer
    noised: NoisedCounts | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        return self.table.mechanism

    @property
    def fingerprint(self) -> str:
        return self.table.fingerprint.hex()

    @property
    def solved(self) -> Randomizer | None:
        return self.table

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        width = len(self.table.labels)
        return (NoisedPart.histogram("the labels", self.prior_epsilon, width),) if self.prior_epsilon else ()

    @property
    def budget(self) -> BudgetSplit:
        return BudgetSplit(self.prior_epsilon, self.table.epsilon)

    @property
    def spent(self) -> tuple[float, float]:
        return self.table.epsilon, self.table.delta

    @property
    def certified(self) -> tuple[float, float]:
        certificate = self.table.certificate()
        return certificate.epsilon, certificate.delta

    @property
    def histogram(self) -> NoisedHistogram | None:
        if self.noised is None or not self.prior_epsilon > 0:
            return None
        return NoisedHistogram(np.array(self.domain), np.array(self.noised.counts), self.prior_epsilon)

    def fits(self, column: LabelColumn) -> bool:
        if column.around_center or self.domain != column.domain:
            return False
        return not column.classes or {*self.table.outputs.tolist()} <= {*column.domain}

    def draw(
        self,
        records: LabelRecords,
        noise_key: bytes,
        secret: bytes,
        probabilities: np.ndarray | None = None,
        streaming: bool = False,
    ) -> np.ndarray:
        return self.table.sample(records.indices(secret), self._words(records, noise_key, streaming))

    def _words(self, records: LabelRecords, noise_key: bytes, streaming: bool) -> np.ndarray:
        purpose = self.table.fingerprint
        if streaming:
            return labelled_words(noise_key, purpose, records.identities, records.values, records.centers)
        return words(noise_key, purpose, records.identities)

    def repeats(self, release: PriorRelease) -> bool:
        return self.budget == release.budget and self.rounding == release.rounding and self._same_prior(release.prior)

    def _same_prior(self, prior: Prior) -> bool:
        same = np.array_equal(prior.labels, self.table.labels)
        return same and self.prior.weights.tobytes() == prior.weights.tobytes()

    def to_json(self, named: Mapping[str, Any], members: Mapping[str, Any]) -> str:
        name = {} if self.prior_release is None else {"release": self.prior_release}
        counts = {} if self.noised is None else self.noised.to_document()
        prior = {"weights": self.prior.weights.tolist(), "epsilon": self.prior_epsilon, **name, **named, **counts}
        return self.table.to_json(prior=prior, rounding=self.rounding, **members)


@dataclass(frozen=True, eq=False)
class Around(Table):
    """Draws the residual of a label, the label minus its center, from its row in a randomizer, and adds the center.

    Residuals are clipped to the labels of the randomizer, and `prior` is that of clipped residuals.

    Attributes:
      residuals: The center's column, the label domain, the noised counts of the residuals, and the linear center.
    """

    residuals: NoisedResiduals = field(kw_only=True)

    @property
    def domain(self) -> tuple[float, ...]:
        return self.residuals.domain

    @property
    def column(self) -> str | None:
        return self.residuals.column

    @property
    def given_column(self) -> str | None:
        return self.residuals.column if self.residuals.linear is None else None

    @property
    def made(self) -> LinearCenter | None:
        return self.residuals.linear

    @property
    def model(self) -> CenterModel | ClassModel | None:
        linear = self.residuals.linear
        return None if linear is None else CenterModel(self.residuals.column, self.residuals.domain, linear)

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        made = () if self.residuals.linear is None else self.residuals.linear.parts
        return *made, NoisedPart.histogram("the residuals", self.prior_epsilon, len(self.residuals.counts))

    @property
    def histogram(self) -> NoisedHistogram | None:
        return NoisedHistogram(np.array(self.domain), np.array(self.residuals.counts), self.prior_epsilon)

    @property
    def whole(self) -> Prior | None:
        return self.residuals.prior

    @property
    def clipping(self) -> ClippingError:
        return self.residuals.clipping(self.table.labels)

    def facts(self, missing: int | None) -> CenterFacts:
        explained = self.residuals.explained or (None, None, 0.0)
        ends = self.domain[0], self.domain[-1]
        return CenterFacts(self.residuals.prior, ends, missing, *explained, self.residuals.has_cells)

    def summary(self, missing: int) -> dict[str, Any]:
        labels, error, linear = self.table.labels, self.clipping, self.residuals.linear
        center = {
            "column": self.residuals.column,
            "missing": missing,
            "residuals": {"min": float(labels[0]), "max": float(labels[-1]), "labels": len(labels)},
            "clipping": {"share": error.share, "bias": error.bias, "squared_error": error.squared},
        }
        return {"center": center if linear is None else {**center, "linear": linear.summary}}

    def centers(self, read: ReadFeatures) -> np.ndarray | None:
        linear = self.residuals.linear
        return None if linear is None else np.array(self.domain)[linear.indices(read(linear.map))]

    def fits(self, column: LabelColumn) -> bool:
        if not column.around_center or self.domain != column.domain:
            return False
        try:
            column.residuals.place(self.table.labels)
        except ValueError:
            return False
        return True

    def draw(
        self,
        records: LabelRecords,
        noise_key: bytes,
        secret: bytes,
        probabilities: np.ndarray | None = None,
        streaming: bool = False,
    ) -> np.ndarray:
        assert records.centers is not None
        residuals, centers, rows = records.column.residuals, records.centers, self.table.labels
        first = residuals.place(rows) - residuals.most
        clipped = np.clip(records.indices(secret) - centers - first, 0, len(rows) - 1)
        drawn = self.table.sample(clipped, self._words(records, noise_key, streaming))
        return records.column.labels[centers] + drawn

    def _same_prior(self, prior: Prior) -> bool:
        try:
            return super()._same_prior(restricted_prior(prior, self.table.labels))
        except ValueError:
            return False

    def members(self) -> dict[str, Any]:
        return {"center": self.residuals.to_document()}


@dataclass(frozen=True, eq=False)
class FromCenter(Drawing):
    """Draws the classes of records from the probabilities that their center predicts, which costs nothing.

    Attributes:
      classifier: The center, its classes, and the column of their probabilities.
    """

    classifier: ClassModel

    @classmethod
    def of(cls, classifier: ClassModel) -> FromCenter:
        """Makes it of a center, whose prior are the shares of the classes."""
        return cls(classifier, prior=Prior(np.array(classifier.classes.domain), classifier.center.shares))

    @classmethod
    def from_document(cls, document: dict[str, Any], classes: LabelClasses) -> FromCenter:
        """Reads the member `class_center` of a file of these classes, which has the form of one.

        Raises ValueError if it contradicts itself.
        """
        center = read_class_center(document["center"])
        if len(center.counts) != len(classes):
            raise ValueError("its class_center is for another number of classes")
        return cls.of(ClassModel(document["column"], classes, center))

    @property
    def name(self) -> str:
        return DRAWN_BY_CENTER

    @property
    def fingerprint(self) -> str:
        return center_fingerprint(self.classifier.center)

    @property
    def column(self) -> str | None:
        return self.classifier.column

    @property
    def made(self) -> ClassCenter:
        return self.classifier.center

    @property
    def model(self) -> CenterModel | ClassModel | None:
        return self.classifier

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        return self.classifier.center.parts

    @property
    def budget(self) -> BudgetSplit:
        budget = self.classifier.center.budget
        return BudgetSplit(budget.counts, round_up(Fraction(budget.sums) + Fraction(budget.cells)))

    @property
    def histogram(self) -> NoisedHistogram | None:
        center = self.classifier.center
        return NoisedHistogram(np.array(self.domain), center.counts, center.budget.counts)

    def summary(self, missing: int) -> dict[str, Any]:
        center, cells = self.classifier.center, self.classifier.center.cells
        return {
            "class_center": {
                "column": self.classifier.column,
                "features": list(center.map.columns),
                "sums": len(center.linear.sums),
                "cells": 0 if cells is None else len(cells.counts),
                "trees": 0 if cells is None else len(cells.trees.leaves),
                "fingerprint": self.fingerprint,
            }
        }

    def centers(self, read: ReadFeatures) -> np.ndarray:
        return self.probabilities(read) / PROBABILITY_UNIT

    def probabilities(self, read: ReadFeatures) -> np.ndarray:
        return self.classifier.center.probabilities(read(self.classifier.center.map))

    def fits(self, column: LabelColumn) -> bool:
        return column.classes == self.classifier.classes

    def draw(
        self,
        records: LabelRecords,
        noise_key: bytes,
        secret: bytes,
        probabilities: np.ndarray | None = None,
        streaming: bool = False,
    ) -> np.ndarray:
        assert probabilities is not None
        return draw_classes(probabilities, words(noise_key, self.fingerprint.encode(), records.identities))

    def members(self) -> dict[str, Any]:
        return {"class_center": {"column": self.classifier.column, "center": class_document(self.classifier.center)}}

    def to_json(self, named: Mapping[str, Any], members: Mapping[str, Any]) -> str:
        return json.dumps({"format": CENTER_FORMAT, **named, **members}, allow_nan=False)


def drawing_of(drawn: Drawing | Randomizer, column: LabelColumn) -> Drawing:
    """The drawing that a stage was given; of a randomizer alone, which says nothing of its prior."""
    if not isinstance(drawn, Randomizer):
        return drawn
    flat = Prior(drawn.labels, np.ones(len(drawn.labels)))
    if column.center is None or not column.around_center:
        return Table(drawn, prior=flat)
    return Around(drawn, prior=flat, residuals=NoisedResiduals(column.center, column.domain, (), 0.0))
