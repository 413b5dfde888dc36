"""What a request leaves open: mechanism, center and rounding, by purpose, loss, domain and features."""

from typing import Any

import pytest

NO_GRID: dict[str, Any] = dict.fromkeys(("label_min", "label_max", "label_step"))
CLASSES = {**NO_GRID, "label": "grade", "label_classes": "low,high"}


@pytest.mark.parametrize(
    ("fields", "mechanism", "center"),
    [
        ({}, "auto", "linear"),
        ({"for_": "models"}, "auto", "linear"),
        ({"for_": "log_features"}, "auto", "cells"),
        ({"for_": "labels"}, "rr_on_bins", None),
        ({"loss": "poisson"}, "rr_on_bins", None),
        ({"loss": "absolute"}, "rr_on_bins", None),
        ({"mechanism": "rr"}, "rr", None),
        ({"mechanism": "rr", "center": "linear"}, "rr", "linear"),
        ({"mechanism": "rr", "center_features": "x"}, "rr", "linear"),
        ({"center": "none"}, "auto", None),
        ({"center_column": "x"}, "auto", None),
        ({**NO_GRID, "label_values": (0, 1, 5, 12, 30)}, "auto", None),
        ({"label_max": 3}, "auto", None),
        ({"label_max": 3, "center": "linear"}, "auto", "linear"),
        ({"input": "alone.csv"}, "auto", None),
        (CLASSES, "rr", "cells"),
        ({**CLASSES, "for_": "models"}, "rr", "cells"),
        ({**CLASSES, "for_": "labels"}, "rr_top_k", None),
        ({**CLASSES, "mechanism": "rr"}, "rr", None),
        ({**CLASSES, "center": "none"}, "rr", None),
        ({**CLASSES, "epsilon": 9}, "rr", None),
        ({**CLASSES, "epsilon": 9, "for_": "log_features"}, "rr", "cells"),
    ],
    ids=str,
)
def test_mechanism_and_center(fields: dict[str, Any], mechanism: str, center: str | None, release_of: Any) -> None:
    (label,) = release_of(**fields).labels
    assert label.mechanism.name == mechanism
    made = label.features
    classes = label.column.classes is not None
    assert center == (None if made is None else "cells" if made.cells or classes else "linear")


def test_the_shortest_request_is_the_long_one(release_of: Any) -> None:
    """Format by the name of the file, from 0 on, in steps of 1: what is signed, charged and bound is the same."""
    assert release_of(input_format=None, label_min=None, label_step=None) == release_of()


@pytest.mark.parametrize(
    ("mechanism", "asked", "expected"),
    [
        ("rr_on_bins", None, "nearest"),
        ("laplace", None, "nearest"),
        ("debiased_rr", None, "randomized"),
        ("rqm", None, "randomized"),
        ("rr_on_bins", "randomized", "randomized"),
        ("debiased_rr", "nearest", "nearest"),
    ],
)
def test_rounding(mechanism: str, asked: str | None, expected: str, release_of: Any) -> None:
    assert release_of(mechanism=mechanism, rounding=asked).labels[0].column.rounding == expected
