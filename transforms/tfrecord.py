"""The TFRecord container: length, masked CRC-32C of the length, data, masked CRC-32C of the data.

Source: tensorflow/core/lib/io/record_writer.h. What the records mean is `tf_example`'s business.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from .errors import InputError

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_CHUNK = 4 << 20
_MASK_DELTA = np.uint32(0xA282EAD8)


def _checksums(parts: Sequence[bytes]) -> np.ndarray:
    """The masked CRC-32C of each part; (n,) uint32."""
    # Part of the extra `tfx`: the core does not need it.
    import google_crc32c

    crc = np.fromiter(map(google_crc32c.value, parts), np.uint32, len(parts))
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def frame(records: Sequence[bytes]) -> bytes:
    """The records as they stand in a TFRecord file, one after the other."""
    if not records:
        return b""
    lengths = np.fromiter(map(len, records), "<u8", len(records))
    distinct, place = np.unique(lengths, return_inverse=True)
    length_checksums = _checksums([int(length).to_bytes(8, "little") for length in distinct])[place]
    heads = np.empty((len(records), 12), np.uint8)
    heads[:, :8] = lengths.view(np.uint8).reshape(-1, 8)
    heads[:, 8:] = length_checksums.astype("<u4").view(np.uint8).reshape(-1, 4)
    head_bytes, tail_bytes = heads.tobytes(), _checksums(records).astype("<u4").tobytes()
    parts = []
    for i, record in enumerate(records):
        parts += (head_bytes[12 * i : 12 * i + 12], record, tail_bytes[4 * i : 4 * i + 4])
    return b"".join(parts)


def read_records(file: BinaryIO, source: str, batch_size: int) -> Iterator[list[bytes]]:
    """The records of a TFRecord stream in lists of batch_size, the last one shorter. Checks both checksums.

    Raises InputError, naming the source and the byte offset of the record, where the file is corrupt or truncated.
    """
    buffer, base, position = b"", 0, 0
    pending: list[bytes] = []
    starts: list[int] = []
    claimed: list[int] = []
    # Records repeat their lengths: each header is checked once.
    lengths: dict[bytes, int] = {}
    while chunk := _read(file, source, base + len(buffer)):
        buffer, base, position = buffer[position:] + chunk, base + position, 0
        while len(buffer) - position >= _HEADER.size:
            header = buffer[position : position + _HEADER.size]
            if header not in lengths:
                if _checksums([header[:8]])[0] != _CHECKSUM.unpack_from(header, 8)[0]:
                    raise InputError(f"{source}: corrupt TFRecord at byte offset {base + position}")
                lengths[header] = int.from_bytes(header[:8], "little")
            end = position + _HEADER.size + lengths[header]
            if end + _CHECKSUM.size > len(buffer):
                break
            pending.append(buffer[position + _HEADER.size : end])
            starts.append(base + position)
            claimed.append(_CHECKSUM.unpack_from(buffer, end)[0])
            position = end + _CHECKSUM.size
            if len(pending) == batch_size:
                yield _verified(pending, starts, claimed, source)
                pending, starts, claimed = [], [], []
    if position < len(buffer):
        raise InputError(f"{source}: truncated TFRecord at byte offset {base + position}")
    if pending:
        yield _verified(pending, starts, claimed, source)


def _read(file: BinaryIO, source: str, offset: int) -> bytes:
    try:
        return file.read(_CHUNK)
    except Exception:
        raise InputError(f"{source}: cannot be read or decompressed after byte offset {offset}") from None


def _verified(records: list[bytes], starts: list[int], claimed: list[int], source: str) -> list[bytes]:
    wrong = np.flatnonzero(_checksums(records) != np.array(claimed, np.uint32))
    if wrong.size:
        raise InputError(f"{source}: corrupt TFRecord at byte offset {starts[wrong[0]]}")
    return records
