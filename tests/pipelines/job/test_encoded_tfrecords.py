"""A job from TFRecord to TFRecord, checked with TensorFlow: only labels change, and no hidden raw label remains."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.pipelines.spec import input_spec
from labeldp.transforms import Format, Limits
from labeldp.transforms.io.input_format import BATCH_ROWS
from labeldp.transforms.shards import shard_writer
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

LABELS = 8
ROWS = 1200
SHARDS = 3
DOMAIN = {"label": "y", "label_min": 0, "label_max": LABELS - 1, "label_step": 1, "epsilon": 3, "mechanism": "rr"}
# A rare number that cannot be an output; it is the hidden second label of some records.
HIDDEN = struct.pack("<f", 48613.5)


def feature(kind: str, *values: Any) -> Any:
    lists = {"int64": tf.train.Int64List, "float": tf.train.FloatList, "bytes": tf.train.BytesList}
    return tf.train.Feature(**{f"{kind}_list": lists[kind](value=values)})


def example(**features: Any) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def features_of(record: bytes) -> dict[str, bytes]:
    found = tf.train.Example.FromString(record).features.feature
    return {name: one.SerializeToString(deterministic=True) for name, one in found.items() if one.WhichOneof("kind")}


def write(path: Path, records: list[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


def records_in(folder: Path) -> list[bytes]:
    found = []
    for path in sorted((folder / "data").iterdir()):
        kind = "GZIP" if path.suffix == ".gz" else ""
        found += list(tf.data.TFRecordDataset(str(path), kind).as_numpy_iterator())
    return found


def label_of(record: bytes) -> float:
    (value,) = tf.train.Example.FromString(record).features.feature["y"].float_list.value
    return value


@dataclass(frozen=True)
class Log:
    """Records by id, and the glob of their files."""

    records: dict[int, bytes]
    pattern: str

    @property
    def usable(self) -> set[int]:
        """Ids of the records with a label."""
        return {row for row in self.records if row % 50 != 7}


def record_of(row: int, kind: str) -> bytes:
    """A record. Most have all features, one in fifty has no label; texts, lists and integers vary in length."""
    y = row % LABELS if kind == "int64" else float(row % LABELS)
    features = {
        "id": feature("int64", row),
        "group": feature("int64", row % 2),
        "x": feature("float", row / 3, -1.5),
        "t": feature("bytes", *[b"word" * (row % 5)] * (row % 3)),
        "n": feature("int64", *range(-(row % 4), 0)),
    }
    if row % 50 != 7:
        features["y"] = feature(kind, y)
    record = example(**features)
    if row % 40 == 3:
        # Parsers merge two concatenated messages: the first label is overwritten but still in the bytes.
        hidden = feature("float", 48613.5) if kind == "float" else feature("int64", 48613)
        record = example(y=hidden) + record
    return record + b"\x7a\x04" + HIDDEN if row % 40 == 9 else record


@pytest.fixture(scope="session", params=["float", "int64"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two files; the second one is compressed."""
    folder = tmp_path_factory.mktemp("log")
    records = {row: record_of(row, request.param) for row in range(ROWS)}
    rows = list(records.values())
    write(folder / "a.tfrecord", rows[: ROWS // 2])
    write(folder / "b.tfrecord.gz", rows[ROWS // 2 :], "GZIP")
    return Log(records, f"{folder}/*.tfrecord*")


@pytest.fixture(scope="session")
def release(
    log: Log, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Function (runner=invoke, flag=value, ...) -> the output folder of a job over the log."""

    def run(runner: Any = invoke, **flags: Any) -> Path:
        output = tmp_path_factory.mktemp("release") / "released"
        standard = {
            **DOMAIN,
            "input": log.pattern,
            "input_format": "tfrecord",
            "output": output,
            "num_shards": SHARDS,
            "noise_key_file": key_file,
            "max_unusable_fraction": 0.1,
        }
        runner(command("privatize", standard | flags)).ok()
        return output

    return run


@pytest.fixture(scope="session")
def released(release: Any) -> Path:
    """The release as TFRecord."""
    return release()


def by_id(records: list[bytes]) -> dict[int, bytes]:
    found = {
        tf.train.Example.FromString(record).features.feature["id"].int64_list.value[0]: record for record in records
    }
    assert len(found) == len(records)
    return found


@pytest.mark.xdist_group("tfrecord_through")
class TestThrough:
    """A log with float or integer labels; some records hide a second label, some have no label."""

    def test_every_record_with_a_label_comes_out_and_only_its_label_changes(self, log: Log, released: Path) -> None:
        came_out = by_id(records_in(released))

        assert set(came_out) == log.usable
        for row, record in came_out.items():
            expected = features_of(log.records[row])
            assert features_of(record) == expected | {"y": feature("float", label_of(record)).SerializeToString()}

    def test_nothing_is_in_a_record_that_a_parser_does_not_see(self, released: Path) -> None:
        for record in records_in(released):
            assert len(record) == tf.train.Example.FromString(record).ByteSize()
            assert HIDDEN not in record


def test_shards_of_a_large_file_are_written_once(
    command: Any, invoke: Any, outputs: Path, key_file: Path, tree: Any, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Its parts are whole shards, so each shard is its only segment, renamed; and the parts do not show."""
    renamed: list[str] = []

    def watched(pairs: list[tuple[str, str]]) -> None:
        renamed.extend(final for _, final in pairs)
        move(pairs)

    move = shard_writer.move_files
    monkeypatch.setattr(shard_writer, "move_files", watched)
    rows, log = 3 * BATCH_ROWS + 5, tmp_path / "large.tfrecord"
    table = pa.RecordBatch.from_pydict({"x": np.arange(rows), "y": np.arange(rows) % LABELS})
    log.write_bytes(frame(encode_examples(table)))
    flags = DOMAIN | {"input": log, "input_format": "tfrecord", "noise_key_file": key_file, "num_shards": 9}
    released = []
    for name, rows_of_part in (("whole", 1 << 20), ("parts", BATCH_ROWS)):
        monkeypatch.setattr(input_spec, "Format", partial(Format, limits=Limits(part_rows=rows_of_part)))
        for output_format in ("tfrecord", "parquet"):
            own = {"output": outputs / f"{name}_{output_format}", "output_format": output_format}
            invoke(command("privatize", flags | own | {"direct_num_workers": 2})).ok()
            released.append(tree(own["output"] / "data"))
    assert released[:2] == released[2:]
    assert len(set(renamed)) == 4 * 9
