"""Synthetic logs: their contents and reproducibility."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
