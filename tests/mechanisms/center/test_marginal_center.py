"""Marginal center: sensitivity and noise of its sums, what is public, its fit, and its document."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center.center_model import center_document, read_center
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.marginal_center import (
    LEAST_IN_PART,
    MOST_PARTS,
    MarginalCenter,
    MarginalDesign,
    _inverse,
    common_records,
    design_marginals,
    marginals_pay,
    noise_scales,
    noised_marginals,
    noised_part_sums,
    part_tables,
)
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.document_form import check_form

from tests.false_alarms import FALSE_ALARM

KEYS = bytes(range(32)), bytes(range(1, 33))
LABELS = 41


def columns_of(seed: int, records: int) -> tuple[dict[str, Any], np.ndarray]:
    """Features, of which one says nothing, and what labels are expected to be, in steps."""
    random = np.random.Generator(np.random.PCG64(seed))
    number, kinds, others = (
        random.normal(size=records),
        random.integers(-1, 6, records),
        random.integers(0, 30, records),
    )
    columns = {
        "number": np.where(random.random(records) < 0.05, np.nan, number),
        "kind": Categories(kinds, tuple("uvwxyz")),
        "other": Categories(others, tuple(map(str, range(30)))),
    }
    expected = 18 + 3 * np.abs(np.nan_to_num(columns["number"])) + np.array([4, -4, 2, 0, 0, 3, 0])[kinds]
    return columns, expected


def made(seed: int, records: int, epsilon: float) -> tuple[MarginalCenter, np.ndarray, dict[str, Any]]:
    """A center of drawn records, what their labels are expected to be, and their features."""
    columns, expected = columns_of(seed, records)
    noise = np.random.Generator(np.random.PCG64(seed + 1)).normal(size=records)
    indices = np.clip(np.rint(expected + 4 * noise), 0, LABELS - 1).astype(np.int64)
    design = design_marginals(columns, records, epsilon)
    assert design is not None
    parts = design.parts_of(columns)
    tables = part_tables(parts, design.sizes, indices - LABELS // 2, LABELS)
    released = noised_marginals(design, LABELS, tables, common_records(parts, design.sizes), KEYS)
    return MarginalCenter.of(LABELS, released), expected, columns


@pytest.fixture(scope="module")
def center() -> MarginalCenter:
    return made(1, 12_000, 1.0)[0]


@pytest.mark.parametrize("epsilon", [0.25, 3.0])
def test_the_privacy_loss_of_neighbors_is_at_most_epsilon_and_reaches_it(epsilon: float):
    """All neighbors that differ in one label: the loss of discrete Laplace noise is the distance divided by its scale.

    The range is not that of all labels, so that some labels are clipped.
    """
    labels, sizes, residuals = 5, [2, 3], ResidualDomain(np.arange(5.0))
    largest = Fraction(0)
    for parts in itertools.product(range(2), range(3)):
        for first, last in itertools.combinations(range(residuals.cells), 2):
            ends = int(residuals.bounds[first]), int(residuals.bounds[last + 1]) - 1
            scales = np.repeat(np.array(noise_scales(ends, sizes, epsilon), object), sizes)
            places = np.array([parts, (0, 0), (1, 2)])
            sums = []
            for label in range(labels):
                steps = np.array([label, 1, 4]) - labels // 2
                sums.append(part_tables(places, sizes, steps, labels).clipped(first, last, residuals).tolist())
            for one, two in itertools.combinations(sums, 2):
                loss = sum(Fraction(abs(a - b)) / scale for a, b, scale in zip(one, two, scales, strict=True))
                assert loss <= Fraction(epsilon)
                largest = max(largest, loss)
    assert largest == Fraction(epsilon)


def test_noise_has_the_scale_of_each_feature():
    sizes, ends = [4, 4000], (-3, 7)
    drawn = noised_part_sums(ends, sizes, np.zeros((1, 4004), np.int64), 0.5, KEYS[0])[0]
    scales = noise_scales(ends, sizes, 0.5)
    assert sum(10 / scale for scale in scales) == Fraction(1, 2)
    assert scales[0] / scales[1] == Fraction(505, 16)
    # The absolute value of Laplace noise has its scale as mean and as standard deviation.
    error = float(scales[1]) * np.sqrt(2 * np.log(2 / FALSE_ALARM) / 4000) * 1.5
    assert abs(np.abs(drawn[4:].astype(float)).mean() - float(scales[1])) < error


def test_a_record_is_in_one_part_of_each_feature_and_records_in_common_are_counted():
    columns, _ = columns_of(3, 2000)
    design = design_marginals(columns, 2000, 1.0)
    assert design is not None
    parts, sizes = design.parts_of(columns), design.sizes
    assert (parts >= 0).all()
    assert (parts < sizes).all()
    inside = np.concatenate(
        [np.eye(size, dtype=np.int64)[column] for size, column in zip(sizes, parts.T, strict=True)], 1
    )
    assert np.array_equal(common_records(parts, sizes), inside.T @ inside)


def test_rare_values_share_the_last_part_and_parts_are_bounded():
    values = np.repeat(np.arange(3000), np.maximum(3000 // (1 + np.arange(3000)), 1))
    column = Categories(values, tuple(map(str, range(3000))))
    few = design_marginals({"a": column}, len(values), 1.0)
    many = design_marginals({f"a{number}": column for number in range(8)}, len(values), 8.0)
    assert few is not None
    assert many is not None
    assert few.sizes == [int((np.bincount(values) >= LEAST_IN_PART).sum()) + 1]
    assert MOST_PARTS // 2 < sum(many.sizes) <= MOST_PARTS
    assert (
        few.parts_of({"a": Categories(np.array([0, -1, 1]), ("0", "new"))})[:, 0].tolist()[1:] == [few.sizes[0] - 1] * 2
    )


def test_a_document_has_room_for_all_features_that_are_taken():
    labels, records, number = 5, 300, np.arange(300.0)
    columns = {f"a{place:03d}": number % 2 for place in range(600)}
    design = design_marginals(columns, records, 30.0)
    assert design is not None
    parts, steps = design.parts_of(columns), number.astype(np.int64) % labels - labels // 2
    tables = part_tables(parts, design.sizes, steps, labels)
    released = noised_marginals(design, labels, tables, common_records(parts, design.sizes), KEYS)
    document = center_document(MarginalCenter.of(labels, released))
    assert len(document["marginals"]["cuts"]) == MOST_PARTS // 2
    check_form(document, "linear", "center")


def test_the_budget_is_public_and_leaves_labels_some():
    columns, _ = columns_of(3, 2000)

    def spent(records: int, epsilon: float) -> float:
        design = design_marginals(columns, records, epsilon)
        assert isinstance(design, MarginalDesign)
        return (design.histogram + design.epsilon) / epsilon

    assert spent(10_000, 0.5) == pytest.approx(0.9)
    assert spent(10_000, 4.0) == pytest.approx(0.225)
    assert spent(2_000_000, 1.0) == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("numbers", "categories", "records", "epsilon", "pays"),
    [
        (1, 2, 540, 1.0, True),
        (1, 2, 539, 1.0, False),
        (1, 2, 540, 2.0, True),
        (1, 2, 1080, 0.5, True),
        (1, 2, 1079, 0.5, False),
        (2, 2, 10_000, 1.0, False),
    ],
)
def test_they_are_for_categories_and_enough_records(
    numbers: int, categories: int, records: int, epsilon: float, pays: bool
):
    number, kind = np.arange(100.0), Categories(np.arange(100) % 4, tuple("abcd"))
    columns = {f"n{place}": number for place in range(numbers)} | {f"k{place}": kind for place in range(categories)}
    design = design_marginals(columns, records, epsilon)
    assert design is not None
    assert marginals_pay(design, epsilon) == pays


def test_predictions_come_close_to_what_labels_are_expected_to_be():
    center, expected, columns = made(5, 40_000, 1.0)
    error = ((center.positions(columns) - expected) ** 2).mean()
    assert error < 0.1 * expected.var()
    explained = center.explained(
        ResidualDomain(np.arange(float(LABELS))).mean_square(np.array(center.marginals.counts), 1)
    )
    assert explained.variance == pytest.approx(expected.var() + 16, rel=0.2)
    assert np.array_equal(center.indices(columns), np.rint(center.positions(columns)).astype(np.int64))


def test_an_inverse_is_exact_to_rounding():
    random = np.random.Generator(np.random.PCG64(7))
    factor, scale = random.normal(size=(70, 200)), 10.0 ** random.integers(-6, 6, 70)
    matrix = factor @ factor.T
    inverse = _inverse(matrix * scale * scale[:, None]) * scale * scale[:, None]
    assert np.allclose(inverse @ matrix, np.eye(70), atol=1e-9)


def test_a_document_is_read_back(center: MarginalCenter):
    document = json.loads(json.dumps(center_document(center)))
    assert center_document(read_center(document)) == document
    assert [part.epsilon for part in center.parts] == [
        document["marginals"][f"{n}_epsilon"] for n in ("histogram", "sums")
    ]


def _nothing(marginals: dict[str, Any]) -> None:
    marginals["cuts"][0] = []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["effects"].__setitem__(3, m["effects"][3] + 1), "the marginals of the center do not follow"),
        (lambda m: m.update(constant=m["constant"] - 1), "the marginals of the center do not follow"),
        (lambda m: m["range"].__setitem__(0, m["range"][0] + 1), "the marginals of the center do not follow"),
        (lambda m: m["sums"].__setitem__(0, m["sums"][0] + 5000), "the marginals of the center do not follow"),
        (lambda m: m["cuts"][0].reverse(), "not ascending"),
        (lambda m: m["cuts"].pop(), "cuts of the center has"),
        (lambda m: m["sums"].pop(), "sums of the center has"),
        (lambda m: m["common"][4].pop(), "common of the center has"),
        (lambda m: m["counts"].pop(), "counts of the center has"),
        (_nothing, "or none of a number"),
    ],
)
def test_a_changed_document_is_refused(change: Any, words: str, center: MarginalCenter):
    document = json.loads(json.dumps(center_document(center)))
    change(document["marginals"])
    with pytest.raises(ValueError, match=words):
        read_center(document)
