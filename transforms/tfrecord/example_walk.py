"""Walk through serialized tf.Examples in canonical form, for a batch of records at a time.

In canonical form nothing can be hidden from a reader:
- Example holds one `features` field and nothing else;
- each map entry holds its key, then its value, and nothing else; no key occurs twice; keys are UTF-8;
- a Feature holds one list or none; a list of numbers holds at most one field, which is packed or has one unpacked
  value; a list of texts holds a field for each text;
- tags and lengths are minimal and add up exactly.

In a canonical record the bytes of the value found are the only ones that any parser can take for the feature, and
parsers see every field. The only freedom left is that an integer among other features may be encoded in more bytes than
it needs. Every other record is reported as not canonical, whether a parser would accept it or not: it could hold a
second entry under the same key, a list that a later one overwrites, or an unknown field, with a label in it that nobody
sees.

All records are walked in lockstep: step j reads the j-th map entry of each of them.

Source: tensorflow/core/example/example.proto and feature.proto, and the protocol buffer wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from .varints import read_lengths, sliding_words

BYTES, FLOAT, INT64 = 0x0A, 0x12, 0x1A
"""Kinds of a Feature, by the tag of its list."""

FEATURES_TAG = 0x0A
"""Tag of the field of an Example that holds its map entries."""

# Tags of the other fields.
_ENTRY = _KEY = _ITEMS = 0x0A
_VALUE = 0x12
_UNPACKED_FLOAT, _UNPACKED_INT64 = 0x0D, 0x08

_LONGEST_VARINT = 10
_HIGH_BITS = np.frombuffer(b"\x80" * 8, "<i8")[0]
# Masks of the lowest 0, 1, ..., 8 bytes of a word.
_LOW_BYTES = np.array([(1 << (8 * size)) - 1 for size in range(8)] + [-1], np.int64)
# Arbitrary odd multipliers of the hash. Equal keys of one record have equal hashes.
_MIX, _MIX_OWNER = np.array([0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F])


@dataclass(frozen=True, eq=False)
class Values:
    """Position of the single value of one feature in each of n records.

    Attributes:
      kinds: BYTES, FLOAT or INT64; 0 where the record lacks the feature, -1 where it has no value or several. Shape
        (n,), int64.
      starts: Offset of the value's first byte: of a text, of a float's four bytes, or of a varint. Undefined unless
        `kinds` is positive. Shape (n,), int64.
      stops: Offset after the value's last byte, where its map entry ends as well. Undefined as for `starts`.
    """

    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def none(cls, records: int) -> Values:
        """Values of a feature that no record has.

        Args:
          records: Number of records, n.

        Returns:
          Arrays of zeros, to be filled by `put`.
        """
        return cls(*np.zeros((3, records), np.int64))

    def put(self, rows: np.ndarray | slice, kinds: Any, starts: Any, stops: Any) -> None:
        """Sets the values of some records.

        Args:
          rows: Indices of the records.
          kinds: As the attribute, of these records.
          starts: As the attribute, of these records.
          stops: As the attribute, of these records.
        """
        self.kinds[rows], self.starts[rows], self.stops[rows] = kinds, starts, stops


@dataclass(frozen=True, eq=False)
class Entries:
    """Map entries of several records, not more than one of a record in each step of a walk. All arrays have shape (e,).

    Attributes:
      rows: Index of each entry's record, int64.
      hashes: Hash of its key, int64; equal keys have equal hashes.
      names: Offset of the key's first byte, int64.
      names_stops: Offset after the key's last byte, int64.
      lists: Offset of the Feature's first byte, int64.
      kinds: Kind of its values, int64; 0 where there are none, or several texts.
      starts: Offset of the first byte of its values, int64.
      stops: Offset after the last one, where Feature and entry end as well, int64.
    """

    rows: np.ndarray
    hashes: np.ndarray
    names: np.ndarray
    names_stops: np.ndarray
    lists: np.ndarray
    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class ExampleWalk:
    """Result of one walk through n records.

    Attributes:
      octets: The padded content, shape (m,), uint8.
      starts: Offset of each record's first byte, shape (n,), int64.
      stops: Offset after each record's last byte, shape (n,), int64.
      canonical: Whether each record is in canonical form, shape (n,), bool.
      values: Values by feature, defined for canonical records.
      steps: For each step the entries of all records that took it, canonical or not.
    """

    def __init__(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray, names: Sequence[str]):
        """Walks through the records.

        Args:
          octets: Content with `framing.PADDING` bytes after the last record, shape (m,), uint8.
          starts: Offset of each record's first byte, shape (n,), int64.
          stops: Offset after each record's last byte, shape (n,), int64.
          names: Features whose values are wanted.
        """
        self.octets, self.starts, self.stops = octets, starts, stops
        self.canonical = np.ones(len(starts), bool)
        self.values = {name: Values.none(len(starts)) for name in names}
        self.steps: list[Entries] = []
        self._words = sliding_words(octets)
        self._names = {name: _name_words(name.encode()) for name in names}
        self._walk()

    def _walk(self) -> None:
        tags, at, ends, good = self._field(self.starts, self.stops)
        empty = self.starts == self.stops
        self.canonical = empty | (good & (tags == FEATURES_TAG) & (ends == self.stops))
        rows = np.flatnonzero(self.canonical & ~empty & (at < ends))
        at, stops = at[rows], self.stops[rows]
        while len(rows):
            good, at = self._entry(rows, at, stops)
            self.canonical[rows[~good]] = False
            going = good & (at < stops)
            if not going.all():
                rows, at, stops = rows[going], at[going], stops[going]
        if self.steps:
            hashes = np.concatenate([step.hashes for step in self.steps])
            owners = np.concatenate([step.rows for step in self.steps])
            self.canonical[_owners_of_duplicates(hashes, owners)] = False

    def entries(self) -> Entries:
        """Lists the entries of all canonical records.

        Returns:
          The entries, those of the first step first.
        """
        kept = [self.canonical[step.rows] for step in self.steps]
        none = [np.empty(0, np.int64)]
        return Entries(
            *(
                np.concatenate(
                    [getattr(step, each.name)[keep] for step, keep in zip(self.steps, kept, strict=True)] or none
                )
                for each in fields(Entries)
            )
        )

    def _field(
        self, at: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | np.bool_]:
        """Reads a length-delimited field. Returns (tag, begin and end of its content, whether it is well formed).

        The offsets returned are at most `stops`, however wrong the lengths are.
        """
        word = self._words[at]
        if (word & 0x8000).any():
            lengths, sizes, minimal = read_lengths(word >> 8)
            begins = at + sizes + 1
        else:
            lengths, minimal, begins = word >> 8 & 0x7F, np.True_, at + 2
        ends = begins + lengths
        good = minimal & (ends <= stops)
        return word & 0xFF, np.minimum(begins, stops), np.minimum(ends, stops), good

    def _entry(self, rows: np.ndarray, at: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads one map entry of each record. Returns (whether it is canonical, its end)."""
        tags, keys, ends, good = self._field(at, stops)
        good = good & (tags == _ENTRY)
        tags, names, features, fine = self._field(keys, ends)
        good &= fine & (tags == _KEY) & (features < ends)
        hashed, plain, matching = self._match(names, features)
        good &= plain
        tags, lists, lists_end, fine = self._field(features, ends)
        good &= fine & (tags == _VALUE) & (lists_end == ends)
        kinds, begins, fine = self._list(lists, ends)
        good &= fine
        self.steps.append(Entries(rows, hashed, names, features, lists, kinds, begins, ends))
        for name, match in matching.items():
            self._put(name, rows, match & good, kinds, begins, ends)
        return good, ends

    def _put(
        self, name: str, rows: np.ndarray, match: np.ndarray, kinds: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> None:
        if not match.any():
            return
        if not match.all():
            rows, kinds, begins, ends = rows[match], kinds[match], begins[match], ends[match]
        single = np.where(kinds == FLOAT, ends - begins == 4, kinds == BYTES)
        integers = kinds == INT64
        if integers.any():
            single |= integers & self._single_varint(begins, ends)
        self.values[name].put(rows, np.where(single, kinds, -1), begins, ends)

    def _match(self, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Reads keys. Returns (hash of each, whether it is UTF-8, for each feature: whether it is its name)."""
        sizes = ends - at
        matching = {name: sizes == size for name, (size, _) in self._names.items()}
        hashed, high = sizes, np.zeros(len(at), np.int64)
        for place in range(0, int(sizes.max()), 8):
            word = self._words[np.minimum(at + place, len(self._words) - 1)]
            word = word & _LOW_BYTES[np.clip(sizes - place, 0, 8)]
            high |= word
            mixed = (hashed ^ word) * _MIX
            # Only a key's own words enter its hash: keys read together differ in length; equal ones must hash alike.
            hashed = np.where(place < sizes, mixed ^ mixed >> 29, hashed)
            for name, (size, words) in self._names.items():
                if place < size:
                    matching[name] &= word == words[place // 8]
        good = high & _HIGH_BITS == 0
        for row in np.flatnonzero(~good):
            good[row] = _is_text(self.octets[at[row] : ends[row]].tobytes())
        return hashed, good, matching

    def _list(self, at: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reads the content of Features. Returns (kind, begin of its values, whether it is canonical)."""
        kinds, items, ends, good = self._field(at, stops)
        blank = at == stops
        good = good & (ends == stops) & ((kinds == BYTES) | (kinds == FLOAT) | (kinds == INT64))
        blank |= good & (items == stops)
        tags, begins, ends, fine = self._field(items, stops)
        is_field = fine & (tags == _ITEMS)
        whole = is_field & (ends == stops)
        texts, floats, integers = kinds == BYTES, kinds == FLOAT, kinds == INT64
        right = whole & (texts | integers | floats & (stops - begins & 3 == 0))
        unpacked = floats & (tags == _UNPACKED_FLOAT) & (stops - items == 5)
        if integers.any():
            unpacked |= integers & (tags == _UNPACKED_INT64)
            begins = np.where(unpacked, items + 1, begins)
            right |= unpacked
            right &= ~integers | self._varints(begins, stops)
            right &= ~(integers & unpacked) | self._single_varint(begins, stops)
        elif unpacked.any():
            begins = np.where(unpacked, items + 1, begins)
            right |= unpacked
        several = np.flatnonzero(texts & is_field & ~whole & good)
        if len(several):
            right[several] = self._texts(ends[several], stops[several])
            kinds[several] = 0
        kinds[blank] = 0
        return kinds, np.where(kinds == 0, stops, begins), blank | good & right

    def _texts(self, at: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Tests whether texts, each a field of its own, fill [at, stops)."""
        good = np.ones(len(at), bool)
        rows = np.arange(len(at))
        while len(rows):
            tags, _, at, fine = self._field(at, stops)
            fine = fine & (tags == _ITEMS)
            good[rows[~fine]] = False
            going = fine & (at < stops)
            rows, at, stops = rows[going], at[going], stops[going]
        return good

    def _varints(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Tests whether complete varints fill [begins, ends)."""
        good = (begins == ends) | (self.octets[np.maximum(ends - 1, 0)] < 0x80)
        longer = np.flatnonzero(ends - begins > _LONGEST_VARINT)
        if len(longer):
            first = self._overlong[np.searchsorted(self._overlong, begins[longer])]
            good[longer] &= first + _LONGEST_VARINT > ends[longer]
        return good

    @cached_property
    def _overlong(self) -> np.ndarray:
        """Offsets of ten consecutive bytes that do not end a varint, ascending, then one offset beyond the content."""
        high = self.octets >= 0x80
        two = high[1:] & high[:-1]
        four = two[2:] & two[:-2]
        eight = four[4:] & four[:-4]
        return np.append(np.flatnonzero(eight[2:] & two[: len(eight) - 2]), len(self.octets) + _LONGEST_VARINT)

    def _single_varint(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Tests whether a single varint fills [begins, ends), which complete varints are known to fill."""
        sizes = ends - begins
        low = _LOW_BYTES[np.clip(sizes - 1, 0, 8)] & _HIGH_BITS
        good = (sizes >= 1) & (sizes <= _LONGEST_VARINT) & (self._words[begins] & low == low)
        if (sizes == _LONGEST_VARINT).any():
            good &= (sizes < _LONGEST_VARINT) | (self.octets[np.minimum(begins + 8, ends)] >= 0x80)
        return good


def _owners_of_duplicates(hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Records in which a hash occurs twice."""
    mixed = hashes * _MIX + owners * _MIX_OWNER
    ordered = np.sort(mixed)
    if not (ordered[1:] == ordered[:-1]).any():
        return owners[:0]
    order = np.argsort(mixed, kind="stable")
    again = order[1:][mixed[order][1:] == mixed[order][:-1]]
    return owners[again]


def _name_words(name: bytes) -> tuple[int, np.ndarray]:
    """Length of a name, and its bytes as words, padded with zeros."""
    return len(name), np.frombuffer(name + bytes(-len(name) % 8), "<i8")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
