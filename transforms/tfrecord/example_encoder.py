"""Encodes Arrow columns as tf.Examples, vectorized over records. Equal batches give equal bytes.

Protocol buffer libraries write the entries of a map in an order that changes from run to run; here features come in the
order of the columns. tf.Example holds lists of float32, int64 and bytes. Other Arrow types are cast: booleans and
decimals without a fraction to int64, text to bytes, float64 and other decimals to float32, which rounds them to 24
bits. Dates and times become text in ISO 8601. A value that is beyond its type is an error.

A batch of records is built from pieces. Each piece is a matrix of bytes with one row per record, and a mask of the
bytes that belong to the record; the records are the bytes under the masks, row by row.

Source: tensorflow/core/example/feature.proto and the protocol buffer wire format.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..arrow_values import all_values, float_values, is_text, is_time, time_texts, value_type
from ..errors import InputError
from .encoded_batches import binary_array
from .example_values import encode_varints, varint
from .framing import frame_headers
from .wire import FOOTER_SIZE, write_footers

MAX_MATRIX_BYTES = 1 << 28
"""Memory for a batch whose records are padded to the longest one. A batch that needs more is halved."""

_LENGTH_DELIMITED = 2
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


_INTEGERS, _FLOATS, _TEXTS = "integers", "floats", "texts"


def kind_of(kind: pa.DataType) -> str | None:
    """Kind of list that holds values of a type: integers, floats or texts; None if tf.Example cannot hold them."""
    types = pa.types
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind):
        return _INTEGERS
    if types.is_decimal(kind):
        return _INTEGERS if kind.scale <= 0 else _FLOATS
    if types.is_floating(kind):
        return _FLOATS
    return _TEXTS if is_text(kind) or is_time(kind) else None


def may_not_fit(kind: pa.DataType) -> bool:
    """Tells whether a column can have values that a tf.Example cannot hold, although it holds others of the type.

    This is so for integers and decimals without a fraction beyond int64.
    """
    kind = value_type(kind)
    return kind == pa.uint64() or (pa.types.is_decimal(kind) and kind.scale <= 0 and kind.precision - kind.scale > 18)


def not_held(name: str, kind: pa.DataType) -> str:
    """Error text for a column that a tf.Example cannot hold."""
    return (
        f"column {name!r} holds {kind}, which tf.Example cannot hold: cast it to numbers, text or lists of them, or "
        "write Parquet (`output_format` parquet)"
    )


def encode_examples(batch: pa.RecordBatch, with_nulls: bool = True) -> list[bytes]:
    """Encodes each record of a batch as a serialized tf.Example.

    Columns hold numbers, booleans, text or bytes, or lists of these. A null becomes a feature without a value; unless
    `with_nulls`, the record lacks the feature. Raises InputError, which names the column, if tf.Example cannot hold its
    values.
    """
    octets, lengths = _encoded(batch, with_nulls, framed=False)
    blob, ends = octets.tobytes(), np.cumsum(lengths).tolist()
    return [blob[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []


def frame_array(batch: pa.RecordBatch) -> pa.Array:
    """Encodes a batch as the frame of each record, large_binary; see `encode_frames`."""
    octets, lengths = _encoded(batch, with_nulls=True, framed=True)
    bounds = np.append(0, np.cumsum(lengths))
    write_footers(octets, bounds)
    return binary_array(pa.py_buffer(octets), bounds)


def encode_frames(batch: pa.RecordBatch) -> memoryview:
    """Encodes a batch as the frames of its records, one after the other, as in a TFRecord file.

    A null is a feature without a value. Raises InputError as `encode_examples` does.
    """
    octets, lengths = _encoded(batch, with_nulls=True, framed=True)
    write_footers(octets, np.append(0, np.cumsum(lengths)))
    return memoryview(octets)  # type: ignore[arg-type]


def _encoded(batch: pa.RecordBatch, with_nulls: bool, framed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns (all records, or frames without their footers, one after the other; the length of each, (n,))."""
    features = [_feature(name, batch.column(i)) for i, name in enumerate(batch.schema.names)]
    rows = batch.num_rows
    longest = sum(int(feature.lengths.max(initial=0)) + len(feature.name) + 32 for feature in features)
    if rows > 1 and rows * longest > MAX_MATRIX_BYTES:
        half = rows // 2
        parts = [_encoded(part, with_nulls, framed) for part in (batch.slice(0, half), batch.slice(half))]
        octets, lengths = zip(*parts, strict=True)
        return np.concatenate(octets), np.concatenate(lengths)
    pieces = [
        piece if with_nulls else piece.where(feature.present) for feature in features for piece in _entry(feature)
    ]
    pieces = [*_field(1, _total(pieces, rows)), *pieces]
    if framed:
        pieces = [_Piece(frame_headers(_total(pieces, rows))), *pieces, _constant(bytes(FOOTER_SIZE), rows)]
    return _joined(pieces, rows)


@dataclass(frozen=True, eq=False)
class _Piece:
    """Part of every record. octets: (n, w) uint8. mask: (n, w) bool, the bytes that belong to it; None for all."""

    octets: np.ndarray
    mask: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray | int:
        return self.octets.shape[1] if self.mask is None else self.mask.sum(axis=1)

    def where(self, rows: np.ndarray) -> _Piece:
        """The piece in the records where rows, (n,) bool, is true; empty in the others."""
        if rows.all():
            return self
        mask = rows[:, None] if self.mask is None else self.mask & rows[:, None]
        return _Piece(self.octets, np.broadcast_to(mask, self.octets.shape))


@dataclass(frozen=True, eq=False)
class _Feature:
    """Values of a column on the wire.

    kind: field number in Feature. values: content of the list messages of all records, one after the other.
    lengths: (n,) bytes of each record's list. present: (n,) bool, whether the record has a list.
    """

    name: bytes
    kind: int
    values: np.ndarray
    lengths: np.ndarray
    present: np.ndarray


def _total(pieces: list[_Piece], rows: int) -> np.ndarray:
    total = np.zeros(rows, np.int64)
    for piece in pieces:
        total += piece.lengths
    return total


def _joined(pieces: list[_Piece], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Joins the pieces of each record. Returns (bytes of all records, length of each)."""
    matrix = np.concatenate([piece.octets for piece in pieces], axis=1)
    if all(piece.mask is None for piece in pieces):
        return matrix.ravel(), np.full(rows, matrix.shape[1])
    mask = np.ones(matrix.shape, bool)
    column = 0
    for piece in pieces:
        width = piece.octets.shape[1]
        if piece.mask is not None:
            mask[:, column : column + width] = piece.mask
        column += width
    return matrix[mask], mask.sum(axis=1)


def _entry(feature: _Feature) -> list[_Piece]:
    """Map entry of a feature: its key, and a Feature that holds a list."""
    rows = len(feature.lengths)
    content = [*_field(feature.kind, feature.lengths), _ragged(feature.values, feature.lengths)]
    content = [piece.where(feature.present) for piece in content]
    value = [*_field(2, _total(content, rows)), *content]
    key = _constant(b"\x0a" + varint(len(feature.name)) + feature.name, rows)
    return [*_field(1, _total([key, *value], rows)), key, *value]


def _field(number: int, lengths: np.ndarray) -> list[_Piece]:
    """Tag and length of a length-delimited field."""
    if len(lengths) and (lengths == lengths[0]).all():
        return [_constant(bytes([number << 3 | _LENGTH_DELIMITED]) + varint(int(lengths[0])), len(lengths))]
    tag = _constant(bytes([number << 3 | _LENGTH_DELIMITED]), len(lengths))
    values, sizes = encode_varints(lengths)
    return [tag, _ragged(values, sizes)]


def _constant(text: bytes, rows: int) -> _Piece:
    return _Piece(np.broadcast_to(np.frombuffer(text, np.uint8), (rows, len(text))))


def _ragged(values: np.ndarray, lengths: np.ndarray) -> _Piece:
    """Consecutive bytes cut into one row per record."""
    width = int(lengths.max(initial=0))
    if len(values) == width * len(lengths):
        return _Piece(values.reshape(len(lengths), width))
    mask = np.arange(width) < lengths[:, None]
    octets = np.zeros(mask.shape, np.uint8)
    octets[mask] = values
    return _Piece(octets, mask)


def _feature(name: str, column: pa.Array) -> _Feature:
    """A column as lists of one of the three types."""
    values, counts, present = all_values(column)
    if values.null_count:
        raise InputError(f"column {name!r} has a list with a missing value in it, which tf.Example cannot hold")
    kind, octets, sizes = _values(name, values)
    lengths = _sums(sizes, counts)
    if kind != _BYTES_LIST:
        octets, lengths = _packed(octets, lengths, counts)
    return _Feature(name.encode(), kind, octets, lengths, present)


def _sums(sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum of the sizes of each record's values."""
    if len(sizes) == len(counts) and (counts == 1).all():
        return sizes
    cumulated = np.append(0, np.cumsum(sizes))
    ends = np.cumsum(counts)
    return cumulated[ends] - cumulated[ends - counts]


def _packed(octets: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as one packed field per record; no field for a list without values."""
    field = _field(1, lengths)
    return _joined([*(piece.where(counts > 0) for piece in field), _ragged(octets, lengths)], len(counts))


def _values(name: str, values: pa.Array) -> tuple[int, np.ndarray, np.ndarray]:
    """Values on the wire: kind of their list, their bytes, and the size of each."""
    kind, held = values.type, kind_of(values.type)
    if held == _INTEGERS:
        try:
            integers = _integers(values).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            raise InputError(
                f"column {name!r} holds integers beyond int64 ({kind}), which tf.Example cannot hold: cast it to text, "
                "or write Parquet (`output_format` parquet)"
            ) from None
        return (_INT64_LIST, *encode_varints(integers))
    if held == _FLOATS:
        floats = float_values(values)
        with np.errstate(over="ignore"):
            singles = floats.astype("<f4")
        if np.isinf(singles).any() and np.any(np.isinf(singles) & np.isfinite(floats)):
            raise InputError(
                f"column {name!r} holds numbers beyond float32 ({kind}), which tf.Example cannot hold: scale it, or "
                "write Parquet (`output_format` parquet)"
            )
        return _FLOAT_LIST, singles.view(np.uint8), np.full(len(floats), 4)
    if held is None:
        raise InputError(not_held(name, kind))
    if is_time(kind):
        values = time_texts(values)
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, "<i8", len(values) + 1, 8 * values.offset)
    content = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    # Each value is a field of its own: tag, length, text.
    lengths = np.diff(places)
    headers, sizes = _joined(_field(1, lengths), len(lengths))
    return _BYTES_LIST, _interleaved(headers, sizes, content, lengths), sizes + lengths


def _integers(values: pa.Array) -> pa.Array:
    """Integers of 64 bits. Arrow takes narrow decimals for wide ones when it casts them to integers."""
    if pa.types.is_decimal(values.type) and not pa.types.is_decimal256(values.type):
        values = values.cast(pa.decimal128(38, values.type.scale))
    return values.cast(pa.int64())


def _interleaved(headers: np.ndarray, sizes: np.ndarray, bodies: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Each header before its body. Without padding, so that one long text does not cost memory for all records."""
    starts = np.cumsum(sizes + lengths) - lengths
    octets = np.empty(len(headers) + len(bodies), np.uint8)
    in_body = np.zeros(len(octets), bool)
    in_body[_places(starts, lengths)] = True
    octets[in_body] = bodies
    octets[~in_body] = headers
    return octets


def _places(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Indices start, start + 1, ... of every run, one run after the other."""
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
