"""Mechanism file: written by `fit`, `solve` and `privatize`, read by `apply`."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...mechanisms.core.budget import round_up
from ...mechanisms.core.document_form import check_form
from ...mechanisms.core.label_classes import LabelClasses, domain_label
from ...mechanisms.core.label_grid import DeclaredGrid
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.drawing import CENTER_FORMAT, Around, Drawing, FromCenter, Table
from ...mechanisms.release.label_column import LabelColumn, LabelMeaning
from ...mechanisms.release.noised_counts import NoisedCounts, NoisedResiduals
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.unit_bound import SINGLE, PrivacyUnit, UnitBound
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from .prior_file import parse_missing_label, parse_prior_release

_NAME = r"[A-Za-z0-9_.+-]{1,64}"
MECHANISM_NAME = "mechanism.json"


@dataclass(frozen=True)
class MechanismFile:
    """Contents of a mechanism file: how labels are drawn, and of which labels that is true.

    Attributes:
      drawing: How the labels are drawn, with everything that was released before them.
      label: Name of the label column that was counted; None for a public prior.
      unit: Privacy unit of what was counted, and of the labels that the mechanism is applied to; None for single
        records. Epsilons of the drawing are those of one record.
      declared: The declared label grid, if the label domain is a coarser one that was chosen for it; else None.
      classes: Classes whose places are the label domain; None for numbers.
      missing_label: Number or class that missing labels counted as in histogram and center; None where such records
        were left out, and for a public prior.
    """

    drawing: Drawing
    label: str | None = None
    unit: PrivacyUnit = SINGLE
    declared: DeclaredGrid | None = None
    classes: LabelClasses | None = None
    missing_label: float | str | None = None

    @classmethod
    def of_release(cls, drawing: Drawing, release: PriorRelease) -> MechanismFile:
        """Makes the contents for the drawing that was concluded from a release."""
        return cls(drawing, release.column, release.unit, release.declared, release.classes, release.missing_label)

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer. Raises ValueError for classes that are drawn from a center: they have none."""
        return self.drawing.randomizer

    @property
    def prior(self) -> Prior:
        """Prior that the mechanism was solved for."""
        return self.drawing.prior

    @property
    def prior_epsilon(self) -> float:
        """Epsilon that the release of the prior spent; 0 for a public prior."""
        return self.drawing.prior_epsilon

    @property
    def center_epsilon(self) -> float:
        """Epsilon that the center has spent; 0 where there is none, or where it is a column of the input."""
        return self.drawing.center_epsilon

    @property
    def domain(self) -> tuple[float, ...]:
        """The k labels of the public domain, ascending."""
        return self.drawing.domain

    @property
    def counted_labels(self) -> bool:
        """True if labels were counted for it; False if its prior is public, and its center a column, if any."""
        return self.prior_epsilon > 0 or self.center_epsilon > 0

    @property
    def missing(self) -> float | None:
        """`missing_label` as a label of the domain: of classes the place."""
        return None if self.missing_label is None else domain_label(self.missing_label, self.classes)

    @property
    def labels_budget(self) -> tuple[float, float]:
        """Epsilon and delta of the labels that were asked for: of a record, or of all labels of a unit."""
        epsilon, delta = self.drawing.spent
        return self.unit.spent(epsilon), self.unit.spent(delta)

    @property
    def labels_certified(self) -> tuple[float, float]:
        """Certified epsilon and delta of the labels: of a record, or of all labels of a unit."""
        epsilon, delta = self.drawing.certified
        return self.unit.spent(epsilon), self.unit.spent(delta)

    def total_epsilon(self, labels: float) -> float:
        """Adds up the epsilons of center, histogram and labels of a record or of a unit, rounded up.

        `labels` is that of `labels_budget` or `labels_certified`.
        """
        before = Fraction(self.center_epsilon) + Fraction(self.prior_epsilon)
        return round_up(self.unit.total(before) + Fraction(labels))

    def to_text(self) -> str:
        """Text of the file: JSON, with a newline at its end."""
        classes, grid = (value and asdict(value) for value in (self.classes, self.declared))
        named = _given(label=self.label, missing_label=self.missing_label)
        members = _given(declared_grid=grid, classes=classes, **self.drawing.members(), **self.unit.stated)
        return self.drawing.to_json(named, members) + "\n"


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def read_mechanism_file(path: str) -> MechanismFile:
    """Reads a mechanism file on any filesystem and certifies its randomizer.

    Raises InputError, which names the file, if it cannot be read or used.
    """
    text = read_text(path)
    try:
        document = json.loads(text)
        if isinstance(document, dict) and document.get("format") == CENTER_FORMAT:
            return _class_center_file(document)
        return _randomizer_file(text, document)
    except KeyError:
        raise InputError(f"{path} has no prior: it was not written by fit, solve or privatize") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def _randomizer_file(text: str, stated: dict[str, Any]) -> MechanismFile:
    """Reads a file with a randomizer. Raises ValueError, or KeyError without a prior, if it is anything else."""
    check_form(stated, "mechanism", "mechanism")
    epsilon, name, label = parse_prior_release(stated["prior"])
    if "rounding" not in stated:
        raise ValueError("its rounding is missing")
    if not all(re.fullmatch(_NAME, name) for name in stated["parameters"]):
        raise ValueError("its parameters do not have names of 1 to 64 letters, digits and _.+-")
    randomizer = Randomizer.from_json(text)
    prior = Prior(randomizer.labels, np.array(stated["prior"]["weights"], np.float64))
    spent: dict[str, Any] = {
        "prior": prior, "prior_epsilon": epsilon, "prior_release": name, "rounding": stated["rounding"],
    }  # fmt: skip
    around = stated.get("center")
    noised = NoisedCounts.from_document(stated["prior"], epsilon > 0 and around is None)
    drawing = Table(randomizer, noised=noised, **spent)
    if around is not None:
        residuals = NoisedResiduals.from_document(around, epsilon)
        residuals.check(prior)
        drawing = Around(randomizer, residuals=residuals, **spent)
    elif noised is not None:
        noised.check(prior, epsilon)
    classes = _stated_classes(stated["classes"]) if "classes" in stated else None
    if classes is not None and not drawing.fits(LabelColumn("", classes.domain, meaning=LabelMeaning(classes))):
        raise ValueError("its labels and outputs are not the places of its classes")
    missing = parse_missing_label(stated["prior"], drawing.domain, classes.values if classes else None)
    # The audit checks that the label domain follows from the declared grid.
    grid = DeclaredGrid(**stated["declared_grid"]) if "declared_grid" in stated else None
    file = MechanismFile(drawing, label, _stated_unit(stated), grid, classes, missing)
    if missing is not None and not file.counted_labels:
        raise ValueError("its prior has a missing_label, but no labels were counted")
    return file


def _class_center_file(document: dict[str, Any]) -> MechanismFile:
    """Reads a file whose classes are drawn from a center. Raises ValueError if it is anything else."""
    check_form(document, "center_mechanism", "mechanism")
    classes = _stated_classes(document["classes"])
    drawing = FromCenter.from_document(document["class_center"], classes)
    missing = parse_missing_label(document, classes.domain, classes.values)
    return MechanismFile(drawing, document["label"], _stated_unit(document), None, classes, missing)


def _stated_unit(document: dict[str, Any]) -> PrivacyUnit:
    return UnitBound(**document["unit"]) if "unit" in document else SINGLE


def _stated_classes(stated: dict[str, Any]) -> LabelClasses:
    return LabelClasses(tuple(stated["values"]), stated["other"])


def center_release_name(file: MechanismFile) -> str | None:
    """Names the release of a center by what was released; 32 hexadecimal digits. None for one that was not released.

    Its noise is bound to the input and to the raw sums, so two releases with equal sums are one release.
    """
    model = file.drawing.model
    if model is None:
        return None
    # The column gets its name after the release.
    text = json.dumps({**model.to_document(), "column": None}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"labeldp ledger").hexdigest()
