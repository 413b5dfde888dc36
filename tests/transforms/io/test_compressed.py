"""Truncated or corrupt gzip files are detected, and concatenated members are read as one file."""

import bz2
import gzip
import lzma
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from labeldp.transforms import InputError
from labeldp.transforms.io.filesystems import open_input
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

SENTINEL = "SENTINEL123"


def cut(content: bytes, where: str) -> bytes:
    return {"half": content[: len(content) // 2], "checksum": content[:-8], "last byte": content[:-1]}[where]


@pytest.mark.parametrize("where", ["half", "checksum", "last byte"])
@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_a_truncated_gzip_file_is_noticed(tmp_path, format, where, write, read_all):
    path = Path(write(tmp_path / "a.gz", format, {"y": np.random.default_rng(1).random(2_000).tolist()}))
    path.write_bytes(cut(path.read_bytes(), where))
    with pytest.raises(InputError, match=r"a\.gz"):
        read_all(str(path), format)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_a_gzip_file_cut_between_two_records_is_noticed(tmp_path, format, read_all):
    """All records present are complete, so only the missing end of the gzip stream shows the truncation."""
    records = [f"{i}.25\n".encode() for i in range(100)]
    if format == "tfrecord":
        records = [frame([record]) for record in encode_examples(pa.RecordBatch.from_pydict({"y": [0.5] * 100}))]
    compressor = zlib.compressobj(wbits=31)
    content = b"y\n" if format == "csv" else b""
    content = compressor.compress(content + b"".join(records[:60])) + compressor.flush(zlib.Z_FULL_FLUSH)
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz"):
        read_all(str(path), format)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.99])
def test_a_damaged_gzip_file_is_noticed(tmp_path, format, place, write, read_all):
    path = Path(write(tmp_path / "a.gz", format, {"y": [i / 4 for i in range(2_000)], "t": [SENTINEL] * 2_000}))
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"a\.gz") as caught:
        read_all(str(path), format)
    assert SENTINEL not in str(caught.value)


@pytest.mark.parametrize("format", ["csv", "tfrecord"])
def test_gzip_members_one_after_the_other_are_one_file(tmp_path, format, read_all, plain):
    """`cat a.gz b.gz` and many log writers produce such files."""
    path = tmp_path / "a.gz"
    if format == "csv":
        path.write_bytes(gzip.compress(b"y\n0.5\n1.5\n") + gzip.compress(b"2.5\n"))
    else:
        path.write_bytes(
            b"".join(
                gzip.compress(frame([r])) for r in encode_examples(pa.RecordBatch.from_pydict({"y": [0.5, 1.5, 2.5]}))
            )
        )
    assert {row: record["y"] for row, record in plain(read_all(str(path), format)).items()} == {0: 0.5, 1: 1.5, 2: 2.5}


def zstd(content: bytes) -> bytes:
    return pa.compress(content, "zstd", asbytes=True)


COMPRESSED = {
    ".gz": gzip.compress, ".GZ": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE), ".zst": zstd, ".zstd": zstd,
    ".deflate": zlib.compress,
}  # fmt: skip


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_is_expanded_as_it_is_read(tmp_path, suffix):
    """A file of some kilobytes must not take the memory that it expands to; a truncated one is no complete one."""
    rows, path = b"y\n" + bytes(1 << 26), tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESSED[suffix](rows))
    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with open_input(str(path)) as file:
            assert file.read(4) == rows[:4]
            assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before < 1 << 24
            assert file.read() == rows[4:]
    finally:
        tracemalloc.stop()
    path.write_bytes(path.read_bytes()[:-9])
    with open_input(str(path)) as file, pytest.raises(Exception, match=r"(?i)end|truncated|incomplete"):
        list(iter(lambda: file.read(1 << 20), b""))
