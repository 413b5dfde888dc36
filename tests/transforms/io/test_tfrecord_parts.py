"""Parts of TFRecord files: they tile their file, whatever is in it, and no label counts for where they begin."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, ReadRecordBatches
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.io import input_format
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart
from labeldp.transforms.readers import tfrecord_reader
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.readers.tfrecord_reader import split_tfrecord
from labeldp.transforms.tfrecord import framing
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

ROWS = 5 * BATCH_ROWS + 17


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """(labels=, name=) -> path of a log of more than two parts, with records of many lengths."""
    monkeypatch.setattr(input_format, "_PART_ROWS", 2 * BATCH_ROWS)
    monkeypatch.setattr(framing, "_CHUNK", 100_000)

    def write(labels: int | None = None, name: str = "log.tfrecord") -> str:
        numbers = np.arange(ROWS)
        ys = pa.array(numbers % 5 if labels is None else np.full(ROWS, labels))
        texts = pa.array(["x" * (row * row % 31) for row in range(ROWS)])
        path = tmp_path / name
        path.write_bytes(frame(encode_examples(pa.RecordBatch.from_pydict({"n": numbers, "y": ys, "t": texts}))))
        return str(path)

    return write


def read(part: FilePart) -> list[LabelledBatch]:
    return list(FileReader(Format("tfrecord"), ["n", "y"], label_column="y").read(part))


def test_parts_tile_their_file_with_the_same_batches(log):
    path = log()
    whole, parts = FilePart(path, path), list(split_tfrecord(FilePart(path, path)))
    assert [(part.number, part.parts) for part in parts] == [(0, 2), (1, 2)]
    found = [batch for part in parts for batch in read(part)]
    expected = read(whole)
    assert [(batch.start, batch.stop) for batch in found] == [(batch.start, batch.stop) for batch in expected]
    assert all(one.batch.equals(two.batch) for one, two in zip(found, expected, strict=True))
    assert found[-1].stop == ROWS


def test_parts_are_read_in_parallel_and_tile_their_file(log, run):
    path = log()
    found = run(lambda pipeline: {"log": pipeline | ReadRecordBatches(path, Format("tfrecord"), label_column="y")})
    batches = sorted(found["log"], key=lambda batch: batch.start)
    assert [batch.start for batch in batches[1:]] == [batch.stop for batch in batches[:-1]]
    assert [batch.start for batch in batches] == list(range(0, ROWS, BATCH_ROWS))


@given(st.integers(2, 64), st.lists(st.integers(1, 1000), min_size=7, max_size=70).map(sorted))
def test_parts_of_a_file_with_many_shards_are_whole_shards(parts: int, cuts: list[int]) -> None:
    found: list[Any] = [
        input_format.bounds_of_part(FilePart("a", "a", number=number, parts=parts, cuts=tuple(cuts)), 1)
        for number in range(parts)
    ]
    taken = [each for each in found if each != (0, 0)]
    assert found[: len(taken)] == taken, "parts without a shard come last"
    assert [each[0] for each in taken] == [0, *(each[1] for each in taken[:-1])]
    assert taken[-1][1] is None
    assert {each[0] for each in taken} <= {0, *cuts}
    shards = np.diff([*np.searchsorted(cuts, [each[0] for each in taken], "right"), len(cuts) + 1])
    if len(set(cuts)) == len(cuts):
        assert len(taken) == min(parts, len(cuts) + 1)
        assert max(shards) - min(shards) <= 1


def test_few_shards_do_not_decide_where_parts_begin() -> None:
    part = FilePart("a", "a", number=1, parts=8, cuts=(1, 2, 3, 4, 5, 6))
    assert input_format.bounds_of_part(part, 16) == (2 * BATCH_ROWS, 4 * BATCH_ROWS)


@pytest.mark.parametrize("cuts", [
    tuple(range(10_000, 80_000, 10_000)), (1, 2, 3, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, ROWS - 1),
    tuple(5 * BATCH_ROWS + i for i in range(17)),
])  # fmt: skip
@pytest.mark.parametrize("parts", [2, 5, 12, 64])
def test_whole_shards_are_read_once(log, cut_parts, cuts, parts):
    path = log()
    whole = FilePart(path, path)
    found = [batch for part in cut_parts(path, parts, cuts) for batch in read(part)]
    assert [batch.start for batch in found] == [0, *(batch.stop for batch in found[:-1])]
    assert found[-1].stop == ROWS
    assert all(len(batch.rows) == batch.batch.num_rows <= BATCH_ROWS for batch in found)
    records = [pa.Table.from_batches([batch.batch for batch in each]).combine_chunks() for each in (found, read(whole))]
    assert records[0].equals(records[1])


def test_no_shard_begins_after_the_end_of_a_file_that_became_shorter(log):
    path = Path(log())
    part = FilePart(str(path), str(path), number=7, parts=8, cuts=tuple(ROWS - 7 + i for i in range(7)))
    assert [batch.start for batch in read(part)] == [ROWS - 1]
    path.write_bytes(path.read_bytes()[: int(tfrecord_reader._index(str(path))[1][1])])
    with pytest.raises(InputError, match="has changed while the job ran: run again when the files are complete"):
        read(part)


def test_parts_do_not_depend_on_how_many_bytes_labels_take(log):
    """An integer label takes one byte or ten: nothing that a runner sees of a part may tell."""
    narrow, wide = (list(split_tfrecord(FilePart(path, path))) for path in (log(0, "a"), log(-1, "b")))
    assert Path(wide[0].path).stat().st_size > 1.1 * Path(narrow[0].path).stat().st_size
    for one, two in zip(narrow, wide, strict=True):
        assert (one.number, one.parts, one.files) == (two.number, two.parts, two.files)
        assert [(batch.start, batch.stop) for batch in read(one)] == [(batch.start, batch.stop) for batch in read(two)]


@pytest.mark.parametrize("files", [7, 8])
def test_many_files_are_not_split(log, files):
    path = log()
    assert len(list(split_tfrecord(FilePart(path, path, files=files)))) == (2 if files < 8 else 1)


@pytest.mark.parametrize("name", ["a.tfrecord.gz", "a.bz2"])
def test_compressed_files_are_not_split(tmp_path, name):
    assert len(list(split_tfrecord(FilePart(str(tmp_path / name), "")))) == 1


@pytest.mark.parametrize("damage", ["header", "record", "end", "odd end"])
@pytest.mark.parametrize("row", [3, 2 * BATCH_ROWS - 1, 2 * BATCH_ROWS, ROWS - 1])
def test_damage_is_found_at_its_row(log, damage, row):
    path = Path(log())
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        offset = int(framing.batch_offsets(file, 1)[1][row])
    if damage == "header":
        content[offset + 9] ^= 1
    elif damage == "record":
        content[offset + 12] ^= 1
    else:
        del content[offset + (30 if damage == "end" else 5) :]
    path.write_bytes(content)
    messages = []
    for parts in ([FilePart(str(path), str(path))], list(split_tfrecord(FilePart(str(path), str(path))))):
        with pytest.raises(InputError) as caught:
            list(map(read, parts))
        messages.append(str(caught.value))
    what = "corrupt" if damage in ("header", "record") else "truncated"
    assert messages == [f"{path}: {what} TFRecord at row {row}"] * 2


def test_a_file_that_became_shorter_is_not_taken_for_a_part(log, monkeypatch):
    path = Path(log())
    parts = list(split_tfrecord(FilePart(str(path), str(path))))
    index = tfrecord_reader._index(str(path))
    path.write_bytes(path.read_bytes()[: int(index[1][1])])
    monkeypatch.setattr(tfrecord_reader, "_index", lambda path: index)
    with pytest.raises(InputError, match=f"truncated TFRecord at row {BATCH_ROWS}"):
        read(parts[0])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone: cannot be opened: No such file"):
        list(split_tfrecord(FilePart(str(tmp_path / "gone"), "")))


@pytest.mark.parametrize("sizes", [[0], [0, 5, 200_000, 3], [100_000 - 16] * 3, [0] * 100_000, []])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_offsets_of_records_of_any_size(tmp_path, monkeypatch, sizes, rows):
    monkeypatch.setattr(framing, "_CHUNK", 100_000)
    path = tmp_path / "log"
    path.write_bytes(frame([bytes(size) for size in sizes]))
    starts = np.cumsum([0, *(size + 16 for size in sizes)])[:-1]
    with path.open("rb") as file:
        count, offsets = framing.batch_offsets(file, rows)
    assert count == len(sizes)
    assert offsets.tolist() == starts[::rows].tolist()
