"""Batches with encoded records: each record keeps its own frame under all operations on the batch."""

import io
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import LabelledBatch
from labeldp.transforms.batches import LabelledBatchCoder, label_values, replace_label
from labeldp.transforms.tfrecord.encoded_batches import EncodedRecords
from labeldp.transforms.tfrecord.example_columns import ExampleColumns
from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import Frames, frame, read_records


def record(row: int, label: float) -> bytes:
    """Not a tf.Example, because the code under test does not read the bytes around the label."""
    return b"%d " % row + struct.pack("<f", label) + b"." * (row % 7)


def batch_of(rows: int, skip: int = 0) -> LabelledBatch:
    """Records skip, skip + 1, ..., with other frames before and after theirs in the buffer."""
    numbers = range(skip + rows + 2)
    whole = Frames.of([record(row, row + 0.5) for row in numbers])
    frames = Frames(whole.content, whole.bounds[skip : skip + rows + 1])
    places = np.array([12 + len(b"%d " % row) for row in numbers][skip : skip + rows], np.int64)
    labels = pa.array(np.arange(skip, skip + rows) + 0.5, pa.float32())
    return with_records({"y": labels}, EncodedRecords.of(frames, {"y": places}), skip)


def with_records(columns: dict[str, pa.Array], encoded: EncodedRecords, start: int = 0) -> LabelledBatch:
    return replace(LabelledBatch.whole("/logs/a", start, pa.RecordBatch.from_pydict(columns)), encoded=encoded)


def written(encoded: EncodedRecords | None) -> list[bytes]:
    """Returns the records in the frames, after a check of their checksums."""
    assert encoded is not None
    return [one for frames in read_records(io.BytesIO(encoded.framed().to_pybytes()), "shard", 9) for one in frames]


@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_labels_are_replaced_in_the_column_and_in_the_frames(rows, skip):
    batch = batch_of(rows, skip)
    outputs = np.arange(rows) - 0.25
    after = replace_label(batch, "y", outputs)
    assert label_values(after, "y").tolist() == outputs.tolist()
    assert written(after.encoded) == [record(skip + i, output) for i, output in enumerate(outputs)]
    # The input batch is unchanged, as other consumers may use it.
    assert written(replace_label(batch, "y", np.arange(skip, skip + rows) + 0.5).encoded) == [
        record(row, row + 0.5) for row in range(skip, skip + rows)
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 12), st.data())
def test_records_keep_their_frames_through_filters_slices_and_shuffles(rows, data):
    batch = batch_of(rows, data.draw(st.integers(0, 3)))
    coder = LabelledBatchCoder()
    for step in data.draw(st.lists(st.sampled_from(["keep", "slice", "code"]), max_size=4)):
        size = batch.batch.num_rows
        if step == "keep":
            batch = batch.keep(np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool))
        elif step == "slice":
            low, high = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
            batch = batch.slice(low, high)
        else:
            batch = coder.decode(coder.encode(batch))
    after = replace_label(batch, "y", batch.rows + 0.125)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(batch.rows), max_size=len(batch.rows))), bool)
    part = coder.decode(coder.encode(after)).keep(mask)
    assert written(part.encoded) == [record(int(row), float(row) + 0.125) for row in batch.rows[mask]]


def test_a_batch_without_labels_to_replace_is_not_written():
    with pytest.raises(ValueError, match="the labels of these records have not been replaced"):
        written(batch_of(3).encoded)


def test_a_record_without_a_place_for_its_label_is_refused():
    frames = Frames.of([record(0, 0.5), record(1, 0.5)])
    encoded = EncodedRecords.of(frames, {"y": np.array([14, -1])})
    batch = with_records({"y": pa.array([0.5, None], pa.float32())}, encoded)
    with pytest.raises(ValueError, match="a record without a label cannot have its label replaced"):
        replace_label(batch, "y", np.zeros(2))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_several_labels_are_replaced_one_after_the_other(data: st.DataObject) -> None:
    """Integer labels of any width become floats, which moves the labels behind them; features stay as they are."""
    rows, names = data.draw(st.integers(1, 6)), data.draw(st.permutations(["a", "label b", "c", "x"]))
    integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=rows, max_size=rows)
    floats = st.lists(st.floats(width=32, allow_nan=False), min_size=rows, max_size=rows)
    kinds = {name: data.draw(st.booleans()) for name in names}
    table = {
        name: pa.array(data.draw(integers)) if kinds[name] else pa.array(data.draw(floats), pa.float32())
        for name in names
    }
    labels = data.draw(st.permutations(["a", "label b", "c"]))[: data.draw(st.integers(2, 3))]
    frames = Frames.of(encode_examples(pa.RecordBatch.from_pydict(table)))
    columns, encoded = ExampleColumns("log", labels).read_encoded(frames, labels)
    for name in labels:
        assert columns.column(columns.schema.get_field_index(name)).to_pylist() == table[name].to_pylist()
    for place, name in enumerate(data.draw(st.permutations(labels))):
        with pytest.raises(ValueError, match="have not been replaced"):
            encoded.framed()
        encoded = encoded.with_label(name, np.arange(rows) + place / 4)
        table[name] = pa.array(np.arange(rows) + place / 4, pa.float32())
    decoded = ExampleDecoder("log").decode(written(encoded))
    found = {name: [value[0] for value in decoded.column(name).to_pylist()] for name in names}
    assert found == {name: column.to_pylist() for name, column in table.items()}


def test_a_feature_is_added_to_every_record(tmp_path: Path) -> None:
    """Records of different sizes: another parser finds the new feature and all others, and checksums hold."""
    tensorflow: Any = pytest.importorskip("tensorflow")
    texts, values = ["", "x", "y" * 300, "z" * 70_000], np.array([0.0, -1.5, 7.25, 3.0])
    labels = pa.array([1.0, 2.0, 3.0, 4.0], pa.float32())
    records = encode_examples(pa.RecordBatch.from_pydict({"t": texts, "y": labels}))
    _, encoded = ExampleColumns("log", ["y"]).read_encoded(Frames.of(records), ["y"])
    example = encode_examples(pa.RecordBatch.from_arrays([pa.array([0.0], pa.float32())], ["c"]))[0]
    kinds = {"t": tensorflow.string, "y": tensorflow.float32, "c": tensorflow.float32}
    features = {name: tensorflow.io.FixedLenFeature((), kind) for name, kind in kinds.items()}
    for first, size in ((0, 4), (1, 2), (3, 1), (0, 0)):
        part = slice(first, first + size)
        longer = encoded.slice(first, first + size).with_feature(values[part], example)
        path = tmp_path / f"{first} {size}"
        path.write_bytes(longer.with_label("y", values[part] + 1).framed())
        found = [
            tensorflow.io.parse_single_example(each, features) for each in tensorflow.data.TFRecordDataset(str(path))
        ]
        assert [each["t"].numpy().decode() for each in found] == texts[part]
        assert [float(each["c"]) for each in found] == values[part].tolist()
        assert [float(each["y"]) for each in found] == (values[part] + 1).tolist()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 140) | st.integers(16_250, 16_400), max_size=6))
def test_a_feature_is_added_as_the_encoder_would(sizes: list[int]) -> None:
    """The records stay canonical, byte for byte those of the encoder, where their length takes more bytes as well."""
    texts, labels, values = ["x" * size for size in sizes], np.arange(len(sizes)) + 0.5, -1.0 * np.arange(len(sizes))
    columns = {"t": pa.array(texts, pa.string()), "y": pa.array(labels, pa.float32())}
    records = encode_examples(pa.RecordBatch.from_pydict(columns))
    _, encoded = ExampleColumns("log", ["y"]).read_encoded(Frames.of(records), ["y"])
    example = encode_examples(pa.RecordBatch.from_arrays([pa.array([0.0], pa.float32())], ["c"]))[0]
    longer = encoded.with_feature(values, example).with_label("y", labels + 1)
    expected = columns | {"y": pa.array(labels + 1, pa.float32()), "c": pa.array(values, pa.float32())}
    assert bytes(longer.framed()) == frame(encode_examples(pa.RecordBatch.from_pydict(expected)))


def test_a_feature_is_added_to_an_empty_record() -> None:
    example = encode_examples(pa.RecordBatch.from_arrays([pa.array([2.0], pa.float32())], ["c"]))[0]
    longer = EncodedRecords.of(Frames.of([b""]), {"y": np.array([-1])}).with_feature(np.array([2.0]), example)
    assert longer.frames.to_pylist() == [frame([example])]
