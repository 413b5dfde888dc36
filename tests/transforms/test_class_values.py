"""Places of classes in columns of every type, their coded form, and columns of drawn classes."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.transforms import InputError
from labeldp.transforms.batches import LabelledBatch, LabelledBatchCoder, has_label, label_values, several_values
from labeldp.transforms.class_values import check_class_type, class_column, class_places, coded_classes, from_texts

TEXTS, NUMBERS = LabelClasses(("a", "b", "a b"), 1), LabelClasses(("0", "1", "-7"))
TRUTH = LabelClasses(("false", "true"))
NAN = float("nan")
CLASS_KINDS = ("int64", "int8", "uint8", "double", "float", "bool")

COLUMNS = [
    (pa.array(["a", "b", "a b", "A", " a", "", None]), TEXTS, [0, 1, 2, 1, 1, NAN, NAN]),
    (pa.array(["a b", None, "x"], pa.large_string()), TEXTS, [2, NAN, 1]),
    (pa.array([b"a b", b"\xff", b""], pa.binary()), TEXTS, [2, 1, NAN]),
    (pa.array(["b", "x", "a", None]).dictionary_encode(), TEXTS, [1, 1, 0, NAN]),
    (pa.array([["a"], [], None, ["a", "b"], [None], ["zz"]]), TEXTS, [0, NAN, NAN, NAN, NAN, 1]),
    (pa.array([[b"b"], [b"b", b"b"]], pa.large_list(pa.large_binary())), TEXTS, [1, NAN]),
    (pa.array([["a"], None, ["zz"]], pa.list_(pa.string(), 1)), TEXTS, [0, NAN, 1]),
    (pc.run_end_encode(pa.array([1, -7, None])), NUMBERS, [1, 2, NAN]),  # type: ignore[attr-defined]
    (pa.array([0, 1, -7, 5, None]), NUMBERS, [0, 1, 2, 0, NAN]),
    (pa.array([1, -7, 100], pa.int8()), NUMBERS, [1, 2, 0]),
    (pa.array([0.0, -0.0, 1.0, -7.0, 0.5, NAN, None, float("inf")]), NUMBERS, [0, 0, 1, 2, 0, NAN, NAN, NAN]),
    (pa.array([[1], [2]], pa.large_list(pa.int64())), NUMBERS, [1, 0]),
    (pa.array(["0", "-7", "07"]), NUMBERS, [0, 2, 0]),
    (pa.array([True, False, None]), TRUTH, [1, 0, NAN]),
    (pa.array([True, False]), LabelClasses(("1", "0")), [0, 1]),
    (pa.array(["true", "True"]), TRUTH, [1, 0]),
    (pa.nulls(2), TEXTS, [NAN, NAN]),
    (pa.array([], pa.string()), TEXTS, []),
]


@pytest.mark.parametrize(("column", "classes", "expected"), COLUMNS, ids=range(len(COLUMNS)))
def test_places(column, classes, expected):
    np.testing.assert_array_equal(class_places(column, classes, "y", "f", len(column)), expected)
    coded = coded_classes(column, classes, "y", "f")
    np.testing.assert_array_equal(class_places(coded, classes, "y", "f", len(column)), expected)
    for each in (column, coded):
        batch = LabelledBatch.whole("f", 0, pa.RecordBatch.from_pydict({"y": each}))
        np.testing.assert_array_equal(has_label(batch, "y"), np.isfinite(expected))
        np.testing.assert_array_equal(label_values(batch, "y", classes), expected)
        assert several_values(batch, "y") == sum(len(v or []) > 1 for v in column.to_pylist() if isinstance(v, list))


def test_no_column():
    assert np.isnan(class_places(None, TEXTS, "y", "f", 2)).all()


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        (pa.array([1, 2]), TEXTS),
        (pa.array([1, 2], pa.int8()), LabelClasses(("1000", "1"))),
        (pa.array([1, 2], pa.uint8()), NUMBERS),
        (pa.array([1.0]), LabelClasses(("9007199254740993", "1"))),
        (pa.array([1.0], pa.float32()), LabelClasses(("16777217", "1"))),
        (pa.array([True]), LabelClasses(("no", "yes"))),
        (pa.array([True]), NUMBERS),
        (pa.array([datetime.date(2024, 1, 1)]), TEXTS),
        (pa.array([{"a": 1}]), TEXTS),
    ],
    ids=range(9),
)
def test_types_that_hold_no_such_classes(column, classes):
    for call in (
        lambda: class_places(column, classes, "y", "f", len(column)),
        lambda: class_places(column[:0], classes, "y", "f", 0),
        lambda: coded_classes(column, classes, "y", "f"),
        lambda: check_class_type(column.type, classes, "y", "f"),
    ):
        with pytest.raises(InputError, match=r"f: label column 'y' holds .*, and (the )?classes .*are .*:") as caught:
            call()
        kind = str(column.type)
        # Advice that leads to another refusal is none.
        assert ("without `label_classes`, write it as a number" in str(caught.value)) == (kind not in CLASS_KINDS)


@pytest.mark.parametrize(
    ("kind", "classes", "expected"),
    [
        (pa.string(), TEXTS, ["a b", "a"]),
        (pa.large_binary(), TEXTS, [b"a b", b"a"]),
        (pa.dictionary(pa.int8(), pa.string()), TEXTS, ["a b", "a"]),
        (pa.list_(pa.string()), TEXTS, [["a b"], ["a"]]),
        (pa.large_list(pa.int64()), NUMBERS, [[-7], [0]]),
        (pa.large_list(pa.dictionary(pa.int32(), pa.float32())), NUMBERS, [[-7.0], [0.0]]),
        (pa.int16(), NUMBERS, [-7, 0]),
        (pa.float64(), NUMBERS, [-7.0, 0.0]),
        (pa.bool_(), LabelClasses(("x", "true", "false")[1:]), None),
    ],
)
def test_drawn_classes_have_the_type_of_the_column(kind, classes, expected):
    places = np.array([2, 0]) if expected else np.array([1, 0])
    column = class_column(places, kind, classes)
    assert column.to_pylist() == (expected or [False, True])
    value = kind.value_type if not pa.types.is_dictionary(kind) and pa.types.is_nested(kind) else kind
    value = value.value_type if pa.types.is_dictionary(value) else value
    assert column.type in (value, pa.list_(value), pa.large_list(value))


def test_drawn_zero_has_one_spelling():
    """A sign of zero could hold a bit of the label."""
    column = class_column(np.array([0, 0]), pa.float64(), NUMBERS)
    assert not np.signbit(column.to_numpy()).any()


@given(st.lists(st.sampled_from(["a", "b", "a b", "a very long text that is not listed", "x"]), min_size=3, max_size=3))
def test_elements_have_sizes_that_do_not_depend_on_classes(values):
    coder, sizes = LabelledBatchCoder(), set()
    for column in (pa.array(values), pa.array([[v.encode()] for v in values], pa.large_list(pa.large_binary()))):
        for labels in (column, column.take(pa.array([0, 0, 0]))):
            coded = coded_classes(labels, TEXTS, "y", "f")
            element = LabelledBatch.whole("f", 0, pa.RecordBatch.from_pydict({"y": coded}))
            sizes.add((str(column.type), len(coder.encode(element)), coder.estimate_size(element)))
    assert len(sizes) == 2


@pytest.mark.parametrize(
    ("texts", "classes", "expected"),
    [
        (["a", "b", "", "c", "NA", "a b"], TEXTS, ["a", "b", None, "b", None, "a b"]),
        (["NA", "a", "null"], LabelClasses(("NA", "a")), ["NA", "a", None]),
        (["0", "1", " 1", "1.0", "-7.", "1.5", "x", "", "nan", "1e0"], NUMBERS, [0, 1, 1, 1, -7, 0, 0, None, None, 0]),
        (["true", "False", "TRUE ", "1", "", "yes"], TRUTH, [True, False, True, False, None, False]),
        ([], TEXTS, []),
    ],
)
def test_texts_of_files(texts, classes, expected):
    missing = pa.array(["", "NA", "null", "nan"])
    column = from_texts(pa.array([text.encode() for text in texts], pa.binary()), missing, classes)
    assert column.to_pylist() == expected
    assert column.type == {TEXTS: pa.string(), NUMBERS: pa.int64(), TRUTH: pa.bool_()}.get(classes, pa.string())
