"""Features of TFRecords for the sample of a center: decoded for the records that may be in it, and for no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.release import center_release
from labeldp.mechanisms.release.center_release import CenterFeatures
from labeldp.transforms.batches import LabelledBatch, LabelledBatchCoder
from labeldp.transforms.center import feature_sample
from labeldp.transforms.errors import InputError
from labeldp.transforms.io.input_format import Equals, FilePart, Format, file_parts
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

RECORDS = 300
NAMES = ("f", "k", "part", "rare")


def records() -> list[bytes]:
    place = np.arange(RECORDS)
    columns = {
        "f": pa.array(place / 4, mask=place % 7 == 0),
        "id": pa.array(place + 1000),
        "k": pa.array([f"t{each}" for each in place % 5]),
        "rare": pa.array(place, mask=place != 150),
        "y": pa.array(place % 11 / 2),
    }
    return encode_examples(pa.RecordBatch.from_pydict(columns), with_nulls=False)


def written(folder: Path, records: list[bytes]) -> FilePart:
    folder.mkdir(exist_ok=True)
    path = folder / "log.tfrecord"
    path.write_bytes(frame(records))
    (part,) = file_parts([str(path)], Format("tfrecord"))
    return part


def read(part: FilePart, columns: list[str], undecoded: tuple[str, ...] = (), where: Any = None) -> list[LabelledBatch]:
    reader = FileReader(Format("tfrecord"), columns, where, "y", undecoded=undecoded)
    return list(reader.read(part))


def values(batch: LabelledBatch, names: Any) -> dict[str, Any]:
    columns = {name: batch.column(name) for name in names}
    return {name: column.to_pylist() for name, column in columns.items() if column is not None}


@pytest.mark.parametrize("columns", [[], ["id"], ["id", "part"]])
@pytest.mark.parametrize("where", [None, Equals("k", "t3"), Equals("part", "A")])
def test_kept_records_have_the_features_that_they_have_when_all_are_decoded(
    tmp_path: Path, columns: list[str], where: Any
) -> None:
    part = written(tmp_path / "part=A", records())
    (whole,), (batch,) = read(part, [*columns, *NAMES], where=where), read(part, columns, NAMES, where)
    assert batch.rows.tolist() == whole.rows.tolist()
    assert {"f", "k", "rare"}.isdisjoint(batch.batch.schema.names)
    coder = LabelledBatchCoder()
    kept = batch.rows % 10 == 3
    for each in (batch, coder.decode(coder.encode(batch))):
        found = feature_sample.with_features(each.keep(kept), NAMES)
        assert found.rows.tolist() == whole.rows[kept].tolist()
        expected = values(whole.keep(kept), [*columns, *NAMES])
        # A column in which no kept record has a value is left out.
        assert values(found, [*columns, *NAMES]) == {name: each for name, each in expected.items() if any(each)}


def test_records_that_are_not_sampled_are_not_decoded(tmp_path: Path, key: Any, monkeypatch: Any) -> None:
    for module in (feature_sample, center_release):
        monkeypatch.setattr(module, "MOST_SAMPLE", 20)
    whole = records()
    (batch,) = read(written(tmp_path, whole), [], NAMES)

    def sampled(batch: LabelledBatch) -> Any:
        stage: Any = feature_sample._Sample(CenterFeatures(NAMES), key)
        stage.setup()
        return next(iter(stage.process(batch)))

    decoded: list[np.ndarray] = []
    with_features = feature_sample.with_features

    def watched(batch: LabelledBatch, names: Any) -> LabelledBatch:
        decoded.append(batch.rows)
        return with_features(batch, names)

    monkeypatch.setattr(feature_sample, "with_features", watched)
    sample = sampled(batch)
    assert sample.records == RECORDS
    assert len(sample.words) == 20
    assert len(decoded[0]) == 20

    changed = [each if row in decoded[0] else b"no tf.Example" for row, each in enumerate(whole)]
    (damaged,) = read(written(tmp_path, changed), [], NAMES)
    assert sampled(damaged).columns.keys() == sample.columns.keys()
    changed[decoded[0][0]] = b"no tf.Example"
    (damaged,) = read(written(tmp_path, changed), [], NAMES)
    with pytest.raises(InputError, match=r"a record is not a tf\.Example"):
        sampled(damaged)


@pytest.mark.parametrize("settings", [{"columns": None}, {"columns": ["y"], "encoded": True}])
def test_undecoded_needs_columns_and_other_output(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="undecoded needs columns"):
        FileReader(Format("tfrecord"), label_column="y", undecoded=("f",), **settings)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_other_formats_read_all_columns(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"log.{format}"
    table = pa.table({"f": [1.5, 2.5], "id": [1, 2], "y": [0.0, 1.0]})
    if format == "csv":
        path.write_text("f,id,y\n1.5,1,0\n2.5,2,1\n")
    else:
        pq.write_table(table, path)
    (batch,) = FileReader(Format(format), ["id"], None, "y", undecoded=("f",)).read(FilePart(str(path), str(path)))
    assert batch.encoded is None
    assert values(batch, ["f", "id"]) == {"f": [1.5, 2.5], "id": [1, 2]}
    assert batch.column("y") is None
