"""Fixtures of the reader tests: files of each format, and the records of the batches read from them."""

import dataclasses
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def columns() -> dict[str, list[Any]]:
    """Columns of fifty records, by name."""
    return {"id": list(range(100, 150)), "kind": ["red", "green"] * 25, "y": [i / 4 for i in range(50)]}


@pytest.fixture(scope="session")
def write() -> Callable[[Path, str, dict[str, list[Any]]], str]:
    """(path, format, columns by name) -> the path of that file; gzip for a name in .gz."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame
    from pyarrow import orc

    def make(path: Path, format: str, columns: dict[str, list[Any]]) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        if format == "parquet":
            pq.write_table(pa.table(columns), str(path))
            return str(path)
        if format == "orc":
            orc.write_table(pa.table(columns), str(path))
            return str(path)
        if format == "csv":
            rows = [columns, *zip(*columns.values(), strict=True)]
            content = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
        else:
            content = frame(encode_examples(pa.RecordBatch.from_pydict(columns)))
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return str(path)

    return make


@pytest.fixture(scope="session")
def read_all() -> Callable[..., list[Any]]:
    """(path, format, option=value, ...) -> all batches of that file. first: another file that determines the schema.

    limits: sizes of the pieces that it is read in.
    """
    from labeldp.transforms import Format
    from labeldp.transforms.io.input_format import FilePart
    from labeldp.transforms.readers.file_reader import FileReader

    def read(path: str, format: str | Format, **options: Any) -> list[Any]:
        format = format if isinstance(format, Format) else Format(format)
        format = dataclasses.replace(format, limits=options.pop("limits", format.limits))
        part = FilePart(path, options.pop("first", path))
        return list(FileReader(format, **options).read(part))

    return read


@pytest.fixture(scope="session")
def plain() -> Callable[[list[Any]], dict[int, dict[str, Any]]]:
    """Batches -> {row: the record's single values}, text as text."""
    import numpy as np
    from labeldp.transforms.arrow_values import single_values

    def records_of(batches: list[Any]) -> dict[int, dict[str, Any]]:
        records: dict[int, dict[str, Any]] = {}
        for batch in batches:
            columns = {}
            for name in batch.batch.schema.names:
                values, present = single_values(batch.column(name))
                found = np.full(batch.batch.num_rows, None, object)
                found[present] = [v.decode() if isinstance(v, bytes) else v for v in values.to_pylist()]
                columns[name] = found.tolist()
            for place, row in enumerate(batch.rows.tolist()):
                records[row] = {name: column[place] for name, column in columns.items()}
        return records

    return records_of


@pytest.fixture(scope="session")
def assert_tiles() -> Callable[[list[Any], str, int], None]:
    """(batches, path, rows): asserts that the batches cover all rows of the file in order and without gaps."""

    def check(batches: list[Any], path: str, rows: int) -> None:
        assert [batch.start for batch in batches] == [0, *(batch.stop for batch in batches[:-1])]
        assert batches[-1].stop == rows
        for batch in batches:
            assert batch.source == path
            assert batch.rows.tolist() == sorted(set(batch.rows.tolist()))
            assert all(batch.start <= row < batch.stop for row in batch.rows.tolist())
            assert len(batch.rows) == batch.batch.num_rows

    return check


@pytest.fixture(scope="session")
def cut_parts() -> Callable[..., list[Any]]:
    """(path, number of parts, first row of each further shard) -> the parts of that file, whose reader knows shards."""
    from labeldp.transforms.io.input_format import FilePart

    def parts_of(path: str, parts: int, cuts: tuple[int, ...]) -> list[FilePart]:
        return [FilePart(path, path, number=number, parts=parts, cuts=cuts) for number in range(parts)]

    return parts_of


@pytest.fixture
def iceberg(tmp_path: Path, new_catalog: Any) -> Any:
    """A catalog cat of pyiceberg, with the namespace n."""
    catalog = new_catalog("cat", tmp_path)
    catalog.create_namespace("n")
    return catalog


@pytest.fixture
def delta(tmp_path: Path) -> Callable[..., str]:
    """Function (table, ...) that appends to a Delta table, and gives its folder."""
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "events")

    def append(table: Any, **options: Any) -> str:
        deltalake.write_deltalake(folder, table, mode="append", schema_mode="merge", **options)
        return folder

    return append


@pytest.fixture(scope="session")
def snapshot() -> Callable[[str], Any]:
    """(URL of a table) -> its snapshot."""
    from labeldp.transforms.readers.table_snapshot import TableUrl

    def find(text: str) -> Any:
        url = TableUrl.parse(text)
        if url.format == "iceberg":
            from labeldp.transforms.readers.iceberg_table import iceberg_snapshot

            return iceberg_snapshot(url)
        from labeldp.transforms.readers.delta_table import delta_snapshot

        return delta_snapshot(url)

    return find


@pytest.fixture(scope="session")
def records() -> Callable[..., list[dict[str, Any]]]:
    """(snapshot, columns=None, label="y") -> records of all files, in order; all batches have one schema."""
    from labeldp.transforms.io.input_format import Format
    from labeldp.transforms.readers.file_reader import FileReader

    def read(found: Any, columns: list[str] | None = None, label: str = "y") -> list[dict[str, Any]]:
        reader = FileReader(Format("parquet", partitions=False, table=found.columns), columns, label_column=label)
        batches = [batch for part in found.parts() for batch in reader.read(part)]
        assert len({batch.batch.schema for batch in batches}) <= 1
        assert all(batch.source.startswith(f"{found.format}:{found.table_id}/") for batch in batches)
        return [row for batch in batches for row in batch.batch.to_pylist()]

    return read
