"""TFRecord container: byte-for-byte equal to TensorFlow's, and any corruption is detected."""

import io
import math

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import InputError
from labeldp.transforms.tfrecord import framing as tfrecord
from labeldp.transforms.tfrecord.framing import Frames, frame, read_records

tf = pytest.importorskip("tensorflow")

SIZES = (0, 1, 7, 8, 9, 100, 100, 3, 5_000, 70_000, 0)
RECORDS = [bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8)) for size in SIZES]


def read(content: bytes, batch_size: int = 1000) -> list[bytes]:
    return [record for batch in read_records(io.BytesIO(content), "/logs/a", batch_size) for record in batch]


def starts_of(records: list[bytes]) -> list[int]:
    """Byte offsets of the records in the file, followed by the length of the file."""
    return [0, *np.cumsum([16 + len(record) for record in records]).tolist()]


# Compatibility with TensorFlow and Beam.


def test_frame_writes_what_tensorflow_writes(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
    with open(path, "rb") as file:
        assert frame(RECORDS) == file.read()


def test_tensorflow_reads_what_frame_writes(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(RECORDS[:4]) + frame([]) + frame(RECORDS[4:]))
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == RECORDS


def test_beam_reads_what_frame_writes(tmp_path, run):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(RECORDS))
    found = run(lambda pipeline: {"records": pipeline | beam.io.ReadFromTFRecord(str(path))})
    assert sorted(found["records"]) == sorted(RECORDS)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_read_records_reads_what_tensorflow_writes(tmp_path, compression):
    from apache_beam.io.filesystems import FileSystems

    path = str(tmp_path / ("a.tfrecord.gz" if compression else "a.tfrecord"))
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in RECORDS:
            writer.write(record)
    with FileSystems.open(path) as file:
        found = list(read_records(file, path, 4))
    assert [len(batch) for batch in found] == [4, 4, 3]
    assert [record for batch in found for record in batch] == RECORDS


# Batches and chunks.


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 200), st.integers(1, 25))
def test_records_survive_any_chunks_and_batches(records, chunk, batch_size):
    content = frame(records)
    assert len(content) == starts_of(records)[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "_CHUNK", chunk)
        batches = list(read_records(io.BytesIO(content), "/logs/a", batch_size))
    assert [record for batch in batches for record in batch] == records
    full, rest = divmod(len(records), batch_size)
    assert [len(batch) for batch in batches] == [batch_size] * full + [rest] * (rest > 0)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(1, 200), st.integers(1, 25), st.integers(1, 200))
def test_batches_end_where_the_given_sizes_fill_them(records, chunk, batch_size, most):
    """The sizes are those of features. The bytes of the records themselves decide nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "_CHUNK", chunk)
        patch.setattr(tfrecord, "_BATCH_BYTES", most)
        sizes = [len(record) // 2 for record in records]
        found = read_records(
            io.BytesIO(frame(records)), "/logs/a", batch_size, lambda frames: (frames.stops - frames.starts) // 2
        )
        lengths = [len(batch) for batch in found]
    expected, rows, total = [], 0, 0
    for size in sizes:
        rows, total = rows + 1, total + size
        if rows == batch_size or total >= most:
            expected.append(rows)
            rows, total = 0, 0
    assert lengths == expected + [rows] * (rows > 0)


def test_batches_are_full_but_for_large_records():
    """A batch of small records has the requested length; one of large records holds at most some megabytes."""
    sizes = [len(batch) for batch in read_records(io.BytesIO(frame([bytes(90)] * 100_000)), "/logs/a", 16_384)]
    assert sizes == [16_384] * 6 + [100_000 - 6 * 16_384]
    large = frame([bytes(3 << 20)] * 8 + [b"small"] * 3)
    batches = list(read_records(io.BytesIO(large), "/logs/a", 16_384))
    assert max(batch.bounds[-1] - batch.bounds[0] for batch in batches) <= tfrecord._BATCH_BYTES + (4 << 20)
    assert sum(map(len, batches)) == 11


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=8), st.integers(1, 400), st.integers(1, 99))
def test_records_of_one_length_in_a_row(runs, chunk, batch_size):
    """Runs of records of equal length take a separate code path."""
    records = [bytes([length]) * length for length, count in runs for _ in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "_CHUNK", chunk)
        batches = read_records(io.BytesIO(frame(records)), "/logs/a", batch_size)
        assert [record for batch in batches for record in batch] == records


class Dripping(io.BytesIO):
    """A file that returns fewer bytes than requested, as sockets do."""

    def read(self, size=-1, /):
        return super().read(3 if size else 0)


def test_short_reads_are_no_end():
    batches = read_records(Dripping(frame(RECORDS[:6])), "/logs/a", 100)
    assert [record for batch in batches for record in batch] == RECORDS[:6]


def test_an_empty_file_has_no_record():
    assert frame([]) == b""
    assert list(read_records(io.BytesIO(b""), "/logs/a", 10)) == []


def test_what_is_written_over_has_the_right_checksum():
    frames = Frames.of([b"ahead" * i + b"here" + b"behind" * (9 - i) for i in range(10)])
    octets = np.frombuffer(frames.content, np.uint8).copy()
    tfrecord.overwrite_words(
        octets, frames.bounds, frames.starts + 5 * np.arange(10), np.frombuffer(b"gone" * 10, "<u4")
    )
    assert read(octets.tobytes()[: frames.bounds[-1]]) == [
        b"ahead" * i + b"gone" + b"behind" * (9 - i) for i in range(10)
    ]


# Corruption.

SMALL = [b"SENTINEL123", b"", b"SENTINEL123 and more"]


@pytest.mark.parametrize("place", range(0, 12))
def test_a_head_that_breaks_a_run_of_equal_ones_is_named(place):
    content = bytearray(frame([b"abc"] * 100))
    content[19 * 70 + place] ^= 1
    with pytest.raises(InputError, match=r"/logs/a: corrupt TFRecord at row 70$"):
        read(bytes(content))


@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
def test_every_flipped_bit_is_found_and_its_record_named(chunk, monkeypatch):
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    content, starts = frame(SMALL), starts_of(SMALL)
    for place in range(len(content)):
        row = max(row for row, start in enumerate(starts) if start <= place)
        for bit in range(8) if chunk > 1 else (place % 8,):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            with pytest.raises(InputError) as caught:
                read(bytes(damaged))
            assert str(caught.value) == f"/logs/a: corrupt TFRecord at row {row}"


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_rows_are_those_of_the_file_in_later_batches(batch_size, monkeypatch):
    monkeypatch.setattr(tfrecord, "_CHUNK", 50)
    records = [bytes([i]) * (i % 7) for i in range(60)]
    content, starts = bytearray(frame(records)), starts_of(records)
    content[starts[41] + 12] ^= 1
    with pytest.raises(InputError, match=r"/logs/a: corrupt TFRecord at row 41$"):
        read(bytes(content), batch_size)


@pytest.mark.parametrize("places", [(12, 0), (0, 12), (12, 12), (0, 0)], ids=str)
@pytest.mark.parametrize("chunk", [7, 40, 1 << 20])
def test_of_two_damages_the_first_is_named(places, chunk, monkeypatch):
    """The number of bytes that labels take decides if both lie in the bytes that are read at a time."""
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    records = [b"abc"] * 6
    content, starts = bytearray(frame(records)), starts_of(records)
    for row, place in zip((2, 4), places, strict=True):
        content[starts[row] + place] ^= 1
    with pytest.raises(InputError, match=r"corrupt TFRecord at row 2$"):
        read(bytes(content))


@pytest.mark.parametrize("chunk", [50, 1 << 20])
def test_a_record_that_is_too_large_is_refused_before_it_is_read(chunk, monkeypatch):
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    monkeypatch.setattr(tfrecord, "_LARGEST_RECORD", 1000)
    file = io.BytesIO(frame([b"abc", bytes(1000), bytes(9000), b"d"]))
    with pytest.raises(InputError, match=r"/logs/a: the record at row 2 has more than"):
        list(read_records(file, "/logs/a", 3))
    assert chunk > 50 or file.tell() < 4500


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_damage_is_named_before_a_truncation_after_it(chunk, monkeypatch):
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    content = bytearray(frame([b"abc"] * 6))
    content[2 * 19 + 12] ^= 1
    with pytest.raises(InputError, match=r"corrupt TFRecord at row 2$"):
        read(bytes(content[:-2]))


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_a_file_cut_anywhere_but_between_records_is_truncated(chunk, monkeypatch):
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    content, starts = frame(SMALL), starts_of(SMALL)
    for cut in range(len(content)):
        if cut in starts:
            assert read(content[:cut]) == SMALL[: starts.index(cut)]
            continue
        row = max(row for row, start in enumerate(starts) if start <= cut)
        with pytest.raises(InputError) as caught:
            read(content[:cut])
        assert str(caught.value) == f"/logs/a: truncated TFRecord at row {row}"


def test_a_true_length_beyond_the_file_is_truncation():
    head = (1 << 28).to_bytes(8, "little")
    checksum = int(tfrecord.checksums([head])[0]).to_bytes(4, "little")
    good = frame([b"abc"])
    with pytest.raises(InputError, match=r"truncated TFRecord at row 1$"):
        read(good + head + checksum + bytes(100))


@pytest.mark.parametrize(
    "content", [b"y,x\n1,2\n3,4\n5,6\n", b"PAR1" + bytes(40), bytes(64)], ids=["csv", "parquet", "zeros"]
)
def test_another_format_is_corrupt_at_once(content):
    with pytest.raises(InputError, match=r"/logs/a: corrupt TFRecord at row 0$"):
        read(content)


def test_records_before_the_damage_are_not_given_unchecked():
    content = bytearray(frame([b"abc"] * 4))
    content[12] ^= 1
    found = read_records(io.BytesIO(bytes(content)), "/logs/a", 2)
    with pytest.raises(InputError):
        next(found)


class Breaking:
    """A file whose read error quotes its content, and which gives few bytes at a time."""

    def __init__(self, content: bytes, stop: float = 40):
        self._file = io.BytesIO(content)
        self._stop = stop

    def read(self, size=-1, /):
        content = self._file.read(20)
        if self._file.tell() > self._stop:
            raise OSError(f"failed at {content!r}")
        return content


class BufferedBreaking(Breaking, io.BufferedIOBase):
    """The same with a buffer: `readinto` is that of the base class."""


@pytest.mark.parametrize("kind", [Breaking, BufferedBreaking])
def test_a_failing_filesystem_is_an_input_error_without_its_text(kind):
    assert [
        record for frames in read_records(kind(frame(SMALL), math.inf), "/logs/a", 10) for record in frames
    ] == SMALL
    with pytest.raises(InputError, match=r"/logs/a: cannot be read or decompressed$") as caught:
        list(read_records(kind(frame(SMALL)), "/logs/a", 10))
    assert "SENTINEL" not in str(caught.value)
