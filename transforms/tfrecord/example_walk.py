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

All records are walked in lockstep: step j finds where the j-th map entry of each of them ends. Then the entries are
compared with the forms of entries that were read before (`entry_forms`), and the others are read field by field.

Source: tensorflow/core/example/example.proto and feature.proto, and the protocol buffer wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from .entry_forms import BYTES, FLOAT, INT64, EntryForms
from .varints import read_lengths, sliding_words

FEATURES_TAG = 0x0A
"""Tag of the field of an Example that holds its map entries."""

# Tags of the other fields.
_ENTRY = _KEY = _ITEMS = 0x0A
_VALUE = 0x12
_UNPACKED_FLOAT, _UNPACKED_INT64 = 0x0D, 0x08

_LONGEST_VARINT = 10
# Records from which forms are learned first.
_FIRST_RECORDS = 64
# Keys are compared by bits of words: the sum of 2^32 entries of a record fits into a word. Where there are more keys
# than _MOST_KEYS, sorting is faster.
_KEY_BITS, _MOST_KEYS = 31, 310
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
    """Map entries of several records. All arrays have shape (e,).

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
      canonical: Whether each record is in canonical form, shape (n,), bool.
      values: Values by feature, defined for canonical records.
    """

    def __init__(
        self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray, names: Sequence[str], forms: EntryForms
    ):
        """Walks through the records.

        Args:
          octets: Content with `framing.PADDING` bytes after the last record, shape (m,), uint8.
          starts: Offset of each record's first byte, shape (n,), int64.
          stops: Offset after each record's last byte, shape (n,), int64.
          names: Features whose values are wanted.
          forms: Forms of entries, to which those found are added. They save time and change no result.
        """
        if not len(forms) and len(starts) > _FIRST_RECORDS:
            ExampleWalk(octets, starts[:_FIRST_RECORDS], stops[:_FIRST_RECORDS], (), forms)
        self.octets = octets
        self.canonical = np.ones(len(starts), bool)
        self.values = {name: Values.none(len(starts)) for name in names}
        self._words = sliding_words(octets)
        self._forms = forms
        # The entries of all records, canonical or not: index of the record, bounds of the content, number of the form.
        self._sizes = self._find_entries(starts, stops)
        self._places = forms.match(octets, self._begins, self._ends)
        self._unknown = np.flatnonzero(self._places == 0)
        self._read: Entries | None = None
        if len(self._unknown):
            self._read = self._read_unknown()
        for name, values in self.values.items():
            self._find_values(name, values)
        self._find_duplicates()

    def _find_entries(self, starts: np.ndarray, stops: np.ndarray) -> list[int]:
        """Finds the entries of all records. Returns how many there are in each step."""
        tags, at, ends, good = self._field(starts, stops)
        empty = starts == stops
        self.canonical = empty | (good & (tags == FEATURES_TAG) & (ends == stops))
        rows = np.flatnonzero(self.canonical & ~empty & (at < ends))
        at, stops = at[rows], stops[rows]
        steps = []
        while len(rows):
            begins, ends, good = self._entry(at, stops)
            if not good.all():
                self.canonical[rows[~good]] = False
                rows, stops, begins, ends = rows[good], stops[good], begins[good], ends[good]
            steps.append((rows, begins, ends))
            going, at = ends < stops, ends
            if not going.all():
                rows, at, stops = rows[going], at[going], stops[going]
        none = [(np.empty(0, np.int64),) * 3]
        self._rows, self._begins, self._ends = (np.concatenate(parts) for parts in zip(*(steps or none), strict=True))
        return [len(step[0]) for step in steps]

    def _entry(self, at: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reads tag and length of one map entry of each record. Returns (begin and end, whether it is well formed)."""
        tags, lengths = self.octets.take(at), self.octets.take(at + 1)
        if lengths.max() < 0x80:
            begins = at + 2
            ends = begins + lengths
            return begins, ends, (tags == _ENTRY) & (ends <= stops)
        _, begins, ends, good = self._field(at, stops)
        return begins, ends, good & (tags == _ENTRY)

    def _read_unknown(self) -> Entries:
        """Reads the entries without a form field by field, and learns their forms."""
        rows, begins, ends = (each[self._unknown] for each in (self._rows, self._begins, self._ends))
        found, good = self._content(rows, begins, ends)
        self.canonical[rows[~good]] = False
        names = ("hashes", "kinds", "names", "names_stops", "lists", "starts")
        self._forms.learn(self.octets, begins[good], ends[good], *(getattr(found, name)[good] for name in names))
        return found

    def _find_values(self, name: str, values: Values) -> None:
        """Finds the values of one feature."""
        number = self._forms.keys.get(name.encode())
        if number is not None:
            # Forms that were learned in this walk have larger numbers than those that were found.
            at = np.flatnonzero((self._forms.key == number)[self._places])
            forms = self._places[at]
            starts = self._begins[at] + self._forms.starts[forms]
            self._put(values, self._rows[at], self._forms.kind[forms], starts, self._ends[at])
        if self._read is not None:
            read, (size, words) = self._read, _name_words(name.encode())
            at = np.flatnonzero(read.names_stops - read.names == size)
            for place, word in enumerate(words.tolist()):
                mask = _LOW_BYTES[min(size - 8 * place, 8)]
                at = at[self._words[np.minimum(read.names[at] + 8 * place, len(self._words) - 1)] & mask == word]
            self._put(values, read.rows[at], read.kinds[at], read.starts[at], read.stops[at])

    def _put(self, values: Values, rows: np.ndarray, kinds: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
        """Sets the values of some records."""
        single = np.where(kinds == FLOAT, ends - begins == 4, kinds == BYTES)
        integers = kinds == INT64
        if integers.any():
            single |= integers & self._single_varint(begins, ends)
        values.put(rows, np.where(single, kinds, -1), begins, ends)

    def _find_duplicates(self) -> None:
        """Finds the records in which a key occurs twice."""
        chosen: Any = slice(None)
        if len(self._forms.keys) <= _MOST_KEYS:
            # Keys that differ have different bits. Bits that are added only differ from bits that are united if one of
            # them is added twice.
            for first in range(0, int(self._forms.key.max()), _KEY_BITS):
                places = self._forms.key - 1 - first
                bits = np.where((places >= 0) & (places < _KEY_BITS), 1 << np.maximum(places, 0) % _KEY_BITS, 0)
                self.canonical &= self._distinct(bits)
            if self._read is None:
                return
            # Keys of entries without a form have no number.
            unnumbered = np.zeros(len(self.canonical), bool)
            unnumbered[self._read.rows] = True
            chosen = unnumbered[self._rows]
        hashes = self._forms.hash[self._places]
        if self._read is not None:
            hashes[self._unknown] = self._read.hashes
        self.canonical[_owners_of_duplicates(hashes[chosen], self._rows[chosen])] = False

    def _distinct(self, bits: np.ndarray) -> np.ndarray:
        """Tests in which records no bit occurs twice. bits: bit of each form, (f,), less than 2^32."""
        united, added = np.zeros((2, len(self.canonical)), np.int64)
        start = 0
        for size in self._sizes:
            step = slice(start, start + size)
            rows: Any = slice(None) if size == len(united) else self._rows[step]
            own = bits.take(self._places[step])
            united[rows] |= own
            added[rows] += own
            start += size
        return united == added

    def entries(self) -> Entries:
        """Lists the entries of all canonical records.

        Returns:
          The entries, those of the first step first.
        """
        kept = np.flatnonzero(self.canonical[self._rows])
        forms, begins, known = self._places[kept], self._begins[kept], self._forms
        found = Entries(
            self._rows[kept],
            known.hash[forms],
            begins + known.names[forms],
            begins + known.names_stop[forms],
            begins + known.lists[forms],
            known.kind[forms],
            begins + known.starts[forms],
            self._ends[kept],
        )
        if self._read is not None:
            here, there = np.flatnonzero(forms == 0), np.flatnonzero(self.canonical[self._read.rows])
            for each in fields(Entries):
                getattr(found, each.name)[here] = getattr(self._read, each.name)[there]
        return found

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

    def _content(self, rows: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[Entries, np.ndarray]:
        """Reads the contents of entries. Returns (what they hold, whether each is canonical)."""
        tags, names, features, good = self._field(begins, ends)
        good = good & (tags == _KEY) & (features < ends)
        hashed, plain = self._key_hashes(names, features)
        good &= plain
        tags, lists, lists_end, fine = self._field(features, ends)
        good &= fine & (tags == _VALUE) & (lists_end == ends)
        kinds, starts, fine = self._list(lists, ends)
        good &= fine
        return Entries(rows, hashed, names, features, lists, kinds, starts, ends), good

    def _key_hashes(self, at: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads keys. Returns (hash of each, whether it is UTF-8)."""
        sizes = ends - at
        hashed, high = sizes, np.zeros(len(at), np.int64)
        for place in range(0, int(sizes.max()), 8):
            word = self._words[np.minimum(at + place, len(self._words) - 1)]
            word = word & _LOW_BYTES[np.clip(sizes - place, 0, 8)]
            high |= word
            mixed = (hashed ^ word) * _MIX
            # Only a key's own words enter its hash: keys read together differ in length; equal ones must hash alike.
            hashed = np.where(place < sizes, mixed ^ mixed >> 29, hashed)
        good = high & _HIGH_BITS == 0
        for row in np.flatnonzero(~good):
            good[row] = _is_text(self.octets[at[row] : ends[row]].tobytes())
        return hashed, good

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
            rows = np.flatnonzero(integers)
            right[rows] &= self._varints(begins[rows], stops[rows])
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
