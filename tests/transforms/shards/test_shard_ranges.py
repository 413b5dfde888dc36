"""Ranges of rows: every row in one shard, in order, few parts, and shards of similar sizes."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.transforms import LabelledBatch
from labeldp.transforms.io.hive_partitions import OutputPartitions
from labeldp.transforms.shards import shard_ranges
from labeldp.transforms.shards.shard_ranges import CountRows, SourceRows, divide_rows


def sources(sizes: list[int], folder: str = "/logs") -> list[SourceRows]:
    return [SourceRows(f"{folder}/{place:03d}", rows, rows) for place, rows in enumerate(sizes)]


def shards_of(files: list[SourceRows], num_shards: int) -> list[np.ndarray]:
    """Shard of each row of each file."""
    # In whatever order the counts of the files arrive.
    ranges = divide_rows(files[::-1], num_shards)
    found = []
    for file in files:
        shards = np.full(file.rows, -1)
        if file.rows:
            for shard, start, end in ranges.of_file(file.source, 0).parts(np.arange(file.rows)):
                assert (shards[start:end] == -1).all()
                shards[start:end] = shard
        found.append(shards)
    return found


def sizes_of(files: list[SourceRows], num_shards: int) -> list[int]:
    return np.bincount(np.concatenate(shards_of(files, num_shards)), minlength=num_shards).tolist()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 20))
def test_every_row_is_in_one_shard_and_shards_ascend(sizes: list[int], num_shards: int) -> None:
    found = shards_of(sources(sizes), num_shards)
    rows = np.concatenate(found)
    assert len(rows) == sum(sizes)
    assert all(0 <= shard < num_shards for shard in rows)
    assert (np.diff(rows) >= 0).all()
    parts = sum(len(np.unique(shards)) for shards in found)
    assert parts <= len(sizes) + num_shards


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 20))
def test_no_shard_has_more_than_four_times_the_mean_and_none_is_empty_needlessly(
    sizes: list[int], num_shards: int
) -> None:
    found = sizes_of(sources(sizes), num_shards)
    # Ranges end at whole rows.
    assert max(found) <= 4 * sum(sizes) / num_shards + 1
    if sum(sizes) >= num_shards:
        assert min(found) > 0


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 20))
def test_shards_that_are_called_whole_have_rows_of_one_file(sizes: list[int], num_shards: int) -> None:
    files = sources(sizes)
    ranges, found = divide_rows(files, num_shards), shards_of(files, num_shards)
    for place, file in enumerate(files):
        for shard in ranges.of_file(file.source, 0).whole:
            assert not any(shard in others for other, others in enumerate(found) if other != place)


@pytest.mark.parametrize(
    ("sizes", "num_shards", "expected"),
    [
        pytest.param([5, 9, 7], 3, [5, 9, 7], id="a shard for each file"),
        pytest.param([5, 9, 7], 5, [5, 5, 4, 4, 3], id="more shards for larger files"),
        pytest.param([16], 4, [4, 4, 4, 4], id="one file"),
        pytest.param([4] * 8, 4, [8, 8, 8, 8], id="fewer shards than files"),
        pytest.param([3] * 10, 4, [8, 7, 8, 7], id="cut within files"),
        pytest.param([1, 1, 1, 1, 1, 95], 6, [17, 17, 16, 17, 17, 16], id="one large file"),
        pytest.param([0, 6, 0, 6], 4, [3, 3, 3, 3], id="files without rows have no shard"),
        pytest.param([2], 4, [1, 0, 1, 0], id="fewer rows than shards"),
        pytest.param([], 2, [0, 0], id="no file"),
    ],
)
def test_sizes_of_shards(sizes: list[int], num_shards: int, expected: list[int]) -> None:
    files = sources(sizes)
    assert (sizes_of(files, num_shards) if sizes else [0] * num_shards) == expected


def test_files_are_weighed_by_their_records() -> None:
    """A filter may leave out most records of some files."""
    files = [SourceRows("/logs/a", 900, 10), SourceRows("/logs/b", 100, 90)]
    ranges = divide_rows(files, 10)
    assert [len(ranges.of_file(file.source, 0).cuts) for file in files] == [0, 8]


def test_rows_of_the_second_pass_beyond_the_first_one_are_in_the_last_shard() -> None:
    """The digests differ then, and the job fails at its end."""
    ranges = divide_rows([SourceRows("/logs/a", 10, 10)], 2)
    assert list(ranges.of_file("/logs/a", 0).parts(np.arange(8, 99))) == [(1, 0, 91)]


def test_records_that_were_left_out_leave_gaps() -> None:
    ranges = divide_rows([SourceRows("/logs/a", 100, 4)], 4)
    assert list(ranges.of_file("/logs/a", 0).parts(np.array([3, 24, 25, 80]))) == [(0, 0, 2), (1, 2, 3), (3, 3, 4)]


def test_each_folder_has_shards_of_its_own() -> None:
    partitions = OutputPartitions((("k", True),), ("k=1", "k=2"))
    files = [*sources([6, 6], "/logs/k=1"), *sources([8], "/logs/k=2")]
    ranges = divide_rows(files, 2, partitions)
    found = [
        list(ranges.of_file(file.source, partitions.place(file.source)).parts(np.arange(file.rows))) for file in files
    ]
    assert found == [[(0, 0, 6)], [(1, 0, 6)], [(0, 0, 4), (1, 4, 8)]]


def test_sources_whose_keys_are_equal_get_others(monkeypatch: pytest.MonkeyPatch) -> None:
    key = shard_ranges._key
    monkeypatch.setattr(shard_ranges, "_key", lambda source, salt: key(source, salt) if salt > 2 else 7)
    ranges = divide_rows(sources([5, 5]), 2)
    assert ranges.salt == 3
    assert [ranges.of_file(file.source, 0).first for file in sources([5, 5])] == [0, 1]


def test_rows_are_counted_by_source(run) -> None:
    def batch(source: str, start: int, rows: int, kept: int) -> LabelledBatch:
        whole = LabelledBatch.whole(source, start, pa.RecordBatch.from_pydict({"x": list(range(rows))}))
        return whole.keep(np.arange(rows) < kept)

    batches = [batch("/logs/a", 5, 7, 2), batch("/logs/b", 0, 3, 0), batch("/logs/a", 0, 5, 5)]
    found = run(lambda pipeline: {"rows": pipeline | beam.Create(batches) | CountRows()})["rows"]
    assert sorted(found) == [SourceRows("/logs/a", 12, 7), SourceRows("/logs/b", 3, 0)]


def test_the_ranges_of_100_000_files_are_small() -> None:
    files = [SourceRows(f"/logs/part-{place:06d}", 1_000_000, 1_000_000) for place in range(100_000)]
    ranges = divide_rows(files, 99_999)
    assert ranges.keys.nbytes + ranges.files.nbytes <= 32 * len(files)
    assert list(ranges.of_file("/logs/part-099999", 0).parts(np.arange(990_000, 1_000_000))) == [(99_998, 0, 10_000)]
