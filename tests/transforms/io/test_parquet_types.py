"""Columns of several Parquet files that hold the same values in different layouts are of one type."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.transforms import InputError, Limits
from labeldp.transforms.batches import label_values, replace_label
from labeldp.transforms.io.input_format import Format, file_parts
from labeldp.transforms.readers import parquet_reader
from labeldp.transforms.readers.column_types import common_type, converted, read_type
from labeldp.transforms.readers.file_reader import FileReader

TEXT = [pa.string(), pa.large_string(), pa.string_view()]
BINARY = [pa.binary(), pa.large_binary(), pa.binary_view()]


def categories(values: list[Any], index: pa.DataType, ordered: bool = False) -> pa.DictionaryArray:
    found = pa.array(values).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices.cast(index), found.dictionary, ordered=ordered)


def write(folder: Path, *columns: pa.Array | pa.ChunkedArray, **options: Any) -> list[str]:
    """Files of one column c."""
    paths = [str(folder / f"{number}.parquet") for number in range(len(columns))]
    for path, column in zip(paths, columns, strict=True):
        pq.write_table(pa.table({"c": column}), path, **options)
    return paths


def read(paths: list[str], format: Format = Format("parquet")) -> list[list[pa.Array]]:  # noqa: B008
    """Batches of c of each file, as they are read together."""
    reader = FileReader(format)
    return [[batch.batch.column(0) for batch in reader.read(part)] for part in file_parts(paths, reader.format)]


def whole(batches: list[pa.Array]) -> list[Any]:
    return [value for batch in batches for value in batch.to_pylist()]


@pytest.mark.parametrize("kinds", [TEXT, BINARY], ids=["text", "binary"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_layouts_of_text_are_one_type_that_the_first_file_sets(tmp_path, kinds, first):
    order = [kinds[first], *kinds]
    values = ["a", None, ""] if kinds is TEXT else [b"a", None, b""]
    found = read(write(tmp_path, *(pa.array(values, kind) for kind in order)))
    wanted = kinds[0] if first == 2 else kinds[first]
    assert {batch.type for batches in found for batch in batches} == {wanted}
    assert [whole(batches) for batches in found] == [values] * 4


@pytest.mark.parametrize(
    ("kind", "other", "values"),
    [
        (pa.list_(pa.string()), pa.large_list(pa.string_view()), [["a", None], None, []]),
        (pa.struct([("x", pa.large_string())]), pa.struct([("x", pa.string_view())]), [{"x": "a"}, None]),
        (pa.map_(pa.string(), pa.large_string()), pa.map_(pa.string(), pa.string()), [[("k", "v")], None]),
        (pa.list_(pa.struct([("x", pa.string())])), pa.list_(pa.struct([("x", pa.string_view())])), [[{"x": "a"}]]),
    ],
    ids=str,
)
def test_layouts_of_text_within_other_columns(tmp_path, kind, other, values):
    for pair in ((kind, other), (other, kind)):
        found = read(write(tmp_path, *(pa.array(values, each) for each in pair)))
        assert all(batch.type.equals(read_type(pair[0], 2)) for batches in found for batch in batches)
        assert [whole(batches) for batches in found] == [values] * 2


def test_a_file_alone_keeps_its_type(tmp_path):
    for kind in (pa.string(), pa.large_string(), pa.list_(pa.field("element", pa.int64(), False)), pa.date32()):
        assert read_type(kind, 1) == kind
        (found,) = read(write(tmp_path, pa.array([], kind).slice(0)))
        assert all(batch.type == kind for batch in found)


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64()], ids=str)
def test_categories_have_indices_that_do_not_depend_on_the_file(tmp_path, index):
    columns = [categories(["a", "b", None], index), categories(["b", "c"], pa.int32()), pa.array(["d"])]
    found = read(write(tmp_path, *columns))
    assert {batch.type for batches in found for batch in batches} == {pa.dictionary(pa.int32(), pa.string())}
    assert [whole(batches) for batches in found] == [["a", "b", None], ["b", "c"], ["d"]]


def test_text_in_the_first_file_and_categories_in_another_are_text(tmp_path):
    found = read(write(tmp_path, pa.array(["a"], pa.large_string()), categories(["b", None], pa.int8())))
    assert [(batches[0].type, whole(batches)) for batches in found] == [
        (pa.large_string(), ["a"]),
        (pa.large_string(), ["b", None]),
    ]


def test_more_categories_in_a_row_group_than_their_indices_can_count(tmp_path):
    """Arrow itself cannot read this file: it joins the dictionaries of three chunks."""
    names = [[f"{part}_{place}" for place in range(100)] for part in range(3)]
    column = pa.chunked_array([categories(values, pa.int8()) for values in names])
    paths = write(tmp_path, column, row_group_size=1000)
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(paths[0])
    (found,) = read(paths)
    assert whole(found) == [name for values in names for name in values]


def test_row_groups_of_different_categories_are_one_batch(tmp_path):
    names = [[f"{part}_{place}" for place in range(100)] for part in range(3)]
    table = pa.concat_tables([pa.table({"c": categories(values, pa.int8())}) for values in names])
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path, row_group_size=100)
    (found,) = read([path])
    assert len(found) == 1
    assert whole(found) == [name for values in names for name in values]


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("x", pa.dictionary(pa.int32(), pa.string()))]),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.string())),
        pa.list_(pa.struct([("x", pa.dictionary(pa.int32(), pa.string()))])),
        pa.list_(pa.dictionary(pa.int32(), pa.string()), 2),
    ],
    ids=str,
)
def test_categories_within_a_column_over_row_groups(tmp_path, kind):
    """Arrow reads these whole, but not in batches that have records of several row groups."""
    plain = read_type(kind, 1)
    item: Any = {"x": "a"} if pa.types.is_struct(plain) else [("k", "a")] if pa.types.is_map(plain) else ["a", "b"]
    item = [{"x": "a"}] if pa.types.is_list(plain) and pa.types.is_struct(plain.value_type) else item
    paths = write(tmp_path, pa.array([item] * 1000, kind), row_group_size=300)
    with pytest.raises(pa.ArrowNotImplementedError):
        list(pq.ParquetFile(paths[0]).iter_batches(1000))
    (found,) = read(paths)
    assert [(batch.type, batch.to_pylist()) for batch in found] == [(plain, [item] * 1000)]
    assert "dictionary" not in str(plain)


def test_a_column_that_arrow_reads_in_no_batches_is_named(tmp_path, monkeypatch):
    paths = write(tmp_path, pa.array(["secret"]))

    def not_implemented(*_: Any, **__: Any) -> None:
        raise pa.ArrowNotImplementedError("secret")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", not_implemented)
    with pytest.raises(InputError, match=r"column 'c' \(string\) cannot be read in batches: write it anew") as caught:
        read(paths)
    assert "secret" not in str(caught.value)


def test_the_order_of_categories_is_kept_for_one_file_only(tmp_path):
    paths = write(tmp_path, *(categories(values, pa.int8(), True) for values in (["low", "high"], ["high", "mid"])))
    assert [batches[0].type.ordered for batches in read(paths[:1])] == [True]
    assert [batches[0].type.ordered for batches in read(paths)] == [False, False]


def test_nulls_are_allowed_where_a_file_allows_them(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path, nullable in zip(paths, (False, True), strict=True):
        inner = pa.list_(pa.field("element", pa.int64(), nullable))
        fields = [pa.field("c", pa.float64(), nullable), pa.field("d", inner, nullable)]
        pq.write_table(pa.table([[1.5], [[1]]], schema=pa.schema(fields)), path)
    reader = FileReader(Format("parquet"))
    schemas = [next(reader.read(part)).batch.schema for part in file_parts(paths, reader.format)]
    assert [[field.nullable for field in schema] for schema in schemas] == [[False, False], [True, True]]
    assert [schema.field("d").type.value_field.nullable for schema in schemas] == [False, True]


@pytest.mark.parametrize("empty_first", [True, False])
def test_a_column_without_a_value_in_one_file_has_the_type_of_another(tmp_path, empty_first):
    columns = [pa.nulls(2), pa.array(["a", "b"])]
    found = read(write(tmp_path, *(columns if empty_first else columns[::-1])))
    values = [whole(batches) for batches in found]
    assert values == ([[None, None], ["a", "b"]] if empty_first else [["a", "b"], [None, None]])
    if not empty_first:
        assert {batches[0].type for batches in found} == {pa.string()}


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.binary()),
        (pa.string(), pa.int64()),
        (pa.dictionary(pa.int32(), pa.string()), pa.int64()),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.list_(pa.string()), pa.string()),
        (pa.struct([("x", pa.string())]), pa.struct([("z", pa.string())])),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    ],
    ids=str,
)
def test_types_of_other_values_stay_apart(kind, other):
    assert common_type(kind, other) is None
    assert common_type(other, kind) is None


NUMBERS = (pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(9, 2))


@pytest.mark.parametrize("lists", [False, True])
def test_labels_of_all_types_of_numbers_are_read_together(tmp_path, lists):
    columns = [pa.array([1, None], pa.int8()).cast(kind) for kind in NUMBERS]
    if lists:
        columns = [pa.array([[1], None], pa.list_(kind)) for kind in (pa.int8(), pa.int64(), pa.float64())]
    paths = write(tmp_path, *columns)
    reader = FileReader(Format("parquet"), label_column="c")
    batches = [batch for part in file_parts(paths, reader.format) for batch in reader.read(part)]
    released = {replace_label(batch, "c", np.ones(2)).batch.schema.field("c").type for batch in batches}
    assert released == {pa.list_(pa.float64()) if lists else pa.float64()}
    for batch in batches:
        np.testing.assert_array_equal(label_values(batch, "c"), [1, np.nan])


@pytest.mark.parametrize(
    ("kinds", "classes"),
    [((pa.int64(), pa.string()), None), ((pa.int64(), pa.list_(pa.int64())), None), ((pa.int64(), pa.float64()), "01"),
     ((pa.list_(pa.float32()), pa.list_(pa.float64())), None)],
    ids=str,
)  # fmt: skip
def test_labels_that_would_be_released_with_two_types_are_refused(tmp_path, kinds, classes):
    paths = write(tmp_path, *(pa.array([], kind) for kind in kinds))
    reader = FileReader(Format("parquet", classes={"c": LabelClasses(tuple(classes))} if classes else None),
                        label_column="c")  # fmt: skip
    with pytest.raises(InputError, match=r"column 'c' holds .* all files need one schema"):
        [list(reader.read(part)) for part in file_parts(paths, reader.format)]


@pytest.mark.parametrize(
    ("kinds", "cast"),
    [((pa.int32(), pa.int64()), "int64"), ((pa.int64(), pa.float64()), "double"), ((pa.string(), pa.int64()), None)],
)
def test_two_widths_of_a_feature_are_refused_with_the_cast_to_write(tmp_path, kinds, cast):
    for order in (kinds, kinds[::-1]):
        with pytest.raises(InputError) as caught:
            read(write(tmp_path, *(pa.array([], kind) for kind in order)))
        assert (f". Write it as {cast} in all of them" in str(caught.value)) == (cast is not None)


def test_the_error_names_the_types_as_they_are_read(tmp_path):
    paths = write(tmp_path, pa.array(["a"], pa.string_view()), pa.array([1]))
    with pytest.raises(InputError, match=r"1\.parquet: column 'c' holds int64, but string in .*0\.parquet"):
        read(paths)


def test_nulls_among_the_values_of_a_dictionary_stay_nulls():
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["a", None]))
    for kind in (pa.dictionary(pa.int32(), pa.large_string()), pa.string()):
        assert converted(column, kind).to_pylist() == ["a", None, None]


def test_text_beyond_32_bit_offsets_is_converted_in_pieces(tmp_path):
    values = ["x" * 30 for _ in range(20)]
    paths = write(tmp_path, pa.array(["a"]), pa.array(values, pa.large_string()))
    assert whole(read(paths, Format("parquet", limits=Limits(cast_bytes=100)))[1]) == values


def test_of_columns_of_a_fixed_length_only_those_that_may_be_wide_integers_are_named():
    """pyarrow writes no integers of 128 bits; Parquet has them as 16 bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"code": pa.array([b"abcd"], pa.binary(4)), "x": pa.array([bytes(16)], pa.binary(16))}), sink
    )
    error = pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")
    problem = parquet_reader._unread_type(pa.BufferReader(sink.getvalue()), error)
    assert "these columns cannot be read: 'x' (fixed_size_binary[16]). pyarrow says" in problem
