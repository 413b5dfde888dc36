"""Features of a batch: numbers, categories, missing values, types that are refused, and joining of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center.feature_rows import Categories, Category
from labeldp.transforms.arrow_values import time_texts
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.center.feature_columns import concatenated, feature_columns, hashed_texts
from labeldp.transforms.errors import InputError
from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder
from labeldp.transforms.tfrecord.example_encoder import encode_examples


def batch(**columns: pa.Array) -> LabelledBatch:
    return LabelledBatch.whole(
        "file.parquet", 0, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    )


def texts(column: Any) -> list[str | None]:
    assert isinstance(column, Categories)
    return [None if code < 0 else column.values[code] for code in column.codes]


NUMBERS = {
    "floats": (pa.array([1.5, None, float("nan"), float("-inf"), 1e308]), [1.5, np.nan, np.nan, np.nan, 1e308]),
    "integers": (pa.array([1, -2, None]), [1, -2, np.nan]),
    "large integers": (pa.array([2**63 - 1, 1]), [2.0**63, 1]),
    "unsigned": (pa.array([2**64 - 1, 0], pa.uint64()), [2.0**64, 0]),
    "booleans": (pa.array([True, None, False]), [1, np.nan, 0]),
    "lists": (pa.array([[1.0], [], [2.0, 3.0], None, [None]]), [1, np.nan, np.nan, np.nan, np.nan]),
    "large lists": (pa.array([[1.0], []], pa.large_list(pa.float32())), [1, np.nan]),
    "decimals": (pa.array([1, None, 3], pa.decimal128(9, 2)), [1, np.nan, 3]),
    "dictionary": (pa.array([3, None, 3]).dictionary_encode(), [3, np.nan, 3]),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("categories", [None, []])
def test_numbers(name: str, categories: list[str] | None):
    column, expected = NUMBERS[name]
    found = feature_columns(batch(x=column), ["x"], categories)["x"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(expected, np.float64))


def numbers(column: Any) -> np.ndarray:
    assert isinstance(column, np.ndarray)
    return column


TEXTS = {
    "text": (pa.array(["b", None, "a", "b"]), ["b", None, "a", "b"]),
    "bytes": (pa.array([b"a", b"\xff", "ü".encode()]), ["a", "\udcff", "ü"]),
    "lists": (pa.array([["a"], [], ["a", "b"], None, [b""]], pa.list_(pa.binary())), ["a", None, None, None, ""]),
    "dictionary": (pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"]),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("categories", [None, ["x"]])
def test_text_is_a_category(name: str, categories: list[str] | None):
    column, expected = TEXTS[name]
    assert texts(feature_columns(batch(x=column), ["x"], categories)["x"]) == expected


def test_integers_are_the_same_category_where_another_file_has_floats():
    integers = feature_columns(batch(x=pa.array([7, -1, 2**60])), ["x"], ["x"])["x"]
    floats = feature_columns(batch(x=pa.array([7.0, -1.0, None, 2.5])), ["x"], ["x"])["x"]
    assert texts(integers) == ["7", "-1", str(2**60)]
    assert texts(floats) == ["7", "-1", None, "2.5"]


def test_a_column_that_is_not_there_is_missing_everywhere():
    for column in ({"y": pa.array([1, 2])}, {"x": pa.nulls(2), "y": pa.array([1, 2])}):
        found = feature_columns(batch(**column), ["x", "z"], ["z"])
        assert texts(found["z"]) == [None, None]
        np.testing.assert_array_equal(numbers(found["x"]), [np.nan, np.nan])
        assert feature_columns(batch(**column), ["x", "y"]).keys() == {"y"}


@pytest.mark.parametrize("column", [pa.array([{"a": 1}]), pa.array([[["a"]]]), pa.array([1], pa.timestamp("s"))])
def test_other_types_are_refused(column: pa.Array):
    with pytest.raises(InputError, match=r"file\.parquet: feature 'x' holds .* neither numbers nor text.*features"):
        feature_columns(batch(x=column), ["x"])
    with pytest.raises(InputError, match="feature 'x' holds"):
        feature_columns(batch(x=column), ["x"], [])


@pytest.mark.parametrize("column", [pa.array([{"a": 1}]), pa.array([[["a"]]])])
def test_nested_values_are_no_categories(column: pa.Array):
    with pytest.raises(InputError, match=r"file\.parquet: feature 'x' holds .*`center_features`"):
        feature_columns(batch(x=column), ["x"], ["x"])


def test_text_in_a_column_of_numbers_is_refused():
    with pytest.raises(InputError, match=r"'x' holds string, but numbers in other files.*`center_features`"):
        feature_columns(batch(x=pa.array(["a"])), ["x"], [])


def test_joined_batches_keep_their_values():
    parts = [
        {"c": Categories(np.array([0, -1, 1]), ("a", "b")), "x": np.array([1.0, 2.0, 3.0])},
        {"x": np.array([4.0])},
        {"c": Categories(np.array([1, 0]), ("a", "c")), "y": np.array([5.0, 6.0])},
    ]
    found = concatenated(parts, [3, 1, 2])
    assert texts(found["c"]) == ["a", None, "b", None, "c", "a"]
    np.testing.assert_array_equal(numbers(found["x"]), [1, 2, 3, 4, np.nan, np.nan])
    np.testing.assert_array_equal(numbers(found["y"]), [np.nan] * 4 + [5, 6])
    assert concatenated([], []) == {}


def test_numbers_and_text_are_not_joined():
    with pytest.raises(InputError, match=r"'x' holds numbers in some records and text in others"):
        concatenated([{"x": np.zeros(1)}, {"x": Categories(np.zeros(1, np.int64), ("a",))}], [1, 1])


MOMENTS = [0, 1, 10**9 + 1, None, -1, 1500, 1_500_000, 1_500_000_000, 1_706_659_201_000_000_001]
TIMES = [
    *(pa.array(MOMENTS).cast(pa.timestamp(unit, zone))
      for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin", "+05:30")),
    pa.array([0, None, -9, 30_000_000], pa.int32()).cast(pa.date32()),
    pa.array([0, 86_400_000], pa.int64()).cast(pa.date64()),
    pa.array([1, 1000], pa.int32()).cast(pa.time32("ms")),
    pa.array([1, 1000, 10**9]).cast(pa.time64("ns")),
]  # fmt: skip


@pytest.mark.parametrize("column", TIMES, ids=lambda column: str(column.type))
def test_times_are_the_same_text_as_category_in_tfrecords_and_for_the_audit(column: pa.Array) -> None:
    """In years beyond those of Python, too."""
    from labeldp.audit import shard_columns

    own = texts(feature_columns(batch(t=column), ["t"], ["t"])["t"])
    audited = shard_columns._texts(column)
    assert [None if code < 0 else audited.values[code] for code in audited.codes] == own
    records = encode_examples(pa.RecordBatch.from_arrays([column], ["t"]))
    decoded = feature_columns(LabelledBatch.whole("a", 0, ExampleDecoder("a").decode(records)), ["t"], ["t"])
    assert texts(decoded["t"]) == own


def test_a_time_is_the_same_text_in_every_unit() -> None:
    seconds = pa.array([1_706_659_201]).cast(pa.timestamp("s", "Europe/Berlin"))
    found = {str(time_texts(seconds.cast(pa.timestamp(unit, "Europe/Berlin")))[0]) for unit in ("s", "ms", "us", "ns")}
    assert found == {"2024-01-31 01:00:01+01:00"}
    halves = pa.array([1_706_659_201_500]).cast(pa.timestamp("ms"))
    assert {str(time_texts(halves.cast(pa.timestamp(unit)))[0]) for unit in ("ms", "us", "ns")} == {
        "2024-01-31 00:00:01.500000"
    }


@settings(deadline=None)
@given(
    st.lists(st.none() | st.text(max_size=12) | st.sampled_from(["é", "\U0001f600", "", "a" * 40]), max_size=12),
    st.sampled_from(["string", "large_string", "binary", "large_binary", "dictionary", "lists", "sliced"]),
    st.integers(1, 70),
)
def test_hashes_of_texts_are_in_the_places_of_the_texts(texts: list[str | None], kind: str, width: int) -> None:
    plain = {"dictionary": "string", "lists": "string", "sliced": "string"}.get(kind, kind)
    column = pa.array(texts, pa.type_for_alias(plain))
    if kind == "dictionary":
        column = column.dictionary_encode()
    elif kind == "lists":
        several = [[text] if len(texts) % 2 else [text, "x"][: len(text or "ab")] for text in texts]
        column = pa.array(several, pa.list_(pa.string()))
    elif kind == "sliced":
        column = pa.concat_arrays([pa.array(["before"]), column, pa.array(["behind"])])[1:-1]
    batch = LabelledBatch.whole("s", 0, pa.RecordBatch.from_arrays([column], ["t"]))
    category = Category("t", (), (1 / width,) * width, 1.0)
    hashes = hashed_texts(batch, "t")
    assert hashes is not None
    assert len(hashes) == len(texts)
    assert category.places(hashes).tolist() == category.places(feature_columns(batch, ["t"], ["t"])["t"]).tolist()


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array([b"\xff", b"a"]), pa.nulls(2), pa.array([1.5, None])])
def test_what_is_no_text_in_utf8_is_not_hashed(column: pa.Array) -> None:
    batch = LabelledBatch.whole("s", 0, pa.RecordBatch.from_arrays([column], ["t"]))
    assert hashed_texts(batch, "t") is None
    assert hashed_texts(batch, "other") is None
