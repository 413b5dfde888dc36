"""Functions of `wire.c`. They raise ValueError for an array of another type than the one said."""

from collections.abc import Sequence

import numpy as np

def crc32c(content: bytes) -> int:
    """Computes a CRC-32C, not masked."""

def crc32c_by_tables(content: bytes) -> int:
    """Computes the same as on a processor without instructions for it; for tests."""

def hash_texts(content: bytes | memoryview, bounds: np.ndarray, hashes: np.ndarray) -> None:
    """Computes the CRC-32 of texts, those of zlib, into `hashes`, shape (n,), int64.

    `bounds`, shape (n + 1,), int64, ascending, are the ends of the texts in the content. Raises ValueError if they are
    not, or lie outside.
    """

def follow_frames(content: bytes | memoryview, position: int, stop: int, ends: np.ndarray) -> tuple[int, bool]:
    """Follows frames from header to header and verifies both checksums of each.

    Other bytes may be before and after the frames: `position` is the offset of the first frame, `stop` that at which
    the content ends. `ends` receives the offset after each frame, shape (m,), int64; at most m frames are followed.
    Returns the number of frames that are complete and right, and whether a frame with a wrong checksum follows them.
    """

def skim_frames(content: bytes, starts: np.ndarray) -> tuple[int, int, bool]:
    """Follows frames by their headers alone, whose checksums are verified, and not their records.

    `content` begins with a frame and may end anywhere. `starts` receives the offset of each frame, shape (m,), int64;
    at most m frames are followed. Returns (count, position, corrupt): the number of frames whose headers are in the
    content; the offset after the last one, which may lie beyond the content; and whether a header with a wrong
    checksum, or of a record of 2^48 bytes or more, is there.
    """

def frame(records: Sequence[bytes]) -> bytes:
    """Frames of records, one after the other, as they stand in a TFRecord file."""

def write_footers(octets: np.ndarray, bounds: np.ndarray) -> None:
    """Writes the footer of every frame in place.

    `octets` are frames with complete headers and records, shape (m,), uint8; `bounds` are the offsets of the n frames,
    then the end of the last one, shape (n + 1,), int64. Raises ValueError if a frame reaches beyond the octets or is
    too short for a header and a footer.
    """

def shift_checksums(checksums: np.ndarray, counts: np.ndarray) -> None:
    """Multiplies checksums, as polynomials over GF(2), by x^8 to the power of counts, modulo the checksum's polynomial.

    Bits are reflected, as in the Castagnoli CRC: the highest bit of a number is the coefficient of x^0. `checksums` is
    changed in place, shape (n,), uint32; `counts` has shape (n,), int64, from 0 to 2^33 - 1. Raises ValueError if a
    count is out of range, or there are not as many as checksums.
    """

def walk_examples(
    content: bytes | memoryview | np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    names: tuple[bytes, ...],
    canonical: np.ndarray,
    found: np.ndarray,
    listing: bool,
    seed: bytes,
) -> bytes:
    """Walks through n serialized tf.Examples and finds the values of the features `names`.

    `starts` and `stops` are the offsets of each record's first byte and after its last byte in `content`, shape (n,),
    int64; other bytes may surround the records. `canonical` receives whether each record is in canonical form, shape
    (n,), bool. `found` is given as zeros and receives kind, start and stop of the values, as in
    `example_values.Values`, shape (f, 3, n), int64; it stays zero for records that are not canonical. `seed` is the key
    of the hashes of names, 16 bytes; where it is random, no file is slow because of the names in it. If `listing`,
    returns all map entries of the canonical records, record by record in their order: rows of the eight numbers of
    `example_values.Entries`, as int64.
    """

def drop_entries(
    content: bytes | memoryview | np.ndarray, bounds: np.ndarray, names: tuple[bytes, ...], ends: np.ndarray
) -> bytes:
    """Copies n frames of canonical records without the map entries of some names; none has an entry of a name twice.

    `bounds` are the offsets of the frames in `content`, then the end of the last one, shape (n + 1,), int64; `ends`
    receives those of the copies. All other bytes of map entries stay, in their order. Raises ValueError if a frame is
    not within the content, or its map entries are not well formed.
    """

def read_varints(
    content: bytes | memoryview | np.ndarray, starts: np.ndarray, stops: np.ndarray, numbers: np.ndarray
) -> None:
    """Decodes varints at n places of the content into `numbers`, shape (n,), int64; 0 for one of no bytes.

    `starts` and `stops` are the offsets of each one's first byte and after its last byte, shape (n,), int64. Raises
    ValueError if one is not in the content, or has more than ten bytes.
    """

def join_texts(
    content: bytes | memoryview | np.ndarray, starts: np.ndarray, stops: np.ndarray, bounds: np.ndarray
) -> bytes:
    """Joins texts at n places of the content; `bounds`, shape (n + 1,), int64, receive those of each in the result.

    `starts` and `stops` are as for `read_varints`, in any order. Raises ValueError if a text is not in the content.
    """
