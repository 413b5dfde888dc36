"""Snapshots of Iceberg and Delta tables that their own libraries write, and their records as labeldp reads them."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms import InputError
from labeldp.transforms.readers.table_snapshot import TableUrl, is_table

FIRST = pa.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3], "m": ["a", "a", "b c"]})


def rows(*columns: list[Any], names: str) -> list[dict[str, Any]]:
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def test_a_pinned_version_of_a_delta_table_does_not_change(delta, snapshot, records):
    folder = delta(FIRST)
    before = snapshot(f"delta://{folder}@0")
    assert snapshot(f"delta://{folder}") == before
    wanted = records(before)
    assert wanted == FIRST.to_pylist()
    delta(FIRST.slice(1))
    assert snapshot(f"delta://{folder}@0") == before
    assert (snapshot(f"delta://{folder}").snapshot, records(before)) == (1, wanted)
    assert len(records(snapshot(f"delta://{folder}"))) == 5


def test_a_glob_would_read_what_was_deleted_from_a_delta_table(delta, snapshot, records):
    from deltalake import DeltaTable

    folder = delta(FIRST)
    DeltaTable(folder).delete("y = 2")
    assert [row["y"] for row in records(snapshot(f"delta://{folder}"))] == [1, 3]
    assert [row["y"] for row in records(snapshot(f"delta://{folder}@0"))] == [1, 2, 3]
    assert len(list(Path(folder).glob("*.parquet"))) == 2


def test_delta_partitions_are_columns_in_the_order_of_the_table(delta, snapshot, records):
    folder = delta(FIRST.append_column("n", pa.array([1, 2, None], pa.int32())), partition_by=["m", "n"])
    found = snapshot(f"delta://{folder}")
    assert found.columns.schema.names == ["x", "y", "m", "n"]
    assert found.ordered_by == {"m", "n"}
    wanted = rows([1.0, 2.0, 3.0], [1, 2, 3], ["a", "a", "b c"], [1, 2, None], names="xymn")
    assert sorted(records(found), key=lambda row: row["y"]) == wanted
    assert {row["m"] for row in records(found, ["m"])} == {"a", "b c"}
    assert len(records(found, ["n"])) == 3


def test_files_before_a_delta_column_was_added_have_nulls(delta, snapshot, records):
    delta(FIRST.slice(0, 1))
    folder = delta(FIRST.slice(1, 1).append_column("z", pa.array([7])))
    found = sorted(records(snapshot(f"delta://{folder}")), key=lambda row: row["y"])
    assert found == rows([1.0, 2.0], [1, 2], ["a", "a"], [None, 7], names="xymz")
    assert [row["z"] for row in records(snapshot(f"delta://{folder}"), ["z"])].count(None) == 1
    # A label, too: which records have one is public.
    assert {row["z"] for row in records(snapshot(f"delta://{folder}"), ["z"], label="z")} == {None, 7}


def test_iceberg_columns_are_found_by_field_id(iceberg, snapshot, records):
    from pyiceberg.types import DoubleType, LongType

    table = iceberg.create_table("n.t", pa.schema([("x", pa.float32()), ("y", pa.int32()), ("m", pa.string())]))
    table.append(FIRST.cast(pa.schema([("x", pa.float32()), ("y", pa.int32()), ("m", pa.string())])))
    old = table.current_snapshot().snapshot_id
    with table.update_schema() as change:
        # The names of both columns change places, so a reader by name would mix them up.
        change.rename_column("y", "other")
        change.rename_column("m", "label")
    with table.update_schema() as change:
        change.rename_column("other", "m")
        change.add_column("z", LongType())
        change.update_column("x", DoubleType())
    with table.update_schema() as change:
        change.rename_column("label", "y")
        change.update_column("m", LongType())
    found = snapshot("iceberg://cat/n.t")
    assert found.columns.schema.types == [pa.float64(), pa.int64(), pa.string(), pa.int64()]
    wanted = rows([1.0, 2.0, 3.0], [1, 2, 3], ["a", "a", "b c"], [None] * 3, names="xmyz")
    assert records(found, label="m") == wanted
    assert found.schema_id != snapshot(f"iceberg://cat/n.t@{old}").schema_id
    assert records(snapshot(f"iceberg://cat/n.t@{old}")) == FIRST.to_pylist()


def test_a_dropped_iceberg_column_that_is_added_again_is_another_one(iceberg, snapshot, records):
    from pyiceberg.types import DoubleType

    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    with table.update_schema() as change:
        change.delete_column("x")
    with table.update_schema() as change:
        change.add_column("x", DoubleType())
    assert [row["x"] for row in records(snapshot("iceberg://cat/n.t"))] == [None] * 3


def test_a_pinned_snapshot_of_an_iceberg_table_does_not_change(iceberg, snapshot, records):
    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    before = snapshot("iceberg://cat/n.t")
    table.append(FIRST.slice(1))
    assert snapshot(before.url) == before
    assert (records(before), len(records(snapshot("iceberg://cat/n.t")))) == (FIRST.to_pylist(), 5)
    table.overwrite(FIRST.slice(2))
    assert records(snapshot("iceberg://cat/n.t")) == FIRST.slice(2).to_pylist()
    assert records(snapshot(before.url)) == FIRST.to_pylist()


def test_partitions_of_iceberg_tables_in_the_files_and_beside_them(iceberg, tmp_path, snapshot, records):
    table = iceberg.create_table("n.t", FIRST.schema)
    with table.update_spec() as change:
        change.add_identity("m")
        change.add_identity("y")
    table.append(FIRST)
    found = snapshot("iceberg://cat/n.t")
    assert found.ordered_by == {"m", "y"}
    assert sorted(records(found), key=lambda row: row["y"]) == FIRST.to_pylist()
    # Files of other writers may lack the columns that they are divided by: the table has them.
    for part in found.parts():
        pq.write_table(pq.read_table(part.path, partitioning=None).drop_columns(["m"]), part.path)
    assert sorted(records(found), key=lambda row: row["y"]) == FIRST.to_pylist()


def test_a_sorted_iceberg_table_is_ordered_by_the_column(iceberg, snapshot):
    from pyiceberg.transforms import IdentityTransform

    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    assert not snapshot("iceberg://cat/n.t").ordered_by
    with table.update_sort_order() as change:
        change.asc("y", IdentityTransform())
    assert snapshot("iceberg://cat/n.t").ordered_by == {"y"}


def test_files_without_field_ids_are_read_by_the_names_that_the_table_states(iceberg, tmp_path, snapshot, records):
    table = iceberg.create_table("n.t", FIRST.schema)
    path = tmp_path / "warehouse" / "n" / "t" / "data" / "other.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(FIRST, path)
    table.add_files([f"file://{path}"])
    with table.update_schema() as change:
        change.rename_column("x", "renamed")
    found = snapshot("iceberg://cat/n.t")
    assert records(found) == FIRST.rename_columns(["renamed", "y", "m"]).to_pylist()
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(InputError, match="no field ids"):
        records(snapshot("iceberg://cat/n.t"))


def test_times_nested_columns_and_categories(iceberg, delta, snapshot, records):
    schema = pa.schema(
        [
            ("y", pa.int64()),
            ("t", pa.timestamp("us", tz="UTC")),
            ("l", pa.list_(pa.int64())),
            ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("d", pa.decimal128(9, 2)),
        ]
    )
    columns = [
        [1],
        [datetime.datetime(2024, 1, 31, tzinfo=datetime.timezone.utc)],
        [[1, None]],
        [{"a": 1, "b": "x"}],
        [None],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    iceberg.create_table("n.t", schema).append(table)
    folder = delta(table)
    for url in ("iceberg://cat/n.t", f"delta://{folder}"):
        assert records(snapshot(url)) == table.to_pylist()


def test_changed_fields_within_an_iceberg_column_are_refused(iceberg, snapshot, records):
    from pyiceberg.types import LongType

    schema = pa.schema([("y", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    table = iceberg.create_table("n.t", schema)
    table.append(pa.table({"y": [1], "s": [{"a": 1}]}, schema))
    with table.update_schema() as change:
        change.add_column(("s", "b"), LongType())
    found = snapshot("iceberg://cat/n.t")
    assert records(found, ["y"]) == [{"y": 1}]
    with pytest.raises(InputError, match="column 's' has other fields within it"):
        records(found)


def test_a_file_that_is_gone_is_an_error(delta, snapshot, records):
    found = snapshot(f"delta://{delta(FIRST)}")
    (part,) = found.parts()
    Path(part.path).unlink()
    with pytest.raises(InputError, match=r"part-.*cannot be opened.*snapshot.*expired"):
        records(found)


def test_what_is_no_table_or_snapshot_is_named(iceberg, delta, tmp_path, snapshot):
    table = iceberg.create_table("n.t", FIRST.schema)
    folder = delta(FIRST)
    for text, problem in [
        ("iceberg://cat/n.t", "has no data yet"),
        ("iceberg://cat/n.t@1", "is no snapshot of the table"),
        ("iceberg://cat/n.u", "the catalog cat has no table n.u"),
        ("iceberg://cat/o.u", "the catalog cat has no table o.u"),
        ("iceberg://other/n.t", "there is no catalog other"),
        (f"delta://{tmp_path}", "there is no Delta table"),
        (f"delta://{folder}@7", "that version 7 is still there"),
        ("iceberg://cat/t", "is not of the form"),
        ("iceberg://cat", "is not of the form"),
        ("delta://", "is not of the form"),
        (f"delta://{folder}@x", "a snapshot is named by its number"),
        (f"delta://{folder}@{1 << 63}", "a snapshot is named by its number"),
    ]:
        with pytest.raises(InputError, match=problem):
            snapshot(text)
    assert table.current_snapshot() is None


def test_urls() -> None:
    assert TableUrl.parse("delta:///a@b/c@12") == TableUrl("delta", "/a@b/c", 12)
    assert TableUrl.parse("delta://s3://bucket/t/") == TableUrl("delta", "s3://bucket/t")
    assert TableUrl.parse("iceberg://cat/a.b.t@5") == TableUrl("iceberg", "cat/a.b.t", 5)
    assert TableUrl.parse("delta://t").table == f"{Path.cwd()}/t"
    assert is_table("delta://x")
    assert not is_table("s3://x")
