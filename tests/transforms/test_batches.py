"""Batches keep the rows and columns of records; the coder writes only the slice; labels and ids are read correctly."""

import datetime
import decimal
import math
import pickle
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.audit.audit_data import _plain
from labeldp.mechanisms.noise.keyed_words import Identities, integer_identities, row_identities
from labeldp.transforms import InputError, LabelledBatch
from labeldp.transforms.arrow_values import is_text, plain_number_texts, single_values, value_type
from labeldp.transforms.batches import LabelledBatchCoder, label_values, record_identities, replace_label

SENTINEL = "SENTINEL123"

NUMBERS = st.floats(allow_nan=False, width=32)
COLUMNS = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): NUMBERS,
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(datetime.date(1900, 1, 1)),
    pa.decimal128(9, 2): st.integers(-(10**8), 10**8).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    pa.large_list(pa.float32()): st.lists(st.none() | NUMBERS, max_size=3),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.struct([("a", pa.int64())]): st.fixed_dictionaries({"a": st.integers(0, 9)}),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["red", "green", "blue"]),
    pa.null(): st.none(),
}


LENGTH = st.integers(0, 12)


@st.composite
def arrays(draw, kinds=tuple(COLUMNS), length=LENGTH):
    """An Arrow array of any type with nulls, as a slice of a longer one."""
    kind = draw(st.sampled_from(list(kinds)))
    before, wanted, after = draw(st.integers(0, 3)), draw(length), draw(st.integers(0, 3))
    size = before + wanted + after
    values = draw(
        st.lists(st.none() | (kinds if isinstance(kinds, dict) else COLUMNS)[kind], min_size=size, max_size=size)
    )
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().slice(before, wanted)
    return pa.array(values, kind).slice(before, wanted)


@st.composite
def batches(draw):
    """A LabelledBatch of up to three such columns, perhaps with gaps in its rows, perhaps without records."""
    length = draw(st.integers(0, 12))
    columns = draw(st.lists(arrays(length=st.just(length)), min_size=1, max_size=3))
    names = draw(st.lists(st.text(max_size=4), min_size=len(columns), max_size=len(columns)))
    metadata = draw(st.none() | st.just({b"owner": b"team"}))
    batch = pa.RecordBatch.from_arrays(
        columns,
        schema=pa.schema([pa.field(name, c.type) for name, c in zip(names, columns, strict=True)], metadata=metadata),
    )
    start = draw(st.integers(0, 2**40))
    whole = LabelledBatch.whole(draw(st.text(st.characters(exclude_categories=["Cs"]))), start, batch)
    return whole.keep(np.array(draw(st.lists(st.booleans(), min_size=length, max_size=length)), bool))


def assert_same(one: LabelledBatch, two: LabelledBatch) -> None:
    assert (one.source, one.start, one.stop) == (two.source, two.start, two.stop)
    np.testing.assert_array_equal(one.rows, two.rows)
    assert one.rows.dtype == two.rows.dtype == np.int64
    assert one.batch.schema.equals(two.batch.schema, check_metadata=True)
    assert one.batch.equals(two.batch)


# Coder.


@settings(deadline=None, max_examples=150)
@given(batches())
def test_coder_gives_back_what_it_was_given(batch):
    coder = LabelledBatchCoder()
    decoded = coder.decode(coder.encode(batch))
    decoded.batch.validate(full=True)
    assert_same(decoded, batch)
    assert coder.is_deterministic()
    assert coder.encode(decoded) == coder.encode(batch)


@settings(deadline=None, max_examples=60)
@given(batches())
def test_sizes_are_estimated_without_encoding(batch):
    """Runners request the sizes of most elements to count bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelledBatchCoder, "encode", None)
        size = LabelledBatchCoder().estimate_size(batch)
    assert 8 * len(batch.rows) <= size <= len(LabelledBatchCoder().encode(batch)) + 64 * (1 + batch.batch.num_columns)


def test_the_state_of_a_batch_is_encoded_beside_its_columns(labelled):
    coder = LabelledBatchCoder()
    batch = replace(
        labelled({"y": [1.0, 2.0]}, start=5),
        mechanism="ab",
        unit=("user", 2),
        left_out=7,
        carried={"range": np.arange(3)},
    )
    for one in (batch, batch.keep(np.array([True, False]))):
        decoded = coder.decode(coder.encode(one))
        assert_same(decoded, one)
        assert (decoded.mechanism, decoded.unit, decoded.left_out) == ("ab", ("user", 2), 7)
        assert decoded.carried["range"].tolist() == [0, 1, 2]
        assert decoded.encoded is None


def test_a_batch_without_columns_keeps_its_length():
    columns = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))
    batch = LabelledBatch.whole("/logs/a", 4, columns).keep(np.array([True, False, True]))
    coder = LabelledBatchCoder()
    assert coder.decode(coder.encode(batch)).batch.num_rows == batch.slice(0, 2).batch.num_rows == 2


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


# All that this or an earlier version gave a meaning to.
NAMES = ("labeldp.carried", "labeldp.batch", "carried", "rows", "row", "constant", "labels", "source", "sizes", "own",
         "\0frames", "\0label offsets y", "ARROW:schema", "ARROW:extension:name")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_file_means_anything_to_the_coder(name, tmp_path):
    planted = pickle.dumps(Planted(tmp_path / "ran"))
    values = [pa.array([planted, planted], pa.large_binary()), pa.array([1.0, 2.0])]
    fields = [pa.field(name, pa.large_binary(), metadata={name: planted}), pa.field("y", pa.float64())]
    batch = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields, metadata={name: planted}))
    whole = LabelledBatch.whole(f"/logs/{name}", 5, batch)
    coder = LabelledBatchCoder()
    decoded = coder.decode(coder.encode(whole))
    assert_same(decoded, whole)
    assert not decoded.carried
    assert (decoded.mechanism, decoded.unit, decoded.encoded) == (None,) * 3
    assert label_values(decoded, "y").tolist() == [1.0, 2.0]
    assert not list(tmp_path.iterdir())
    pickle.loads(planted).close()
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(200_000)),
        pa.array(np.arange(200_000) % 2 == 0),
        pa.array([f"text {i}" for i in range(200_000)]),
        pa.LargeListArray.from_arrays(np.arange(200_001), np.arange(200_000)),
        pa.array(np.arange(200_000), mask=np.arange(200_000) % 3 == 0),
    ],
    ids=["int", "bool", "text", "list", "nulls"],
)
def test_a_slice_of_a_huge_batch_is_small(column):
    whole = pa.RecordBatch.from_arrays([column], ["x"])
    coder = LabelledBatchCoder()
    batch = LabelledBatch.whole("/logs/a", 150_000, whole.slice(150_000, 10))
    encoded = coder.encode(batch)
    assert len(encoded) < 2_000
    assert_same(coder.decode(encoded), batch)


def test_beam_finds_the_coder_and_uses_it_in_a_shuffle(labelled, run):
    assert isinstance(beam.coders.registry.get_coder(LabelledBatch), LabelledBatchCoder)
    whole = labelled({"y": [0.5, 1.5, 2.5, 3.5], "t": [[1], [], None, [2, 3]]}, start=7)
    part = LabelledBatch(whole.source, 8, 10, whole.rows[1:3], whole.batch.slice(1, 2))

    def shuffle(pipeline):
        batches = pipeline | beam.Create([part])
        assert batches.element_type is LabelledBatch
        return {"out": batches | beam.Reshuffle()}

    (shuffled,) = run(shuffle)["out"]
    assert_same(shuffled, part)


def test_text_of_a_batch_shows_no_value(labelled):
    batch = labelled({"y": [48613.71529], "t": [SENTINEL]})
    for text in (repr(batch), str(batch)):
        assert "48613" not in text
        assert SENTINEL not in text


# Selecting records.


@settings(deadline=None, max_examples=60)
@given(arrays(), st.integers(0, 99), st.data())
def test_keep_takes_those_records_of_any_type_and_leaves_the_range(column, start, data):
    batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([("x", column.type)], metadata={b"k": b"v"}))
    kept, rows = LabelledBatch.whole("/logs/a", start, batch), np.arange(start, start + len(column))
    for _ in range(2):
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
        kept, rows = kept.keep(mask), rows[mask]
        assert (kept.start, kept.stop, kept.rows.tolist()) == (start, start + len(column), rows.tolist())
        assert kept.batch.column(0).to_pylist() == [column[row].as_py() for row in (rows - start).tolist()]
        assert kept.batch.schema.equals(batch.schema, check_metadata=True)


# Labels.


def test_values_hidden_under_a_null_list_are_no_labels():
    """In Arrow, a null list may span values that do not belong to the record."""
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    valid = pa.py_buffer(bytes([0b101]))
    column = pa.ListArray.from_buffers(pa.list_(pa.int64()), 3, [valid, offsets], children=[pa.array([1, 77, 4])])
    assert column.to_pylist() == [[1], None, [4]]
    batch = LabelledBatch.whole("/logs/a", 0, pa.RecordBatch.from_arrays([column], ["y"]))
    np.testing.assert_array_equal(label_values(batch, "y"), [1, math.nan, 4])


FLAT = tuple(kind for kind in COLUMNS if not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind))
LISTS = tuple(kind for kind in COLUMNS if pa.types.is_list(kind) or pa.types.is_large_list(kind))
ANY = st.floats(width=32)


def quarters(number):
    return decimal.Decimal(number) / 4


# Labels may be NaN and infinite, too.
LABELS = {
    pa.float32(): ANY, pa.float64(): st.floats(), pa.list_(pa.float64()): st.lists(st.none() | ANY, max_size=3),
    pa.large_list(pa.int64()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    **dict.fromkeys((pa.decimal128(9, 2), pa.decimal256(50, 4)), st.integers(-4000, 4000).map(quarters)),
}  # fmt: skip
NUMERIC = LABELS | {
    kind: COLUMNS[kind] for kind in (pa.int8(), pa.int64(), pa.uint64(), pa.list_(pa.int64()), pa.null())
}


@settings(deadline=None, max_examples=400)
@given(arrays(FLAT) | arrays(LISTS))
@example(pa.array([[1], [2], [3]]).slice(1))
def test_single_values_are_those_not_null_and_those_of_lists_of_one(column):
    values, present = single_values(column)
    plain = [
        value if not isinstance(value, list) else value[0] if len(value) == 1 else None for value in column.to_pylist()
    ]
    assert present.tolist() == [value is not None for value in plain]
    assert values.to_pylist() == [value for value in plain if value is not None]


@settings(deadline=None, max_examples=200)
@given(arrays(NUMERIC))
def test_label_values_are_those_that_python_sees(column):
    batch = LabelledBatch.whole("/logs/a", 0, pa.RecordBatch.from_arrays([column], ["y"]))
    expected = []
    for one in column.to_pylist():
        value = (one[0] if len(one) == 1 else None) if isinstance(one, list) else one
        expected.append(float(value) if value is not None and math.isfinite(value) else math.nan)
    values = label_values(batch, "y")
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, np.array(expected, np.float64))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([SENTINEL]),
        pa.array([[SENTINEL]]),
        pa.array([SENTINEL.encode()]),
        pa.array(["48613.71529"]),
        pa.array([datetime.date(2020, 1, 1)]),
        pa.array([{"a": 1}]),
        pa.array([[[1.0]]]),
        pa.array(["a"]).dictionary_encode(),
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
        pa.array([datetime.timedelta(2020)]),
        pa.array([datetime.datetime(2020, 1, 1)]),
        pa.array([datetime.time(20, 20)]),
        pa.array([b"2020"], pa.binary(4)),
    ],
    ids=lambda column: str(column.type),
)
def test_labels_that_are_no_numbers_are_refused_without_their_values(column):
    batch = LabelledBatch.whole("/logs/a", 0, pa.RecordBatch.from_arrays([column], ["y"]))
    with pytest.raises(InputError, match=r"/logs/a: label column 'y' holds .*`label`") as caught:
        label_values(batch, "y")
    kind = value_type(column.type)
    assert ("`label_classes`" in str(caught.value)) == is_text(kind)
    units = {"date32[day]": "days", "duration[us]": "days", "timestamp[us]": "days", "time64[us]": "seconds"}
    assert (f"write it as a number, such as its {units.get(str(kind))}" in str(caught.value)) == (str(kind) in units)
    for text in (SENTINEL, "48613", "2020"):
        assert text not in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array([[True], [False], [True, False]]),
        pa.array([1, 0, None], pa.int8()).dictionary_encode(),
        pa.array([True, False, None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 0], pa.int8()), pa.array([None, 1.0, 0.0])),
    ],
    ids=lambda column: str(column.type),
)
def test_booleans_and_categories_of_numbers_are_labels(column):
    batch = LabelledBatch.whole("/logs/a", 0, pa.RecordBatch.from_arrays([column], ["y"]))
    np.testing.assert_array_equal(label_values(batch, "y"), [1, 0, np.nan])
    drawn = replace_label(batch, "y", np.array([2.5, 0.5, 1.5])).batch.column(0)
    assert drawn.to_pylist() == ([[2.5], [0.5], [1.5]] if pa.types.is_list(column.type) else [2.5, 0.5, 1.5])


def test_of_two_columns_with_the_label_name_neither_is_guessed():
    batch = pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], ["y", "y"])
    assert np.isnan(label_values(LabelledBatch.whole("/logs/a", 0, batch), "y")).all()


# Replacing labels.


def replaced_label(batch: pa.RecordBatch, values: np.ndarray) -> pa.RecordBatch:
    return replace_label(LabelledBatch.whole("/logs/a", 0, batch), "y", values).batch


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("label", "replaced", "kind"),
    [
        (pa.array([1, 2, 3]), [7.25, 8.1, 9.0], pa.float64()),
        (pa.array([1.5, 2, 3], pa.float32()), [7.25, 8.1, 9.0], pa.float64()),
        (pa.array([[1], [2], [3]]), [[7.25], [8.1], [9.0]], pa.list_(pa.float64())),
        (pa.array([[1.0], [2], [3]]), [[7.25], [8.1], [9.0]], pa.list_(pa.float64())),
        (pa.array([[1], [2], [3]], pa.list_(pa.float32())), None, pa.list_(pa.float32())),
        (pa.array([[1], [2], [3]], pa.large_list(pa.int64())), None, pa.large_list(pa.float32())),
        (pa.array([[1], [2], [3]], pa.large_list(pa.int32())), [[7.25], [8.1], [9.0]], pa.large_list(pa.float64())),
        (pa.array([[0.0], [1], [2], [3]], pa.large_list(pa.float32())).slice(1), None, pa.large_list(pa.float32())),
    ],
    ids=["int", "float32", "int list", "list", "float32 list", "tf.Example", "large int list", "sliced list"],
)
def test_replace_label_changes_that_column_alone(place, label, replaced, kind):
    others = [pa.array(["a", None, "c"]), pa.array([[1], [], [2, 3]])]
    names = ["t", "l"]
    columns = [*others[:place], label, *others[place:]]
    batch = pa.RecordBatch.from_arrays(columns, [*names[:place], "y", *names[place:]])
    result = replaced_label(batch, np.array([7.25, 8.1, 9.0]))
    result.validate(full=True)
    assert result.schema.names == batch.schema.names
    assert result.column(place).type == kind
    assert result.column(place).to_pylist() == (replaced or [[7.25], [float(np.float32(8.1))], [9.0]])
    for name, other in zip(names, others, strict=True):
        assert result.column(result.schema.get_field_index(name)).equals(other)


def test_what_a_file_says_about_its_label_does_not_outlive_it():
    """Spark, for example, stores the raw values of a categorical label in Parquet metadata."""
    told = {b"ml_attr": b"vals: SENTINEL123"}
    inner = pa.struct([pa.field("a", pa.int64(), metadata=told)])
    fields = [pa.field("y", pa.float64(), metadata=told), pa.field("x", inner, metadata=told)]
    columns = [pa.array([1.0]), pa.array([{"a": 1}], inner)]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=told))
    result = replaced_label(batch, np.array([2.0]))
    assert SENTINEL.encode() not in result.serialize().to_pybytes() + result.schema.serialize().to_pybytes()
    assert result.column(1).type.field(0).metadata is None
    assert result.to_pydict() == {"y": [2.0], "x": [{"a": 1}]}


# Identities.


def names(*parts: Identities) -> list[tuple[bytes, bytes]]:
    return [(part.space, block.tobytes()) for part in parts for block in part.blocks]


def test_rows_are_told_apart_by_source_and_number(labelled):
    some = [
        labelled({"y": [1.0] * 50}, "/logs/a"),
        labelled({"y": [1.0] * 50}, "/logs/b"),
        labelled({"y": [1.0] * 50}, "/logs/a", 50),
    ]
    assert len(set(names(*(record_identities(batch, None) for batch in some)))) == 150


def test_row_identities_follow_the_row_through_cuts_and_filters(labelled, recut):
    batch = labelled({"y": [float(i) for i in range(20)]}, start=100)
    whole = names(record_identities(batch, None))
    assert whole == names(row_identities("/logs/a", np.arange(100, 120)))
    pieces = recut(batch, 103, 103, 117)
    assert names(*(record_identities(piece, None) for piece in pieces)) == whole
    assert names(record_identities(batch.keep(np.arange(20) % 3 == 0), None)) == whole[::3]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, -(2**63), 2**63 - 1]),
        pa.array([1, 2, 3, 4], pa.uint8()),
        pa.array([[1], [2], [3], [4]]),
        pa.array([0, 1, 2, 3, 4]).slice(1),
    ],
    ids=["int64", "uint8", "list", "slice"],
)
def test_integer_ids_are_the_identity(column, labelled):
    plain = [one[0] if isinstance(one, list) else one for one in column.to_pylist()]
    expected = integer_identities("id", np.array(plain, np.int64))
    assert names(record_identities(labelled({"id": column}), "id")) == names(expected)


@pytest.mark.parametrize(
    "ids",
    [pa.array([1, 2, None]), pa.array(["a", "b", None]), pa.array([[1], [2], []]), pa.array([[1], [2], [3, 4]])],
    ids=["null", "null text", "empty list", "two ids"],
)
def test_a_record_without_one_id_is_named(ids, labelled):
    batch = labelled({"id": ids}, start=70)
    with pytest.raises(InputError, match=r"/logs/a: row 72 .*'id' \(`id_column`\)"):
        record_identities(batch, "id")
    with pytest.raises(InputError, match="row 72 "):
        record_identities(batch.keep(np.array([False, True, True])), "id")


@pytest.mark.parametrize("ids", [pa.array([True]), pa.array([datetime.date(2020, 1, 1)]), pa.array([[False]])], ids=str)
def test_ids_are_integers_text_or_bytes(ids, labelled):
    with pytest.raises(InputError, match=r"id column 'id' holds .* not integers, text or bytes.*`id_column`"):
        record_identities(labelled({"id": ids}), "id")


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([-7.0, 0.0, 2.0**53 - 1]),
        pa.array([[-7.0], [0.0], [2.0**53 - 1]]),
        pa.array([-7.0, -0.0, 9007199254740991.0]),
    ],
)
def test_whole_floats_are_the_ids_of_integers(ids, labelled):
    whole = record_identities(labelled({"id": [-7, 0, 2**53 - 1]}), "id")
    assert names(record_identities(labelled({"id": ids}), "id")) == names(whole)


@pytest.mark.parametrize(
    "ids",
    [pa.array([1.0, 2.5]), pa.array([1.0, 2.0**53]), pa.array([1.0, math.inf]), pa.array([1.0, 2.0**24], pa.float32())],
    ids=["a fraction", "double", "infinity", "float"],
)
def test_floats_that_are_no_single_integer_are_no_ids(ids, labelled):
    with pytest.raises(InputError, match=r"/logs/a: row 71: the id in 'id' is a number that is not whole") as caught:
        record_identities(labelled({"id": ids}, start=70), "id")
    assert "2.5" not in str(caught.value)
    with pytest.raises(InputError, match="row 71 must have exactly one id"):
        record_identities(labelled({"id": [1.0, math.nan]}, start=70), "id")


SPELLINGS = {
    b"5": [b"5", b"5.0", b"05", b"+5", b" 5", b"5 ", b"5.", b"5e0", b"0.5E+1", b"\t5.000\r", b"500e-2"],
    b"0": [b"0", b"-0", b"00", b"0.0", b".0", b"-0e9"],
    b"-12": [b"-12", b"-12.0", b"-012"],
    b"0.5": [b".5", b"0.50", b"5e-1"],
    b"12345678901234567890123": [b"12345678901234567890123", b"12345678901234567890123.0"],
}
NO_NUMBERS = [
    b"",
    b" ",
    b"a5",
    b"5a",
    b"0x5",
    b"--5",
    b"5-",
    b"1_0",
    b"5 5",
    b".",
    b"e5",
    b"nan",
    b"\xff5",
    "\u0665".encode(),
]


def test_spellings_of_a_number_are_one_unit_and_other_texts_are_themselves():
    texts = [text for each in SPELLINGS.values() for text in each] + NO_NUMBERS
    found = plain_number_texts(pa.array(texts, pa.binary())).to_pylist()
    assert found == [plain for plain, each in SPELLINGS.items() for _ in each] + NO_NUMBERS
    # The audit has code of its own for that.
    audited = [_plain(text.decode(errors="surrogateescape")) for text in texts]
    assert [audited.count(each) for each in audited] == [found.count(each) for each in found]


def test_the_id_column_must_be_there(labelled):
    with pytest.raises(InputError, match=r"/logs/a: there is no column 'id'.*`id_column`"):
        record_identities(labelled({"y": [1.0]}), "id")
