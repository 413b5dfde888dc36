"""Document of a center of classes: it holds all of it, and a document that was changed is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from labeldp.mechanisms.center.class_document import class_document, read_class_center

from .class_logs import ClassLog, class_log


@pytest.fixture(scope="module")
def log() -> ClassLog:
    return class_log(1, linear=1.0, other=3.0)


@pytest.fixture(scope="module")
def document(log: ClassLog) -> dict[str, Any]:
    return json.loads(json.dumps(class_document(log.release(4.0, most=1500))))


def test_the_document_gives_the_center_back(log: ClassLog, document: dict[str, Any]):
    center = log.release(4.0, most=1500)
    assert center.cells is not None
    assert len(center.cells.trees.leaves)
    found = read_class_center(document)
    assert (found.probabilities(log.columns) == center.probabilities(log.columns)).all()
    assert found.epsilon == center.epsilon
    assert class_document(found) == document


@pytest.mark.parametrize("epsilon", [1e-5, 0.05])
def test_a_center_without_sums_or_cells_is_given_back(log: ClassLog, epsilon):
    center = log.release(epsilon, most=1500)
    found = read_class_center(json.loads(json.dumps(class_document(center))))
    assert (found.probabilities(log.columns) == center.probabilities(log.columns)).all()


PLANTED = {
    "noised sum": (("linear", "sums", 1, 0), 1 << 14),
    "coefficient": (("linear", "coefficients", 1, 0), 1),
    "epsilon of the sums": (("linear", "epsilon"), 0.5),
    "signal": (("linear", "signal", 0), 0.25),
    "count of a cell": (("cells", "counts", 0, 0), 1),
    "coefficient of the cells": (("cells", "coefficients", 0, 1), -1),
    "cut of a column": (("cells", "others", 0, "cuts", 0), 100_000),
    "leaf": (("cells", "trees", "leaves", 0, 0, 0), 1),
    "cut of a tree": (("cells", "trees", "cuts", 0, 0), 64),
    "column of a tree": (("cells", "trees", "columns", 0, 0), 1000),
    "epsilon of the cells": (("cells", "epsilon"), 1.0),
    "part of the cells": (("budget", "cells"), 0.5),
}


@pytest.mark.parametrize(("path", "change"), PLANTED.values(), ids=PLANTED)
def test_a_changed_number_is_refused(document: dict[str, Any], path: tuple[Any, ...], change: float):
    changed = copy.deepcopy(document)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += change
    with pytest.raises(ValueError, match=r"center|counts|coefficients|trees|cells"):
        read_class_center(changed)
