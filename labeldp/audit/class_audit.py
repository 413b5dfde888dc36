"""Audit of labels that are classes: their list in both files, the loss, and the warnings that follow from them.

A mechanism of K classes has the labels 0.0, 1.0, ..., K - 1, their places in the public list. Its outputs are some of
them. Places have no distances: there is no bias, and the loss is the probability of another class.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from .class_center_audit import CLASS_CENTER, center_budget, class_shares, noised_counts
from .documents import RefusedDocument, printable, read_floats, read_member, read_nonnegative
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


def read_classes(mechanism: dict[str, Any]) -> Classes | None:
    """Reads the classes of a mechanism file; None for labels that are numbers.

    Raises RefusedDocument if they are not 2 to 1,000 different texts that are not empty, with a place of one of them.
    """
    if "classes" not in mechanism:
        return None
    stated = {f"classes.{key}": value for key, value in read_member(mechanism, "classes", dict).items()}
    if set(stated) != {"classes.values", "classes.other"}:
        raise RefusedDocument("classes does not have exactly values and other")
    values, other = read_member(stated, "classes.values", list), read_member(stated, "classes.other", int)
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


def class_problems(mechanism: dict[str, Any]) -> Iterator[str]:
    """Checks that a mechanism file of randomized classes has nothing that only labels that are numbers have."""
    if mechanism["mechanism"] not in _MECHANISMS:
        yield f"mechanism is not one of classes: {' or '.join(_MECHANISMS)}"
    if read_member(mechanism, "rounding", str) != "nearest":
        yield "rounding is not nearest: places of classes are not rounded"
    yield from (f"{key} is there, but labels are classes" for key in _OF_NUMBERS if key in mechanism)


def class_statement_problems(release: dict[str, Any], mechanism: dict[str, Any]) -> Iterator[str]:
    """Compares what a manifest states of classes with the mechanism file; keys have `release.` before them."""
    # As text: 1 and 1.0 are equal numbers, and 1 and true are equal in Python.
    if _text(release.get("release.classes")) != _text(mechanism.get("classes")):
        yield "release.classes are not those of mechanism.json"
    if "classes" not in mechanism:
        return
    if release.get("release.loss") not in (None, _LOSS):
        yield f"release.loss is not {_LOSS}, that of classes"
    if CLASS_CENTER in mechanism:
        return
    if "release.max_bias" in release:
        yield "release.max_bias is there, but places of classes have no bias"
    losses = read_member(release, "release.expected_loss", dict)
    if set(losses) != {_LOSS}:
        yield f"release.expected_loss does not have exactly {_LOSS}"
    elif not math.isclose(_stated_loss(losses), _expected_loss(mechanism), rel_tol=_LOSS_ERROR, abs_tol=_LOSS_ERROR**2):
        yield f"release.expected_loss.{_LOSS} is not that of the weights under the prior"


def _stated_loss(losses: dict[str, Any]) -> float:
    name = f"release.expected_loss.{_LOSS}"
    return float(read_nonnegative({name: losses[_LOSS]}, name))


def _expected_loss(mechanism: dict[str, Any]) -> float:
    """Probability of another class than the true one, under the prior, in floating point."""
    prior, whole = read_floats(mechanism["prior"], "weights"), float(1 << mechanism["bits"])
    terms = []
    for output, column in zip(mechanism["outputs"], mechanism["columns"], strict=True):
        for start, weight, length in read_spans(column, len(prior)):
            others = [share for place, share in enumerate(prior[start : start + length], start) if place != output]
            terms.append(math.fsum(others) * (weight / whole))
    return math.fsum(terms)


def class_warning_degrees(mechanism: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Names of the possible warnings of classes, in order, each with its statistic over its threshold."""
    if CLASS_CENTER in mechanism:
        yield "unseen_classes", _unseen(*noised_counts(mechanism))
        yield "frequent_classes", _LEAST_CELL / _cell_records(class_shares(mechanism), center_budget(mechanism))
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


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
