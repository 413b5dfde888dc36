"""Names and metadata of an input file mean nothing to the job, whatever the job or its libraries call things inside."""

import builtins
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import translations
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

from tests.written_logs import write_log

ROWS = 400
# Neither labels of the domain nor outputs.
LABELS = np.arange(ROWS) % 4 + 0.5
FLAGS = {"num_shards": 1, "rounding": "nearest"}


def tagged_frames() -> tuple[list[bytes], list[int]]:
    """Frames of records with the true labels, and the offset in each of another float, which may be overwritten."""
    kind = pa.float32()
    columns = {"v": pa.array(np.arange(ROWS), kind), "y": pa.array(LABELS, kind), "zzz": pa.array([-1.0] * ROWS, kind)}
    frames = [frame([one]) for one in encode_examples(pa.RecordBatch.from_pydict(columns))]
    return frames, [one.rindex(np.float32(-1).tobytes()) for one in frames]


def released_labels(read_examples: Any, outputs: Path) -> np.ndarray:
    (shard,) = (outputs / "released" / "data").iterdir()
    return read_examples(shard, {"y": float})["y"]


@pytest.mark.parametrize("label_offsets", ["\0label offsets y", "\0label offsets"])
def test_columns_of_internal_names_are_columns(job, invoke, outputs, tmp_path, read_examples, label_offsets):
    """They were taken for records that are written as they stand, with the true labels in them."""
    frames, offsets = tagged_frames()
    columns = {"y": pa.array(LABELS), "\0frames": pa.array(frames, pa.large_binary()), label_offsets: pa.array(offsets)}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    flags = {"input": tmp_path / "in.parquet", "input_format": "parquet", "output_format": "tfrecord"}
    invoke(job(**flags, **FLAGS)).ok()
    labels = released_labels(read_examples, outputs)
    assert len(labels) == ROWS
    assert not set(labels) & set(LABELS)
    (shard,) = (outputs / "released" / "data").iterdir()
    found = read_examples(shard, {"\0frames": bytes, label_offsets: int})
    assert found["\0frames"].tolist() == frames
    assert found[label_offsets].tolist() == offsets


@pytest.mark.parametrize("output_format", ["tfrecord", "parquet"])
def test_features_of_internal_names_are_features(job, invoke, outputs, tmp_path, read_examples, output_format):
    """They were a KeyError, or taken for the records themselves."""
    frames, offsets = tagged_frames()
    columns = {"\0frames": frames, "\0label offsets y": offsets, "y": pa.array(LABELS, pa.float32())}
    write_log(tmp_path / "in", columns, "tfrecord")
    flags = {"input": tmp_path / "in", "input_format": "tfrecord", "output_format": output_format}
    invoke(job(**flags, **FLAGS)).ok()
    (shard,) = (outputs / "released" / "data").iterdir()
    if output_format == "tfrecord":
        found = read_examples(shard, {"\0frames": bytes, "\0label offsets y": int, "y": float})
    else:
        table = pq.read_table(shard)
        found = {name: np.array([value[0] for value in table[name].to_pylist()], object) for name in columns}
    assert found["\0frames"].tolist() == frames
    assert found["\0label offsets y"].tolist() == offsets
    assert not set(found["y"].tolist()) & set(LABELS)


class Planted:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.labeldp_planted = True",)


@pytest.mark.parametrize("unit", [None, "user"])
def test_nothing_of_a_file_is_unpickled_where_every_stage_encodes_batches(
    job, invoke, outputs, tmp_path, monkeypatch, tree, unit
):
    """No stage is fused with another, as on clusters; the release is that of fused stages."""
    planted = pickle.dumps(Planted())
    columns = {"v": [planted] * ROWS, "user": np.arange(ROWS) % 100, "y": np.arange(ROWS) % 5}
    keys = ("labeldp.carried", "labeldp.batch", "carried", "ARROW:extension:metadata")
    table = pa.table(columns)
    fields = [field.with_metadata(dict.fromkeys(keys, planted)) for field in table.schema]
    schema = pa.schema(fields, metadata=dict.fromkeys(keys, planted))
    pq.write_table(table.cast(schema), tmp_path / "in.parquet")
    flags = {"input": tmp_path / "in.parquet", "input_format": "parquet", "unit_column": unit}
    flags["max_records_per_unit"] = None if unit is None else 2
    invoke(job(**flags)).ok()
    fused = tree(outputs / "released" / "data")
    monkeypatch.setattr(translations.Stage, "can_fuse", lambda *_: False)
    invoke(job(**flags, output=outputs / "again")).ok()
    assert tree(outputs / "again" / "data") == fused
    assert not hasattr(builtins, "labeldp_planted")
