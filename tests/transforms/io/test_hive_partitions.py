"""Partition columns: as pyarrow.dataset infers them but for zeros, in every format, and never the label."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import Equals, Format, InputError, ReadRecordBatches
from labeldp.transforms.io.hive_partitions import OutputPartitions, find_partitions, folder_of
from labeldp.transforms.io.input_format import file_parts
from labeldp.transforms.readers.file_reader import FileReader

FORMATS = ["tfrecord", "parquet", "csv"]
PADDED = ["02", "-0", "-007", "00"]
VALUES = ["1", "0", "-7", "2147483647", "2147483648", "-2147483649", "1.5", "2024-01-31", "", "a", "a+b", "b=c",
          "%20x", "%C3%A9", "+3", " 3", "true", "٣", "1e3", "__HIVE_DEFAULT_PARTITION__"]  # fmt: skip


def values_of(paths: list[str]) -> list[dict[str, tuple[Any, str]]]:
    return [{p.name: (p.value, str(p.type)) for p in own} for own in find_partitions(paths)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)), min_size=1, max_size=4, unique=True))
def test_types_and_values_are_those_of_pyarrow(tmp_path_factory: pytest.TempPathFactory, folders):
    """pyarrow refuses a column without any value; here it is text."""
    root = tmp_path_factory.mktemp("hive")
    for a, b in folders:
        path = root / f"a={a}" / f"b%5F={b}" / "x.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"f": [1.0]}), str(path))
    paths = sorted(map(str, root.rglob("*.parquet")))
    found = values_of([path[len(str(root)) :] for path in paths])
    if any(all(own[name][0] is None for own in found) for name in ("a", "b_")):
        assert all(own[name][1] == "string" for own in found for name in ("a", "b_") if own[name][0] is None)
        return
    expected = ds.dataset(str(root), partitioning="hive")
    assert expected.schema.names == ["f", "a", "b_"]
    for fragment in expected.get_fragments():
        table = expected.filter(fragment.partition_expression).to_table()
        own = found[paths.index(fragment.path)]
        assert own == {name: (table[name][0].as_py(), str(table[name].type)) for name in ("a", "b_")}


@given(st.lists(st.sampled_from([*VALUES, *PADDED]), min_size=1, max_size=4, unique=True))
def test_no_two_texts_become_one_value(texts):
    (values,) = zip(*(own.values() for own in values_of([f"/x/m={text}/a" for text in texts])), strict=True)
    assert len({value for value, _ in values}) == len(texts)
    assert not {*texts} & {*PADDED} or {kind for _, kind in values} == {"string"}


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["/x/m=1/a", "/x/a"], r"/x/a: its folders give the partition columns none, but those of /x/m=1/a give 'm'"),
        (["/x/m=1/k=1/a", "/x/k=1/m=1/a"], r"give the partition columns 'k', 'm', but those of"),
        (["/x/m=1/m=2/a"], r"/x/m=1/m=2/a: two folders are named m="),
        (["/x/m=%FF/a"], r"the folder '%FF' is not URI-encoded UTF-8"),
    ],
)
def test_folders_that_do_not_fit(paths, text):
    with pytest.raises(InputError, match=text):
        find_partitions(paths)


@pytest.fixture
def partitioned(tmp_path: Path, write: Any) -> Any:
    """Format -> pattern of two files, m=1 and m=2, of three records each."""

    def make(format: str, **extra: Any) -> str:
        for month in (1, 2):
            folder = tmp_path / format / f"m={month}" / "k=de%20x"
            write(folder / f"part.{format}", format, {"f": [1.5, 2.5, 3.5], "y": [month, 1, 0], **extra})
        return str(tmp_path / format / "*" / "*" / "*")

    return make


def read(pattern: str, format: Format, **options: Any) -> list[dict[str, Any]]:
    import glob

    reader = FileReader(format, label_column="y", **options)
    batches = [batch for part in file_parts(sorted(glob.glob(pattern)), format) for batch in reader.read(part)]
    return [record for batch in batches for record in batch.batch.to_pylist()]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_them(format, partitioned):
    records = read(partitioned(format), Format(format))
    assert [(record["m"], record["k"]) for record in records] == [(1, "de x")] * 3 + [(2, "de x")] * 3
    assert all({"m", "k"}.isdisjoint(record) for record in read(partitioned(format), Format(format, partitions=False)))


@pytest.mark.parametrize("format", FORMATS)
def test_columns_and_filters_may_be_partitions(format, partitioned):
    pattern = partitioned(format)
    assert read(pattern, Format(format), columns=["m"]) == [{"m": 1}] * 3 + [{"m": 2}] * 3
    both = read(pattern, Format(format), columns=["k", "y"], where=Equals("m", "02"))
    assert [(record["k"], record["y"]) for record in both] == [("de x", 2), ("de x", 1), ("de x", 0)]
    assert read(pattern, Format(format), where=Equals("m", "3")) == []
    assert [record["m"] for record in read(pattern, Format(format), where=Equals("f", "2.5"))] == [1, 2]
    with pytest.raises(InputError, match=r"`where` m=x: the column holds int32"):
        read(pattern, Format(format), where=Equals("m", "x"))


def test_files_of_other_partitions_are_not_read(partitioned, tmp_path):
    pattern = partitioned("csv")
    (tmp_path / "csv" / "m=2" / "k=de%20x" / "part.csv").write_bytes(b"\xff")
    assert len(read(pattern, Format("csv"), where=Equals("m", "1"))) == 3


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [None, ["y"]])
def test_a_column_of_the_same_name(format, columns, partitioned):
    if format == "csv" and columns:
        columns = ["y", "m"]
    with pytest.raises(InputError, match=r"the folder m=\.\.\. and the column 'm' in the file give two columns"):
        read(partitioned(format, m=[4, 4, 4]), Format(format), columns=columns)


@pytest.mark.parametrize("format", FORMATS)
def test_the_label_is_no_folder(format, tmp_path, write):
    pattern = write(tmp_path / "y=1" / "a", format, {"f": [1.0]})
    with pytest.raises(InputError, match=r"the label 'y' is the name of a folder, y=\.\.\.: folder names are public"):
        read(pattern, Format(format))


def test_the_transform_adds_them(run, partitioned, records_of):
    pattern = partitioned("parquet")
    found = records_of(run(lambda p: {"r": p | ReadRecordBatches(pattern, Format("parquet"), label_column="y")})["r"])
    assert sorted((record["m"], record["y"]) for record in found.values()) == [
        (1, 0),
        (1, 1),
        (1, 1),
        (2, 0),
        (2, 1),
        (2, 2),
    ]


def test_encoded_records_are_those_that_tensorflow_reads(partitioned):
    """One list of constants is written behind every record, with a checksum that TensorFlow accepts."""
    tensorflow: Any = pytest.importorskip("tensorflow")
    import glob

    import numpy as np
    from labeldp.transforms.batches import replace_label

    paths = sorted(glob.glob(partitioned("tfrecord")))
    reader = FileReader(Format("tfrecord"), ["y"], label_column="y", encoded=True)
    parts = file_parts(paths, Format("tfrecord"))
    batches = [replace_label(batch, "y", np.zeros(3)) for part in parts for batch in reader.read(part)]
    target = Path(paths[0]).parent / "out"
    target.write_bytes(b"".join(batch.encoded.framed().to_pybytes() for batch in batches if batch.encoded is not None))
    kinds = {"m": tensorflow.int64, "k": tensorflow.string, "f": tensorflow.float32, "y": tensorflow.float32}
    features = {name: tensorflow.io.FixedLenFeature([], kind) for name, kind in kinds.items()}
    records = [
        tensorflow.io.parse_single_example(each, features) for each in tensorflow.data.TFRecordDataset(str(target))
    ]
    assert [(int(r["m"]), r["k"].numpy(), float(r["f"]), float(r["y"])) for r in records] == [
        (month, b"de x", f, 0.0) for month in (1, 2) for f in (1.5, 2.5, 3.5)
    ]


def test_output_folders_are_escaped_as_hive_does():
    columns = (("a b", False), ("m", True))
    special = bytes([*range(1, 32), *b"\"#%'*/:=?\\{[]^\x7f"]).decode()
    encoded = "".join(f"%{ord(each):02X}" for each in special)
    assert folder_of(f"/log/m=-007/a%20b={encoded}/x", columns) == f"a b={encoded}/m=-007"
    assert folder_of("/log/m=__HIVE_DEFAULT_PARTITION__/a b=é $&<>|}~/x", columns) == (
        "a b=é $&<>|}~/m=__HIVE_DEFAULT_PARTITION__"
    )


@given(st.lists(st.sampled_from([*VALUES, *PADDED]), min_size=1, max_size=4, unique=True))
def test_output_folders_hold_the_values_that_were_read(texts):
    paths = [f"/log/m={text}/x" for text in texts]
    read = find_partitions(paths)
    written = [f"/out/{folder_of(path, [('m', own[0].integer)])}/x" for path, own in zip(paths, read, strict=True)]
    assert find_partitions(written) == read
    assert find_partitions([f"/n=1{path}" for path in written], "/n=1/out") == read


def test_a_file_of_an_unknown_folder_was_added_while_the_job_ran():
    partitions = OutputPartitions((("m", True),), ("m=1", "m=2"))
    assert [partitions.place(f"/log/m={m}/a") for m in ("1", "2")] == [0, 1]
    for path in ("/log/m=3/a", "/log/m=02/a", "/log/m=x/a", "/log/a"):
        with pytest.raises(InputError, match=f"{path} was added to the input while the job ran"):
            partitions.place(path)
    assert partitions.shard_name(3, 2, "parquet") == "m=2/part-00001-of-00002.parquet"
    assert OutputPartitions().shard_name(3, 4, "parquet") == "part-00003-of-00004.parquet"


def test_columns_of_folders_are_dropped():
    batch = pa.RecordBatch.from_pydict({"m": [1], "f": [2]})
    assert OutputPartitions((("m", True),), ("m=1",)).drop(batch).to_pydict() == {"f": [2]}
    assert OutputPartitions().drop(batch) is batch
