"""Forms of map entries: an entry in canonical form is recognized by comparing its bytes with those of one read before.

The entries of a feature are alike in all records: all bytes but those of the value are equal, apart from the lengths
around a text or an integer, which follow from the length of the entry. So an entry is compared with the form that its
key leads to, whatever the order of the entries and whatever the lengths of their values.

A form is made from an entry that `example_walk` has read field by field. An entry that agrees with a form is canonical,
and its value is where the form says; one that agrees with none is read field by field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BYTES, FLOAT, INT64 = 0x0A, 0x12, 0x1A
"""Kinds of a Feature, by the tag of its list."""

# Entries of which more bytes precede the value have no form, and no more forms are learned beyond _MOST_FORMS.
_MOST_WORDS, _MOST_FORMS = 16, 1 << 12
# Most entries of a batch from which forms are learned.
_SAMPLE = 1 << 12
# Entries compared at a time: what is computed for them stays in the cache.
_BLOCK = 1 << 14
_SLOT_BITS = 13
# Tag and length of the key precede it.
_KEY_OFFSET = 2
# Arbitrary odd multiplier of the hash.
_MIX = np.uint64(0x1E3779B97F4A7C15)
# Bytes of tags and lengths before a value, of its list and of the list's item, if the lengths have one byte each.
_AROUND = 4
_LONGEST_VARINT = 10
_BYTE = np.uint64(0xFF)


@dataclass(frozen=True)
class Form:
    """Form of entries. Offsets count from the first byte of the entry's content, which is the tag of its key.

    Attributes:
      key: The key.
      hash: Hash of the key.
      kind: Kind of the values; 0 where there are none.
      names: Offset of the key.
      names_stop: Offset after the key.
      lists: Offset of the Feature.
      starts: Offset of the values.
      expected: The bytes before the values, in an entry whose content has `size` bytes.
      lengths: Offsets of the bytes that grow with the content's size.
      size: Size of the content, in bytes.
      most: Largest number of bytes by which the content of other entries of the form is longer.
    """

    key: bytes
    hash: int
    kind: int
    names: int
    names_stop: int
    lists: int
    starts: int
    expected: bytes
    lengths: tuple[int, ...]
    size: int
    most: int


def form_of(content: bytes, key_hash: int, kind: int, names: int, names_stop: int, lists: int, starts: int) -> Form:
    """Makes the form of a canonical entry.

    Args:
      content: Content of the entry.
      key_hash: Hash of its key.
      kind: Kind of its values; 0 where there are none.
      names: As in `Form`, as are the others.
      names_stop: As in `Form`.
      lists: As in `Form`.
      starts: As in `Form`.

    Returns:
      The form.
    """
    key, expected = content[names:names_stop], content[:starts]
    around = (key, key_hash, kind, names, names_stop, lists, starts)
    # Tag and length of the Feature have two bytes, as have those of its list and of the list's item.
    if kind in (BYTES, INT64) and lists == names_stop + 2 and starts == lists + _AROUND:
        lengths = (lists - 1, lists + 1, lists + 3)
        # The lengths in an entry without a byte of a value.
        emptied = bytearray(expected)
        emptied[lists - 1], emptied[lists + 1], emptied[lists + 3] = _AROUND, 2, 0
        most = _LONGEST_VARINT if kind == INT64 else 0x7F - _AROUND
        return Form(*around, bytes(emptied), lengths, starts, most)
    return Form(*around, expected, (), len(content), 0)


class EntryForms:
    """Forms that were learned so far, and what is known of each, by its number. Number 0 is no form.

    Attributes:
      keys: Number of each key, from 1 on, by the key.
      key: Number of the key of each form, shape (f,), int64, as are the others.
      hash: As in `Form`.
      kind: As in `Form`.
      names: As in `Form`.
      names_stop: As in `Form`.
      lists: As in `Form`.
      starts: As in `Form`.
    """

    def __init__(self) -> None:
        """Starts without forms."""
        self.keys: dict[bytes, int] = {}
        self._forms: dict[Form, int] = {}
        self._build()

    def __len__(self) -> int:
        return len(self._forms)

    def learn(
        self,
        octets: np.ndarray,
        begins: np.ndarray,
        ends: np.ndarray,
        hashes: np.ndarray,
        kinds: np.ndarray,
        names: np.ndarray,
        names_stops: np.ndarray,
        lists: np.ndarray,
        starts: np.ndarray,
    ) -> None:
        """Learns the forms of canonical entries that agree with no form.

        Args:
          octets: The content, shape (m,), uint8.
          begins: Offset of each entry's content, shape (e,), int64, as are the others.
          ends: Offset after the entry.
          hashes: Hash of the key.
          kinds: Kind of the values; 0 where there are none, or several texts.
          names: Offset of the key.
          names_stops: Offset after the key.
          lists: Offset of the Feature.
          starts: Offset of the values; after the last byte of an entry without.
        """
        # Lists of several texts have no form, nor have integers that are not packed or have many bytes.
        packed = (lists == names_stops + 2) & (starts == lists + _AROUND)
        formed = np.where(kinds == INT64, packed, (kinds > 0) | (ends - lists <= 2))
        formed &= starts - begins <= 8 * _MOST_WORDS
        chosen = np.flatnonzero(formed)[:_SAMPLE]
        # Of entries with the same key, kind and length, one is enough.
        _, first = np.unique(hashes[chosen] * 4 + kinds[chosen] + 8 * (ends - lists)[chosen], return_index=True)
        before = len(self._forms)
        for place in chosen[first].tolist():
            begin = int(begins[place])
            offsets = (int(each[place]) - begin for each in (names, names_stops, lists, starts))
            content = octets[begin : ends[place]].tobytes()
            form = form_of(content, int(hashes[place]), int(kinds[place]), *offsets)
            if len(self._forms) < _MOST_FORMS and form not in self._forms:
                self._forms[form] = len(self._forms) + 1
                self.keys.setdefault(form.key, len(self.keys) + 1)
        if len(self._forms) > before:
            self._build()

    def match(self, octets: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Finds the form of entries.

        Args:
          octets: The content, shape (m,), uint8.
          begins: Offset of each entry's content, shape (e,), int64.
          ends: Offset after each entry, shape (e,), int64.

        Returns:
          The number of each entry's form, 0 where it agrees with none; shape (e,), int64.
        """
        found = np.zeros(len(begins), np.int64)
        if self._forms:
            for start in range(0, len(begins), _BLOCK):
                block = slice(start, start + _BLOCK)
                found[block] = self._match_block(octets, begins[block], ends[block])
        return found

    def _match_block(self, octets: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Finds the form of entries, as `match`."""
        size = 8 * self._words
        last = len(octets) - size
        if last < 0:
            return np.zeros(len(begins), np.int64)
        windows = np.ndarray((last + 1,), f"V{size}", octets, strides=(1,))  # type: ignore[arg-type]
        # What would be read beyond the content is read field by field.
        beyond = begins[-1] > last or (begins > last).any()
        words = windows[np.minimum(begins, last) if beyond else begins].view("<u8").reshape(len(begins), -1)
        sizes, final = ends - begins, octets.take(ends - 1)
        forms = self._slots.take(_slots(words, self._key_words))
        agree = self._agree(words, sizes, final, forms)
        if not agree.all():
            # Other forms of the key, and forms of other keys with its hash.
            going = np.flatnonzero(~agree)
            forms, tried = np.where(agree, forms, 0), forms
            going, tried = _having(going, self._next.take(tried[going]))
            while len(going):
                agree = self._agree(words[going], sizes[going], final[going], tried)
                forms[going[agree]] = tried[agree]
                going, tried = _having(going[~agree], self._next.take(tried[~agree]))
        if beyond:
            forms[begins > last] = 0
        return forms

    def _agree(self, words: np.ndarray, sizes: np.ndarray, final: np.ndarray, forms: np.ndarray) -> np.ndarray:
        """Tests which entries agree with the form named for each.

        words: (e, w) first bytes of their contents. sizes: (e,) sizes of the contents. final: (e,) last byte of each.
        """
        more = (sizes - self._sizes.take(forms)).view(np.uint64)
        differing: np.ndarray | None = None
        for place in range(self._words):
            expected = self._expected[place].take(forms)
            growing = self._growing[place]
            if growing is not None:
                expected += growing.take(forms) * more
            expected ^= words[:, place]
            expected &= self._masks[place].take(forms)
            differing = expected if differing is None else np.bitwise_or(differing, expected, out=differing)
        agree = differing == 0
        # Shorter contents wrap around to large numbers.
        agree &= more <= self._most.take(forms)
        # Varints are complete if the last one ends; there are at most ten bytes.
        agree &= final & self._final.take(forms) == 0
        return agree

    def _build(self) -> None:
        """Makes the tables."""
        forms = list(self._forms)
        longest = max((len(form.expected) for form in forms), default=8)
        self._words = -(-longest // 8)
        self._key_words = -(-max((form.names_stop for form in forms), default=8) // 8)
        table = np.zeros((3, len(forms) + 1, 8 * self._words), np.uint8)
        # Entry 0 agrees with nothing that begins with the tag of a key.
        table[:2, 0] = 0xFF
        for number, form in enumerate(forms, 1):
            header = len(form.expected)
            table[0, number, :header] = np.frombuffer(form.expected, np.uint8)
            table[1, number, :header] = 0xFF
            table[2, number, list(form.lengths)] = 1
        expected, masks, growing = (np.ascontiguousarray(each.view("<u8").T) for each in table)
        self._expected, self._masks = list(expected), list(masks)
        self._growing = [column if column.any() else None for column in growing]

        def numbers(name: str) -> np.ndarray:
            return np.array([0, *(getattr(form, name) for form in forms)], np.int64)

        self.key = np.array([0, *(self.keys[form.key] for form in forms)], np.int64)
        self.hash, self.kind, self.lists, self.starts = (numbers(name) for name in ("hash", "kind", "lists", "starts"))
        self.names, self.names_stop = numbers("names"), numbers("names_stop")
        self._sizes, self._most = numbers("size"), numbers("most").view(np.uint64)
        self._final = np.array([0, *(0x80 * (form.kind == INT64) for form in forms)], np.uint8)
        self._slots = np.zeros(1 << _SLOT_BITS, np.int64)
        self._next = np.zeros(len(forms) + 1, np.int64)
        if forms:
            slots = _slots(np.ascontiguousarray(expected.T)[1:], self._key_words)
            for number, slot in enumerate(slots.tolist(), 1):
                self._next[number], self._slots[slot] = self._slots[slot], number


def _having(places: np.ndarray, forms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places that have a form, and their forms."""
    kept = forms > 0
    return places[kept], forms[kept]


def _key_masks() -> np.ndarray:
    """Masks of a key with its tag and length, in each word of an entry, by the size of the key. Shape (w, 256)."""
    octets = np.arange(8 * _MOST_WORDS) < np.arange(256)[:, None] + _KEY_OFFSET
    return np.ascontiguousarray((octets * np.uint8(0xFF)).view("<u8").T)


_KEY_MASKS = _key_masks()


def _slots(words: np.ndarray, key_words: int) -> np.ndarray:
    """Hashes of keys: slots of the table of forms. words: (e, w) first bytes of contents of entries."""
    sizes = (words[:, 0] >> np.uint64(8) & _BYTE).view(np.int64)
    hashed = (words[:, 0] & _KEY_MASKS[0].take(sizes)) * _MIX
    for place in range(1, key_words):
        hashed ^= hashed >> np.uint64(29)
        hashed ^= words[:, place] & _KEY_MASKS[place].take(sizes)
        hashed *= _MIX
    return (hashed >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
