"""Shards: complete, each record once, independent of the runner's bundles, and no partial files."""

import contextlib
import dataclasses
import gzip
import io
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labeldp.transforms import LabelledBatch, Limits, ShardFile, WriteParquet, WriteTFRecords
from labeldp.transforms.errors import StageError
from labeldp.transforms.io.hive_partitions import ONE_FOLDER, OutputPartitions
from labeldp.transforms.shards import shard_formats, shard_writer
from labeldp.transforms.shards.shard_formats import GroupWriter
from labeldp.transforms.shards.shard_ranges import SourceRows
from labeldp.transforms.shards.shard_writer import Segment, shard_of_rows
from labeldp.transforms.tfrecord.encoded_batches import EncodedRecords
from labeldp.transforms.tfrecord.framing import Frames, read_records

KINDS = [("tfrecord", "none"), ("tfrecord", "gzip"), ("parquet", "none"), ("parquet", "gzip")]
TRANSFORMS = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}
SMALL = Limits(shard_rows=4, group_rows=7)


def suffix(kind: str, compression: str) -> str:
    return "tfrecord.gz" if (kind, compression) == ("tfrecord", "gzip") else kind


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def examples_in(content: bytes, compression: str) -> list[bytes]:
    plain = gzip.decompress(content) if compression == "gzip" else content
    return [record for records in read_records(io.BytesIO(plain), "shard", 100) for record in records]


def table_in(content: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(content))


def log(rows: int, source: str = "/logs/a", start: int = 0, seed: int = 1) -> LabelledBatch:
    """A batch of columns of many types; `place` is its source and row."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, 100, rows)
    columns = {
        "place": [f"{source} {row}" for row in range(start, start + rows)],
        "y": generator.random(rows),
        "n": pa.array(numbers, mask=numbers < 20),
        "l": [None if one % 7 == 0 else list(range(one % 4)) for one in numbers.tolist()],
        "flag": numbers % 2 == 0,
        "kind": pa.array(["red", "green", "blue"]).take(pa.array(numbers % 3)).dictionary_encode(),
    }
    return LabelledBatch.whole(source, start, pa.RecordBatch.from_pydict(columns))


@pytest.fixture
def written(run, tmp_path) -> Callable[..., tuple[dict[str, bytes], list[ShardFile]]]:
    """(batches, format, compression, shards) -> ({name: bytes} of the folder, the ShardFiles), written by Beam."""
    counter = iter(range(1_000))

    def compute(batches, kind="tfrecord", compression="none", num_shards=3):
        folder = tmp_path / f"run {next(counter)}"
        transform = TRANSFORMS[kind](str(folder / "data"), str(folder / "temp"), num_shards, compression)
        files = run(lambda p: {"files": p | beam.Create(batches) | transform})["files"]
        return contents(folder / "data"), sorted(files, key=lambda file: file.path)

    return compute


class Written(NamedTuple):
    """Contents of the shards by name, the shards, and the segments with the number of their shard."""

    contents: dict[str, bytes]
    files: list[ShardFile]
    segments: list[tuple[int, Segment]]


@pytest.fixture
def bundled(run_bundles, tmp_path) -> Callable[..., Written]:
    """(bundles, format, compression, shards, known=, limits=, partitions=, seed=, repeated=) -> what is written.

    known: whether the numbers of rows are known, or these numbers.
    """
    counter = iter(range(10_000))

    def compute(
        bundles,
        kind="tfrecord",
        compression="none",
        num_shards=1,
        known=False,
        limits=SMALL,
        partitions=ONE_FOLDER,
        **how,
    ):
        folder = tmp_path / f"bundles {next(counter)}"

        def build(pipeline, batches):
            rows = None
            if known:
                counted = rows_of(bundles) if known is True else known
                rows = pipeline | "Rows" >> beam.Create(counted, reshuffle=False)
            return {
                "files": batches
                | "Write"
                >> TRANSFORMS[kind](
                    str(folder / "data"), str(folder / "temp"), num_shards, compression, partitions, rows, limits=limits
                )
            }

        found = run_bundles(build, bundles, **how)
        files = sorted(found["files"], key=lambda file: file.path)
        contents = {str(path.relative_to(folder / "data")): path.read_bytes() for path in paths_in(folder / "data")}
        return Written(contents, files, found["Write/WriteSegments"])

    return compute


def paths_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def rows_of(bundles: list[list[LabelledBatch]]) -> list[SourceRows]:
    """Rows and records of the sources."""
    counts: dict[str, tuple[int, int]] = {}
    for batch in (batch for bundle in bundles for batch in bundle):
        rows, records = counts.get(batch.source, (0, 0))
        counts[batch.source] = max(rows, batch.stop), records + batch.batch.num_rows
    return [SourceRows(source, *found) for source, found in counts.items()]


# Names and counts.


@pytest.mark.parametrize(("kind", "compression"), KINDS)
@pytest.mark.parametrize("batches", [[], [log(0)], [log(3)]], ids=["no batch", "no record", "three records"])
def test_shards_without_records_are_written_too(written, kind, compression, batches):
    found, files = written(batches, kind, compression, 3)
    rows = [
        table_in(content).num_rows if kind == "parquet" else len(examples_in(content, compression))
        for content in found.values()
    ]
    assert rows == [file.records for file in files]
    assert sum(rows) == sum(batch.batch.num_rows for batch in batches)
    assert len(rows) == 3


@pytest.mark.parametrize("transform", [WriteTFRecords, WriteParquet])
@pytest.mark.parametrize("num_shards", [0, -1])
def test_there_is_at_least_one_shard(transform, num_shards):
    with pytest.raises(ValueError, match=f"num_shards must be at least 1, not {num_shards}"):
        transform("/data", "/temp", num_shards)


@pytest.mark.parametrize("transform", [WriteTFRecords, WriteParquet])
def test_unknown_compressions_are_refused(transform):
    with pytest.raises(ValueError, match="unknown compression 'zip'; known: none, gzip"):
        transform("/data", "/temp", 1, "zip")


def test_rows_are_spread_evenly_and_each_source_begins_elsewhere():
    rows = np.arange(256 * 40)
    for num_shards in (1, 2, 5, 8):
        shards = shard_of_rows("/logs/a", rows, num_shards)
        assert np.bincount(shards, minlength=num_shards).tolist() == [256 * 40 // num_shards] * num_shards
    first = {int(shard_of_rows(f"/logs/{i}", np.array([0]), 8)[0]) for i in range(100)}
    assert first == set(range(8))


# Reproducibility.


def without_dictionaries(batches: list[LabelledBatch]) -> list[LabelledBatch]:
    return [dataclasses.replace(batch, batch=batch.batch.drop_columns(["kind"])) for batch in batches]


@st.composite
def schedules(draw):
    """(number of shards, records per source, cuts of each source, bundle of each piece, order, seed)."""
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
    cuts = [sorted(draw(st.lists(st.integers(0, size), max_size=4))) for size in sizes]
    dropped = draw(st.sampled_from([0, 2, 5]))
    return draw(st.integers(1, 6)), sizes, cuts, dropped, draw(st.integers(0, 2**32))


@pytest.mark.parametrize("known", [False, True], ids=["in blocks", "in ranges"])
@pytest.mark.parametrize(("kind", "compression"), KINDS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=schedules())
def test_any_cut_and_any_bundles_give_the_same_bytes_and_every_record_once(
    kind, compression, known, schedule, recut, bundled
):
    num_shards, sizes, cuts, dropped, seed = schedule
    shuffle = random.Random(seed)
    sources = [log(size, f"/logs/{i}", seed=i) for i, size in enumerate(sizes)]
    if dropped:
        sources = [source.keep(source.rows % dropped != 1) for source in sources]
    pieces = [piece for source, bounds in zip(sources, cuts, strict=True) for piece in recut(source, *bounds)]
    if shuffle.random() < 0.7:
        shuffle.shuffle(pieces)
    bundles: list[list[LabelledBatch]] = [[]]
    for piece in pieces:
        if shuffle.random() < 0.3:
            bundles.append([])
        bundles[-1].append(piece)
    # The type that Parquet does not give back the same way is left out of some: their segments are Parquet files.
    if shuffle.random() < 0.5:
        sources, bundles = without_dictionaries(sources), [without_dictionaries(bundle) for bundle in bundles]
    counted, limits = rows_of([sources]) if known else False, replace(SMALL, open_segments=shuffle.choice([1, 3, 256]))
    expected, files, _ = bundled([[source] for source in sources], kind, compression, num_shards, counted, limits)
    # A runner may run a bundle twice: segments of the first run are left, and shards are there.
    how = {"seed": seed, "repeated": shuffle.random() < 0.5}
    again, more, _ = bundled(bundles, kind, compression, num_shards, counted, limits, **how)
    assert again == expected
    assert [file.records for file in more] == [file.records for file in files]
    if kind == "tfrecord":
        records = [examples_in(content, compression) for content in again.values()]
        places = [record.split(b"/logs/")[1] for shard in records for record in shard]
    else:
        tables = [table_in(content) for content in again.values()]
        records = [table.to_pylist() for table in tables]
        places = [record["place"] for shard in records for record in shard]
        kept = {record["place"]: record for source in sources for record in source.batch.to_pylist()}
        assert all(kept[record["place"]] == record for shard in records for record in shard)
    assert [len(shard) for shard in records] == [file.records for file in files]
    assert len(places) == len(set(places)) == sum(source.batch.num_rows for source in sources)


@pytest.mark.parametrize(("kind", "compression"), KINDS)
def test_records_of_a_shard_are_in_the_order_of_source_and_row(kind, compression, recut, bundled):
    pieces = [*recut(log(50, "/logs/b"), 9, 21), *recut(log(50, "/logs/a"), 30)][::-1]
    found, *_ = bundled([[piece] for piece in pieces], kind, compression, 2)
    for content in found.values():
        if kind == "parquet":
            places = [tuple(place.split()) for place in table_in(content).column("place").to_pylist()]
        else:
            records = examples_in(content, compression)
            places = [re.search(rb"(/logs/[ab]) (\d+)", record).groups() for record in records]  # type: ignore[union-attr]
        assert places == sorted(places, key=lambda place: (place[0], int(place[1])))
        assert len(places) > 20


@pytest.mark.parametrize("kind", ["tfrecord", "parquet"])
def test_more_shards_than_open_files(kind, recut, bundled, monkeypatch):
    bundles = [recut(log(200), 50, 51, 130)]
    expected, *_ = bundled(bundles, kind, "none", 10)
    create, opened = shard_writer.create, []

    def counting(path: str) -> Any:
        opened.append(create(path))
        assert sum(not file.closed for file in opened) <= 3
        return opened[-1]

    monkeypatch.setattr(shard_writer, "create", counting)
    found, _, segments = bundled(bundles, kind, "none", 10, limits=replace(SMALL, open_segments=3))
    assert found == expected
    assert len(segments) == len(opened) > 10
    assert all(file.closed for file in opened)


@pytest.mark.parametrize("pieces", [1, 40])
def test_large_gzip_tfrecord_shards_do_not_depend_on_the_pieces_they_were_fed(pieces, bundled, recut):
    """A compressor's output may depend on how its input is split. 400 kB is several times its window."""
    whole = LabelledBatch.whole(
        "/logs/a", 0, pa.RecordBatch.from_pydict({"x": np.random.default_rng(1).integers(0, 9, 40_000).astype(str)})
    )
    bounds = range(997, 997 * pieces, 997)
    one, *_ = bundled([[whole]], "tfrecord", "gzip")
    two, *_ = bundled([[piece] for piece in recut(whole, *bounds)], "tfrecord", "gzip")
    assert one == two


# Files that are shards, and segments.


@pytest.fixture
def assembled(monkeypatch) -> list[str]:
    """Paths of the shards that are assembled from segments, not renamed."""
    found: list[str] = []
    complete = shard_writer.complete_file
    monkeypatch.setattr(shard_writer, "complete_file", lambda path, temp: found.append(path) or complete(path, temp))
    return found


@pytest.mark.parametrize(("kind", "compression"), KINDS)
@pytest.mark.parametrize("num_shards", [3, 7])
def test_each_byte_is_written_once_if_no_shard_has_rows_of_two_files(bundled, assembled, kind, compression, num_shards):
    """As many shards as files is the default."""
    batches = without_dictionaries([log(rows, f"/logs/{place}") for place, rows in enumerate((300, 500, 400))])
    found, _, segments = bundled([batches], kind, compression, num_shards, known=True)
    assert len(found) == len(segments) == num_shards
    assert not assembled


@pytest.mark.parametrize(("kind", "compression"), KINDS)
def test_segments_are_at_most_files_and_shards_together(bundled, assembled, kind, compression):
    batches = without_dictionaries([log(200 + place, f"/logs/{place:02d}") for place in range(20)])
    expected, _, segments = bundled([batches], kind, compression, 8, known=True)
    # In one bundle, neighbors share the segment of their shard.
    assert len(segments) == 8
    assert len(assembled) == (0 if (kind, compression) == ("tfrecord", "none") else 8)
    assembled.clear()
    # In this order, no file follows its neighbor.
    found, _, segments = bundled([[*batches[1::2], *batches[::2]]], kind, compression, 8, known=True)
    assert 20 <= len(segments) < 28
    assert len(assembled) == 8
    assert found == expected


@pytest.mark.parametrize(("kind", "compression"), KINDS)
@pytest.mark.parametrize(
    ("bundles", "segments"),
    [
        ("a0 a1 b0 b1 c0 c1", 1),
        ("a0 a1 b0 b1 | c0 c1", 2),
        ("a0 a1 c0 c1 | b0 b1", 3),
        ("a0 b0 b1 c0 c1 | a1", 3),
        ("a0 a1 b1 c0 c1 | b0", 3),
        ("b0 b1 c0 c1 a0 a1", 2),
        ("a1 b0 b1 c0 | c1 | a0", 3),
        ("c0 c1 b0 b1 a0 a1", 3),
    ],
)
def test_a_segment_has_rows_of_neighbors_only(kind, compression, bundles, segments, recut, bundled):
    sources = without_dictionaries([log(60, f"/logs/{name}") for name in "abc"])
    pieces = {
        f"{name}{place}": piece
        for name, source in zip("abc", sources, strict=True)
        for place, piece in enumerate(recut(source, 25))
    }
    expected, *_ = bundled([[source] for source in sources], kind, compression, known=True)
    cut = [[pieces[name] for name in bundle.split()] for bundle in bundles.split("|")]
    found, (shard,), written = bundled(cut, kind, compression, known=True)
    assert found == expected
    assert (shard.records, len(written)) == (180, segments)


def test_records_of_two_folders_do_not_share_a_segment(bundled):
    """Places of files are counted in each folder, so two of different folders may seem to be neighbors."""
    sources = [log(60, f"/logs/d={name}/a") for name in "12"]
    partitions = OutputPartitions((("d", True),), ("d=1", "d=2"))
    _, _, segments = bundled([sources], known=True, partitions=partitions)
    assert [(place, segment.records) for place, segment in segments] == [(0, 60), (1, 60)]


def test_a_batch_without_records_does_not_hide_a_gap(bundled):
    source = log(60)
    none = source.keep(np.zeros(60, bool))
    first, last = (dataclasses.replace(none, start=start, stop=start + 20) for start in (0, 40))
    middle = LabelledBatch(source.source, 20, 40, np.arange(20, 40), source.batch.slice(20, 20))
    rows = [SourceRows(source.source, 60, 20), SourceRows("/logs/b", 60, 60)]
    for batches, segments in (
        ([first, middle, last, log(60, "/logs/b")], [80]),
        ([first, middle, log(60, "/logs/b"), last], [20, 60]),
        ([middle, first, last, log(60, "/logs/b")], [80]),
    ):
        _, _, found = bundled([batches], known=rows)
        assert [segment.records for _, segment in found] == segments


@pytest.mark.parametrize(("kind", "compression"), KINDS)
def test_the_only_segment_of_a_shard_has_the_bytes_that_assembling_gives(bundled, assembled, kind, compression, recut):
    batches = without_dictionaries([log(700)])
    one, *_ = bundled([batches], kind, compression, 2, known=True)
    assert not assembled
    pieces = [[piece] for piece in recut(batches[0], 100, 349, 351, 600)]
    two, _, segments = bundled(pieces, kind, compression, 2, known=True)
    assert (len(segments), len(assembled)) == (6, 2)
    assert one == two


def test_a_file_that_the_first_pass_did_not_see_is_named(run, failure, tmp_path):
    batches = [log(30)]

    def build(pipeline):
        rows = pipeline | beam.Create([SourceRows("/logs/b", 30, 30)])
        written = WriteTFRecords(str(tmp_path / "data"), str(tmp_path / "temp"), 1, rows=rows)
        return {"files": pipeline | "Batches" >> beam.Create(batches) | written}

    assert "/logs/a was added to the input while the job ran" in failure(build)


# Failures and retries.


@pytest.mark.parametrize(("kind", "compression"), KINDS)
def test_a_shard_that_became_shorter_is_not_taken_for_a_segment(bundled, monkeypatch, kind, compression):
    """A bundle that is tried again finds its segment gone, and the shard in its place."""
    batches, moved = without_dictionaries([log(300)]), shard_writer.move_files
    for known in (False, True):
        whole = bundled([batches], kind, compression, known=known, repeated=True)
        assert list(whole.contents) == [f"part-00000-of-00001.{suffix(kind, compression)}"]

    def move(pairs: Any) -> None:
        moved(pairs)
        ((_, final),) = pairs
        Path(final).write_bytes(Path(final).read_bytes()[:-1])

    monkeypatch.setattr(shard_writer, "move_files", move)
    with pytest.raises(StageError, match="truncated"):
        bundled([batches], kind, compression, known=True, repeated=True)


@pytest.mark.parametrize("kind", ["tfrecord", "parquet"])
def test_a_failing_bundle_leaves_no_file_open(bundled, monkeypatch, kind):
    """Otherwise a worker with many retries would run out of file descriptors."""
    create, opened = shard_writer.create, []
    monkeypatch.setattr(shard_writer, "create", lambda path: opened.append(create(path)) or opened[-1])
    monkeypatch.setattr(LabelledBatch, "without", lambda self, names: self if self.start < 1_100 else {}["gone"])
    with pytest.raises(StageError, match="writing failed: KeyError"):
        bundled([[log(1_100), log(300, start=1_100)]], kind, "none", 4)
    assert len(opened) == 4
    assert all(file.closed for file in opened)


@pytest.mark.parametrize(("kind", "compression"), KINDS)
def test_a_failure_while_assembling_leaves_no_file_that_looks_finished(
    tmp_path, bundled, monkeypatch, kind, compression
):
    def fail(*args: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(shard_formats, "open_segment_file", fail)
    with pytest.raises(StageError, match="writing failed: OSError"):
        bundled([[log(600)], [log(600, start=600)]], kind, compression, 2)
    assert not [path for path in paths_in(tmp_path) if path.parent.name == "data"]


@pytest.mark.parametrize("kind", ["tfrecord", "parquet"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("several", [False, True])
def test_a_segment_that_lost_its_end_is_noticed(bundled, monkeypatch, kind, part, several):
    """If a disk fills up or a copy is truncated, the job must fail instead of dropping records."""
    assemble = shard_writer.open_file

    def shortened(path: str) -> Any:
        Path(path).write_bytes(Path(path).read_bytes()[: int(os.path.getsize(path) * part)])
        return assemble(path)

    monkeypatch.setattr(shard_writer, "open_file", shortened)
    batches = [log(30), LabelledBatch.whole("/logs/a", 30, pa.RecordBatch.from_pydict({"new": list(range(20))}))]
    with pytest.raises(StageError, match="writing failed: a temporary segment file is truncated"):
        bundled([[batch] for batch in batches] if several else [batches], kind, known=True)


def test_encoded_records_do_not_become_parquet(bundled):
    """The Parquet file would lack the features that were not decoded."""
    columns = pa.RecordBatch.from_pydict({"y": pa.array([0.5], pa.float32())})
    encoded = EncodedRecords.of(Frames.of([b"1234"]), {"y": np.array([12])})
    batch = dataclasses.replace(LabelledBatch.whole("/logs/a", 0, columns), encoded=encoded)
    with pytest.raises(StageError, match="writing failed: ValueError"):
        bundled([[batch]], "parquet")


@pytest.mark.parametrize("kind", ["tfrecord", "parquet"])
def test_a_worker_that_outlives_its_job_brings_no_folder_back(tmp_path, bundled, monkeypatch, kind):
    """The folder would hold records that no ledger entry covers."""
    without = LabelledBatch.without

    def ended(batch: LabelledBatch, names: Any) -> LabelledBatch:
        if batch.start:
            (temp,) = tmp_path.glob("*/temp")
            shutil.rmtree(temp.parent)
        return without(batch, names)

    monkeypatch.setattr(LabelledBatch, "without", ended)
    with pytest.raises(StageError, match=r"writing .*/temp failed: No such file or directory"):
        bundled([[log(30), log(30, start=60)]], kind)
    assert list(tmp_path.iterdir()) == []


# Compatibility with other readers.


def test_parquet_keeps_types_and_has_full_row_groups(bundled):
    batch = log(700)
    found, files, _ = bundled([[batch]], "parquet", "none", 2, limits=Limits(group_rows=100))
    for (_, content), file in zip(found.items(), files, strict=True):
        parquet = pq.ParquetFile(pa.BufferReader(content))
        groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
        assert all(rows == 100 for rows in groups[:-1])
        assert 1 <= groups[-1] <= 100
        assert sum(groups) == file.records
        assert parquet.schema_arrow.equals(batch.batch.schema)
    records = [record for content in found.values() for record in table_in(content).to_pylist()]
    assert sorted(records, key=lambda record: record["place"]) == sorted(
        batch.batch.to_pylist(), key=lambda record: record["place"]
    )


def test_row_groups_end_early_where_records_are_large(tmp_path):
    """The same ends whatever the batches, and no batch that is read back is larger than a row group."""
    limits = Limits(group_rows=100, group_bytes=1 << 16)
    texts = pa.array(["x" * (1 << 12 if 130 <= row < 190 else 1) for row in range(300)])
    table = pa.table({"row": range(300), "text": texts, "kind": texts.dictionary_encode()})
    contents = set()
    for rows in (1, 70, 300):
        with open(tmp_path / "shard", "wb") as file, GroupWriter(file, table.schema, "none", limits) as writer:
            for batch in table.to_batches(rows):
                writer.write(batch)
        contents.add((tmp_path / "shard").read_bytes())
    assert len(contents) == 1
    parquet = pq.ParquetFile(tmp_path / "shard")
    groups = [parquet.metadata.row_group(place).num_rows for place in range(parquet.num_row_groups)]
    assert groups == [100, 30 + 8, *[8] * 6, 100, 14]
    assert [batch.num_rows for batch in shard_formats.batches_of_groups(parquet)] == groups
    assert parquet.read().equals(table)


NESTED = {
    "lists.list.element": pa.array([[row, -row] for row in range(300)], pa.large_list(pa.int64())),
    "few.list.element": pa.array([["ab"[row % 2]] for row in range(300)]),
    "struct.field": pa.array([{"field": row} for row in range(300)]),
    "map.key_value.key": pa.array([[("k", row)] for row in range(300)], pa.map_(pa.string(), pa.int64())),
    "deep.list.element.list.element": pa.array([[[row]] for row in range(300)]),
    "nothing": pa.nulls(300),
    "number": pa.array(np.arange(300) / 7, pa.float32()),
    "code": pa.array([row % 9 for row in range(300)]),
    "text": pa.array([str(row) for row in range(300)]),
}


def test_columns_whose_values_repeat_get_dictionaries(tmp_path):
    """Of columns in several lists, the values are not counted: they keep pyarrow's default."""
    table = pa.table({path.split(".")[0]: column for path, column in NESTED.items()})
    with open(tmp_path / "shard", "wb") as file, GroupWriter(file, table.schema, "none") as writer:
        for batch in table.to_batches(70):
            writer.write(batch)
    group = pq.ParquetFile(tmp_path / "shard").metadata.row_group(0)
    found = {group.column(place).path_in_schema: group.column(place).encodings for place in range(group.num_columns)}
    plain = {path for path, encodings in found.items() if "RLE_DICTIONARY" not in encodings}
    assert plain == {"lists.list.element", "number", "text"}
    assert pq.read_table(tmp_path / "shard").equals(table)


def batch_of(source: str, start: int = 0, **columns: Any) -> LabelledBatch:
    return LabelledBatch.whole(source, start, pa.RecordBatch.from_pydict(columns))


def test_parquet_columns_that_only_some_files_have_are_null_elsewhere(written):
    batches = [
        batch_of("/logs/a", y=[1.0, 2.0], x=[1, 2]),
        batch_of("/logs/b", y=[3.0], t=["a"]),
        batch_of("/logs/c", y=[4.0], x=pa.nulls(1)),
    ]
    found, _ = written(batches, "parquet", "none", 1)
    assert table_in(next(iter(found.values()))).to_pylist() == [
        {"y": 1.0, "x": 1, "t": None},
        {"y": 2.0, "x": 2, "t": None},
        {"y": 3.0, "x": None, "t": "a"},
        {"y": 4.0, "x": None, "t": None},
    ]


@pytest.mark.parametrize("values", [["SENTINEL123"], [48613], [[48613.5]]], ids=["text", "int", "list"])
def test_a_parquet_column_of_two_types_is_refused_without_values(run, failure, tmp_path, values):
    batches = [batch_of("/logs/a", y=[48613.5]), batch_of("/logs/b", y=values)]
    transform = WriteParquet(str(tmp_path / "data"), str(tmp_path / "temp"), 1)
    text = failure(lambda p: {"files": p | beam.Create(batches) | transform})
    assert "InputError: column 'y' changes its type between files: Parquet output needs one type per column" in text
    assert "SENTINEL" not in text
    assert "48613" not in text


def test_tfrecord_columns_may_differ_between_files(written):
    batches = [batch_of("/logs/a", y=[1.0], x=[1]), batch_of("/logs/b", y=[2.0], t=["a"])]
    found, _ = written(batches, "tfrecord", "none", 1)
    one, two = examples_in(next(iter(found.values())), "none")
    assert (b"\x01x" in one, b"\x01t" in one, b"\x01x" in two, b"\x01t" in two) == (True, False, False, True)


def test_a_column_that_tf_example_cannot_hold_is_named(failure, tmp_path):
    batches = [batch_of("/logs/a", odd=[{"a": "SENTINEL123"}])]
    transform = WriteTFRecords(str(tmp_path / "data"), str(tmp_path / "temp"), 1)
    text = failure(lambda p: {"files": p | beam.Create(batches) | transform})
    assert "InputError: column 'odd' holds struct<a: string>" in text
    assert "SENTINEL" not in text


@pytest.mark.parametrize("removed", [False, True])
def test_a_bundle_that_begins_after_the_end_of_its_job_does_not_restore_its_folder(tmp_path, run_bundles, removed):
    """The end of an interrupted job removes the folder, and the runner may begin another bundle after that."""
    work = tmp_path / "work"
    work.mkdir()

    def build(pipeline: Any, batches: Any) -> dict[str, Any]:
        files = batches | WriteParquet(str(work / "data"), str(work / "temp"), 2)
        if removed:
            work.rmdir()
        return {"files": files}

    with contextlib.suppress(StageError):
        run_bundles(build, [[log(30)]])
    assert work.exists() is not removed
