"""Parquet: one schema for all files, detection of corruption, and separate reading of row groups."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms import Format, InputError, Limits, ReadRecordBatches
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers.file_reader import FileReader

SENTINEL = "SENTINEL123"


def test_metadata_may_differ_between_parquet_files(tmp_path, read_all, plain):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        pq.write_table(pa.table({"y": [1.5]}).replace_schema_metadata({"path": path}), path)
    assert plain(read_all(paths[1], "parquet", first=paths[0])) == {0: {"y": 1.5}}


def test_types_are_read_and_metadata_is_not(tmp_path, read_all):
    """Metadata of the file, of its columns, of fields within them; and the names of extension types."""
    told = {"k": SENTINEL, "PARQUET:field_id": "7"}
    ids = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [16]), pa.array([[0] * 16] * 2, pa.list_(pa.int8(), 16))
    )
    inner = pa.field("a", pa.int64(), False, told)
    kinds = {
        "list": (pa.list_(inner), pa.list_(pa.field("element", pa.int64(), False)), [[1], []]),
        "large": (pa.large_list(inner), pa.large_list(pa.field("element", pa.int64(), False)), [[1], []]),
        "fixed": (pa.list_(inner, 1), pa.list_(pa.field("element", pa.int64(), False)), [[1], [2]]),
        "view": (pa.list_view(inner), pa.list_view(pa.field("element", pa.int64(), False)), [[1], []]),
        "struct": (pa.struct([inner]), pa.struct([pa.field("a", pa.int64(), False)]), [{"a": 1}, {"a": 2}]),
        "map": (pa.map_(pa.string(), pa.field("value", pa.int64(), metadata=told)), None, [[("a", 1)], []]),
        "dictionary": (pa.dictionary(pa.int32(), pa.string(), True), None, ["a", "b"]),
        "zone": (pa.timestamp("us", "Europe/Berlin"), None, [1, 2]),
        "y": (pa.float64(), None, [1.5, 2.5]),
    }
    columns = {name: pa.array(values, kind) for name, (kind, _, values) in kinds.items()} | {"tensor": ids}
    fields = [pa.field(name, column.type, metadata=told) for name, column in columns.items()]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([*columns.values()], schema=pa.schema(fields, metadata=told)), path)
    (batch,) = read_all(str(path), "parquet", label_column="y")
    found = batch.batch
    found.validate(full=True)
    assert found.to_pydict() == {name: column.to_pylist() for name, column in columns.items()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as stream:
        stream.write_batch(found)
    content = sink.getvalue().to_pybytes()
    assert SENTINEL.encode() not in content
    assert b"field_id" not in content
    assert not [column for column in found.columns if SENTINEL in str(pa.schema([("x", column.type)]))]
    for name, (kind, plain, _) in kinds.items():
        assert found.schema.field(name).type == (plain or kind)
    assert found.schema.field("tensor").type == pa.list_(pa.int8(), 16)


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_no_metadata_is_unpickled_where_batches_are_shuffled(tmp_path, run, records_of):
    """The key is that under which an earlier coder kept pickled values of its own."""
    path, ran = tmp_path / "a.parquet", tmp_path / "ran"
    planted = {"labeldp.carried": pickle.dumps(Planted(ran)), "labeldp.batch": "{}"}
    pq.write_table(pa.table({"y": [1.5, 2.5]}).replace_schema_metadata(planted), path)
    read = ReadRecordBatches(str(path), Format("parquet"), label_column="y")
    found = run(lambda p: {"r": p | read | beam.Reshuffle()})["r"]
    assert sorted(record["y"] for record in records_of(found).values()) == [1.5, 2.5]
    assert not ran.exists()


@pytest.mark.parametrize("values", [0, 4])
def test_a_column_with_fewer_values_than_records(tmp_path, values, read_all):
    """Arrow ends the whole file at the first column that ends, and reports no error."""
    path = tmp_path / "a.parquet"
    table = pa.table({"f": list(range(12)), "y": [1.5] * 12})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    content = bytearray(path.read_bytes())
    # The header of the first page: 12 values, as a zigzag varint after its tag.
    content[content.index(b"\x15\x18", 4) + 1] = 2 * values
    path.write_bytes(content)
    assert pq.ParquetFile(path).metadata.num_rows == 12
    with pytest.raises(InputError, match="the Parquet file is corrupt"):
        read_all(str(path), "parquet")


def test_a_footer_with_other_row_groups_than_records(tmp_path, read_all):
    """Arrow reads the row groups that there are, and reports no error."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"y": [1.5] * 7_777}), path, row_group_size=5_000)
    content = path.read_bytes()
    # The number of records in the footer, as a zigzag varint after its tag.
    records = b"\x16\xc2\x79"
    assert content.count(records) == 1
    path.write_bytes(content.replace(records, b"\x16\xc4\x79"))
    assert (pq.ParquetFile(path).metadata.num_rows, pq.read_table(path).num_rows) == (7_778, 7_777)
    with pytest.raises(InputError, match="not a Parquet file, or damaged"):
        read_all(str(path), "parquet")


def test_a_name_that_is_no_text(tmp_path, write, read_all):
    path = write(tmp_path / "a", "parquet", {"y": [1.0], "named": [2.0]})
    Path(path).write_bytes(Path(path).read_bytes().replace(b"named", b"\x80amed"))
    with pytest.raises(InputError, match="not a Parquet file, or damaged"):
        read_all(path, "parquet")


def test_a_parquet_file_with_a_hole_in_it(tmp_path, write, read_all):
    path = write(tmp_path / "a", "parquet", {"y": [float(i) for i in range(5_000)]})
    content = bytearray(Path(path).read_bytes())
    content[4:2_000] = bytes(1_996)
    Path(path).write_bytes(bytes(content))
    with pytest.raises(InputError, match="the Parquet file is corrupt"):
        read_all(path, "parquet")


# Of as many parts as batches.
IN_PARTS = Format("parquet", limits=Limits(part_values=1))


def grouped(folder: Path, name: str, sizes: Sequence[int], first: int = 0) -> str:
    """A Parquet file whose row groups have these sizes."""
    path, schema = str(folder / name), pa.schema([("f", pa.int64()), ("y", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            numbers = np.arange(first, first + size)
            writer.write_table(pa.table({"f": numbers, "y": numbers / 8}, schema))
            first += size
    return path


@pytest.mark.parametrize(("values", "most", "parts"), [(14, 64, 60), (200, 64, 9), (14, 4, 4), (1 << 30, 64, 1)])
@pytest.mark.parametrize("sizes", [[100] * 9, [900], [1] * 90 + [810], [13, 1, 400, 486], [0, 450, 0, 450, 0]], ids=str)
def test_parts_tile_their_file_with_the_same_batches_whatever_the_row_groups(
    tmp_path, sizes, values, most, parts, plain, assert_tiles
):
    """Writers cut row groups by bytes, so their sizes can depend on labels."""
    path = grouped(tmp_path, "a", sizes)
    reader = FileReader(Format("parquet", limits=Limits(batch_rows=7, part_values=values, parts=most)))
    split = list(reader.split(FilePart(path, path)))
    assert [(part.number, part.parts) for part in split] == [(number, parts) for number in range(parts)]
    found = [batch for part in split for batch in reader.read(part)]
    assert_tiles(found, path, 900)
    assert plain(found) == {row: {"f": row, "y": row / 8} for row in range(900)}
    assert [batch.batch.num_rows for batch in found] == [7] * 128 + [4]


@pytest.mark.parametrize("sizes", [[], [0], [0, 5, 0], [3, 0, 0, 4]], ids=str)
def test_row_groups_without_a_row(tmp_path, run, sizes, plain):
    path = grouped(tmp_path, "a", sizes)
    found = run(lambda p: {"out": p | ReadRecordBatches(path, IN_PARTS)})["out"]
    assert plain(found) == {row: {"f": row, "y": row / 8} for row in range(sum(sizes))}


def test_parts_are_read_in_parallel_and_tile_their_file(tmp_path, run, plain, assert_tiles):
    path = grouped(tmp_path, "a", [30_000] * 2)
    found = run(lambda p: {"out": p | ReadRecordBatches(path, IN_PARTS)})["out"]
    found.sort(key=lambda batch: batch.start)
    assert_tiles(found, path, 60_000)
    assert plain(found) == {row: {"f": row, "y": row / 8} for row in range(60_000)}


def test_every_part_of_a_file_is_held_to_the_schema_of_the_first_file(tmp_path, failure):
    one, two = grouped(tmp_path, "a", [10, 10]), str(tmp_path / "b")
    pq.write_table(pa.table({"f": ["x", "y"], "y": [1.0, 2.0]}), two, row_group_size=1)
    text = failure(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*", IN_PARTS)})
    assert f"{two}: column 'f' holds string, but int64 in {one}" in text


def test_any_file_is_read_or_refused(fuzzed):
    fuzzed("parquet")


def test_columns_in_another_order_are_read_by_name(tmp_path, write, read_all):
    one = write(tmp_path / "a", "parquet", {"id": [1], "y": [1.5]})
    two = write(tmp_path / "b", "parquet", {"y": [2.5], "id": [2]})
    (batch,) = read_all(two, "parquet", first=one)
    assert list(batch.batch.to_pydict().items()) == [("id", [2]), ("y", [2.5])]


def test_a_flipped_byte_in_a_page_with_a_checksum(tmp_path, read_all):
    path = tmp_path / "a.parquet"
    table = pa.table({"y": np.arange(1000.0)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(500).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet: the Parquet file is corrupt"):
        read_all(str(path), "parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
def test_equal_long_texts_are_expanded_in_slices(tmp_path):
    """A file of some kilobytes must not take memory for all of its texts at once."""
    path = tmp_path / "a.parquet"
    rows, size = 600, 1 << 20
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["a" * size])
    pq.write_table(pa.table({"x": texts, "y": [1.0] * rows}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 16
    # Resource usage would count the peak of the parent of this process, too.
    script = (
        "import re, sys\n"
        "from labeldp.transforms import Format\n"
        "from labeldp.transforms.io.input_format import FilePart\n"
        "from labeldp.transforms.readers.file_reader import FileReader\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
        "before, part = peak(), FilePart(sys.argv[1], sys.argv[1])\n"
        "reader = FileReader(Format('parquet'), label_column='y')\n"
        "print(sum(batch.batch.num_rows for batch in reader.read(part)), peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    records, kibibytes = map(int, done.stdout.split())
    assert records == rows
    assert kibibytes < rows * size >> 10
