"""Linear centers as documents: the round trip, and documents that are refused."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center.center_model import center_document, read_center
from labeldp.mechanisms.center.feature_rows import Categories, Category
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums

KEY = bytes(range(32))
LABELS = 53


def released(seed: int, records: int = 300, epsilon: float = 1.0, labels: int = LABELS) -> LinearCenter:
    """A center of two numbers, one category with places of its own and one that is hashed."""
    random = np.random.Generator(np.random.PCG64(seed))
    values = [f"v{i}" for i in range(9)]
    features = {
        "a": random.normal(size=records) * 10.0 ** random.integers(-200, 200),
        "b": np.where(random.random(records) < 0.1, np.nan, random.normal(size=records)),
        "own": Categories(random.integers(-1, 3, records), ("x", "\udcff", "")),
        "hashed": Categories(random.integers(0, 9, records), tuple(values)),
    }
    indices = random.integers(0, labels, records)
    design = design_center(features, 10**5, epsilon, 4)
    sums = moment_sums(design.map.rows(features), indices, labels)
    return LinearCenter.fit(design, labels, noised_sums(sums, design.map.norm, labels, design.epsilon, KEY))


def without_center() -> LinearCenter:
    design = design_center({"a": np.zeros(10)}, 10, 1.0, 4)
    return LinearCenter.fit(design, LABELS, ())


def bits(center: LinearCenter) -> list[Any]:
    """Everything in a center, with all floats as their bits."""
    design = center.design
    encoders = []
    for each in design.map.encoders:
        rest = (each.values, [share.hex() for share in each.shares]) if isinstance(each, Category) else each.mean.hex()
        encoders.append((type(each), each.name, rest, each.spread.hex()))
    arrays = [(array.dtype, array.shape, array.tobytes()) for array in (design.map.weights, design.gram)]
    signal = [each.hex() for each in design.signal]
    numbers = (design.map.norm, design.epsilon.hex(), design.sampled, design.records, center.labels)
    return [encoders, arrays, signal, numbers, center.sums, center.coefficients]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30), st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([2, 53, 4096]))
def test_a_document_keeps_every_bit(seed: int, epsilon: float, labels: int):
    center = released(seed, epsilon=epsilon, labels=labels)
    assert center.design.epsilon > 0
    document = json.loads(json.dumps(center_document(center), allow_nan=False))
    again = read_center(document)
    assert bits(again) == bits(center)
    assert center_document(again) == document


def test_a_design_without_center_has_a_document():
    center = without_center()
    document = json.loads(json.dumps(center_document(center), allow_nan=False))
    again = read_center(document)
    assert bits(again) == bits(center)
    np.testing.assert_array_equal(again.indices({"a": np.arange(3.0)}), [LABELS // 2] * 3)


def test_a_center_that_was_read_predicts_the_same():
    center = released(1)
    again = read_center(json.loads(json.dumps(center_document(center))))
    columns = {
        "a": np.array([1.0, np.nan, -np.inf, 1e308]),
        "b": np.array([0.0, 1.0, 2.0, np.nan]),
        "own": Categories(np.array([0, 1, -1, 0]), ("\udcff", "unknown")),
        "hashed": Categories(np.array([0, 1, 2, 1]), ("v1", "", "new")),
    }
    np.testing.assert_array_equal(again.indices(columns), center.indices(columns))


DOCUMENT = center_document(released(5))

# Place in the document, what is put there, and what the message says.
WRONG: list[tuple[list[Any], Any, str]] = [
    (["encoders", 0, "name"], "b", "the same name"),
    (["encoders", 0, "spread"], 0.0, "between"),
    (["encoders", 2, "values", 0], "x", "the same"),
    (["encoders", 2, "shares", 0], 1.5, "between"),
    (["encoders", 2, "shares"], [0.5, 0.5, 0.5], "more than 1"),
    (["encoders", 2, "shares", 0], 1e-3, "spread"),
    (["encoders", 2, "spread"], 0.5, "spread"),
    (["encoders", 3, "shares"], [1e-9] * 5000, "not 1 to 4096"),
    (["weights", 0], [0] * 49, "not 0 to 48"),
    (["weights", 0, 0], (1 << 26) + 1, "between"),
    (["norm"], 255, "between"),
    (["norm"], (1 << 24) + 1, "between"),
    (["epsilon"], 31.0, "between"),
    (["gram", 0, 0], 0, "diagonal"),
    (["gram", 0, 1], 12345, "inner products"),
    (["gram", 0, 0], 1 << 90, "between"),
    (["sampled"], (1 << 14) + 1, "between"),
    (["records"], 1 << 54, "between"),
    (["labels"], 1, "between"),
    (["labels"], (1 << 20) + 1, "between"),
    (["sums", 0], 1 << 129, "between"),
    (["coefficients", 1], 1 << 37, "between"),
    (["coefficients", 0], DOCUMENT["coefficients"][0] + 1, "do not follow from its sums"),
    (["sums", 0], DOCUMENT["sums"][0] + 10**6, "do not follow from its sums"),
    (["records"], 10**5 + 1000, "do not follow from its sums"),
]


def replaced(document: Any, place: list[Any], value: Any) -> Any:
    """A copy of a document with another value at one place."""
    if not place:
        return value
    found = copy.deepcopy(document)
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return found


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_a_wrong_document_is_refused_with_the_reason(place: list[Any], value: Any, message: str):
    with pytest.raises(ValueError, match=message):
        read_center(replaced(DOCUMENT, place, value))


def test_too_many_encoded_features_are_refused():
    encoder = DOCUMENT["encoders"][3]
    many = [{**encoder, "name": str(i)} for i in range(1025)]
    with pytest.raises(ValueError, match="4100 encoded features; at most 4096"):
        read_center(replaced(DOCUMENT, ["encoders"], many))


def test_a_center_without_components_spends_nothing():
    document = center_document(without_center())
    with pytest.raises(ValueError, match="epsilon but no component"):
        read_center(document | {"epsilon": 0.5})
    with pytest.raises(ValueError, match="do not follow"):
        read_center(document | {"coefficients": [1]})


def test_weights_that_floats_do_not_add_exactly_are_refused():
    """A share of 1e-12 makes an indicator of 2^30 units: with a weight of 2^26, sums would be beyond 2^53."""
    document = copy.deepcopy(DOCUMENT)
    category = document["encoders"][2]
    category["shares"] = [1e-12, 0.0, 0.0]
    category["spread"] = math.sqrt(1e-12 * (1 - 1e-12))
    document["weights"][2][0] = 1 << 26
    with pytest.raises(ValueError, match="too large for the spread"):
        read_center(document)


def places(document: Any) -> list[list[Any]]:
    """Every place in a document."""
    found: list[list[Any]] = [[]]
    if isinstance(document, dict):
        found += [[key, *rest] for key, value in document.items() for rest in places(value)]
    elif isinstance(document, list):
        found += [[i, *rest] for i, value in enumerate(document) for rest in places(value)]
    return found


PLACES = places(DOCUMENT)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.integers(-300, 300)
    | st.floats()
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*DOCUMENT, "name", "shares"]), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=3))
def test_a_mutated_document_is_read_or_refused_with_a_value_error(changes: list[tuple[list[Any], Any]]):
    document: Any = DOCUMENT
    for place, value in changes:
        try:
            document = replaced(document, place, value)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # An earlier change removed the place.
    try:
        center = read_center(document)
    except ValueError:
        return
    assert center_document(center) == document


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1e-9, 30.0),
    st.integers(1, 1 << 53),
    st.integers(2, 1 << 20),
    st.lists(st.floats(1e-30, 1.0), min_size=9, max_size=9),
    st.lists(st.integers(-(1 << 128), 1 << 128), min_size=10, max_size=10),
    st.integers(1, 1 << 14),
)
def test_extreme_numbers_are_read_or_refused_with_a_value_error(
    epsilon: float, records: int, labels: int, signal: list[float], sums: list[int], sampled: int
):
    size = len(DOCUMENT["signal"])
    changed = {
        "epsilon": epsilon,
        "records": records,
        "labels": labels,
        "signal": signal[:size],
        "sums": sums[: size + 1],
        "sampled": sampled,
        "gram": [[1 << 16] * (size + 1)] * (size + 1),
    }
    with pytest.raises(ValueError, match="center"):
        read_center(DOCUMENT | changed)
