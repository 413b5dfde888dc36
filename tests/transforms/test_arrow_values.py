"""Levels of a pandas index among the columns of a schema."""

import pandas as pd
import pyarrow as pa
import pytest
from labeldp.transforms.arrow_values import index_levels


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (pd.RangeIndex(2, name="y"), {}),
        (pd.Index([1, 2]), {"__index_level_0__": "__index_level_0__"}),
        (pd.Index([1, 2], name="user"), {"user": "user"}),
        (pd.Index([1, 2], name="y"), {"__index_level_0__": "y"}),
        (
            pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["user", None]),
            {"user": "user", "__index_level_1__": "__index_level_1__"},
        ),
    ],
)
def test_levels_of_pandas(index: pd.Index, expected: dict[str, str]) -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": [3, 4]}, index=index)
    assert index_levels(pa.Table.from_pandas(frame).schema) == expected


@pytest.mark.parametrize("metadata", [b"", b"[]", b'{"index_columns": 3}', b'{"index_columns": [{}]}', b"[" * 100_000])
def test_levels_are_found_by_name_where_metadata_is_not_that_of_pandas(metadata: bytes) -> None:
    schema = pa.schema({"x": pa.int64(), "__index_level_0__": pa.int64()}, {"pandas": metadata})
    assert index_levels(schema) == {"__index_level_0__": "__index_level_0__"}
