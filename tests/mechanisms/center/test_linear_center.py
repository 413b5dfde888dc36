"""Linear center: the sensitivity and the noise of its sums, its coefficients, and the design from public facts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.feature_rows import MOST_ENCODED, MOST_NORM, ROW_UNIT, Categories, Number, RowMap
from labeldp.mechanisms.center.linear_center import (
    COEFFICIENT_UNIT,
    LARGEST_COEFFICIENT,
    MOST_LABELS,
    MOST_SAMPLE,
    CenterDesign,
    LinearCenter,
    _solved,
    design_center,
    fitting_encoders,
    moment_sums,
    noise_scale,
    noised_sums,
    strength,
)
from labeldp.mechanisms.center.residuals import Moment

KEY = bytes(range(32))


def sample(seed: int = 1, records: int = 2000) -> dict[str, Any]:
    random = np.random.Generator(np.random.PCG64(seed))
    return {
        "a": random.normal(5, 2, records),
        "b": np.where(random.random(records) < 0.1, np.nan, random.random(records)),
        "c": Categories(random.integers(-1, 3, records), ("x", "y", "z")),
        "d": Categories(random.integers(0, 40, records), tuple(f"v{i}" for i in range(40))),
    }


def taken(columns: dict[str, Any], places: np.ndarray) -> dict[str, Any]:
    return {
        name: Categories(column.codes[places], column.values) if isinstance(column, Categories) else column[places]
        for name, column in columns.items()
    }


# Sums and their noise.


@settings(deadline=None)
@given(st.data())
def test_one_label_changes_the_sums_by_at_most_the_sensitivity(data: st.DataObject):
    labels, norm = data.draw(st.integers(2, 6)), data.draw(st.integers(ROW_UNIT, 2000))
    records = data.draw(st.integers(1, 5))
    elements = st.floats(allow_nan=True, allow_infinity=True)
    columns = {name: data.draw(arrays.arrays(np.float64, records, elements=elements)) for name in "xy"}
    weights = data.draw(arrays.arrays(np.int64, (2, 3), elements=st.integers(-(1 << 20), 1 << 20)))
    rows = RowMap((Number("x", 0.0, 1.0), Number("y", 1.0, 2.0)), weights, norm).rows(columns)
    indices = data.draw(arrays.arrays(np.int64, records, elements=st.integers(0, labels - 1)))
    sums = moment_sums(rows, indices, labels)
    assert all(type(each) is int for each in sums)
    for record in range(records):
        for label in range(labels):
            other = indices.copy()
            other[record] = label
            changed = moment_sums(rows, other, labels)
            assert sum(abs(a - b) for a, b in zip(sums, changed, strict=True)) <= 2 * (labels - 1) * norm


def test_the_sensitivity_is_attained():
    rows = np.array([[300, -200, 100]])
    ends = [moment_sums(rows, np.array([index]), 5) for index in (0, 4)]
    assert sum(abs(a - b) for a, b in zip(*ends, strict=True)) == 2 * 4 * 600


@pytest.mark.parametrize("labels", [2, 4096, MOST_LABELS, 1 << 30])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint32])
def test_sums_of_the_largest_rows_do_not_overflow(labels: int, kind: Any):
    records = MOST_SAMPLE + 1
    rows = np.full((records, 2), MOST_NORM)
    rows[:, 1] *= -1
    sums = moment_sums(rows, np.full(records, labels - 1, kind), labels)
    assert sums == [records * MOST_NORM * (labels - 1), -records * MOST_NORM * (labels - 1)]
    assert moment_sums(rows, np.zeros(records, kind), labels) == [-each for each in sums]


def test_small_integers_do_not_overflow():
    assert moment_sums(np.array([[256]]), np.array([200], np.uint8), 250) == [256 * (400 - 249)]


@given(st.integers(2, MOST_LABELS), st.integers(ROW_UNIT, MOST_NORM), st.floats(1e-9, 30))
def test_the_scale_of_the_noise_is_exact(labels: int, norm: int, epsilon: float):
    scale = noise_scale(norm, labels, epsilon)
    assert isinstance(scale, Fraction)
    assert scale * Fraction(epsilon) == 2 * (labels - 1) * norm


def test_the_noise_is_discrete_laplace_of_this_scale(fits: Any):
    norm, labels, epsilon = ROW_UNIT, 2, 30.0
    scale = 2 * norm / epsilon
    draws = np.array(noised_sums([1000] * 12_000, norm, labels, epsilon, KEY)) - 1000
    reach = int(30 * scale)
    assert np.abs(draws).max() <= reach
    counts = np.bincount(draws + reach, minlength=2 * reach + 1)
    law = [math.tanh(1 / (2 * scale)) * math.exp(-abs(value) / scale) for value in range(-reach, reach + 1)]
    assert fits(counts, law)


def test_the_noise_depends_on_the_key_and_not_on_the_sums():
    noise = np.array(noised_sums([0] * 5, 1000, 53, 0.5, KEY))
    np.testing.assert_array_equal(np.array(noised_sums([7] * 5, 1000, 53, 0.5, KEY)) - 7, noise)
    assert not np.array_equal(noised_sums([0] * 5, 1000, 53, 0.5, bytes(32)), noise)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 31.0])
def test_the_budget_of_the_noise_is_checked(epsilon: float):
    with pytest.raises(ValueError, match="epsilon must be between"):
        noised_sums([0], ROW_UNIT, 2, epsilon, KEY)


# Coefficients.


def fitted(labels: int, records: int, epsilon: float, seed: int = 1) -> tuple[LinearCenter, np.ndarray, np.ndarray]:
    """A center whose sample is its whole data, the rows, and the labels, which follow a plane and noise."""
    columns = sample(seed, records)
    random = np.random.Generator(np.random.PCG64(seed + 1))
    design = design_center(columns, records, 1.0, 8)
    design = CenterDesign(design.map, epsilon, design.gram, design.sampled, design.signal, records)
    rows = design.map.rows(columns)
    plane = rows[:, 1:] @ random.normal(size=rows.shape[1] - 1)
    noisy = plane / plane.std() * labels / 6 + random.normal(0, labels / 20, records) + labels / 2
    indices = np.clip(np.rint(noisy), 0, labels - 1).astype(np.int64)
    sums = moment_sums(rows, indices, labels)
    noised = noised_sums(sums, design.map.norm, labels, epsilon, KEY)
    return LinearCenter.fit(design, labels, noised), rows, indices


def test_without_noise_the_coefficients_are_those_of_least_squares():
    """Of the raw sums, told that the noise is that of 10^9 times as many records: the prior has no weight, either."""
    center, rows, indices = fitted(53, 2000, 30.0)
    many = 10**9
    raw = tuple(many * each for each in moment_sums(rows, indices, 53))
    old = center.design
    design = CenterDesign(old.map, 30.0, old.gram, old.sampled, old.signal, many * 2000)
    found = np.array(LinearCenter.fit(design, 53, raw).coefficients) / COEFFICIENT_UNIT
    expected = np.linalg.lstsq(rows / ROW_UNIT, indices - 26.0, rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1 / COEFFICIENT_UNIT)


@pytest.mark.parametrize("seed", range(5))
def test_with_a_tiny_epsilon_predictions_are_nearly_constant(seed: int):
    center, _, _ = fitted(401, 500, 1e-6, seed)
    found = center.indices(sample(seed, 500))
    assert np.ptp(found) <= 2
    assert abs(int(found[0]) - 200) <= 2


def test_coefficients_are_the_posterior_mean():
    center, _, _ = fitted(53, 2000, 2.0)
    design, size = center.design, len(center.sums)
    gram = design.gram / (ROW_UNIT**2 * design.sampled)
    unit = 2 * ROW_UNIT * design.records
    moments = np.array(center.sums) / unit
    noise = 2 * (2 * 52 * design.map.norm / design.epsilon / unit) ** 2
    signal = np.array(design.signal) * 52**2
    factor = strength(moments[1:] - gram[1:, 0] * moments[0] / gram[0, 0], lambda factor: factor * signal + noise)
    prior = np.diag([52**2 / 12, *(factor * signal)])
    # For b ~ N(0, P) and moments G b + N(0, v): E[b | moments] = P G (G P G + v)^-1 moments.
    expected = prior @ gram @ np.linalg.solve(gram @ prior @ gram + noise * np.eye(size), moments)
    np.testing.assert_allclose(np.array(center.coefficients) / COEFFICIENT_UNIT, expected, atol=1e-4)


@pytest.mark.parametrize("labels", [3, 5])
def test_the_constant_errs_as_its_variance_says(labels: int):
    """On a coarse domain, over 200 draws of fixed keys: it is neither shrunk nor off beyond the noise of its sum."""
    center, rows, indices = fitted(labels, 2000, 0.5)
    raw, design = moment_sums(rows, indices, labels), center.design
    errors = []
    for draw in range(200):
        sums = noised_sums(raw, design.map.norm, labels, design.epsilon, draw.to_bytes(32, "big"))
        coefficients = np.array(LinearCenter.fit(design, labels, sums).coefficients) / COEFFICIENT_UNIT
        errors.append(rows.mean(axis=0) @ coefficients / ROW_UNIT + (labels - 1) / 2 - indices.mean())
    noise = math.sqrt(2) * (labels - 1) * design.map.norm / (design.epsilon * ROW_UNIT * len(rows))
    assert noise < indices.std() / 4
    # Fixed draws: four standard errors of the mean, and of the mean square of Laplace noise, whose kurtosis is 6.
    assert abs(np.mean(errors)) < 4 * noise / math.sqrt(200)
    assert np.mean(np.square(errors)) == pytest.approx(noise**2, rel=4 * math.sqrt(5 / 200))


def test_the_strength_is_that_of_the_largest_likelihood():
    random = np.random.Generator(np.random.PCG64(5))
    signal = np.full(4000, 2.0)
    for factor in (0.01, 0.3, 1.0, 10.0):
        moments = random.normal(size=4000) * np.sqrt(factor * signal + 0.01)
        assert strength(moments, lambda factor: factor * signal + 0.01) == pytest.approx(factor, rel=0.35)
    assert strength(np.zeros(10), lambda factor: factor * signal[:10] + 0.01) == pytest.approx(1e-3)


@given(st.integers(0, 1 << 30), st.integers(1, 20))
def test_solved_agrees_with_lapack(seed: int, size: int):
    random = np.random.Generator(np.random.PCG64(seed))
    root = random.normal(size=(size, size + 3))
    matrix, right = root @ root.T + 0.1 * np.eye(size), random.normal(size=size)
    np.testing.assert_allclose(_solved(matrix, right), np.linalg.solve(matrix, right), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("labels", [2, 53, MOST_LABELS])
@pytest.mark.parametrize("sign", [-1, 1])
def test_predictions_of_the_largest_coefficients_do_not_overflow(labels: int, sign: int):
    """A row of the largest norm times the largest coefficient is 2^60, and twice that fits into 64 bits."""
    names = [str(i) for i in range(48)]
    weights = np.eye(48, dtype=np.int64) << 26
    design = CenterDesign(
        RowMap(tuple(Number(name, 0.0, 1.0) for name in names), weights, MOST_NORM),
        1.0,
        np.eye(49, dtype=np.int64),
        1,
        (0.01,) * 48,
        10,
    )
    coefficients = (0, *[sign * LARGEST_COEFFICIENT] * 48)
    center = LinearCenter(design, labels, (0,) * 49, coefficients)
    columns = {name: np.array([1e300, -1e300, 0.0, 4.0]) for name in names}
    rows = design.map.rows(columns)
    assert int(np.abs(rows).sum(axis=1).max()) > MOST_NORM // 2
    unit = 2 * COEFFICIENT_UNIT * ROW_UNIT
    exact = [
        (2 * sum(int(a) * b for a, b in zip(row, coefficients, strict=True)) + labels * unit // 2) // unit
        for row in rows
    ]
    assert center.indices(columns).tolist() == [min(max(each, 0), labels - 1) for each in exact]


# Design.


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("records", [1, 100, 2000, 10**6, 10**9])
def test_a_design_spends_a_part_of_the_budget_or_none(epsilon: float, records: int):
    design = design_center(sample(), records, epsilon, 8)
    components = design.map.size - 1
    assert 0 <= design.epsilon <= 0.75 * epsilon
    assert (design.epsilon == 0) == (components == 0)
    assert len(design.signal) == components
    assert design.gram.shape == (components + 1, components + 1)
    if design.epsilon:
        assert design.epsilon >= 1e-9
        # The noise is a fraction of few bits, from which sampling is fast.
        assert noise_scale(design.map.norm, 53, design.epsilon).denominator.bit_length() <= 64


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_few_records_have_no_center_and_many_have_one(epsilon: float):
    assert design_center(sample(), 20, epsilon, 8).epsilon == 0
    shares = [design_center(sample(), 10**power, epsilon, 8).epsilon / epsilon for power in (4, 5, 6, 8)]
    assert all(share > 0 for share in shares)
    assert shares == sorted(shares, reverse=True)


def test_a_design_is_a_function_of_the_set_of_sampled_records():
    columns = sample()
    order = np.random.Generator(np.random.PCG64(9)).permutation(2000)
    designs = [design_center(each, 10**5, 1.0, 8) for each in (columns, taken(columns, order))]
    documents = [center_document(LinearCenter(each, 53, (), (0,))) for each in designs]
    assert documents[0] == documents[1]
    assert designs[0].epsilon > 0


def test_gram_has_the_moments_of_the_rows_of_the_sample():
    columns = sample()
    design = design_center(columns, 10**5, 1.0, 8)
    rows = design.map.rows(columns)
    exact = [[sum(int(a) * int(b) for a, b in zip(u, v, strict=True)) for u in rows.T] for v in rows.T]
    assert design.gram.tolist() == exact
    assert design.sampled == 2000
    # At most a fiftieth of the rows are shortened, and the others are white.
    assert np.mean(rows[:, 0] < ROW_UNIT) <= 0.02
    np.testing.assert_allclose(design.gram / (2000 * ROW_UNIT**2), np.eye(len(exact)), atol=0.12)


def test_duplicated_columns_add_no_component():
    columns = {"a": sample()["a"], "b": sample()["b"]}
    twice = columns | {f"{name} again": column for name, column in columns.items()}
    assert design_center(columns, 10**6, 1.0, 8).map.size == design_center(twice, 10**6, 1.0, 8).map.size == 3


def test_nearly_equal_columns_of_outliers_have_a_design():
    """The second component has a variance so small that its weights would be too large."""
    first = np.zeros(MOST_SAMPLE)
    first[0] = 1.0
    second = first.copy()
    second[1:40] = 3e-5
    design = design_center({"a": first, "b": second}, 10**7, 30.0, 8)
    assert design.map.size <= 2


@pytest.mark.parametrize("columns", [{}, {"x": np.zeros(0)}, {"x": np.full(9, 3.0)}, {"x": np.full(9, np.nan)}])
def test_without_information_there_is_no_center(columns: dict[str, Any]):
    design = design_center(columns, 10**6, 1.0, 8)
    assert (design.epsilon, design.map.size) == (0, 1)
    center = LinearCenter.fit(design, 8, ())
    assert center.indices({"other": np.zeros(3)}).tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("labels", "epsilon", "slope"), [(53, 1.0, 1.0), (401, 1.0, 1.0), (53, 1.0, 0.3), (101, 2.0, 0.0)]
)
def test_the_variance_of_the_labels_is_estimated_from_what_is_released(labels: int, epsilon: float, slope: float):
    random = np.random.default_rng(5)
    features = random.normal(size=(40_000, 4))
    true = slope * features @ np.array([1.0, 0.5, -0.7, 0.2]) + random.normal(size=40_000) * 0.4
    steps = np.rint((true - true.mean()) / true.std() * labels / 8 + labels / 2)
    indices = np.clip(steps, 0, labels - 1).astype(np.int64)
    columns = {name: features[:, place] for place, name in enumerate("abcd")}
    design = design_center({name: column[:MOST_SAMPLE] for name, column in columns.items()}, 40_000, epsilon, 32)
    sums = moment_sums(design.map.rows(columns), indices, labels)
    shares, explained = [], []
    for number in range(10):
        noised = noised_sums(sums, design.map.norm, labels, design.epsilon, bytes([number]) * 32)
        center = LinearCenter.fit(design, labels, noised)
        residuals = indices - center.indices(columns)
        found = center.label_variance(residuals.var())
        assert found is not None
        shares.append(found / indices.var())
        squares = float((residuals**2).mean())
        stated = center.explained(Moment(squares, 0.0))
        assert stated is not None
        explained.append(stated.share - 1 + squares / indices.var())
        assert abs(explained[-1]) < 3 * stated.error + 0.02
    # Low by about a standard error, of a few percent here.
    assert 0.8 < np.mean(shares) < 1.03
    assert min(shares) > 0.7
    assert max(shares) < 1.15
    # What the center explains is stated without bias: each share above has one of a standard error.
    assert abs(np.mean(explained)) < 0.015


@pytest.mark.parametrize(
    ("columns", "kept", "places"),
    [
        ({f"t{i}": 100 for i in range(100)}, 100, 32),
        ({f"t{i}": 3 for i in range(1000)} | {"wide": 100}, 1001, 64),
        ({f"t{i}": 3 for i in range(1500)}, MOST_ENCODED // 3, 3),
        ({f"n{i}": 0 for i in range(MOST_ENCODED + 50)}, MOST_ENCODED, 0),
    ],
    ids=["categories", "small categories", "few places", "numbers"],
)
def test_wide_records_have_fewer_places_and_at_last_fewer_features(
    columns: dict[str, int], kept: int, places: int
) -> None:
    random = np.random.Generator(np.random.PCG64(3))
    made = {
        name: Categories(random.integers(0, values, 200), tuple(map(str, range(values))))
        if values
        else random.random(200)
        for name, values in columns.items()
    }
    encoders = fitting_encoders(made, 64)
    assert [each.name for each in encoders] == [*columns][:kept]
    assert sum(each.width for each in encoders) <= MOST_ENCODED
    assert max([each.width for each in encoders if not isinstance(each, Number)], default=0) == places
