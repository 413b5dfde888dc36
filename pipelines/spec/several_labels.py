"""Fields of each of several labels of a request: their values, and their parts of the one budget.

Functions raise FieldError if a field is wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...mechanisms.analysis.automatic import CANDIDATES, default_mechanism
from ...mechanisms.analysis.planning import label_shares, split_exactly
from ...mechanisms.registry import AUTO, Mechanism, mechanism_named
from ..errors import FieldError
from .fields import DEFAULT_LOSS, LINEAR_CENTER, Fields, names_of, shown
from .input_spec import check_no_folder
from .label import check_split, given_epsilon
from .label_domain import GRID, working_domain
from .release import InputSpec

_MOST_LABELS = 32
_PER_LABEL = (*GRID, "label_values", "center_column")
"""Fields that take one value for all labels, or one for each; not for those of classes."""
_OF_CLASSES = {"label_classes": "LABEL=CLASSES", "other_class": "LABEL=CLASS"}
"""Fields that have the names of labels, and their form."""
_PUBLIC = ("id_column", "unit_column", "center_features", "where")
"""Fields that name public columns, none of which may be a label."""


def fields_of_labels(command: str, fields: Fields, names: Sequence[str], input: InputSpec) -> list[Fields]:
    """The fields of each label, with its own values, and the budget of all of them."""
    if len(names) == 1:
        return [dataclasses.replace(fields, label=names[0])]
    _check_several(command, shown(fields.label), names)
    for field in _PUBLIC:
        for column in (name.partition("=")[0] for name in names_of(getattr(fields, field))):
            if column in names:
                raise FieldError(f"{{{field}}} must not name the label {{name}}: it is private", name=column)
    for name in names:
        check_no_folder(input, "label", name)
    return _values_of_labels(fields, names)


def with_parts_of_budget(parts: Sequence[Fields]) -> list[Fields]:
    """Divides the budget among several labels, whose files are read; each of them has the whole as yet."""
    if len(parts) == 1:
        return [*parts]
    fields, epsilon = parts[0], given_epsilon(parts[0].epsilon)
    domains = [np.array(working_domain(part, epsilon).labels) for part in parts]
    check_split(epsilon, fields.prior_epsilon)
    shares = even = [Fraction(1, len(parts))] * len(parts)
    # Errors of classes and of numbers cannot be compared.
    if all(part.label_classes is None for part in parts):
        planned = fields.mechanism_name or default_mechanism(fields.for_, fields.loss or DEFAULT_LOSS)
        shares = label_shares(epsilon, domains, _planned_mechanism(planned))
    deltas: Sequence[float | None] = [fields.delta] * len(parts)
    # A delta out of range is refused for each label.
    if fields.delta is not None and 0 < fields.delta < 1:
        deltas = split_exactly(fields.delta, even)
    priors: Sequence[float | None] = [None] * len(parts)
    if fields.prior_epsilon is not None:
        priors = split_exactly(fields.prior_epsilon, shares)
    return [
        dataclasses.replace(part, epsilon=epsilon, delta=delta, prior_epsilon=prior)
        for part, epsilon, delta, prior in zip(parts, split_exactly(epsilon, shares), deltas, priors, strict=True)
    ]


def _check_several(command: str, given: str, names: Sequence[str]) -> None:
    if command != "privatize":
        raise FieldError(
            "{label} {given}: {command} takes one label; run it for each of them, or privatize for all together",
            given=given,
            command=command,
        )
    if not all(names):
        raise FieldError("{label} {given}: a name between two commas is empty", given=given)
    if len({*names}) < len(names):
        raise FieldError("{label} {given} names a column twice: give every label once", given=given)
    if len(names) > _MOST_LABELS:
        raise FieldError(
            "{label}: at most {most} labels, not {count}: each gets a part of epsilon",
            most=_MOST_LABELS,
            count=len(names),
        )


def _values_of_labels(fields: Fields, names: Sequence[str]) -> list[Fields]:
    """The fields of each label, with the budget of all."""
    by_label = {field: _by_label(field, getattr(fields, field), form, names) for field, form in _OF_CLASSES.items()}
    numbers = [name for name in names if by_label["label_classes"].get(name) is None]
    values = {field: _values_of(field, getattr(fields, field), len(numbers)) for field in _PER_LABEL}
    parts = []
    for name in names:
        classes = Fields.of({"label": name, **{field: by_label[field].get(name) for field in _OF_CLASSES}}).classes
        changed: dict[str, Any] = {"label": name, **classes}
        if name in numbers:
            changed |= {field: given[numbers.index(name)] for field, given in values.items()}
        else:
            changed |= dict.fromkeys((*_PER_LABEL, "rounding"))
            if fields.center == LINEAR_CENTER:
                # It is asked for the numbers; classes have their default beside it.
                changed["center"] = None
        parts.append(dataclasses.replace(fields, **changed))
    centers = [part.center_column for part in parts if part.center_column is not None]
    if len({*centers, *names}) < len(centers) + len(names):
        raise FieldError(
            "{center_column} {given}: give {count} different columns, one for each label, none of which is a label",
            given=fields.center_column,
            count=len(names),
        )
    return parts


def _values_of(field: str, given: Any, count: int) -> Sequence[Any]:
    """The values of a field for so many labels that are numbers."""
    values = given.split(",") if isinstance(given, str) else [given]
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise FieldError(
            f"{{{field}}} {{given}}: give one value for all labels, or {{count}}, one for each",
            given=given,
            count=count,
        )
    return values


def _by_label(field: str, given: Any, form: str, names: Sequence[str]) -> dict[str, Any]:
    """The values of a field of classes by the names of labels; a label that has none is a number."""
    if given is None or isinstance(given, Mapping):
        named = dict(given or {})
    else:
        pairs = [text.partition("=") for text in given.split(";")] if isinstance(given, str) else []
        named = {label: text for label, _, text in pairs}
        if not pairs or len(named) < len(pairs) or not all(equals and text for _, equals, text in pairs):
            raise FieldError(f"{{{field}}}: with several labels give {form};..., each label of classes once")
    unknown = next((label for label in named if label not in names), None)
    if unknown is not None:
        raise FieldError(f"{{{field}}} names {{unknown!r}}, which is not one of {{label}}", unknown=unknown)
    return named


def _planned_mechanism(name: str) -> Mechanism:
    """The mechanism whose errors decide the split; of auto, the first candidate for models."""
    if name != AUTO:
        # One with parameters that it must be given is not compared by its own errors.
        with contextlib.suppress(TypeError, ValueError):
            return mechanism_named(name)
    return next(iter(CANDIDATES.values()))
