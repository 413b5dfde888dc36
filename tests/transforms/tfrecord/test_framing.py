"""TFRecord container: byte-for-byte equal to TensorFlow's, and any corruption is detected."""

import io
import itertools
import math

import apache_beam as beam
import numpy as np
import pytest
from labeldp.transforms import InputError, Limits
from labeldp.transforms.tfrecord import framing as tfrecord
from labeldp.transforms.tfrecord.framing import Frames, frame, read_records

tf = pytest.importorskip("tensorflow")

SMALL = [b"SENTINEL123", b"", b"SENTINEL123 and more"]
SIZES = (0, 1, 7, 8, 9, 100, 100, 3, 5_000, 70_000, 0)
RECORDS = [bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8)) for size in SIZES]


def read(content: bytes) -> list[bytes]:
    return [record for batch in read_records(io.BytesIO(content), "/logs/a", 1000) for record in batch]


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


def test_any_file_is_read_as_the_reference_reads_it(fuzzed):
    """Cut and damaged files, of which the first bad record is named by its row, in any chunks and batches."""
    fuzzed("tfrecord")


def test_batches_are_full_but_for_large_records():
    """A batch of small records has the requested length; one of large records holds at most some megabytes."""
    sizes = [len(batch) for batch in read_records(io.BytesIO(frame([bytes(90)] * 100_000)), "/logs/a", 16_384)]
    assert sizes == [16_384] * 6 + [100_000 - 6 * 16_384]
    large = frame([bytes(3 << 20)] * 8 + [b"small"] * 3)
    batches = list(read_records(io.BytesIO(large), "/logs/a", 16_384))
    assert max(batch.bounds[-1] - batch.bounds[0] for batch in batches) <= Limits().frames_bytes + (4 << 20)
    assert sum(map(len, batches)) == 11


def test_what_is_written_over_has_the_right_checksum():
    frames = Frames.of([b"ahead" * i + b"here" + b"behind" * (9 - i) for i in range(10)])
    octets = np.frombuffer(frames.content, np.uint8).copy()
    tfrecord.overwrite_words(
        octets, frames.bounds, frames.starts + 5 * np.arange(10), np.frombuffer(b"gone" * 10, "<u4")
    )
    assert read(octets.tobytes()[: frames.bounds[-1]]) == [
        b"ahead" * i + b"gone" + b"behind" * (9 - i) for i in range(10)
    ]


# Failures.


@pytest.mark.parametrize("chunk", [50, 1 << 20])
def test_a_record_that_is_too_large_is_refused_before_it_is_read(chunk):
    file = io.BytesIO(frame([b"abc", bytes(1000), bytes(9000), b"d"]))
    found = read_records(file, "/logs/a", 3, limits=Limits(chunk_bytes=chunk, record_bytes=1000))
    with pytest.raises(InputError, match=r"/logs/a: the record at row 2 has more than"):
        list(found)
    assert chunk > 50 or file.tell() < 4500


@pytest.mark.parametrize(
    "content", [b"y,x\n1,2\n3,4\n5,6\n", b"PAR1" + bytes(40), bytes(64)], ids=["csv", "parquet", "zeros"]
)
def test_another_format_is_corrupt_at_once(content):
    with pytest.raises(InputError, match=r"/logs/a: corrupt TFRecord at row 0$"):
        read(content)


def test_a_corrupt_header_after_a_whole_batch_is_no_large_record():
    found = read_records(io.BytesIO(frame([b"abc"]) + b"PAR1" * 4), "/logs/a", 1)
    assert [len(batch) for batch in itertools.islice(found, 1)] == [1]
    with pytest.raises(InputError, match=r"/logs/a: corrupt TFRecord at row 1$"):
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
