"""Labels in place of missing ones, where files are read: no column, type or null tells which were missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.release.bound_noise import StreamBinding
from labeldp.mechanisms.release.label_column import LabelColumn, LabelMeaning
from labeldp.transforms.class_values import coded_classes
from labeldp.transforms.io.input_format import FilePart, Format
from labeldp.transforms.missing_labels import filled, with_columns, with_numbers
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

NAN, INF = float("nan"), float("inf")
DOMAIN = (0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([1, None, 3], pa.int8()), [1, 2, 3]),
        (pa.array([1.5, NAN, INF, -INF, None], pa.float32()), [1.5, 2, 2, 2, 2]),
        (pa.array([True, None, False]), [1, 2, 0]),
        (pa.array([[5], [], None, [1, 1], [None], [NAN]], pa.large_list(pa.float32())), [5, 2, 2, 2, 2, 2]),
        (pa.nulls(3), [2, 2, 2]),
        (pa.array([], pa.int64()), []),
    ],
)
def test_every_record_gets_one_number(column: pa.Array, found: list[float]) -> None:
    assert with_numbers(column, 2.0).equals(pa.array(found, pa.float64()))


def test_text_is_left_to_the_stages_that_refuse_it() -> None:
    column = pa.array(["1", None])
    assert with_numbers(column, 2.0) is column


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.list_(pa.string())])
def test_every_record_gets_one_class(kind: pa.DataType) -> None:
    listed = LabelClasses(("poor", "good"), 1)
    values = ["good", None, "", "poor", "unlisted"]
    if pa.types.is_list(kind):
        column = pa.array([["good"], None, [], ["poor"], ["poor", "poor"]], kind)
        wanted = [1, 0, 0, 0, 0]
    else:
        column, wanted = pa.array(values, pa.string()).cast(kind), [1, 0, 0, 0, 1]
    found = coded_classes(column, listed, "y", "log", 0.0)
    assert found.indices.to_pylist() == wanted
    assert found.null_count == 0
    assert len(found.dictionary) == 2


def test_a_feature_that_no_record_has_is_put_where_others_have_it() -> None:
    """In the order of names, as tf.Examples are decoded: its place in the output is that of other batches."""
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "z": [3, 4]})
    found = filled(with_columns(batch, ["m"]), {"m": 2.0})
    assert found.equals(pa.RecordBatch.from_pydict({"a": [1, 2], "m": [2.0, 2.0], "z": [3, 4]}))
    assert with_columns(found, ["m"]) is found


@pytest.mark.parametrize("columns", [None, ["y"], ["x", "y"]])
def test_batches_of_examples_without_a_label(tmp_path: Path, columns: list[str] | None) -> None:
    """A file of which no record has a label gives the batches of one in which all have the public label."""
    batches = []
    for name, features in (("without", {}), ("with", {"y": np.full(5, 2, np.float32)})):
        path = tmp_path / f"{name}.tfrecord"
        examples = encode_examples(pa.RecordBatch.from_pydict({"x": np.arange(5), **features, "z": np.arange(5)}))
        path.write_bytes(b"".join(frame([example]) for example in examples))
        reader = FileReader(Format("tfrecord", missing={"y": 2.0}), columns, label_column="y")
        (batch,) = reader.read(FilePart(str(path), str(path)))
        batches.append(batch.batch)
    assert batches[0].equals(batches[1])
    assert batches[0].schema == batches[1].schema


def test_columns_of_features_get_no_label(tmp_path: Path) -> None:
    """A pass that does not read the label does not get one."""
    pq.write_table(pa.table({"x": [1.0], "y": [None]}), tmp_path / "log.parquet")
    reader = FileReader(Format("parquet", missing={"y": 2.0}), ["x"], label_column="y")
    (batch,) = reader.read(FilePart(str(tmp_path / "log.parquet"), str(tmp_path / "log.parquet")))
    assert batch.batch.schema.names == ["x"]


def test_encoded_records_cannot_get_a_label() -> None:
    with pytest.raises(ValueError, match="cannot get a label that they lack"):
        FileReader(Format("tfrecord", missing={"y": 0.0}), ["y"], label_column="y", encoded=True)


def test_noise_is_bound_to_it() -> None:
    meanings = [LabelMeaning(missing=missing) for missing in (None, 0.0, 1.0)]
    columns: list[Any] = [LabelColumn("y", DOMAIN, "id", meaning=meaning) for meaning in meanings]
    assert len({column.request.encode(BudgetSplit(0.5, 0.5)) for column in columns}) == 3
    assert len({StreamBinding("events").noise_key(b"k" * 32, column) for column in columns}) == 3
    with pytest.raises(ValueError, match="must lie in the domain"):
        LabelColumn("y", DOMAIN, meaning=LabelMeaning(missing=3.0))
