"""One private label of a release: its public domain, mechanism, budget and unit, checked. Loads no Beam.

Functions take the fields of a request and raise FieldError if one of them is wrong, missing, or contradicts another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...mechanisms.analysis.automatic import default_mechanism
from ...mechanisms.center.linear_center import PLACES
from ...mechanisms.core.budget import decimal_budget, split_budget
from ...mechanisms.core.label_classes import LabelClasses, domain_label
from ...mechanisms.core.label_grid import DeclaredGrid, check_domain, label_grid, working_grid
from ...mechanisms.core.losses import ZERO_ONE, loss_named
from ...mechanisms.registry import AUTO, CLASS_MECHANISMS, MECHANISMS, default_rounding, mechanism_named
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import UnitBound
from ...mechanisms.response.randomized_response import RandomizedResponse
from ...mechanisms.response.rr_top_k import RRTopK
from ...transforms.io.filesystems import open_input
from ..errors import FieldError
from ..ledger.spent_budget import Caps, Window
from .fields import DEFAULT_LOSS, Fields
from .mechanism_file import MechanismFile
from .mechanism_spec import check_delta, mechanism_parameters, takes_delta

GRID = ("label_min", "label_max", "label_step")
"""Fields of the label grid."""


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


def record_budget(budget: Budget, unit: UnitBound | None) -> Budget:
    """Part of a budget that one record gets: an M-th of that of a unit."""
    if unit is None:
        return dataclasses.replace(budget, epsilon=decimal_budget(budget.epsilon))
    prior = None if budget.prior_epsilon is None else unit.record_share(budget.prior_epsilon)
    return Budget(unit.record_share(budget.epsilon), unit.record_share(budget.delta), prior)


def make_label(fields: Fields, fitted: MechanismFile | None = None, others: Sequence[str] = ()) -> Label:
    """Checks the fields of one label, and of its privacy unit.

    `fitted` is the mechanism file of `apply`, None for the other commands. `others` are further private columns that
    are released with this one.
    """
    unit = unit_bound(fields, fitted)
    if fitted is not None:
        _check_delta(fields, fitted, unit)
        # Its labels are those of units now, and its file says so.
        fitted = dataclasses.replace(fitted, unit=unit)
    mechanism = _mechanism(fields, fitted, unit)
    if fitted is None:
        domain, declared = working_domain(fields, _given("epsilon", fields.epsilon))
    else:
        domain, declared = fitted.domain, fitted.declared
    column = label_column(fields, domain, declared, mechanism.name, fitted, unit, others)
    column = dataclasses.replace(column, missing=missing_label(fields, column, fitted))
    if fitted is None:
        try:
            loss_named(mechanism.loss).check(column.labels if column.center is None else column.residuals.grid)
        except ValueError as error:
            raise FieldError.at("loss", error) from None
    return Label(column, _budget(fields, fitted, unit), mechanism)


def _given(field: str, value: float | None) -> float:
    if value is None:
        raise FieldError(f"{{{field}}} is missing")
    return value


def label_classes(fields: Fields) -> LabelClasses | None:
    """Reads the public classes, from text with commas, a file or a sequence; None for a label that is a number."""
    given, other = fields.label_classes, fields.other_class
    if given is None:
        if other is not None:
            raise FieldError("{other_class} needs {label_classes}, the public classes")
        return None
    for name in (*GRID, "label_values", "rounding"):
        value = getattr(fields, name)
        if value is not None:
            raise FieldError(
                f"{{{name}}} is for labels that are numbers, not classes of {{label_classes}}: leave it out"
            )
    if isinstance(given, Mapping) or isinstance(other, Mapping):
        raise FieldError("{label_classes} and {other_class} have names of labels only if there are several")
    path = f" {given}" if isinstance(given, str) and "," not in given else ""
    try:
        classes = _class_list(given)
        return LabelClasses.of(classes, None if other is None else _spelled(other, classes))
    except ValueError as error:
        if other is not None and str(error).endswith("is not listed"):
            raise FieldError("{other_class} {other} is not one of {label_classes}", other=other) from None
        raise FieldError("{label_classes}{path}: {error}", path=path, error=error) from None


def _class_list(given: str | Sequence[str]) -> Sequence[str]:
    """The classes of a list, of a text with commas, or of the lines of a file."""
    if not isinstance(given, str):
        return given
    if "," in given:
        return given.split(",")
    try:
        with open_input(given) as file:
            text = file.read().decode()
    except UnicodeError:
        raise ValueError("the file is not text in UTF-8") from None
    except Exception:
        raise FieldError(
            "{label_classes} {path} cannot be read: give the classes with commas, or a file of one class per line",
            path=given,
        ) from None
    return text.removeprefix("\ufeff").splitlines()


def _spelled(text: str, classes: Sequence[str]) -> str:
    """A class as the list has it: of the classes false and true, also in other letters, as Python has them."""
    if text in classes or sorted(name.lower() for name in classes) != ["false", "true"]:
        return text
    return next((name for name in classes if name.lower() == text.lower()), text)


def missing_label(fields: Fields, column: LabelColumn, fitted: MechanismFile | None = None) -> float | None:
    """Reads the label that a missing one counts as, of classes a place; None where such records are left out.

    If labels were counted for the mechanism file of `apply`, it must be the one that the file states.
    """
    given = fields.missing_label
    if given is None:
        if fitted is not None and fitted.missing_label is not None:
            raise FieldError(
                "{missing_label} is missing: missing labels count as {stated} in {mechanism_file} {path}. Give "
                "{missing_label} {stated}",
                stated=_shown_label(fitted.missing_label),
                path=fields.mechanism_file,
            )
        return None
    if column.others:
        raise FieldError("{missing_label} takes one label: with several, records that lack one are left out")
    if column.classes is not None:
        name = _spelled(str(given), column.classes.values)
        if name not in column.classes.values:
            raise FieldError("{missing_label} {given} is not one of the public classes", given=given)
        _check_missing_label(fields, name, fitted)
        return domain_label(name, column.classes)
    try:
        value = float(given)
    except ValueError:
        raise FieldError("{missing_label} must be a number of the label domain, not {given!r}", given=given) from None
    if not column.domain[0] <= value <= column.domain[-1]:
        raise FieldError(
            "{missing_label} {given} is not within the label domain, {low:g} to {high:g}",
            given=given,
            low=column.domain[0],
            high=column.domain[-1],
        )
    if fitted is not None and fitted.counted_labels:
        _check_missing_label(fields, value, fitted)
        return fitted.missing
    domain = np.array(column.domain) if column.declared is None or fitted is not None else label_domain(fields)
    nearest = float(domain[np.argmin(np.abs(domain - value))])
    if value != nearest:
        raise FieldError(
            "{missing_label} {given} is not a label of the domain: the nearest one is {nearest}",
            given=given,
            nearest=_shown_label(nearest),
        )
    return nearest


def _check_missing_label(fields: Fields, value: float | str, fitted: MechanismFile | None) -> None:
    """Checks what a missing label counts as against the mechanism file of `apply`, if labels were counted for it."""
    if fitted is None or not fitted.counted_labels or fitted.missing_label == value:
        return
    if fitted.missing_label is None:
        raise FieldError(
            "{missing_label} {given} cannot be used with {mechanism_file} {path}, which was fitted without it: it "
            "tells how many records have a label. Run labeldp fit with {missing_label} {given}, or leave it out",
            given=fields.missing_label,
            path=fields.mechanism_file,
        )
    raise FieldError(
        "{missing_label} {given} is not that of {mechanism_file} {path}: give {missing_label} {stated}, or fit again",
        given=fields.missing_label,
        path=fields.mechanism_file,
        stated=_shown_label(fitted.missing_label),
    )


def _shown_label(label: float | str) -> str:
    return label if isinstance(label, str) else repr(label).removesuffix(".0")


def label_domain(fields: Fields) -> np.ndarray:
    """Reads the public label domain, from a grid, a file or a sequence: k labels, strictly ascending, float64."""
    grid = [getattr(fields, name) for name in GRID]
    if fields.label_values is not None:
        if any(bound is not None for bound in grid):
            raise FieldError("{label_values} replaces {label_min}, {label_max} and {label_step}: give one or the other")
        return _label_values(fields.label_values)
    if any(bound is None for bound in grid):
        raise FieldError(
            "the public label domain is missing: give {label_min}, {label_max} and {label_step}, or {label_values}, or "
            "for classes {label_classes}"
        )
    try:
        return label_grid(*map(str, grid))
    except ValueError as error:
        raise FieldError.of(error) from None


def _label_values(values: str | Sequence[float]) -> np.ndarray:
    if not isinstance(values, str):
        labels = np.array(values)
        try:
            check_domain(labels)
        except ValueError as error:
            raise FieldError("{label_values}: {error}", error=error) from None
        return labels
    try:
        with open_input(values) as file:
            labels = np.array([float(line) for line in file.read().decode("utf-8-sig").split()])
        check_domain(labels)
    except ValueError as error:
        raise FieldError(
            "{label_values} {path}: give one number per line, strictly ascending ({error})", path=values, error=error
        ) from None
    except Exception:
        raise FieldError("{label_values} {path} cannot be read: check the path", path=values) from None
    return labels


def working_domain(fields: Fields, epsilon: float) -> tuple[tuple[float, ...], DeclaredGrid | None]:
    """Reads the public label domain, and chooses the labels of it that a mechanism uses; strictly ascending.

    `epsilon` is the budget of the label. The declared grid is None if all of it is used.
    """
    classes = label_classes(fields)
    if classes is not None:
        return classes.domain, None
    domain = label_domain(fields)
    try:
        labels, declared = working_grid(domain, epsilon)
    except ValueError as error:
        if str(error).startswith("epsilon"):
            raise FieldError.of(error) from None
        path = f" {fields.label_values}" if isinstance(fields.label_values, str) else ""
        raise FieldError("{label_values}{path}: {error}", path=path, error=error) from None
    return tuple(labels.tolist()), declared


def unit_bound(fields: Fields, fitted: MechanismFile | None = None) -> UnitBound | None:
    """Reads the fields of the privacy unit; None for single records.

    The unit of the mechanism file of `apply` holds for its labels, too, and no field may contradict it.
    """
    name, most = fields.unit_column, fields.max_records_per_unit
    stated = None if fitted is None else fitted.unit
    if stated is not None:
        given = {"unit_column": (name, stated.column), "max_records_per_unit": (most, stated.max_records)}
        for field_name, (value, expected) in given.items():
            if value not in (None, expected):
                raise FieldError(
                    f"{{{field_name}}} {{value}} is not that of {{mechanism_file}}, {{expected}}: leave it out, or "
                    "fit again",
                    value=value,
                    expected=expected,
                )
        return stated
    if name is None:
        if most is not None:
            raise FieldError(
                "{max_records_per_unit} needs {unit_column}, the column that names the unit of each record"
            )
        return None
    if name == fields.label:
        raise FieldError("{unit_column} must be another column than {label}")
    if most is None:
        raise FieldError(
            "{unit_column} needs {max_records_per_unit}, the largest number of records of a unit: labeldp plan --units "
            "compares numbers"
        )
    if fitted is not None and (fitted.prior_epsilon or fitted.center_epsilon):
        raise FieldError(
            "{mechanism_file} {path} was fitted without {unit_column}: its histogram may hold any number of records of "
            "a unit. Run labeldp fit with {unit_column}",
            path=fields.mechanism_file,
        )
    try:
        return UnitBound(name, most)
    except ValueError as error:
        raise FieldError.of(error) from None


def _check_delta(fields: Fields, fitted: MechanismFile, unit: UnitBound | None) -> None:
    if fields.delta:
        check_delta(fields.delta)
    needed = dataclasses.replace(fitted, unit=unit).labels_budget[1]
    if needed > (fields.delta or 0.0):
        raise FieldError(
            "{mechanism_file} {path} is not pure DP: its epsilon holds with delta {needed:g}. Give {delta} {needed:g} "
            "to accept that",
            path=fields.mechanism_file,
            needed=needed,
        )


def _mechanism(fields: Fields, fitted: MechanismFile | None, unit: UnitBound | None) -> MechanismChoice:
    classes = fields.label_classes is not None if fitted is None else fitted.classes is not None
    if classes and fields.loss is not None:
        raise FieldError("{loss} is for labels that are numbers; that of classes is zero_one: leave it out")
    loss = ZERO_ONE.name if classes else fields.loss or DEFAULT_LOSS
    try:
        loss_named(loss)
    except ValueError as error:
        raise FieldError.at("loss", error) from None
    if fitted is not None:
        return MechanismChoice(fitted.name, loss, {"loss": loss}, fitted)
    if fields.for_ is not None and fields.mechanism is not None:
        raise FieldError("{for} chooses the mechanism: give {for} or {mechanism}")
    if classes:
        return _class_mechanism(fields)
    name = fields.mechanism_name or default_mechanism(fields.for_, loss)
    delta = fields.delta
    if delta is not None and (name == AUTO or (name in MECHANISMS and not takes_delta(name))):
        raise FieldError(
            "{delta} is for mechanisms of (epsilon, delta)-DP, such as gaussian; {name} is pure DP", name=name
        )
    if name == AUTO:
        if fields.mechanism not in (None, AUTO):
            raise FieldError("{mechanism} auto has no parameters: it finds those of the mechanism itself")
        if loss != DEFAULT_LOSS:
            raise FieldError(
                "{mechanism} auto is for models of the squared loss, not {loss_name}: name a mechanism", loss_name=loss
            )
        return MechanismChoice(name, loss, {})
    if delta is not None:
        check_delta(delta)
        delta = delta if unit is None else unit.record_share(delta)
    parameters = {"loss": loss, **mechanism_parameters(fields.mechanism or name, delta)}
    try:
        mechanism_named(name, **parameters)
    except ValueError as error:
        raise FieldError.at("mechanism", error) from None
    return MechanismChoice(name, loss, parameters)


def _class_mechanism(fields: Fields) -> MechanismChoice:
    """Mechanism of classes: randomized response over all of them for models, over the likeliest for single labels."""
    name = fields.mechanism_name
    if name in (None, AUTO):
        name = RRTopK.name if fields.for_ == "labels" else RandomizedResponse.name
    if name not in CLASS_MECHANISMS:
        raise FieldError(
            "{mechanism} {name} is for labels that are numbers; classes take {known}",
            name=name,
            known=" or ".join(CLASS_MECHANISMS),
        )
    if fields.delta is not None:
        raise FieldError(
            "{delta} is for mechanisms of (epsilon, delta)-DP, such as gaussian; {name} is pure DP", name=name
        )
    parameters = mechanism_parameters(fields.mechanism or name, None)
    try:
        mechanism_named(name, **parameters)
    except ValueError as error:
        raise FieldError.at("mechanism", error) from None
    return MechanismChoice(name, ZERO_ONE.name, parameters)


def label_column(
    fields: Fields,
    domain: tuple[float, ...],
    declared: DeclaredGrid | None,
    mechanism: str,
    fitted: MechanismFile | None = None,
    unit: UnitBound | None = None,
    others: Sequence[str] = (),
) -> LabelColumn:
    """Makes the label column of the labels that the mechanism uses; `declared` is the declared grid, if it is finer.

    The mechanism's name sets the default rounding; the mechanism file of `apply` sets rounding and center.
    """
    label = fields.label
    classes = label_classes(fields) if fitted is None else fitted.classes
    if not isinstance(label, str) or not label:
        raise FieldError("{label} must be the name of one column, not {names!r}", names=label)
    if fields.id_column == label:
        raise FieldError("{id_column} must be another column than {label}")
    if fitted is None:
        center, rounding = (
            None if classes else fields.center_column,
            fields.rounding or default_rounding(mechanism, declared is not None),
        )
    else:
        center, rounding = None if fitted.center is None else fitted.center.column, fitted.rounding
        if fitted.class_center is not None:
            center = fitted.class_center.column
    if center == label:
        named = "{center_column} must be" if fitted is None else "the center of {mechanism_file} must be"
        raise FieldError(f"{named} another column than {{label}}: the center is released as it is")
    try:
        identity = label, domain, fields.id_column
        return LabelColumn(*identity, rounding, center, unit, tuple(others), declared, classes)
    except ValueError as error:
        if str(error).startswith("rounding must be"):
            raise FieldError.of(error) from None
        if fitted is None:
            raise FieldError.at("center_column", error) from None
        raise FieldError("{mechanism_file} {path}: {error}", path=fields.mechanism_file, error=error) from None


def _budget(fields: Fields, fitted: MechanismFile | None, unit: UnitBound | None) -> Budget:
    if fitted is not None:
        return Budget(*fitted.labels_budget)
    epsilon, prior_epsilon = _given("epsilon", fields.epsilon), fields.prior_epsilon
    check_split(epsilon, prior_epsilon)
    if unit is not None:
        prior = None if prior_epsilon is None else unit.record_share(prior_epsilon)
        try:
            split_budget(unit.record_share(epsilon), 1, 1, prior)
        except ValueError as error:
            raise FieldError(
                "{max_records_per_unit} {most} leaves each record too little of {epsilon} {value:g}: {error}",
                most=unit.max_records,
                value=epsilon,
                error=error,
            ) from None
    return Budget(epsilon, fields.delta or 0.0, prior_epsilon)


def check_split(epsilon: float, prior_epsilon: float | None) -> None:
    """Checks the budget of histogram and labels, and the part of it that is for the histogram."""
    try:
        split_budget(epsilon, 1, 1, prior_epsilon)
    except ValueError as error:
        raise FieldError.of(error) from None


def read_caps(fields: Fields) -> Caps:
    """Reads the caps on what the ledger adds up to; a window needs one."""
    epsilon, delta = fields.epsilon_cap, fields.delta_cap
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise FieldError("{epsilon_cap} must be above 0 and finite, not {value:g}", value=epsilon)
    if delta is not None and not 0 <= delta < 1:
        raise FieldError("{delta_cap} must be at least 0 and below 1, not {value:g}", value=delta)
    window = None
    if fields.cap_window is not None:
        if epsilon is None and delta is None:
            raise FieldError("{cap_window} is the time in which a cap holds: give {epsilon_cap} or {delta_cap}")
        try:
            window = Window.parse(fields.cap_window)
        except ValueError as error:
            raise FieldError("{cap_window} {problem}", problem=error) from None
    # A user who caps epsilon alone expects pure DP.
    return Caps(epsilon, 0.0 if delta is None and epsilon is not None else delta, window)


def read_unusable_fraction(fields: Fields) -> float:
    """Reads the tolerated fraction of records without a usable label, from 0 to 1."""
    fraction = fields.max_unusable_fraction
    if not 0 <= fraction <= 1:
        raise FieldError("{max_unusable_fraction} must be between 0 and 1, not {value:g}", value=fraction)
    return fraction


def request_in_memory(command: str, source: str, label: Label) -> str:
    """Names a request for labels in memory in the ledger, as `Release.name` does; `source` names their input."""
    return request_hash(["LabelPrivatizer", command, source, *asked_of(label)])


def asked_of(label: Label) -> list[Any]:
    """JSON values of all that is asked for of a label, for `request_hash`."""
    column, budget, features, unit = label.column, label.budget, label.features, label.column.unit
    return [
        column.name, column.domain, column.id_column, column.rounding, budget.epsilon, budget.prior_epsilon,
        label.mechanism.name, dict(label.mechanism.parameters), column.center,
        features and [features.names, PLACES, features.cells],
        unit and unit.request, column.others, column.classes and column.classes.request,
        column.missing, column.reading,
    ]  # fmt: skip


def request_hash(asked: list[Any]) -> str:
    """Name of a request that asks for these JSON values; 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()
