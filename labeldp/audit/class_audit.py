"""Audit of labels that are classes: what both files say of them, the loss, warnings; and of a center of classes.

A mechanism of K classes has the labels 0.0, 1.0, ..., K - 1, their places in the public list. Its outputs are some of
them. Places have no distances: there is no bias, and the loss is the probability of another class.

Classes are drawn from the probabilities that a center predicts, so a mechanism file with a center has no randomizer and
no prior. The labels enter through the noised histogram of the classes, of sensitivity 2 as in every release, noised
class sums of the rows of features, and noised counts of the classes in cells. A changed label moves a row of L1 norm at
most A, and 1, from one class to another; the noise of both has the sum 0 over the classes and the scale of what moves,
divided by the part of epsilon. `center_replay` checks what follows from the noised numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from .center_audit import REPLAYED
from .center_document import ROW_UNIT
from .class_center_document import CLASS_CENTER, ClassCenter, read_class_center
from .documents import RefusedDocument, as_text, printable
from .weight_runs import read_spans

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

_NAME = "class_center.center"
# Part of what the histogram leaves, for the class sums, in multiples of the grain.
_SUMS, _GRAIN = Fraction(1, 4), Fraction(1, 1 << 24)
# Noise beyond this multiple of twice its scale has a probability of about e^-40 for each number: given the sum, the
# others add up to a symmetric log-concave number, so that a density falls at least as exp(-|v| / (2 scale)).
_MOST_NOISE = 40


class Classes(NamedTuple):
    """The K classes as text, in the order of their places, and the place of that of all values that are not listed."""

    values: tuple[str, ...]
    other: int


def read_classes(mechanism: Mapping[str, Any]) -> Classes | None:
    """Reads the classes of a mechanism file; None for labels that are numbers.

    Raises RefusedDocument if they are not different texts in Unicode, with a place of one of them.
    """
    if "classes" not in mechanism:
        return None
    values, other = mechanism["classes"]["values"], mechanism["classes"]["other"]
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        raise RefusedDocument("classes.values has a class that is not Unicode text") from None
    if len(set(values)) < len(values):
        raise RefusedDocument("classes.values has a class twice")
    if other >= len(values):
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


def class_problems(mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Checks that a mechanism file of randomized classes has nothing that only labels that are numbers have."""
    if "classes" not in mechanism:
        return
    if mechanism["mechanism"] not in _MECHANISMS:
        yield f"mechanism is not one of classes: {' or '.join(_MECHANISMS)}"
    if mechanism["rounding"] != "nearest":
        yield "rounding is not nearest: places of classes are not rounded"
    yield from (f"{key} is there, but labels are classes" for key in _OF_NUMBERS if key in mechanism)


def class_statement_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Compares what a manifest states of classes with the mechanism file."""
    if as_text(release.get("classes")) != as_text(mechanism.get("classes")):
        yield "release.classes are not those of mechanism.json"
    if "classes" not in mechanism:
        return
    if release.get("loss") not in (None, _LOSS):
        yield f"release.loss is not {_LOSS}, that of classes"
    if CLASS_CENTER in mechanism:
        return
    if "max_bias" in release:
        yield "release.max_bias is there, but places of classes have no bias"
    losses = release["expected_loss"]
    if set(losses) != {_LOSS} or losses[_LOSS] is None:
        yield f"release.expected_loss does not have exactly {_LOSS}"
        return
    stated, expected = losses[_LOSS], _expected_loss(mechanism)
    if not math.isclose(stated, expected, rel_tol=_LOSS_ERROR, abs_tol=_LOSS_ERROR**2):
        yield f"release.expected_loss.{_LOSS} is not that of the weights under the prior"


def _expected_loss(mechanism: Mapping[str, Any]) -> float:
    """Probability of another class than the true one, under the prior, in floating point."""
    prior, whole = mechanism["prior"]["weights"], float(1 << mechanism["bits"])
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


def class_center_problems(mechanism: Mapping[str, Any], center: ClassCenter) -> Iterator[str]:
    """Checks the center of classes of a mechanism file against the rest of the file; one line for each failed check."""
    if len(center.counts) != len(mechanism["classes"]["values"]):
        raise RefusedDocument(f"{_NAME}.counts are not one for each class")
    missing = mechanism.get("missing_label")
    if missing is not None and missing not in mechanism["classes"]["values"]:
        yield "missing_label is not one of the classes"
    yield from _budget_problems(center)
    if center.column in center.features:
        yield "class_center.column is a feature of the center: it would predict itself"
    # Rows that are shortened have a smaller constant.
    if center.sums and not 0 <= sum(center.sums[0]) <= ROW_UNIT * center.records:
        yield f"{_NAME}.linear.sums of the constant add up to more than {_NAME}.linear.records"
    if center.cells is not None:
        totals = [sum(counts) for counts in center.cells.counts]
        if min(totals) < 0 or sum(totals) != center.records:
            yield f"{_NAME}.cells.counts do not add up to {_NAME}.linear.records, with no cell below 0"
    yield from _noise_problems(center)


def _noise_problems(center: ClassCenter) -> Iterator[str]:
    """Checks that noised numbers are within those of any labels with their noise."""
    classes = len(center.counts)
    limit = _noise_limit(1 / center.budget[0], classes)
    if min(center.counts) < -limit or max(center.counts) > center.records + limit:
        yield f"{_NAME}.counts are not those of any labels with their noise"
    if center.sums:
        size, most = len(center.sums) * classes, center.records * center.norm
        limit = _noise_limit(center.norm / center.sums_epsilon, size)
        constants, totals = center.sums[0], [abs(sum(row)) for row in center.sums]
        if (
            min(constants) < -limit
            or max(constants) > ROW_UNIT * center.records + limit
            or sum(abs(value) for row in center.sums for value in row) > most + size * limit
            or sum(totals) > most
        ):
            yield f"{_NAME}.linear.sums are larger than those of any labels with their noise"
    if center.cells is not None:
        counts = center.cells.counts
        limit = _noise_limit(1 / center.cells.epsilon, len(counts) * classes)
        if any(min(cell) < -limit or max(cell) > sum(cell) + limit for cell in counts):
            yield f"{_NAME}.cells.counts are not those of any labels with their noise"


def _noise_limit(scale: Fraction, numbers: int) -> float:
    return float(2 * scale) * (_MOST_NOISE + numbers.bit_length())


def _budget_problems(center: ClassCenter) -> Iterator[str]:
    """Checks that parts of the budget are those of a whole, and that what was spent is theirs."""
    _, sums, cells = center.budget
    if sums != _SUMS * (sums + cells) // _GRAIN * _GRAIN:
        yield f"{_NAME}.budget.sums is not the part of epsilon for them"
    if center.sums_epsilon != (sums if center.sums else 0):
        yield f"{_NAME}.linear.epsilon is not {_NAME}.budget.sums"
    spent = cells + (0 if center.sums else sums)
    if center.cells is not None and center.cells.epsilon != Fraction(float(spent)):
        yield f"{_NAME}.cells.epsilon is not {_NAME}.budget.cells" + ("" if center.sums else ", and that of the sums")


def stated_center_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Compares what a manifest states of a center of classes with the mechanism file."""
    center = read_class_center(mechanism)
    if center is None:
        if CLASS_CENTER in release:
            yield "release.class_center is there, but mechanism.json has none"
        return
    label = release["label"]
    if mechanism.get("label") != label:
        yield "release.label is not label of mechanism.json"
    expected = {
        "column": center.column,
        "features": center.features,
        "sums": len(center.sums),
        "cells": 0 if center.cells is None else len(center.cells.counts),
        "trees": 0 if center.cells is None else len(center.cells.leaves),
        "fingerprint": center.fingerprint,
    }
    stated = release.get(CLASS_CENTER, {})
    wrong = [key for key, value in expected.items() if stated.get(key) != value]
    yield from (f"release.class_center.{key} is not that of mechanism.json" for key in wrong)
    if label in center.features:
        yield "the label column is a feature of the center"
    if label == center.column:
        yield "class_center.column is the label column"


def class_center_lines(center: ClassCenter) -> str:
    """Describes a center of classes in lines of a report."""
    counts, cells = center.budget[0], center.cells
    lines = [
        f"center       column '{printable(center.column)}': probabilities of {len(center.counts)} classes from "
        f"{len(center.features)} features; histogram of the classes with noise of scale {float(2 / counts)!r} for "
        f"epsilon {float(counts)!r}"
    ]
    if center.sums:
        norm = Fraction(center.norm, ROW_UNIT)
        lines.append(
            f"class sums   of {len(center.sums)} columns of rows, of sensitivity {float(norm)!r}, with noise of scale "
            f"{float(norm / center.sums_epsilon)!r} for epsilon {float(center.sums_epsilon)!r}"
        )
    else:
        lines.append("class sums   none: features would say less than their noise hides")
    lines.append(
        "cells        none"
        if cells is None
        else f"cells        {len(cells.counts)} cells of features: counts of the classes with noise of scale "
        f"{float(1 / cells.epsilon)!r} for epsilon {float(cells.epsilon)!r}; {len(cells.leaves)} trees"
    )
    return "\n".join(lines)


def class_replay_line(center: ClassCenter) -> str:
    """Line of a report about what was replayed of a center of classes."""
    parts = [f"coefficients from {len(center.sums)} class sums"] if center.sums else ["that no class sums are released"]
    if center.cells is not None:
        trees, cells = len(center.cells.leaves), len(center.cells.counts)
        parts.append(f"partition of the sample, coefficients and {trees} trees from the counts of {cells} cells")
    return f"{REPLAYED}{'; '.join(parts)}"
