"""Reading of TFRecord files by the auditor: checksums as google-crc32c computes them, and every kind of damage."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.audit.documents import RefusedDocument
from labeldp.pipelines.audit.records import tfrecord_shards
from labeldp.pipelines.audit.records.tfrecord_shards import checksums, read_tfrecords

crc32c = pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")


def masked(text):
    crc = crc32c.value(text)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def framed(records):
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, struct.pack("<I", masked(length)), record, struct.pack("<I", masked(record))]
    return b"".join(parts)


def read(path):
    return [
        part.content[start : start + length]
        for part in read_tfrecords(path)
        for start, length in zip(part.starts.tolist(), part.lengths.tolist(), strict=True)
    ]


def test_a_checksum_of_the_standard():
    # RFC 3720, appendix B.4: 32 bytes of zeros have CRC-32C 0x8a9136aa.
    crc = 0x8A9136AA
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    assert checksums(bytes(40), np.array([3]), np.array([32])).tolist() == [expected]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000), st.data())
def test_checksums_of_parts(text, data):
    ends = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    parts = data.draw(st.lists(ends, max_size=8))
    starts, stops = np.array(parts, np.int64).reshape(-1, 2).T
    expected = [masked(text[start:stop]) for start, stop in parts]
    assert checksums(text, starts, stops - starts).tolist() == expected


RECORDS = [bytes([i % 251]) * (i * 37 % 700) for i in range(200)] + [b"", bytes(range(256)) * 400, b"end"]


@pytest.mark.parametrize("chunk", [1, 13, 4096, 4 << 20])
@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_records_are_read_in_any_chunks(tmp_path, monkeypatch, suffix, chunk):
    monkeypatch.setattr(tfrecord_shards, "_CHUNK", chunk)
    path = tmp_path / f"shard.{suffix}"
    content = framed(RECORDS)
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert read(path) == RECORDS
    path.write_bytes(b"")
    assert read(path) == []


SMALL = [b"first", b"second record", b"third"]
STARTS = [0, 21, 50]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 8 * len(framed(SMALL)) - 1))
def test_every_flipped_bit_is_found(tmp_path_factory, bit):
    path = tmp_path_factory.getbasetemp() / "flipped.tfrecord"
    content = bytearray(framed(SMALL))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with pytest.raises(RefusedDocument, match="has a wrong checksum") as refused:
        read(path)
    place = max(start for start in STARTS if start <= bit // 8)
    assert str(refused.value).endswith(f"at byte {place}")


@pytest.mark.parametrize("size", range(len(framed(SMALL))))
def test_every_truncation_is_found_but_one_between_records(tmp_path, size):
    path = tmp_path / "short.tfrecord"
    path.write_bytes(framed(SMALL)[:size])
    if size in STARTS:
        assert read(path) == SMALL[: STARTS.index(size)]
    else:
        place = max(start for start in STARTS if start <= size)
        with pytest.raises(RefusedDocument, match=f"is truncated: the record at byte {place} "):
            read(path)


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: b"x" + text, lambda text: text + b"x"])
def test_damaged_gzip_is_found(tmp_path, damage):
    path = tmp_path / "shard.tfrecord.gz"
    path.write_bytes(damage(gzip.compress(framed(SMALL))))
    with pytest.raises(RefusedDocument, match="is truncated or is not gzip"):
        read(path)


def test_a_length_that_no_record_has_is_not_waited_for(tmp_path):
    path = tmp_path / "huge.tfrecord"
    length = struct.pack("<Q", 1 << 40)
    path.write_bytes(length + struct.pack("<I", masked(length)) + bytes(100))
    with pytest.raises(RefusedDocument, match="has a record of 2 GiB or more"):
        read(path)
