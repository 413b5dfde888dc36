"""One private label of a release: its public domain, mechanism, budget and unit, checked. Loads no Beam.

`make_label` checks the fields of a label whose mechanism is to be found, `fitted_label` those for a mechanism file. The
functions raise FieldError if a field is wrong, missing, or contradicts another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...mechanisms.analysis.automatic import default_mechanism
from ...mechanisms.center.linear_center import PLACES
from ...mechanisms.core.budget import split_budget
from ...mechanisms.core.losses import ZERO_ONE, loss_named
from ...mechanisms.registry import AUTO, CLASS_MECHANISMS, MECHANISMS, default_rounding, mechanism_named
from ...mechanisms.release.center_passes import Pass
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn, LabelMeaning
from ...mechanisms.release.plan import Binding, Histogram, passes_of
from ...mechanisms.release.unit_bound import SINGLE, PrivacyUnit, UnitBound
from ...mechanisms.response.randomized_response import RandomizedResponse
from ...mechanisms.response.rr_top_k import RRTopK
from ..errors import FieldError, field_errors
from .fields import DEFAULT_LOSS, Fields, Names
from .label_domain import LabelDomain, fitted_missing_label, missing_label, working_domain
from .mechanism_file import MechanismFile
from .mechanism_spec import check_delta, mechanism_parameters, takes_delta


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a label or of several.

    Attributes:
      epsilon: Budget of histogram and labels together; for `apply`, that of the fitted randomizer alone. With privacy
        units, it is that of a unit, and so are the others.
      delta: Delta of the labels; 0 for pure DP.
      prior_epsilon: Share of the label histogram; None for the default split.
    """

    epsilon: float
    delta: float = 0.0
    prior_epsilon: float | None = None


@dataclass(frozen=True)
class MechanismChoice:
    """Mechanism to solve for, or the fitted one of `apply`.

    Attributes:
      name: A name of `MECHANISMS`, or AUTO.
      loss: Name of the loss to minimize and to report.
      parameters: Parameters of the mechanism, the loss among them; none of AUTO.
      fitted: Mechanism file of `apply`; None for the other commands.
    """

    name: str
    loss: str
    parameters: Mapping[str, Any]
    fitted: MechanismFile | None = None


@dataclass(frozen=True)
class Label:
    """Private label, checked as far as that is possible without its records.

    Attributes:
      column: Label column with its public domain, center and unit.
      budget: Privacy budget of the label.
      mechanism: Mechanism.
      features: Features of the linear center that the job makes; None for any other center, or none.
      unused: Columns that are no features of that center because of their types, with the reasons.
    """

    column: LabelColumn
    budget: Budget
    mechanism: MechanismChoice
    features: CenterFeatures | None = None
    unused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def record_budget(self) -> Budget:
        """The budget that the stages take: that of one record, which is not above the decimals that were asked for."""
        return record_budget(self.budget, self.column.unit)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes over the labels that release what they are drawn by; for `apply`, the binding of noise alone."""
        if self.mechanism.fitted is not None:
            return (Binding(self.mechanism.fitted.drawing.budget),)
        budget = self.record_budget
        histogram = Histogram(budget.epsilon, budget.prior_epsilon, self.mechanism.name)
        return passes_of(self.column, histogram, self.features)


def record_budget(budget: Budget, unit: PrivacyUnit) -> Budget:
    """Part of a budget that one record gets: an M-th of that of a unit."""
    prior = None if budget.prior_epsilon is None else unit.record_share(budget.prior_epsilon)
    return Budget(unit.record_epsilon(budget.epsilon), unit.record_share(budget.delta), prior)


def make_label(fields: Fields, others: Sequence[str] = ()) -> Label:
    """Checks the fields of one label, and of its privacy unit.

    `others` are further private columns that are released with this one.
    """
    unit = unit_bound(fields.label, fields.unit_column, fields.max_records_per_unit)
    classes = fields.label_classes is not None
    loss = loss_of(classes, fields.loss)
    mechanism = _mechanism(fields.mechanism, fields.for_, classes, loss, fields.delta, unit)
    epsilon = given_epsilon(fields.epsilon)
    domain = working_domain(fields, epsilon)
    if others and fields.missing_label is not None:
        raise FieldError("{missing_label} takes one label: with several, records that lack one are left out")
    meaning = domain.meaning
    center = None if meaning.classes else fields.center_column
    _check_names(fields.label, fields.id_column, center, "{center_column}")
    with field_errors():
        column = LabelColumn(
            str(fields.label), domain.labels, fields.id_column,
            fields.rounding or default_rounding(mechanism.name, meaning.declared is not None),
            unit=unit, others=tuple(others), meaning=meaning,
        )  # fmt: skip
    with field_errors("{center_column}: {problem}"):
        meaning = dataclasses.replace(meaning, missing=missing_label(fields.missing_label, domain))
        column = dataclasses.replace(column, center=center, meaning=meaning)
    with field_errors("{loss}: {problem}"):
        loss_named(mechanism.loss).check(column.labels if center is None else column.residuals.grid)
    budget = Budget(epsilon, fields.delta or 0.0, fields.prior_epsilon)
    check_split(epsilon, fields.prior_epsilon)
    message = "{max_records_per_unit} {most} leaves each record too little of {epsilon} {value:g}: {problem}"
    with field_errors(message, most=unit.max_records, value=epsilon):
        of_record = record_budget(budget, unit)
        split_budget(of_record.epsilon, 1, 1, of_record.prior_epsilon)
    return Label(column, budget, mechanism)


def fitted_label(fields: Fields, fitted: MechanismFile) -> Label:
    """Checks the fields of the label of `apply`, which must not contradict the mechanism file."""
    path = str(fields.mechanism_file)
    unit = _fitted_unit(fields.label, fields.unit_column, fields.max_records_per_unit, fitted, path)
    # Its labels are those of units now, and its file says so.
    fitted = dataclasses.replace(fitted, unit=unit)
    budget = Budget(*fitted.labels_budget)
    if fields.delta:
        check_delta(fields.delta)
    if budget.delta > (fields.delta or 0.0):
        raise FieldError(
            "{mechanism_file} {path} is not pure DP: its epsilon holds with delta {needed:g}. Give {delta} {needed:g} "
            "to accept that",
            path=path,
            needed=budget.delta,
        )
    meaning = LabelMeaning(fitted.classes, fitted.declared)
    missing = fitted_missing_label(fields.missing_label, LabelDomain(fitted.domain, meaning), fitted, path)
    loss = loss_of(fitted.classes is not None, fields.loss)
    _check_names(fields.label, fields.id_column, fitted.drawing.column, "the center of {mechanism_file}")
    with field_errors("{mechanism_file} {path}: {problem}", path=path):
        column = LabelColumn(
            str(fields.label), fitted.domain, fields.id_column, fitted.drawing.rounding,
            fitted.drawing.column, unit,
            meaning=dataclasses.replace(meaning, missing=missing),
        )  # fmt: skip
    return Label(column, budget, MechanismChoice(fitted.drawing.name, loss, {"loss": loss}, fitted))


def given_epsilon(epsilon: float | None) -> float:
    """The budget of the request, which must be given."""
    if epsilon is None:
        raise FieldError("{epsilon} is missing")
    return epsilon


def _check_names(label: Names, id_column: str | None, center: str | None, center_of: str) -> None:
    """Checks that the label is a column, and no public one; `center_of` says what the center is of."""
    if not isinstance(label, str) or not label:
        raise FieldError("{label} must be the name of one column, not {names!r}", names=label)
    if id_column == label:
        raise FieldError("{id_column} must be another column than {label}")
    if center == label:
        raise FieldError(f"{center_of} must be another column than {{label}}: the center is released as it is")


def unit_bound(label: Names, name: str | None, most: int | None) -> PrivacyUnit:
    """The privacy unit by its column and the largest number of its records, if they are given."""
    if name is None:
        if most is not None:
            raise FieldError(
                "{max_records_per_unit} needs {unit_column}, the column that names the unit of each record"
            )
        return SINGLE
    if name == label:
        raise FieldError("{unit_column} must be another column than {label}")
    if most is None:
        raise FieldError(
            "{unit_column} needs {max_records_per_unit}, the largest number of records of a unit: labeldp plan --units "
            "compares numbers"
        )
    with field_errors():
        return UnitBound(name, most)


def _fitted_unit(label: Names, column: str | None, most: int | None, fitted: MechanismFile, path: str) -> PrivacyUnit:
    """The unit of a mechanism file, which holds for its labels, too, and which no field may contradict."""
    if fitted.unit == SINGLE:
        unit = unit_bound(label, column, most)
        if unit != SINGLE and fitted.counted_labels:
            raise FieldError(
                "{mechanism_file} {path} was fitted without {unit_column}: its histogram may hold any number of "
                "records of a unit. Run labeldp fit with {unit_column}",
                path=path,
            )
        return unit
    for name, value, expected in (
        ("unit_column", column, fitted.unit.column),
        ("max_records_per_unit", most, fitted.unit.max_records),
    ):
        if value not in (None, expected):
            raise FieldError(
                f"{{{name}}} {{value}} is not that of {{mechanism_file}}, {{expected}}: leave it out, or fit again",
                value=value,
                expected=expected,
            )
    return fitted.unit


def loss_of(classes: bool, given: str | None) -> str:
    """Name of the loss of a label, by whether it has classes, and the loss that was given."""
    if classes and given is not None:
        raise FieldError("{loss} is for labels that are numbers; that of classes is zero_one: leave it out")
    loss = ZERO_ONE.name if classes else given or DEFAULT_LOSS
    with field_errors("{loss}: {problem}"):
        loss_named(loss)
    return loss


def _mechanism(
    text: str | None, purpose: str | None, classes: bool, loss: str, delta: float | None, unit: PrivacyUnit
) -> MechanismChoice:
    """The mechanism to solve for, with the parameters of its text.

    That of classes is randomized response over all of them for models, over the likeliest for single labels.
    """
    name = None if text is None else text.partition(":")[0]
    if purpose is not None and text is not None:
        raise FieldError("{for} chooses the mechanism: give {for} or {mechanism}")
    if not classes:
        name = name or default_mechanism(purpose, loss)
    elif name in (None, AUTO):
        name = RRTopK.name if purpose == "labels" else RandomizedResponse.name
    elif name not in CLASS_MECHANISMS:
        known = " or ".join(CLASS_MECHANISMS)
        raise FieldError(
            "{mechanism} {name} is for labels that are numbers; classes take {known}", name=name, known=known
        )
    if delta is not None and (name == AUTO or (name in MECHANISMS and not takes_delta(name))):
        raise FieldError(
            "{delta} is for mechanisms of (epsilon, delta)-DP, such as gaussian; {name} is pure DP", name=name
        )
    if name == AUTO:
        if text not in (None, AUTO):
            raise FieldError("{mechanism} auto has no parameters: it finds those of the mechanism itself")
        if loss != DEFAULT_LOSS:
            raise FieldError(
                "{mechanism} auto is for models of the squared loss, not {loss_name}: name a mechanism", loss_name=loss
            )
        return MechanismChoice(name, loss, {})
    if delta is not None:
        check_delta(delta)
        delta = unit.record_share(delta)
    parameters = {**({} if classes else {"loss": loss}), **mechanism_parameters(text or name, delta)}
    with field_errors("{mechanism}: {problem}"):
        mechanism_named(name, **parameters)
    return MechanismChoice(name, loss, parameters)


def check_split(epsilon: float, prior_epsilon: float | None) -> None:
    """Checks the budget of histogram and labels, and the part of it that is for the histogram."""
    with field_errors():
        split_budget(epsilon, 1, 1, prior_epsilon)


def request_in_memory(command: str, source: str, label: Label) -> str:
    """Names a request for labels in memory in the ledger, as `Release.name` does; `source` names their input."""
    return request_hash(["LabelPrivatizer", command, source, *asked_of(label)])


def asked_of(label: Label) -> list[Any]:
    """JSON values of all that is asked for of a label, for `request_hash`."""
    column, budget, features, unit = label.column, label.budget, label.features, label.column.unit
    return [
        column.name, column.domain, column.id_column, column.rounding, budget.epsilon, budget.prior_epsilon,
        label.mechanism.name, dict(label.mechanism.parameters), column.center,
        # Of all columns, a center is made without those that identify records.
        features and [
            features.names, PLACES, features.cells, *(["chosen"] if features.all_columns else []),
            *(["marginals"] if features.marginals else []),
        ],
        unit.request, column.others, column.classes and column.classes.request,
        column.meaning.missing, column.meaning.reading,
    ]  # fmt: skip


def request_hash(asked: list[Any]) -> str:
    """Name of a request that asks for these JSON values; 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()
