"""Synthetic logs: their contents and reproducibility."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

RECORDS, FILES = 1000, 3


@pytest.fixture
def write(benchmark: Any, tmp_path: Path) -> Any:
    """(format, seed, order) -> paths of the files of a log."""

    def log(format: str, seed: int = 1, order: str = "mixed") -> list[Path]:
        folder = tmp_path / f"{format}-{seed}-{order}-{len(list(tmp_path.iterdir()))}"
        benchmark("synthetic").write_log(folder, format, RECORDS, FILES, seed, order)
        return sorted(folder.iterdir())

    return log


def contents(paths: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


@pytest.mark.parametrize("format", ["tfrecord", "parquet"])
def test_a_seed_is_a_log(write: Any, format: str) -> None:
    first = write(format)

    assert [path.name for path in first] == [f"part-{number:05d}.{format}" for number in range(FILES)]
    assert contents(first) == contents(write(format))
    assert not set(contents(first)) & set(contents(write(format, seed=2)))


def test_parquet_columns(write: Any) -> None:
    table = pa.concat_tables([pq.read_table(path) for path in write("parquet")])
    labels = table["label"].to_numpy()

    assert table["id"].to_pylist() == list(range(RECORDS))
    assert table.num_columns == 10
    assert 0 <= labels.min() < 30 < 150 < labels.max() <= 400
    assert len(np.unique(labels.round())) > 50


def test_tfrecords_hold_the_same(write: Any) -> None:
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    table = pa.concat_tables([pq.read_table(path) for path in write("parquet")])
    for order in ("mixed", "fixed"):
        paths = [str(path) for path in write("tfrecord", order=order)]
        records = list(tensorflow.data.TFRecordDataset(paths).as_numpy_iterator())
        features = [tensorflow.train.Example.FromString(record).features.feature for record in records]

        assert [set(one) for one in features] == [{"id", "floats", "label"}] * RECORDS
        assert [one["id"].int64_list.value[0] for one in features] == table["id"].to_pylist()
        assert [one["label"].float_list.value[0] for one in features] == table["label"].to_pylist()
        floats = np.array([one["floats"].float_list.value for one in features])
        assert np.array_equal(floats, np.stack([table[f"float_{place}"] for place in range(8)], axis=1))
        assert len({first_feature(record) for record in records}) == (3 if order == "mixed" else 1)


def first_feature(record: bytes) -> bytes:
    return min((b"\n\x02id", b"\n\x06floats", b"\n\x05label"), key=record.index)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("order", ["mixed", "fixed"])
def test_wide_tfrecords(benchmark: Any, tmp_path: Path, sequence: bool, order: str) -> None:
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    benchmark("synthetic").write_wide(tmp_path / "log", "tfrecord", 300, 2, order=order, sequence=sequence)
    paths = sorted(map(str, (tmp_path / "log").iterdir()))
    records = list(tensorflow.data.TFRecordDataset(paths).as_numpy_iterator())

    assert len(paths) == 2
    assert len(records) == 300
    assert abs(np.mean([len(record) for record in records]) - 735 - 820 * sequence) < 30
    assert len({len(record) for record in records}) > 5
    examples = [tensorflow.train.Example.FromString(record) for record in records]
    kinds = [(13, "int64_list", 1), (26, "bytes_list", 1), (1, "float_list", 1), (sequence, "float_list", 200)]
    for one in examples:
        features = one.features.feature.values()
        found = [(kind := feature.WhichOneof("kind"), len(getattr(feature, kind).value)) for feature in features]
        assert sorted(found) == sorted((kind, size) for count, kind, size in kinds for _ in range(count))
        assert 0 <= one.features.feature["label"].float_list.value[0] <= 400
    names = list(examples[0].features.feature)
    keys = {name: b"\x0a" + bytes([len(name)]) + name.encode() for name in names}
    orders = {tuple(sorted(names, key=lambda name: record.index(keys[name]))) for record in records}
    assert len(orders) == (300 if order == "mixed" else 1)


@pytest.mark.parametrize(("format", "columns"), [("parquet", 300), ("csv", 40)])
def test_wide_columns(benchmark: Any, tmp_path: Path, format: str, columns: int) -> None:
    benchmark("synthetic").write_wide(tmp_path / "log", format, 100, 2)
    tables = [
        pq.read_table(path) if format == "parquet" else pa_csv.read_csv(path)
        for path in sorted((tmp_path / "log").iterdir())
    ]

    assert [(table.num_rows, table.num_columns) for table in tables] == [(50, columns)] * 2
