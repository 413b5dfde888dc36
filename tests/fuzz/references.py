"""Slow reference implementations, from the specifications: TFRecord, canonical tf.Examples, and mechanism files."""

import struct
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

Features = dict[str, tuple[str | None, list[Any]]]
"""Feature by name: its kind (bytes, float or int64; None for a Feature without a list) and its values."""


def records_of(content: bytes) -> tuple[list[bytes], str | None]:
    """Reads a TFRecord file.

    Args:
      content: The file.

    Returns:
      Its records up to the first bad one, and what is wrong with that, None if there is none.
    """
    from google_crc32c import value as crc32c

    def holds(data: bytes, masked: bytes) -> bool:
        crc = crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little") == masked

    records: list[bytes] = []
    at = 0
    while at < len(content):
        header, row = content[at : at + 12], len(records)
        if len(header) < 12:
            return records, f"truncated TFRecord at row {row}"
        if not holds(header[:8], header[8:]):
            return records, f"corrupt TFRecord at row {row}"
        length = int.from_bytes(header[:8], "little")
        if length > 1 << 28:
            return records, f"the record at row {row} has more than 256 MiB: write it with smaller features"
        stop = at + 12 + length
        if stop + 4 > len(content):
            return records, f"truncated TFRecord at row {row}"
        if not holds(content[at + 12 : stop], content[stop : stop + 4]):
            return records, f"corrupt TFRecord at row {row}"
        records.append(content[at + 12 : stop])
        at = stop + 4
    return records, None


def batch_lengths(sizes: list[int], most_rows: int, most_bytes: int) -> list[int]:
    """Cuts records into batches.

    Args:
      sizes: Bytes of each.
      most_rows: Records of a batch.
      most_bytes: Bytes at which a batch ends early.

    Returns:
      Records of each batch.
    """
    lengths, rows, total = [], 0, 0
    for size in sizes:
        rows, total = rows + 1, total + size
        if rows == most_rows or total >= most_bytes:
            lengths.append(rows)
            rows, total = 0, 0
    return lengths + [rows] * (rows > 0)


def parsed_examples(records: list[bytes]) -> list[Features] | None:
    """Parses tf.Examples by TensorFlow's own message class.

    Args:
      records: Serialized tf.Examples.

    Returns:
      The features of each; None if a record cannot be parsed, or is a tf.SequenceExample with feature_lists.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        examples = [tf.train.Example.FromString(record) for record in records]
    except DecodeError:
        return None
    found: list[Features] = []
    for example in examples:
        if any((each.field_number, each.wire_type) == (2, 2) and each.data for each in UnknownFieldSet(example)):
            return None
        features: Features = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            features[name] = (
                kind and kind.removesuffix("_list"),
                list(getattr(feature, kind).value) if kind else [],
            )
        found.append(features)
    return found


def libraries_differ(record: bytes) -> bool:
    """Finds what protocol buffer libraries disagree on: map entries with fields other than a key and a value.

    Libraries for C++ ignore the other field; upb, below Python's, ignores the whole entry; tf.io refuses the record.

    Args:
      record: A serialized tf.Example.

    Returns:
      True if the record has such an entry, False for a malformed record.
    """
    try:
        return any(
            number not in (1, 2) or kind != 2
            for outer, kind_of_outer, features in _any_fields(record)
            if (outer, kind_of_outer) == (1, 2)
            for inner, kind_of_inner, entry in _any_fields(features)
            if (inner, kind_of_inner) == (1, 2)
            for number, kind, _ in _any_fields(entry)
        )
    except ValueError:
        return False


def _any_fields(content: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and content of each field. Raises ValueError for groups and for what is malformed."""
    found, at = [], 0
    while at < len(content):
        tag, at = _varint(content, at)
        start = at
        if tag & 7 == 0:
            at = _varint(content, at)[1]
        elif tag & 7 == 2:
            length, start = _varint(content, at)
            at = start + length
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            raise ValueError("a group")
        if at > len(content):
            raise ValueError("truncated field")
        found.append((tag >> 3, tag & 7, content[start:at]))
    return found


def canonical_features(record: bytes) -> Features:
    """Parses a tf.Example in which nothing is hidden: no unknown field, no key twice, no list after another.

    Args:
      record: A serialized tf.Example.

    Returns:
      Its features, which are all that its bytes hold.

    Raises:
      ValueError: If it holds anything else.
    """
    features: Features = {}
    for entry in _fields(record, (1,), 1):
        for item in _fields(entry[1], (1,)):
            key, value = _fields(item[1], (1, 2), 2)
            if (key[0], value[0]) != (1, 2):
                raise ValueError("a map entry is not a key and a value")
            name = key[1].decode()
            if name in features:
                raise ValueError("a key occurs twice")
            features[name] = _feature(value[1])
    return features


def _fields(content: bytes, numbers: tuple[int, ...], most: int | None = None) -> list[tuple[int, bytes]]:
    """Length-delimited fields that fill the content."""
    found, at = [], 0
    while at < len(content):
        tag, at = content[at], at + 1
        if tag & 7 != 2 or tag >> 3 not in numbers:
            raise ValueError("unexpected field")
        length, at = _varint(content, at)
        if at + length > len(content):
            raise ValueError("truncated field")
        found.append((tag >> 3, content[at : at + length]))
        at += length
    if most is not None and (len(found) > most or most == 2 != len(found)):
        raise ValueError("other number of fields")
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(content):
            break
        octet = content[at + place]
        value |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise ValueError("no varint")


def _feature(content: bytes) -> tuple[str | None, list[Any]]:
    lists = _fields(content, (1, 2, 3), 1)
    if not lists:
        return None, []
    number, items = lists[0]
    if number == 1:
        return "bytes", [text for _, text in _fields(items, (1,))]
    if number == 2:
        if len(items) == 5 and items[0] == 0x0D:
            return "float", [struct.unpack("<f", items[1:])[0]]
        packed = b"".join(text for _, text in _fields(items, (1,), 1))
        return "float", list(struct.unpack(f"<{len(packed) // 4}f", packed))
    if items[:1] == b"\x08":
        packed, once = items[1:], True
    else:
        packed, once = b"".join(text for _, text in _fields(items, (1,), 1)), False
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    if once and len(values) != 1:
        raise ValueError("several unpacked values")
    return "int64", values


def check_mechanism(document: dict[str, Any]) -> None:
    """Checks a mechanism file that an audit passed, by brute force over its integers.

    Args:
      document: The parsed file.

    Raises:
      AssertionError: If a row has another sum than 2^bits, or epsilon and delta do not hold.
    """
    labels, bits = len(document["labels"]), document["bits"]
    rows: list[list[int]] = [[] for _ in range(labels)]
    for column in document["columns"]:
        cells = [int(weight) for weight, times in column for _ in range(times)]
        assert len(cells) == labels
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    assert len(document["columns"]) == len(document["outputs"])
    assert all(min(row) >= 0 and sum(row) == 1 << bits for row in rows), "a row has another sum"
    check_privacy(rows, bits, document["certificate"]["epsilon"], document.get("delta", 0))
    assert Fraction(document["certificate"]["epsilon"]) <= Fraction(document["epsilon"])


def check_privacy(rows: list[list[int]], bits: int, epsilon: float, delta: float) -> None:
    """Checks label DP by brute force over pairs of labels.

    Args:
      rows: Weights of each label, which sum to 2^bits.
      bits: Binary logarithm of the sum.
      epsilon: The claim.
      delta: The claim; 0 for pure DP.

    Raises:
      AssertionError: If the claim does not hold.
    """
    context = Context(prec=120)
    # Correctly rounded to 120 digits; the margin makes it an upper bound. No ratio of two weights exceeds e^64.
    bound = Fraction(context.exp(Decimal(min(epsilon, 64)))) * (1 + Fraction(1, 10**110))
    for row in rows:
        for other in rows:
            above = sum((max(Fraction(0), one - bound * two) for one, two in zip(row, other, strict=True)), Fraction(0))
            assert above <= Fraction(delta) * (1 << bits), "epsilon does not hold"
