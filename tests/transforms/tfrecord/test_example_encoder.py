"""Arrow to tf.Example: TensorFlow reads the values of the columns, and the encoding is deterministic."""

import datetime
import decimal
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import InputError
from labeldp.transforms.tfrecord import example_encoder as tf_example_encoder
from labeldp.transforms.tfrecord.example_encoder import encode_examples, encode_frames
from labeldp.transforms.tfrecord.framing import frame

tf: Any = pytest.importorskip("tensorflow")

SENTINEL = "SENTINEL123"


def feature(kind: str | None, *values: Any) -> Any:
    """A tf.train.Feature with a list of the given kind, or with no list."""
    if kind is None:
        return tf.train.Feature()
    lists = {"int64": tf.train.Int64List, "float": tf.train.FloatList, "bytes": tf.train.BytesList}
    return tf.train.Feature(**{f"{kind}_list": lists[kind](value=values)})


def example(**features: Any) -> bytes:
    """Canonical encoding: features in the order of their names."""
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def encoded(column: pa.Array, name: str = "c") -> list[tuple[str | None, list[Any]]]:
    """(kind of list, values) of the feature in each record, as TensorFlow reads them."""
    found = []
    for record in encode_examples(pa.RecordBatch.from_arrays([column], [name])):
        one = tf.train.Example.FromString(record).features.feature[name]
        kind = one.WhichOneof("kind")
        found.append((kind and kind.removesuffix("_list"), list(getattr(one, kind).value) if kind else []))
    return found


def values_of(column: pa.Array, name: str = "c") -> list[list[Any]]:
    return [values for _, values in encoded(column, name)]


FLAT = [
    (pa.array([1, None, -(2**63), 2**63 - 1]), "int64", [1, None, -(2**63), 2**63 - 1]),
    (pa.array([-128, 127, None], pa.int8()), "int64", [-128, 127, None]),
    (pa.array([0, 2**32 - 1], pa.uint32()), "int64", [0, 2**32 - 1]),
    (pa.array([2**63 - 1], pa.uint64()), "int64", [2**63 - 1]),
    (pa.array([True, False, None]), "int64", [1, 0, None]),
    (pa.array([1.5, None, -0.25], pa.float32()), "float", [1.5, None, -0.25]),
    (pa.array([0.1, None, 16777217.0]), "float", [float(np.float32(0.1)), None, 16777216.0]),
    (pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-7.50")]), "float", [1.25, None, -7.5]),
    (pa.array([decimal.Decimal("1.25"), None], pa.decimal256(50, 2)), "float", [1.25, None]),
    (pa.array([decimal.Decimal(2**63 - 1), None], pa.decimal128(38, 0)), "int64", [2**63 - 1, None]),
    (pa.array([decimal.Decimal(-(2**63)), None], pa.decimal256(70, 0)), "int64", [-(2**63), None]),
    (pa.array([decimal.Decimal(-7), None], pa.decimal32(9, 0)), "int64", [-7, None]),
    (pa.array([decimal.Decimal(10**18 - 1), None], pa.decimal64(18, 0)), "int64", [10**18 - 1, None]),
    (pa.array([decimal.Decimal(1200), None], pa.decimal128(4, -2)), "int64", [1200, None]),
    (pa.array(["a", "", None, "é"]), "bytes", [b"a", b"", None, "é".encode()]),
    (pa.array(["a", None], pa.large_string()), "bytes", [b"a", None]),
    (pa.array([b"\x00\xff", None]), "bytes", [b"\x00\xff", None]),
    (pa.array([b"\x00\xff", None], pa.large_binary()), "bytes", [b"\x00\xff", None]),
    (pa.array(["red", None, "blue", "red"]).dictionary_encode(), "bytes", [b"red", None, b"blue", b"red"]),
    (pa.array([4, None, 4]).dictionary_encode(), "int64", [4, None, 4]),
    (pa.nulls(3), None, [None, None, None]),
]


@pytest.mark.parametrize(("column", "kind", "expected"), FLAT, ids=lambda value: str(getattr(value, "type", "")))
def test_a_flat_column_becomes_lists_of_one_and_a_null_has_no_value(column, kind, expected):
    assert encoded(column) == [(None, []) if value is None else (kind, [value]) for value in expected]
    assert values_of(column.slice(1)) == values_of(column)[1:]


LISTS = [
    (pa.array([[1, 2], [], [3]]), "int64", [[1, 2], [], [3]]),
    (pa.array([[1, 2], [], [3]], pa.large_list(pa.int32())), "int64", [[1, 2], [], [3]]),
    (pa.array([[True], [False, True]]), "int64", [[1], [0, 1]]),
    (pa.array([[1.5], [0.1, 2]]), "float", [[1.5], [float(np.float32(0.1)), 2]]),
    (pa.array([[1.5], [2.5, 3.5]], pa.large_list(pa.float32())), "float", [[1.5], [2.5, 3.5]]),
    (pa.array([["a"], ["b", ""]]), "bytes", [[b"a"], [b"b", b""]]),
    (pa.array([[b"a"], [b"b", b"\xff"]], pa.large_list(pa.large_binary())), "bytes", [[b"a"], [b"b", b"\xff"]]),
    (pa.array([[decimal.Decimal("1.5")], []]), "float", [[1.5], []]),
]


@pytest.mark.parametrize(("column", "kind", "expected"), LISTS, ids=lambda value: str(getattr(value, "type", "")))
def test_a_column_of_lists_becomes_those_lists(column, kind, expected):
    assert values_of(column) == expected
    assert {found for found, values in encoded(column) if values} == {kind}
    assert values_of(column.slice(1)) == expected[1:]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int64())], ids=str)
def test_a_null_list_has_no_value_and_stays_apart_from_an_empty_one(kind):
    column = pa.array([[1], None, [], [2, 3]], kind)
    assert values_of(column) == [[1], [], [], [2, 3]]
    assert [kind is None for kind, _ in encoded(column)] == [False, True, False, False]


def test_values_hidden_under_a_null_list_stay_hidden():
    """In Arrow, a null list may span arbitrary values that do not belong to the record."""
    offsets = pa.array([0, 1, 3, 4], pa.int32()).buffers()[1]
    valid = pa.py_buffer(bytes([0b101]))
    children = pa.array([1, 77, 78, 4])
    column = pa.ListArray.from_buffers(pa.list_(pa.int64()), 3, [valid, offsets], children=[children])
    assert column.to_pylist() == [[1], None, [4]]
    assert values_of(column) == [[1], [], [4]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.5, None]]),
        pa.array([[1, None]]),
        pa.array([["a", None]]),
        pa.array([[None, 1.5]], pa.list_(pa.float32())),
        pa.array([[None]]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_null_inside_a_list_is_refused(column):
    """tf.Example has no null, and 0 or an empty text in its place would be a false value."""
    with pytest.raises(InputError, match="column 'c' has a list with a missing value"):
        encoded(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.timedelta(1)]),
        pa.array([b"SENTINEL123"], pa.binary(11)),
        pa.array([{"a": SENTINEL}]),
        pa.array([[{"a": SENTINEL}]]),
        pa.array([[[1]]]),
        pa.array([[1.5, 2.5]], pa.list_(pa.float64(), 2)),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda column: str(column.type),
)
def test_what_tf_example_cannot_hold_is_refused_by_name(column):
    batch = pa.RecordBatch.from_arrays([pa.array([1] * len(column)), column], ["fine", "odd"])
    with pytest.raises(InputError, match="column 'odd' holds ") as caught:
        encode_examples(batch)
    assert SENTINEL not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([1, 2**63], pa.uint64()), "integers beyond int64"),
        (pa.array([[1], [2**64 - 1]], pa.list_(pa.uint64())), "integers beyond int64"),
        (pa.array([decimal.Decimal(2**63)], pa.decimal128(38, 0)), "integers beyond int64"),
        (pa.array([decimal.Decimal(10) ** 60], pa.decimal256(70, 0)), "integers beyond int64"),
        (pa.array([1.0, 1e39]), "numbers beyond float32"),
        (pa.array([decimal.Decimal(10) ** 45], pa.decimal256(70, 2)), "numbers beyond float32"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_value_beyond_its_type_is_refused_by_name(column, text):
    with pytest.raises(InputError, match=f"column 'c' holds {text} .*`output_format` parquet"):
        encoded(column)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (datetime.date(2020, 1, 31), pa.date32(), b"2020-01-31"),
        (datetime.datetime(2020, 1, 31, 10), pa.timestamp("s"), b"2020-01-31 10:00:00"),
        (datetime.datetime(2020, 1, 31, 10), pa.timestamp("ms", "UTC"), b"2020-01-31 10:00:00+00:00"),
        (datetime.time(12, 30), pa.time64("us"), b"12:30:00"),
    ],
)
def test_dates_and_times_are_text(value, kind, text):
    assert values_of(pa.array([value, None], kind)) == [[text], []]
    assert values_of(pa.array([[value, value], []], pa.list_(kind))) == [[text, text], []]


def test_nulls_may_be_left_out():
    batch = pa.RecordBatch.from_pydict({"id": ["a", None], "x": [[1.0, 2.0], []], "y": [None, None]})
    one, two = (tf.train.Example.FromString(record) for record in encode_examples(batch, with_nulls=False))
    assert one == tf.train.Example.FromString(example(id=feature("bytes", b"a"), x=feature("float", 1.0, 2.0)))
    assert two == tf.train.Example.FromString(example(x=feature("float")))


@pytest.mark.parametrize("limit", [1 << 28, 500], ids=["whole", "halves"])
def test_frames_are_the_records_in_their_container(limit, monkeypatch):
    monkeypatch.setattr(tf_example_encoder, "MAX_MATRIX_BYTES", limit)
    batch = pa.RecordBatch.from_pydict({"id": ["a" * i for i in range(9)], "y": [0.5, None, 1.5] * 3})
    assert bytes(encode_frames(batch)) == frame(encode_examples(batch))
    assert bytes(encode_frames(batch.slice(0, 0))) == b""


@pytest.mark.parametrize("name", ["", "é" * 80, "a" * 127, "a" * 128, "a b/c"], ids=len)
def test_any_name_is_a_key(name):
    assert encoded(pa.array([[1], [2, 3]]), name) == [("int64", [1]), ("int64", [2, 3])]


# Encoding.

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
COLUMNS = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "bytes": st.binary(max_size=200) | TEXTS.map(str.encode),
}
TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}


@st.composite
def tables(draw):
    """(batch with its columns in the order of their names, its records as lists of features by name)."""
    rows = draw(st.integers(0, 8))
    # Names have the same length, because libraries disagree on the canonical order of keys of different lengths.
    names = sorted(draw(st.sets(st.text("abcxyz_09", min_size=3, max_size=3), min_size=1, max_size=4)))
    columns, features = [], [{} for _ in range(rows)]
    for name in names:
        kind = draw(st.sampled_from(list(TYPES)))
        flat = draw(st.booleans())
        size = (1, 1) if flat else (0, 5)
        values = draw(
            st.lists(
                st.none() | st.lists(COLUMNS[kind], min_size=size[0], max_size=size[1]), min_size=rows, max_size=rows
            )
        )
        if flat:
            columns.append(pa.array([one and one[0] for one in values], TYPES[kind]))
        else:
            columns.append(pa.array(values, draw(st.sampled_from([pa.list_, pa.large_list]))(TYPES[kind])))
        for record, one in zip(features, values, strict=True):
            record[name] = feature(None) if one is None else feature(kind, *one)
    return pa.RecordBatch.from_arrays(columns, names), features


@settings(deadline=None, max_examples=150)
@given(tables(), st.sampled_from([1, 500, 1 << 28]))
def test_the_bytes_are_protocol_buffers_own_canonical_ones(table, matrix_bytes):
    batch, features = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf_example_encoder, "MAX_MATRIX_BYTES", matrix_bytes)
        records = encode_examples(batch)
    assert records == [example(**record) for record in features]


def test_numbers_that_are_no_numbers_are_kept():
    values = values_of(pa.array([np.nan, np.inf, -np.inf, -0.0]))
    assert np.isnan(values[0][0])
    assert values[1:3] == [[np.inf], [-np.inf]]
    assert np.signbit(values[3][0])


def test_one_long_text_does_not_cost_memory_for_every_record(monkeypatch):
    monkeypatch.setattr(tf_example_encoder, "MAX_MATRIX_BYTES", 1 << 20)
    texts = ["short"] * 2_000
    texts[700] = "long" * 10_000
    batch = pa.RecordBatch.from_pydict({"t": texts})
    tracemalloc.start()
    try:
        records = encode_examples(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(record) > 1_000 for record in records] == [i == 700 for i in range(2_000)]
    assert peak < 10 << 20
