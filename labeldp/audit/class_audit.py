"""Audit of labels that are classes: their list in both files, the loss, and the warnings that follow from them.

A mechanism of K classes has the labels 0.0, 1.0, ..., K - 1, their places in the public list. Its outputs are some of
them. Places have no distances: there is no bias, and the loss is the probability of another class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from .class_center_document import read_class_center
from .documents import Members, RefusedDocument, as_text, printable
from .weight_runs import read_spans

_MOST_CLASSES = 1000
_MECHANISMS = ("rr", "rr_top_k")
_OF_NUMBERS = ("center", "declared_grid")
"""Members of a mechanism file that only labels that are numbers have."""
_LOSS = "zero_one"
# The loss is a sum in floating point, in an order of its own.
_LOSS_ERROR = 1e-9
_SHOWN, _LONGEST = 8, 40

# Thresholds of the warnings, as docs/guides/release.md states them.
_STANDS_OUT, _LEAST_KEPT = 4, 0.5
_CELL, _LEAST_CELL = 1.3, 5.0


class Classes(NamedTuple):
    """The K classes as text, in the order of their places, and the place of that of all values that are not listed."""

    values: tuple[str, ...]
    other: int


def read_classes(mechanism: Mapping[str, Any]) -> Classes | None:
    """Reads the classes of a mechanism file; None for labels that are numbers.

    Raises RefusedDocument if they are not 2 to 1,000 different texts that are not empty, with a place of one of them.
    """
    if "classes" not in mechanism:
        return None
    stated = Members(mechanism).members("classes")
    if set(stated) != {"values", "other"}:
        raise RefusedDocument("classes does not have exactly values and other")
    values, other = stated.read("values", list), stated.read("other", int)
    if not 2 <= len(values) <= _MOST_CLASSES or not all(isinstance(value, str) and value for value in values):
        raise RefusedDocument(f"classes.values are not 2 to {_MOST_CLASSES} texts that are not empty")
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        raise RefusedDocument("classes.values has a class that is not Unicode text") from None
    if len(set(values)) < len(values):
        raise RefusedDocument("classes.values has a class twice")
    if not 0 <= other < len(values):
        raise RefusedDocument("classes.other is not the place of a class")
    return Classes(tuple(values), other)


def check_places(classes: Classes, labels: list[float], outputs: list[float]) -> None:
    """Raises RefusedDocument if labels are not the places of the classes, or outputs are others than these."""
    places = [repr(float(place)) for place in range(len(classes.values))]
    # As text: 0.0 and -0.0 are equal numbers.
    if list(map(repr, labels)) != places:
        raise RefusedDocument("labels are not the places of the classes")
    if not set(map(repr, outputs)) <= set(places):
        raise RefusedDocument("outputs are not places of the classes")


def class_problems(mechanism: Members) -> Iterator[str]:
    """Checks that a mechanism file of randomized classes has nothing that only labels that are numbers have."""
    if "classes" not in mechanism:
        return
    if mechanism["mechanism"] not in _MECHANISMS:
        yield f"mechanism is not one of classes: {' or '.join(_MECHANISMS)}"
    if mechanism.text("rounding") != "nearest":
        yield "rounding is not nearest: places of classes are not rounded"
    yield from (f"{key} is there, but labels are classes" for key in _OF_NUMBERS if key in mechanism)


def class_statement_problems(release: Members, mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Compares what a manifest states of classes with the mechanism file."""
    if as_text(release.get("classes")) != as_text(mechanism.get("classes")):
        yield "release.classes are not those of mechanism.json"
    if "classes" not in mechanism:
        return
    if release.get("loss") not in (None, _LOSS):
        yield f"release.loss is not {_LOSS}, that of classes"
    if "class_center" in mechanism:
        return
    if "max_bias" in release:
        yield "release.max_bias is there, but places of classes have no bias"
    losses = release.members("expected_loss")
    if set(losses) != {_LOSS}:
        yield f"release.expected_loss does not have exactly {_LOSS}"
        return
    stated, expected = float(losses.nonnegative(_LOSS)), _expected_loss(mechanism)
    if not math.isclose(stated, expected, rel_tol=_LOSS_ERROR, abs_tol=_LOSS_ERROR**2):
        yield f"release.expected_loss.{_LOSS} is not that of the weights under the prior"


def _expected_loss(mechanism: Mapping[str, Any]) -> float:
    """Probability of another class than the true one, under the prior, in floating point."""
    prior, whole = Members(mechanism["prior"]).floats("weights"), float(1 << mechanism["bits"])
    terms = []
    for output, column in zip(mechanism["outputs"], mechanism["columns"], strict=True):
        for start, weight, length in read_spans(column, len(prior)):
            others = [share for place, share in enumerate(prior[start : start + length], start) if place != output]
            terms.append(math.fsum(others) * (weight / whole))
    return math.fsum(terms)


def class_warning_degrees(mechanism: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Names of the possible warnings of classes, in order, each with its statistic over its threshold."""
    center = read_class_center(mechanism)
    if center is not None:
        yield "unseen_classes", _unseen(center.counts, math.sqrt(8) / float(center.budget[0]))
        yield "frequent_classes", _LEAST_CELL / _cell_records(center.shares, sum(center.budget, Fraction(0)))
        return
    prior = mechanism["prior"]
    # Counts and epsilon passed the checks of the histogram.
    yield "unseen_classes", _unseen(prior["counts"], math.sqrt(8) / prior["epsilon"]) if "counts" in prior else 0.0
    yield "lost_classes", 2.0 * (len(mechanism["outputs"]) < len(mechanism["labels"]))
    kept = 1 - _expected_loss(mechanism)
    yield "label_error", _LEAST_KEPT / kept if kept > 0 else math.inf


def _cell_records(prior: list[float], epsilon: Fraction) -> float:
    """Records of a cell for these shares, on average over the classes, at an epsilon."""
    spread = math.fsum(share * (1 - share) for share in prior)
    return _CELL * len(prior) / (spread * float(epsilon)) if spread > 0 else math.inf


def _unseen(counts: list[int], deviation: float) -> float:
    """Limit of counts that noise of this standard deviation alone may give, over the least count."""
    least = min(counts)
    return _STANDS_OUT * deviation / least if least > 0 else math.inf


def classes_line(classes: Classes) -> str:
    """Line of the report that lists the first classes, and says as which one all other values count."""
    names = [f"'{printable(value[:_LONGEST])}{'...' * (len(value) > _LONGEST)}'" for value in classes.values]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"classes      {shown}; all other values count as {names[classes.other]}"
