"""Public domain of a label: its numbers or classes, and what a missing label counts as. Loads no Beam.

Functions raise FieldError if a field of a request is wrong, missing, or contradicts another. Files that the fields name
are read by `with_texts`, and by nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...mechanisms.core.budget import check_epsilon
from ...mechanisms.core.label_classes import LabelClasses, domain_label
from ...mechanisms.core.label_grid import check_domain, decimal_of, label_grid, working_grid
from ...mechanisms.release.label_column import LabelMeaning
from ...transforms.io.filesystems import open_input
from ..errors import Fact, FieldError, field_errors
from .fields import Fields
from .mechanism_file import MechanismFile

GRID = ("label_min", "label_max", "label_step")
"""Fields of the label grid."""


class TextFile(NamedTuple):
    """File that a field names, and its lines."""

    path: str
    lines: Fact[list[str]]


def with_texts(fields: Fields) -> Fields:
    """Reads the files of labels and classes that the fields of one label name; errors are those of `LabelDomain`."""
    values, classes = fields.label_values, fields.label_classes
    changed: dict[str, Any] = {}
    if isinstance(values, str):
        changed["label_values"] = _text_file(values)
    if isinstance(classes, str) and "," not in classes:
        changed["label_classes"] = _text_file(classes)
    return dataclasses.replace(fields, **changed)


def _text_file(path: str) -> TextFile:
    def lines() -> list[str]:
        with open_input(path) as file:
            return file.read().decode("utf-8-sig").splitlines()

    return TextFile(path, Fact.of(lines))


class LabelDomain(NamedTuple):
    """Public domain of a label.

    Attributes:
      labels: Labels that a mechanism uses, strictly ascending; of classes their places.
      meaning: Their classes, or the declared grid that they are chosen for.
      stated: The labels that were declared, shape (k,), float64; None if they are these.
    """

    labels: tuple[float, ...]
    meaning: LabelMeaning = LabelMeaning()
    stated: np.ndarray | None = None


def working_domain(fields: Fields, epsilon: float) -> LabelDomain:
    """Reads the public label domain, and chooses the labels of it that a mechanism uses at the budget of the label."""
    classes = label_classes(fields)
    if classes is not None:
        return LabelDomain(classes.domain, LabelMeaning(classes))
    labels = label_domain(fields)
    with field_errors():
        check_epsilon(epsilon)
    path = f" {fields.label_values.path}" if isinstance(fields.label_values, TextFile) else ""
    with field_errors("{label_values}{path}: {problem}", path=path):
        used, declared = working_grid(labels, epsilon)
    return LabelDomain(tuple(used.tolist()), LabelMeaning(declared=declared), labels)


def label_domain(fields: Fields) -> np.ndarray:
    """Reads the labels that are numbers, from a grid, a file or a sequence: k, strictly ascending, float64."""
    values = fields.label_values
    if values is None:
        with field_errors():
            return label_grid(*_grid(fields.label_min, fields.label_max, fields.label_step))
    if any(getattr(fields, name) is not None for name in GRID):
        raise FieldError("{label_values} replaces {label_min}, {label_max} and {label_step}: give one or the other")
    if not isinstance(values, TextFile):
        labels = np.array(values)
        with field_errors("{label_values}: {problem}"):
            check_domain(labels)
        return labels
    advice = "give one number per line, strictly ascending"
    with field_errors(f"{{label_values}} {{path}}: {advice} ({{problem}})", path=values.path):
        words = " ".join(_lines("label_values", values, "check the path")).split()
        labels = np.array([float(word) for word in words])
        check_domain(labels)
    return labels


def _grid(low: Any, high: Any, step: Any) -> tuple[str, str, str]:
    """Ends and step of the grid as text: by default from 0, and a step of 1 between whole numbers."""
    if high is None:
        raise FieldError(
            "the public label domain is missing: give {label_max}, and {label_min} and {label_step} where they are not "
            "0 and 1, or {label_values}, or for classes {label_classes}"
        )
    low, high = "0" if low is None else str(low), str(high)
    if step is not None:
        return low, high, str(step)
    with field_errors():
        lowest, highest = decimal_of("label_min", low), decimal_of("label_max", high)
    if lowest % 1 or highest % 1 or highest - lowest == 1:
        raise FieldError(
            "{label_step} is missing: it is 1 by default only between whole numbers that are further apart, not "
            "between {low} and {high}: give {label_step} 0.01, or the spacing that labels need",
            low=low,
            high=high,
        )
    return low, high, "1"


def label_classes(fields: Fields) -> LabelClasses | None:
    """Reads the public classes, from text with commas, a file or a sequence; None for a label that is a number."""
    given, other = fields.label_classes, fields.other_class
    if given is None:
        if other is not None:
            raise FieldError("{other_class} needs {label_classes}, the public classes")
        return None
    for name in (*GRID, "label_values", "rounding"):
        if getattr(fields, name) is not None:
            raise FieldError(
                f"{{{name}}} is for labels that are numbers, not classes of {{label_classes}}: leave it out"
            )
    if isinstance(given, Mapping) or isinstance(other, Mapping):
        raise FieldError("{label_classes} and {other_class} have names of labels only if there are several")
    texts = given.split(",") if isinstance(given, str) else given
    path = f" {given.path}" if isinstance(given, TextFile) else ""
    with field_errors("{label_classes}{path}: {problem}", path=path):
        if isinstance(given, TextFile):
            texts = _lines("label_classes", given, "give the classes with commas, or a file of one class per line")
        other = None if other is None else _spelled(other, texts)
        if other is not None and other not in texts:
            raise FieldError("{other_class} {other} is not one of {label_classes}", other=other)
        return LabelClasses.of(texts, other)


def _lines(field: str, file: TextFile, advice: str) -> list[str]:
    """Lines of a file that a field names. Raises ValueError for a file that is not text."""
    try:
        return file.lines.get()
    except UnicodeError:
        raise ValueError("the file is not text in UTF-8") from None
    except Exception:
        raise FieldError(f"{{{field}}} {{path}} cannot be read: {advice}", path=file.path) from None


def _spelled(text: str, classes: Sequence[str]) -> str:
    """A class as the list has it: of the classes false and true, also in other letters, as Python has them."""
    if text in classes or sorted(name.lower() for name in classes) != ["false", "true"]:
        return text
    return next((name for name in classes if name.lower() == text.lower()), text)


def missing_label(given: Any, domain: LabelDomain) -> float | None:
    """Reads the label that a missing one counts as, of classes a place; None where such records are left out."""
    if given is None:
        return None
    value, classes = _missing_value(given, domain), domain.meaning.classes
    if classes is not None:
        return domain_label(value, classes)
    labels = np.array(domain.labels) if domain.stated is None else domain.stated
    nearest = float(labels[np.argmin(np.abs(labels - value))])
    if value != nearest:
        raise FieldError(
            "{missing_label} {given} is not a label of the domain: the nearest one is {nearest}",
            given=given,
            nearest=_shown(nearest),
        )
    return nearest


def fitted_missing_label(given: Any, domain: LabelDomain, fitted: MechanismFile, path: str) -> float | None:
    """Reads the same for `apply`: where labels were counted for the mechanism file, it must be what the file states."""
    stated = fitted.missing_label
    if given is not None and not fitted.counted_labels:
        return missing_label(given, domain)
    if given is None and stated is not None:
        raise FieldError(
            "{missing_label} is missing: missing labels count as {stated} in {mechanism_file} {path}. Give "
            "{missing_label} {stated}",
            stated=_shown(stated),
            path=path,
        )
    if given is None or _missing_value(given, domain) == stated:
        return fitted.missing
    if stated is None:
        raise FieldError(
            "{missing_label} {given} cannot be used with {mechanism_file} {path}, which was fitted without it: it "
            "tells how many records have a label. Run labeldp fit with {missing_label} {given}, or leave it out",
            given=given,
            path=path,
        )
    raise FieldError(
        "{missing_label} {given} is not that of {mechanism_file} {path}: give {missing_label} {stated}, or fit again",
        given=given,
        path=path,
        stated=_shown(stated),
    )


def _missing_value(given: Any, domain: LabelDomain) -> float | str:
    """The value of `missing_label`: one of the classes, or a number within the domain."""
    low, high = domain.labels[0], domain.labels[-1]
    classes = domain.meaning.classes
    if classes is not None:
        name = _spelled(str(given), classes.values)
        if name not in classes.values:
            raise FieldError("{missing_label} {given} is not one of the public classes", given=given)
        return name
    with field_errors("{missing_label} must be a number of the label domain, not {given!r}", given=given):
        value = float(given)
    if not low <= value <= high:
        raise FieldError(
            "{missing_label} {given} is not within the label domain, {low:g} to {high:g}",
            given=given,
            low=low,
            high=high,
        )
    return value


def _shown(label: float | str) -> str:
    return label if isinstance(label, str) else repr(label).removesuffix(".0")
