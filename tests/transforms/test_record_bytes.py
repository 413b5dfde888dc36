"""Bytes of records, which decide where batches and row groups end: of values alone, and the audit finds the same."""

import numpy as np
import pyarrow as pa
import pytest
from labeldp.audit import parquet_bytes
from labeldp.transforms.arrow_values import record_bytes

_CASES = {
    "numbers": (pa.array([1, None, 3]), [8, 8, 8]),
    "booleans": (pa.array([True, None, False]), [8, 8, 8]),
    "nulls": (pa.nulls(3), [8, 8, 8]),
    "texts": (pa.array(["a", None, "ccc"]), [9, 8, 11]),
    "categories": (pa.array(["a", None, "ccc"]).dictionary_encode(), [9, 8, 11]),
    "fixed": (pa.array([b"ab", None, b"cd"], pa.binary(2)), [10, 10, 10]),
    "lists": (pa.array([[1, 2], None, []]), [24, 8, 8]),
    "texts in lists": (pa.array([["ab"], ["c", "d"], None], pa.large_list(pa.string())), [18, 26, 8]),
    "lists of one size": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)), [24, 8, 24]),
    "structures": (pa.array([{"a": "xx", "b": 1}, None, {"a": None, "b": 2}]), [26, 24, 24]),
    "maps": (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), [33, 8, 8]),
}


@pytest.mark.parametrize("kind", _CASES)
def test_bytes_of_records(kind: str) -> None:
    column, expected = _CASES[kind]
    batch = pa.RecordBatch.from_pydict({"x": column})
    assert record_bytes(batch).tolist() == expected
    assert record_bytes(batch.slice(1, 2)).tolist() == expected[1:]
    assert record_bytes(batch, ["x"]).tolist() == [8, 8, 8]
    for start in (0, 1):
        assert np.array_equal(parquet_bytes._size_of(column.slice(start)), expected[start:])
