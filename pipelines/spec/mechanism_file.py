"""Mechanism file: written by `fit`, `solve` and `privatize`, read by `apply`."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ...mechanisms.analysis.automatic import CANDIDATES
from ...mechanisms.center.center import Center
from ...mechanisms.center.center_model import CenterModel
from ...mechanisms.center.class_model import ClassModel, Mechanism, drawn_by, mechanism_name
from ...mechanisms.core.budget import BudgetSplit, check_epsilon, round_up
from ...mechanisms.core.label_classes import LabelClasses, domain_label
from ...mechanisms.core.label_grid import MOST_LABELS, NEAREST, ROUNDINGS, DeclaredGrid
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer, solved_randomizer
from ...mechanisms.noise.noised_part import NoisedPart
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.unit_bound import UnitBound, spent
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from .center_statement import CenterStatement, ClassStatement
from .prior_file import NoisedCounts, parse_missing_label, parse_prior_release

_NAME = r"[A-Za-z0-9_.+-]{1,64}"
MECHANISM_NAME = "mechanism.json"
CENTER_FORMAT = "labeldp-mechanism-2"
"""Format of a mechanism file whose classes are drawn from a center: it has no randomizer, and no prior."""


@dataclass(frozen=True)
class MechanismFile:
    """Contents of a mechanism file.

    Attributes:
      solved: The randomizer; None for classes that are drawn from a center.
      prior: Prior that it was solved for; of classes that are drawn from a center, their shares by its counts.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      rounding: Rounding of labels that are not in the domain: nearest or randomized.
      prior_release: Name of the prior's release (`prior_release_name`); None if the file does not name it.
      center: Center of the labels, whose residuals the randomizer takes; None for a randomizer of labels.
      noised: Noised counts of the labels, from which the prior follows; None with a center, which has counts of its
        own, and for a public prior.
      label: Name of the label column whose histogram the prior is; None for a public prior.
      unit: Privacy unit of the histogram, and of the labels that the mechanism is applied to; None for single records.
        Epsilons are those of one record.
      declared: The declared label grid, if the label domain is a coarser one that was chosen for it; else None.
      classes: Classes whose places are the label domain; None for numbers.
      class_center: Center that the classes were drawn from; None for classes that the randomizer draws, and numbers.
      missing_label: Number or class that missing labels counted as in histogram and center; None where such records
        were left out, and for a public prior.
    """

    solved: Randomizer | None
    prior: Prior
    prior_epsilon: float
    rounding: str = NEAREST
    prior_release: str | None = None
    center: CenterStatement | None = None
    noised: NoisedCounts | None = None
    label: str | None = None
    unit: UnitBound | None = None
    declared: DeclaredGrid | None = None
    classes: LabelClasses | None = None
    class_center: ClassStatement | None = None
    missing_label: float | str | None = None

    @classmethod
    def of_release(cls, mechanism: Mechanism, release: PriorRelease) -> MechanismFile:
        """Makes the contents for a randomizer that was solved for a released prior, or a center of classes after it."""
        if not isinstance(mechanism, Randomizer):
            assert release.classes is not None
            assert release.center is not None
            statement = ClassStatement(release.center, mechanism)
            return cls(
                None, statement.prior, 0.0, label=release.column, unit=release.unit,
                classes=release.classes, class_center=statement, missing_label=release.missing_label,
            )  # fmt: skip
        center = CenterStatement.of_release(release)
        prior = release.prior if center is None else center.mechanism_prior(mechanism)
        noised = NoisedCounts(release.counts, release.records) if center is None else None
        return cls(
            mechanism, prior, release.budget.prior, release.rounding, prior_release_name(release), center, noised,
            release.column, release.unit, release.declared, release.classes, missing_label=release.missing_label,
        )  # fmt: skip

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer. Raises ValueError for classes that are drawn from a center: they have none."""
        return solved_randomizer(self.solved)

    @property
    def name(self) -> str:
        """Name of the mechanism, or that of centers that classes are drawn from."""
        return mechanism_name(self.solved)

    @property
    def counted_labels(self) -> bool:
        """True if labels were counted for it; False if its prior is public, and its center a column, if any."""
        return self.prior_epsilon > 0 or self.center_epsilon > 0

    @property
    def missing(self) -> float | None:
        """`missing_label` as a label of the domain: of classes the place."""
        return None if self.missing_label is None else domain_label(self.missing_label, self.classes)

    @property
    def center_epsilon(self) -> float:
        """Epsilon that the center has spent; 0 where there is none, or where it is a column of the input."""
        if self.class_center is not None:
            return self.class_center.epsilon
        return 0.0 if self.center is None else self.center.epsilon

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise before the labels, in its order: of the center, and the histogram."""
        made = () if self.made_center is None else self.made_center.parts
        if not self.prior_epsilon:
            return made
        of, width = "the labels", len(self.randomizer.labels)
        if self.center is not None:
            of, width = "the residuals", len(self.center.counts)
        return *made, NoisedPart.histogram(of, self.prior_epsilon, width)

    @property
    def made_center(self) -> Center | None:
        """The center that was made of features; None without one."""
        if self.class_center is not None:
            return self.class_center.center
        return None if self.center is None else self.center.linear

    @property
    def draws_classes(self) -> bool:
        """True if labels are drawn from their center, and cost nothing more; False if each one is randomized."""
        return self.class_center is not None

    @property
    def center_column(self) -> str | None:
        """Column of the center, or of the probabilities of classes; None without a center."""
        if self.class_center is not None:
            return self.class_center.column
        return None if self.center is None else self.center.column

    @property
    def center_model(self) -> CenterModel | ClassModel | None:
        """The center as a model of its own, which center.json holds; None without one that was made of features."""
        if self.class_center is not None and self.classes is not None:
            return ClassModel(self.class_center.column, self.classes, self.class_center.center)
        if self.center is None or self.center.linear is None:
            return None
        return CenterModel(self.center.column, self.center.domain, self.center.linear)

    @property
    def drawing(self) -> Mechanism:
        """Randomizer, or center of classes, that draws the labels."""
        return self.randomizer if self.class_center is None else self.class_center.center

    @property
    def drawn_by(self) -> str:
        """Fingerprint of what the labels are drawn by: of the center of classes, or of the randomizer."""
        return drawn_by(self.drawing)

    @property
    def budget(self) -> BudgetSplit:
        """Epsilon of the prior and of what it leaves for the labels: of the randomizer, or of a center of classes."""
        if self.class_center is not None:
            budget = self.class_center.center.budget
            return BudgetSplit(budget.counts, round_up(Fraction(budget.sums) + Fraction(budget.cells)))
        return BudgetSplit(self.prior_epsilon, self.randomizer.epsilon)

    @property
    def labels_budget(self) -> tuple[float, float]:
        """Epsilon and delta of the labels that were asked for: of a record, or of all labels of a unit.

        Draws from a center cost nothing.
        """
        if self.solved is None:
            return 0.0, 0.0
        return spent(self.unit, self.randomizer.epsilon), spent(self.unit, self.randomizer.delta)

    @property
    def labels_certified(self) -> tuple[float, float]:
        """Certified epsilon and delta of the labels: of a record, or of all labels of a unit."""
        if self.solved is None:
            return 0.0, 0.0
        certificate = self.randomizer.certificate()
        return spent(self.unit, certificate.epsilon), spent(self.unit, certificate.delta)

    def total_epsilon(self, labels: float) -> float:
        """Adds up the epsilons of center, histogram and labels of a record or of a unit, rounded up.

        `labels` is that of `labels_budget` or `labels_certified`.
        """
        before = Fraction(self.center_epsilon) + Fraction(self.prior_epsilon)
        return round_up((before if self.unit is None else self.unit.total(before)) + Fraction(labels))

    def to_text(self) -> str:
        """Text of the file: JSON, with a newline at its end."""
        classes, unit, grid = (each and asdict(each) for each in (self.classes, self.unit, self.declared))
        named = _given(label=self.label, missing_label=self.missing_label)
        if self.class_center is not None:
            members = {**named, "classes": classes, "class_center": self.class_center.to_document()}
            return json.dumps({"format": CENTER_FORMAT, **members, **_given(unit=unit)}, allow_nan=False) + "\n"
        released = {"weights": self.prior.weights.tolist(), "epsilon": self.prior_epsilon}
        released |= {**_given(release=self.prior_release), **named}
        released |= {} if self.noised is None else self.noised.to_document()
        center = None if self.center is None else self.center.to_document()
        members = _given(declared_grid=grid, classes=classes, center=center, unit=unit)
        return self.randomizer.to_json(prior=released, rounding=self.rounding, **members) + "\n"

    @property
    def domain(self) -> tuple[float, ...]:
        """The k labels of the public domain, ascending: with a center not those of the randomizer, its residuals."""
        return tuple(self.prior.labels.tolist()) if self.center is None else self.center.domain


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
    except (KeyError, TypeError):
        raise InputError(f"{path} has no prior: it was not written by fit, solve or privatize") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def _randomizer_file(text: str, document: dict[str, Any]) -> MechanismFile:
    """Reads a file with a randomizer. Raises ValueError, KeyError or TypeError if it is anything else."""
    randomizer = Randomizer.from_json(text)
    stated = document["prior"]
    if "rounding" not in document:
        raise ValueError("its rounding is missing")
    if document["rounding"] not in ROUNDINGS:
        raise ValueError(f"its rounding is not {' or '.join(ROUNDINGS)}")
    prior = Prior(randomizer.labels, np.array(stated["weights"], np.float64))
    epsilon, name, label = parse_prior_release(stated)
    _check_stated(randomizer)
    center = None if document.get("center") is None else CenterStatement.from_document(document["center"], epsilon)
    noised = NoisedCounts.from_document(stated, epsilon > 0 and center is None)
    if center is not None:
        center.check(randomizer, prior)
    if noised is not None:
        noised.check(prior, epsilon)
    classes = _stated_classes(document.get("classes"))
    if classes is not None and not (
        center is None
        and classes.domain == tuple(randomizer.labels.tolist())
        and {*randomizer.outputs.tolist()} <= {*classes.domain}
    ):
        raise ValueError("its labels and outputs are not the places of its classes")
    if "class_center" in document:
        raise ValueError("it has a class_center beside a randomizer")
    file = MechanismFile(
        randomizer, prior, epsilon, document["rounding"], name, center, noised, label,
        _stated_unit(document.get("unit")), _stated_grid(document.get("declared_grid")), classes,
    )  # fmt: skip
    missing = parse_missing_label(stated, file.domain, None if classes is None else classes.values)
    if missing is not None and not file.counted_labels:
        raise ValueError("its prior has a missing_label, but no labels were counted")
    return replace(file, missing_label=missing)


def _class_center_file(document: dict[str, Any]) -> MechanismFile:
    """Reads a file whose classes are drawn from a center. Raises ValueError if it is anything else."""
    known = {"format", "label", "missing_label", "classes", "class_center", "unit"}
    strangers = sorted(document.keys() - known)
    if strangers:
        raise ValueError(f"it has members that a center of classes does not have: {', '.join(map(repr, strangers))}")
    classes, label = _stated_classes(document.get("classes")), document.get("label")
    if classes is None or not isinstance(label, str):
        raise ValueError("it has no classes, or its label is not a name")
    statement = ClassStatement.from_document(document.get("class_center"), len(classes))
    unit, missing = _stated_unit(document.get("unit")), parse_missing_label(document, classes.domain, classes.values)
    return MechanismFile(
        None, statement.prior, 0.0, label=label, unit=unit, classes=classes, class_center=statement,
        missing_label=missing,
    )  # fmt: skip


def _members(stated: Any, name: str, first: str, second: str) -> tuple[Any, Any]:
    if not isinstance(stated, dict) or set(stated) != {first, second}:
        raise ValueError(f"its {name} must have {first} and {second}, and nothing else")
    return stated[first], stated[second]


def _stated_unit(stated: Any) -> UnitBound | None:
    if stated is None:
        return None
    column, most = _members(stated, "unit", "column", "max_records")
    if not isinstance(column, str) or type(most) is not int:
        raise ValueError("its unit must be the name of a column with a whole number of records")
    return UnitBound(column, most)


def _stated_grid(stated: Any) -> DeclaredGrid | None:
    """The declared label grid. The audit checks that the label domain follows from it."""
    if stated is None:
        return None
    labels, epsilon = _members(stated, "declared_grid", "labels", "epsilon")
    if type(labels) is not int or not 2 <= labels <= MOST_LABELS:
        raise ValueError("the labels of its declared_grid are not a whole number of labels")
    if type(epsilon) not in (int, float):
        raise ValueError("the epsilon of its declared_grid is not a number")
    check_epsilon(epsilon)
    return DeclaredGrid(labels, epsilon)


def _stated_classes(stated: Any) -> LabelClasses | None:
    if stated is None:
        return None
    values, other = _members(stated, "classes", "values", "other")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values) or type(other) is not int:
        raise ValueError("its classes are not texts, with the place of the other class")
    return LabelClasses(tuple(values), other)


def _check_stated(randomizer: Randomizer) -> None:
    """Checks values that the integers do not determine, and that are printed and published again."""
    if not (isinstance(randomizer.mechanism, str) and re.fullmatch(_NAME, randomizer.mechanism)):
        raise ValueError("its mechanism is not a name of 1 to 64 letters, digits and _.+-")
    if not all(_is_parameter(name, value) for name, value in randomizer.parameters.items()):
        raise ValueError("its parameters are not numbers, true, false, null or short texts")
    gap = randomizer.gap
    if gap is not None and not (type(gap) in (int, float) and 0 <= gap <= sys.float_info.max):
        raise ValueError("its gap is not a finite number >= 0, or null")
    choice = randomizer.choice
    if choice is not None and not _is_choice(choice):
        raise ValueError("its choice does not name candidates of --mechanism auto and their errors")


def _is_parameter(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        plain = True
    elif isinstance(value, str):
        plain = re.fullmatch("[ -~]{0,64}", value) is not None
    else:
        numbers = value if isinstance(value, list) and value else [value]
        plain = all(isinstance(each, (int, float)) and abs(each) <= sys.float_info.max for each in numbers)
    return plain and re.fullmatch(_NAME, name) is not None


def _is_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or set(choice) != {"mechanism", "model_errors"}:
        return False
    name, errors = choice["mechanism"], choice["model_errors"]
    if not isinstance(name, str) or not isinstance(errors, dict) or not {name, *errors} <= set(CANDIDATES):
        return False
    numbers = [error for error in errors.values() if error is not None]
    return all(type(error) in (int, float) and 0 <= error <= sys.float_info.max for error in numbers)


def center_release_name(file: MechanismFile) -> str | None:
    """Names the release of a center by what was released; 32 hexadecimal digits. None for one that was not released.

    Its noise is bound to the input and to the raw sums, so two releases with equal sums are one release.
    """
    model = file.center_model
    if model is None:
        return None
    # The column gets its name after the release.
    text = json.dumps({**model.to_document(), "column": None}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"labeldp ledger").hexdigest()


def prior_release_name(binding: NoiseBinding) -> str:
    """Names the release of a prior by everything that its noise is bound to, apart from the secret key.

    The name has 32 hexadecimal digits; the same input under the same key gives the same name.
    """
    spent = [binding.budget.prior, binding.budget.labels]
    noise: list[Any] = [f"{binding.digest:064x}", binding.column, list(binding.domain), spent, binding.rounding]
    noise += [] if binding.center is None else [binding.center]
    noise += [] if binding.unit is None else [{"unit": binding.unit.request}]
    noise += [] if binding.classes is None else [{"classes": binding.classes.request}]
    return hashlib.blake2b(json.dumps(noise).encode(), digest_size=16, person=b"labeldp ledger").hexdigest()
