"""Metadata of Parquet schemas: readers find what they need, and nothing describes the label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, LabelledBatch
from labeldp.transforms.batches import replace_label
from labeldp.transforms.io.schema_metadata import published_keys, released_schema

SENTINEL = "4861371529"
SPARK = b"org.apache.spark.sql.parquet.row.metadata"


def released(schema: pa.Schema, label: str = "y", kind: pa.DataType | None = None) -> pa.Schema:
    return released_schema(schema, pa.field(label, kind or pa.float64()))


def spark_field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": False, "metadata": metadata}


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("owner", "ads", True),
        ("note", "daily totals", True),
        ("label_mean", "2.5", True),  # not the label's name, but the owner is told
        ("y_mean", "2.5", True),
        ("y", SENTINEL, False),
        ("ml_attr", SENTINEL, False),
        ("mean of Y", SENTINEL, False),
        ("stats", json.dumps({"y": {"mean": 4}}), False),
        ("parquet.avro.schema", json.dumps({"fields": [{"name": "y", "type": "int"}]}), False),
        ("stats", "y=4861371529", False),
        ("query", "select avg(y) from t", False),
    ],
)
def test_what_names_the_label_is_dropped(key, value, kept):
    schema = pa.schema([("f", pa.int64()), ("y", pa.int64())], metadata={key: value})
    assert (released(schema).metadata == {key.encode(): value.encode()}) is kept
    assert published_keys(schema.metadata, "y") == (([key], []) if kept else ([], [key]))


@pytest.mark.parametrize("label", ["größe", "a.b", "my label", 'quo"te', "x["])
def test_names_of_any_letters(label):
    values = [label, json.dumps(label), json.dumps(label, ensure_ascii=False), f"mean({label})"]
    metadata = {f"k{number}": value for number, value in enumerate(values)} | {"owner": "ads"}
    schema = pa.schema([(label, pa.int64())], metadata=metadata)
    assert released(schema, label).metadata == {b"owner": b"ads"}


def test_fields_keep_theirs_except_the_label():
    fields = [
        pa.field("f", pa.int64(), metadata={"unit": "days"}),
        pa.field("g", pa.int64(), metadata={"encoding": "mean of y", "unit": "EUR"}),
        pa.field("y", pa.int64(), nullable=False, metadata={"min": SENTINEL}),
    ]
    found = released(pa.schema(fields))
    assert [field.metadata for field in found] == [{b"unit": b"days"}, {b"unit": b"EUR"}, None]
    assert found.field("y") == pa.field("y", pa.float64())


def test_spark_reads_the_new_type_and_every_column():
    """Spark takes its schema from this document; columns that it does not list are not there for it."""
    fields = [
        spark_field("f", "integer", comment="a feature"),
        spark_field("g", "double", ml_attr={"note": "target encoding of y"}),
        spark_field("y", "integer", ml_attr={"min": SENTINEL, "max": SENTINEL, "type": "numeric"}),
    ]
    document = json.dumps({"type": "struct", "fields": fields})
    columns = [("f", pa.int32()), ("g", pa.float64()), ("y", pa.int32()), ("month", pa.int32()), ("c", pa.float64())]
    found = released(pa.schema(columns, metadata={SPARK: document}))
    assert json.loads(found.metadata[SPARK])["fields"] == [
        fields[0],
        spark_field("g", "double"),
        spark_field("y", "double") | {"nullable": True},
        spark_field("month", "integer") | {"nullable": True},
        spark_field("c", "double") | {"nullable": True},
    ]
    lists = released(pa.schema(columns, metadata={SPARK: document}), kind=pa.list_(pa.float32()))
    assert json.loads(lists.metadata[SPARK])["fields"][2]["type"] == {
        "type": "array", "elementType": "float", "containsNull": True,
    }  # fmt: skip


@pytest.mark.parametrize("key", [SPARK, b"pandas"])
@settings(deadline=None)
@given(document=st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)
       | st.dictionaries(st.sampled_from(["columns", "index_columns", "fields", "name", "y"]), inner)))  # fmt: skip
def test_documents_of_another_form_are_dropped_or_renewed(key, document):
    schema = pa.schema([("f", pa.int64()), ("y", pa.int64())], metadata={key: json.dumps(document), b"owner": b"ads"})
    assert released(schema).metadata[b"owner"] == b"ads"


@pytest.fixture
def round_trip(tmp_path: Path, read_all: Any) -> Any:
    """Data frame -> the data frame of its release, with labels 0.5 1.5 ...; through Parquet files."""

    def make(frame: Any, label: str = "y", **options: Any) -> Any:
        import pandas as pd

        path = str(tmp_path / "in.parquet")
        frame.to_parquet(path)
        (batch,) = read_all(path, Format("parquet", **options), label_column=label)
        assert isinstance(batch, LabelledBatch)
        table = pa.Table.from_batches([replace_label(batch.batch, label, np.arange(len(frame)) + 0.5)])
        pq.write_table(table, str(tmp_path / "out.parquet"))
        return pd.read_parquet(tmp_path / "out.parquet")

    return make


def test_pandas_reads_back_what_it_wrote(round_trip):
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 2**60 + 1], "Int64"),
            "b": pd.array([True, None, False], "boolean"),
            "c": pd.Categorical(["a", "b", "a"]),
            "t": pd.to_datetime(["2024-01-01", None, "2024-01-03"]).tz_localize("Europe/Berlin"),
            "y": pd.array([1, 2, 3], "Int64"),
        },
        index=pd.Index(["u", "v", "w"], name="k"),
    )
    found = round_trip(frame)
    assert found.index.equals(frame.index)
    pd.testing.assert_frame_equal(found.drop(columns="y"), frame.drop(columns="y"))
    assert found["y"].dtype == np.float64
    assert round_trip(frame, metadata=False)["n"].dtype == np.float64


def test_a_label_in_the_index_and_attributes_with_its_values(round_trip, tmp_path):
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame({"f": [1, 2]}, index=pd.Index([7, 8], name="y"))
    frame.attrs = {"y": SENTINEL}
    found = round_trip(frame)
    assert found.index.tolist() == [0.5, 1.5]
    assert SENTINEL.encode() not in (tmp_path / "out.parquet").read_bytes()


def test_a_range_index_is_dropped(round_trip, tmp_path):
    """Its values may be labels, and shards have other numbers of rows."""
    pd: Any = pytest.importorskip("pandas")
    step = int(SENTINEL)
    frame = pd.DataFrame({"f": [1, 2], "y": [1, 2]}, index=pd.RangeIndex(step, 3 * step, step))
    assert round_trip(frame).index.tolist() == [0, 1]
    document = json.loads(pq.read_schema(str(tmp_path / "out.parquet")).metadata[b"pandas"])
    assert document["index_columns"] == []
    assert SENTINEL not in json.dumps(document)


def test_metadata_is_that_of_the_first_file(tmp_path, read_all):
    for name in ("a", "b"):
        field = pa.field("f", pa.int64(), metadata={"from": name})
        schema = pa.schema([field, pa.field("y", pa.int64())], metadata={"from": name})
        pq.write_table(pa.table([[1], [2]], schema=schema), str(tmp_path / name))
    batches = read_all(str(tmp_path / "b"), "parquet", label_column="y", first=str(tmp_path / "a"))
    assert batches[0].batch.schema.metadata == {b"from": b"a"}
    assert batches[0].batch.schema.field("f").metadata[b"from"] == b"a"
