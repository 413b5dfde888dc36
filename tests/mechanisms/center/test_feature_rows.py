"""Feature rows: their norm is bounded for all features, and they are exact integers in any order of operations."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from labeldp.mechanisms.center.feature_rows import (
    FEATURE_UNIT,
    MOST_ENCODED,
    MOST_NORM,
    MOST_WEIGHT,
    ROW_UNIT,
    WEIGHT_UNIT,
    Categories,
    Category,
    HashedTexts,
    Number,
    RowMap,
    category_spread,
    encoders_of,
    hashed_places,
    shorten,
)
from labeldp.mechanisms.center.principal_components import EncodedFeatures

VALUES = ("", "a", "b", "\udcff", "Zürich", "unknown")


def category(name: str, values: tuple[str, ...], shares: tuple[float, ...]) -> Category:
    return Category(name, values, shares, category_spread(shares))


ENCODERS = (
    Number("x", 2.5, 0.1),
    category("own", ("a", "b", "\udcff"), (0.5, 0.25, 0.125)),
    Number("huge", -1e308, 1e307),
    category("hashed", (), (0.1, 0.2, 0.3, 0.4, 0.0)),
)
WIDTH = 10


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    records = draw(st.integers(0, 12))
    numbers = arrays.arrays(np.float64, records, elements=st.floats(allow_nan=True, allow_infinity=True))
    codes = arrays.arrays(np.int64, records, elements=st.integers(-1, len(VALUES) - 1))
    own, hashed = (Categories(draw(codes), draw(st.permutations(VALUES).map(tuple))) for _ in range(2))
    return {"x": draw(numbers), "own": own, "huge": draw(numbers), "hashed": hashed}


@st.composite
def maps(draw: st.DrawFn) -> RowMap:
    most = draw(st.sampled_from([1, 1 << 14, MOST_WEIGHT]))
    shape = (WIDTH, draw(st.integers(0, 5)))
    weights = draw(arrays.arrays(np.int64, shape, elements=st.integers(-most, most)))
    return RowMap(ENCODERS, weights, draw(st.integers(ROW_UNIT, 4000) | st.just(MOST_NORM)))


def exact_row(chart: RowMap, columns: dict[str, Any], record: int) -> list[int]:
    """The row of a record, by Python's integers from the definition."""
    encoded: list[int] = []
    for each in chart.encoders:
        column = columns[each.name]
        if isinstance(each, Number):
            value = float(column[record])
            scaled = (value - each.mean) / each.spread if math.isfinite(value) else 0.0
            encoded.append(round(min(max(scaled, -4.0), 4.0) * FEATURE_UNIT))
            continue
        code = column.codes[record]
        value = column.values[code] if code >= 0 else None
        if value is None or (each.values and value not in each.values):
            encoded += [0] * each.width
            continue
        hashed = zlib.crc32(value.encode(errors="surrogatepass")) % each.width
        place = each.values.index(value) if each.values else hashed
        means = [round(FEATURE_UNIT * share / each.spread) for share in each.shares]
        encoded += [round(FEATURE_UNIT / each.spread) * (i == place) - mean for i, mean in enumerate(means)]
    unit = FEATURE_UNIT * WEIGHT_UNIT // ROW_UNIT
    sums = [sum(int(w) * x for w, x in zip(column, encoded, strict=True)) for column in chart.weights.T]
    row = [ROW_UNIT, *((total + unit // 2) // unit for total in sums)]
    length = sum(map(abs, row))
    if length <= chart.norm:
        return row
    return [abs(each) * chart.norm // length * (1 if each >= 0 else -1) for each in row]


@settings(deadline=None, max_examples=300)
@given(maps(), features())
def test_rows_are_exact_and_bounded_for_all_features(chart: RowMap, columns: dict[str, Any]):
    rows = chart.rows(columns)
    records = len(columns["x"])
    assert rows.dtype == np.int64
    assert rows.shape == (records, chart.size)
    assert [[int(each) for each in row] for row in rows] == [exact_row(chart, columns, i) for i in range(records)]
    assert all(sum(abs(int(each)) for each in row) <= chart.norm for row in rows)


@settings(deadline=None, max_examples=50)
@given(maps(), features(), st.randoms())
def test_a_row_depends_on_its_record_alone(chart: RowMap, columns: dict[str, Any], random: Any):
    def taken(places: list[int]) -> dict[str, Any]:
        return {
            name: Categories(column.codes[places], column.values) if isinstance(column, Categories) else column[places]
            for name, column in columns.items()
        }

    rows, records = chart.rows(columns), len(columns["x"])
    order = list(range(records))
    random.shuffle(order)
    np.testing.assert_array_equal(chart.rows(taken(order)), rows[order])
    for i in range(records):
        np.testing.assert_array_equal(chart.rows(taken([i])), rows[i : i + 1])


def test_rows_of_the_largest_map_are_exact():
    """4,096 encoded features at four standard deviations: sums reach 2^50 units, where float64 is still exact."""
    columns = {str(i): np.array([1e9, -1e9, 1e9 * (-1) ** i, 0.0]) for i in range(MOST_ENCODED)}
    encoders = tuple(Number(name, 0.0, 1.0) for name in columns)
    weights = np.full((MOST_ENCODED, 2), MOST_WEIGHT)
    weights[:, 1] -= np.arange(MOST_ENCODED) % 2 + 1
    chart = RowMap(encoders, weights, MOST_NORM)
    assert 2**49 < 4 * FEATURE_UNIT * int(weights[:, 0].sum()) < 2**53
    rows = chart.rows(columns)
    assert [[int(each) for each in row] for row in rows] == [exact_row(chart, columns, i) for i in range(4)]
    assert (np.abs(rows).sum(axis=1) <= MOST_NORM).all()


def test_maps_whose_sums_could_be_rounded_are_refused():
    """Rare categories have indicators of many units, which the bounds on numbers and weights do not cover."""
    rare = tuple(category(str(i), ("a", "b"), (2.0**-30, 0.0)) for i in range(100))
    with pytest.raises(ValueError, match="too large for the spread"):
        RowMap(rare, np.full((200, 1), MOST_WEIGHT), ROW_UNIT)
    RowMap(rare, np.full((200, 1), 1 << 10), ROW_UNIT)


@pytest.mark.parametrize(
    ("encoders", "weights", "norm"),
    [
        (ENCODERS, np.zeros((WIDTH + 1, 1), np.int64), 1000),
        (ENCODERS, np.zeros(WIDTH, np.int64), 1000),
        (ENCODERS, np.full((WIDTH, 1), MOST_WEIGHT + 1), 1000),
        (ENCODERS, np.zeros((WIDTH, 1), np.int64), ROW_UNIT - 1),
        (ENCODERS, np.zeros((WIDTH, 1), np.int64), MOST_NORM + 1),
        ((category("c", (), (0.0, *[1 / 4096] * MOST_ENCODED)),), np.zeros((MOST_ENCODED + 1, 1), np.int64), 1000),
    ],
)
def test_maps_of_wrong_sizes_are_refused(encoders: tuple[Any, ...], weights: np.ndarray, norm: int):
    with pytest.raises(ValueError, match="center"):
        RowMap(encoders, weights, norm)


@pytest.mark.parametrize("width", [2, 3, 48, 64])
def test_hashes_have_the_places_of_their_texts(width: int):
    texts = [f"text {i}" for i in range(200)]
    hashes = np.array([-1, *(zlib.crc32(text.encode()) for text in texts)], np.int64)
    places = Category("c", (), (1 / width,) * width, 1.0).places(HashedTexts(hashes))
    assert places.tolist() == [width, *hashed_places(texts, width).tolist()]


@settings(deadline=None)
@given(
    arrays.arrays(np.int64, (4, 5), elements=st.integers(-(1 << 37), 1 << 37)),
    st.integers(1, 4000) | st.just(MOST_NORM),
)
def test_shortened_rows_keep_their_direction(rows: np.ndarray, norm: int):
    found = rows.copy()
    shorten(found, norm)
    for before, after in zip(rows.tolist(), found.tolist(), strict=True):
        length = sum(map(abs, before))
        assert sum(map(abs, after)) <= norm
        if length <= norm:
            assert after == before
        else:
            assert all(0 <= abs(a) * norm - abs(b) * length < length for a, b in zip(before, after, strict=True))
            assert all(a * b >= 0 for a, b in zip(before, after, strict=True))


def sample(seed: int = 1, records: int = 1000) -> dict[str, Any]:
    random = np.random.Generator(np.random.PCG64(seed))
    return {
        "x": random.normal(5, 2, records),
        "holes": np.where(random.random(records) < 0.3, np.nan, random.random(records)),
        "few": Categories(random.integers(-1, 3, records), ("b", "a", "never", "c")),
        "many": Categories(random.integers(0, 500, records), tuple(f"v{i}" for i in range(500))),
        "constant": np.full(records, 0.1),
        "empty": np.full(records, np.nan),
        "one": Categories(np.zeros(records, np.int64), ("a",)),
    }


def test_encoders_standardize_and_leave_out_constants():
    columns = sample()
    found = {each.name: each for each in encoders_of(columns, 64)}
    assert list(found) == ["x", "holes", "few", "many"]
    x, holes, few, many = found.values()
    assert isinstance(x, Number)
    assert isinstance(holes, Number)
    assert isinstance(few, Category)
    assert isinstance(many, Category)
    assert x.mean == pytest.approx(columns["x"].mean())
    assert x.spread == pytest.approx(columns["x"].std())
    assert holes.mean == pytest.approx(np.nanmean(columns["holes"]))
    assert few.values == ("a", "b", "never")
    codes = columns["few"].codes
    assert few.shares == tuple(np.mean(codes[codes >= 0] == code) for code in (1, 0, 2))
    # Each encoded feature has the mean 0, but for rounding, where values are missing, too.
    dense = EncodedFeatures(list(found.values()), columns) @ np.eye(2 + 3 + 64)
    assert np.abs(dense.mean(axis=0)).max() <= 1
    assert many.values == ()
    assert many.width == 64
    assert sum(many.shares) == pytest.approx(1)
    # A category has variance 1 as a whole, but for missing values and rounding.
    assert EncodedFeatures([many], columns).squares() / 1000 / FEATURE_UNIT**2 == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize("values", [[1e308, 0.0], [5e-324, 0.0], [1.0, 1.0 + 1e-12], [0.0, -0.0], [np.nan], [np.inf]])
def test_columns_without_a_usable_spread_have_no_encoder(values: list[float]):
    assert encoders_of({"x": np.array(values)}, 4) == ()


def test_numbers_of_any_scale_are_encoded():
    for scale in (1e-279, 1e-9, 1.0, 1e300):
        (encoder,) = encoders_of({"x": np.array([1.0, 2.0, 3.0]) * scale}, 4)
        assert isinstance(encoder, Number)
        found = encoder.encode(np.array([1.0, 2.0, 3.0]) * scale)
        np.testing.assert_array_equal(found, [-1254, 0, 1254])


def test_encoded_features_are_those_of_the_rows():
    """X V against rows of a map, one encoded feature at a time, and X^T V against the dense matrix."""
    columns = sample(3, 60)
    encoders = encoders_of(columns, 7)
    features = EncodedFeatures(encoders, columns)
    width = features.shape[1]
    assert features.shape == (60, sum(each.width for each in encoders))
    dense = features @ np.eye(width)
    unit = FEATURE_UNIT * WEIGHT_UNIT // ROW_UNIT
    rows = RowMap(encoders, np.eye(width, dtype=np.int64) * unit, MOST_NORM).rows(columns)
    np.testing.assert_array_equal(rows[:, 1:], dense)
    random = np.random.Generator(np.random.PCG64(4))
    vectors = random.integers(-(1 << 24), 1 << 24, (60, 3)).astype(np.float64)
    np.testing.assert_array_equal(features.T @ vectors, dense.T @ vectors)
    assert features.squares() == (dense**2).sum()
