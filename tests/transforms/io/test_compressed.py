"""Truncated or corrupt gzip files are detected, and concatenated members are read as one file."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from labeldp.transforms import InputError
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
        pytest.importorskip("google_crc32c")
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
        pytest.importorskip("google_crc32c")
        path.write_bytes(
            b"".join(
                gzip.compress(frame([r])) for r in encode_examples(pa.RecordBatch.from_pydict({"y": [0.5, 1.5, 2.5]}))
            )
        )
    assert {row: record["y"] for row, record in plain(read_all(str(path), format)).items()} == {0: 0.5, 1: 1.5, 2: 2.5}
