"""Where values stand in serialized tf.Examples, found without decoding them, for a batch of records at a time.

A record is answered for only in canonical form, in which nothing can hide: Example holds one `features` field and
nothing else; each map entry holds its key, then its value, and nothing else; no key occurs twice; keys are UTF-8; a
Feature holds one list or none, a list one packed field, or texts; tags and lengths are minimal and add up exactly.
There, the bytes of the value found are all that any parser can take for the feature, and parsers see every field;
only an integer among other features may be spelled in more bytes than it needs. Every other record, whether a
parser would accept it or not, is for the caller to decode: a second entry under the same key, a kind that another one
overwrites or an unknown field would otherwise go unseen, with whatever is in it.

Source: tensorflow/core/example/example.proto and feature.proto, and the protocol buffer wire format. Records are walked
in lockstep: step j reads the j-th map entry of all of them. Logs repeat themselves, so what one record was found to
look like is first compared with the others of its length: all bytes but those of values must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

BYTES, FLOAT, INT64 = 0x0A, 0x12, 0x1A
"""The kinds of a Feature, by the tags of its lists."""


PADDING = 8
"""How many bytes must follow the last record: words are read across its end."""


_ENTRIES = _ENTRY = _KEY = _ITEMS = 0x0A


_VALUE = 0x12


_UNPACKED_FLOAT, _UNPACKED_INT64 = 0x0D, 0x08


_LONGEST_VARINT = 10


_HIGH_BITS = np.frombuffer(b"\x80" * 8, "<i8")[0]


# The lowest 0, 1, ..., 8 bytes of a word.
_LOW_BYTES = np.array([(1 << (8 * size)) - 1 for size in range(8)] + [-1], np.int64)


# Odd numbers without a pattern; equal keys of one record have equal hashes.
_MIX, _MIX_OWNER = np.array([0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F])


_TEMPLATES_PER_LENGTH = 4


# Fewer records of one length are walked sooner than compared.
_LEAST_GROUP = 128


# So many batches of which less than a half looked familiar, and no more are compared.
_MOST_FAILURES = 4


@dataclass(frozen=True, eq=False)
class Values:
    """Where the single value of one feature stands in each of n records.

    kinds: (n,) int64, its kind; 0 where the record lacks the feature, -1 where it has no value or several. starts,
    stops: (n,) int64, the bytes of the value: a text, four bytes, a varint; its map entry stops where it does. They
    mean nothing where there is no single value.
    """

    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def none(cls, records: int) -> Values:
        """Not found in any record."""
        return cls(*np.zeros((3, records), np.int64))

    def put(self, rows: np.ndarray | slice, kinds: Any, starts: Any, stops: Any) -> None:
        """Sets those of some records."""
        self.kinds[rows], self.starts[rows], self.stops[rows] = kinds, starts, stops


@dataclass(frozen=True, eq=False)
class Found:
    """What was found in n records. canonical: (n,) bool, which are answered for. values: by feature."""

    canonical: np.ndarray
    values: dict[str, Values]


class ValueFinder:
    """Finds the values of some features, batch after batch; it learns what records look like."""

    def __init__(self, names: Sequence[str]):
        """names: of the features wanted."""
        self.names = tuple(names)
        self._templates: dict[int, list[_Template]] = {}
        self._failures = 0

    def find(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Found:
        """octets: (m,) uint8, `PADDING` of them behind the last record. starts, stops: (n,) int64, of the records."""
        rows = np.arange(len(starts))
        found = Found(np.zeros(len(starts), bool), {name: Values.none(len(starts)) for name in self.names})
        # The entries of a map may come in any order: then there are too many forms to learn.
        if self._failures < _MOST_FAILURES:
            rows = self._compare(octets, starts, stops, found)
            self._failures += 2 * len(rows) > len(starts) >= _LEAST_GROUP
        if len(rows):
            walk = _Walk(octets, starts[rows], stops[rows], self.names)
            found.canonical[rows] = walk.canonical
            for name, values in found.values.items():
                values.put(rows, **vars(walk.values[name]))
        return found

    def _compare(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray, found: Found) -> np.ndarray:
        """Answers for records that look like others before them. Returns which are left, ascending."""
        left = [self._compare_group(octets, starts, length, rows, found) for length, rows in _groups(stops - starts)]
        return np.sort(np.concatenate(left)) if left else np.arange(0)

    def _compare_group(
        self, octets: np.ndarray, starts: np.ndarray, length: int, rows: np.ndarray, found: Found
    ) -> np.ndarray:
        """The same for records of one length."""
        if len(rows) < _LEAST_GROUP or not length:
            return rows
        known, content = self._templates.setdefault(length, []), _rows(octets, starts[rows], length)
        for place in range(_TEMPLATES_PER_LENGTH):
            if place == len(known):
                walk = _Walk(octets, starts[rows[:1]], starts[rows[:1]] + length, self.names)
                if not walk.canonical[0]:
                    break
                known.append(_Template.of(walk))
            alike = known[place].matches(content)
            chosen = rows[alike]
            for name, values in found.values.items():
                kind, start, stop = known[place].values[name]
                values.put(chosen, kind, starts[chosen] + start, starts[chosen] + stop)
            found.canonical[chosen] = True
            rows, content = rows[~alike], content[~alike]
            if not len(rows):
                break
        return rows


def _groups(lengths: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Each length and the records that have it."""
    if not len(lengths):
        return []
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
    return [(int(lengths[rows[0]]), rows) for rows in np.split(order, ends[:-1])]


def _words(octets: np.ndarray) -> np.ndarray:
    """The eight bytes at every place, as one little-endian number."""
    return np.ndarray((max(len(octets) - 7, 0),), "<i8", octets, strides=(1,))  # type: ignore[arg-type]


def _rows(octets: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Records of one length as whole words. Returns (n, w) int64; the last word reaches into what follows."""
    width = -(-length // 8) * 8
    at = np.ndarray((len(octets) - width + 1,), f"V{width}", octets, strides=(1,))  # type: ignore[arg-type]
    return at[starts].view("<i8").reshape(len(starts), -1)


@dataclass(frozen=True, eq=False)
class _Template:
    """What all records of one form have in common.

    mask: (w,) int64, the bits that count. expected: what they are. values: by feature, its kind and where, from the
    record's start, its value starts and stops.
    """

    mask: np.ndarray
    expected: np.ndarray
    values: dict[str, tuple[int, int, int]]

    @classmethod
    def of(cls, walk: _Walk) -> _Template:
        """Of the one canonical record that was walked."""
        start, length = int(walk.starts[0]), int(walk.stops[0] - walk.starts[0])
        octets = np.zeros(-(-length // 8) * 8, np.uint8)
        octets[:length] = 0xFF
        for kinds, begins, ends in walk.contents:
            # Of varints it must stay the same where each ends.
            octets[int(begins[0]) - start : int(ends[0]) - start] = 0x80 if kinds[0] == INT64 else 0
        mask = octets.view("<i8")
        values = {
            name: (int(found.kinds[0]), int(found.starts[0]) - start, int(found.stops[0]) - start)
            for name, found in walk.values.items()
        }
        return cls(mask, _whole(_rows(walk.octets, walk.starts, length) & mask), values)

    def matches(self, content: np.ndarray) -> np.ndarray:
        """Which records have this form. content: (n, w) int64. Returns (n,) bool."""
        return _whole(content & self.mask) == self.expected


def _whole(content: np.ndarray) -> np.ndarray:
    """Each row as one item, for comparing."""
    return content.view(f"V{8 * content.shape[1]}").ravel()


class _Walk:
    """One walk through n records.

    canonical: (n,) bool. values: by feature. contents: for each step, (kinds, begins, ends) of the values of all
    records that took it; the kind is 0 where there are none, or several texts.
    """

    def __init__(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray, names: Sequence[str]):
        self.octets, self.starts, self.stops = octets, starts, stops
        self.canonical = np.ones(len(starts), bool)
        self.values = {name: Values.none(len(starts)) for name in names}
        self.contents: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._words = _words(octets)
        self._names = {name: _name_words(name.encode()) for name in names}
        self._walk()

    def _walk(self) -> None:
        tags, at, ends, good = self._field(self.starts, self.stops)
        empty = self.starts == self.stops
        self.canonical = empty | (good & (tags == _ENTRIES) & (ends == self.stops))
        rows = np.flatnonzero(self.canonical & ~empty & (at < ends))
        at, stops = at[rows], self.stops[rows]
        hashes, owners = [], []
        while len(rows):
            good, hashed, at = self._entry(rows, at, stops)
            hashes.append(hashed)
            owners.append(rows)
            self.canonical[rows[~good]] = False
            going = good & (at < stops)
            if not going.all():
                rows, at, stops = rows[going], at[going], stops[going]
        if hashes:
            self.canonical[_owners_of_pairs(np.concatenate(hashes), np.concatenate(owners))] = False

    def _field(
        self, at: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | np.bool_]:
        """A length-delimited field. Returns (tag, where its content begins and ends, whether it is well formed).

        The places returned are not beyond stops, however wrong the lengths are.
        """
        word = self._words[at]
        if (word & 0x8000).any():
            lengths, sizes, minimal = _lengths(word >> 8)
            begins = at + sizes + 1
        else:
            lengths, minimal, begins = word >> 8 & 0x7F, np.True_, at + 2
        ends = begins + lengths
        good = minimal & (ends <= stops)
        return word & 0xFF, np.minimum(begins, stops), np.minimum(ends, stops), good

    def _entry(self, rows: np.ndarray, at: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One entry of each record. Returns (whether it is canonical, a hash of its key, where it ends)."""
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
        self.contents.append((kinds, begins, ends))
        for name, match in matching.items():
            self._put(name, rows, match & good, kinds, begins, ends)
        return good, hashed, ends

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
        """Keys. Returns (a hash of each, whether it is UTF-8, by feature: whether it is that)."""
        sizes = ends - at
        matching = {name: sizes == size for name, (size, _) in self._names.items()}
        hashed, high = sizes, np.zeros(len(at), np.int64)
        for place in range(0, int(sizes.max()), 8):
            word = self._words[np.minimum(at + place, len(self._words) - 1)]
            word = word & _LOW_BYTES[np.clip(sizes - place, 0, 8)]
            high |= word
            mixed = (hashed ^ word) * _MIX
            # A key's hash is of its own words: equal keys of a record are met beside others' longer ones.
            hashed = np.where(place < sizes, mixed ^ mixed >> 29, hashed)
            for name, (size, words) in self._names.items():
                if place < size:
                    matching[name] &= word == words[place // 8]
        good = high & _HIGH_BITS == 0
        for row in np.flatnonzero(~good):
            good[row] = _is_text(self.octets[at[row] : ends[row]].tobytes())
        return hashed, good, matching

    def _list(self, at: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The content of Features. Returns (kind, where its values begin, whether it is canonical); values fill it."""
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
        """Whether texts, each a field of its own, fill [at, stops)."""
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
        """Whether varints fill [begins, ends)."""
        good = (begins == ends) | (self.octets[np.maximum(ends - 1, 0)] < 0x80)
        longer = np.flatnonzero(ends - begins > _LONGEST_VARINT)
        if len(longer):
            first = self._overlong[np.searchsorted(self._overlong, begins[longer])]
            good[longer] &= first + _LONGEST_VARINT > ends[longer]
        return good

    @cached_property
    def _overlong(self) -> np.ndarray:
        """Where ten bytes follow each other that do not end a varint, ascending, and a place beyond all."""
        high = self.octets >= 0x80
        two = high[1:] & high[:-1]
        four = two[2:] & two[:-2]
        eight = four[4:] & four[:-4]
        return np.append(np.flatnonzero(eight[2:] & two[: len(eight) - 2]), len(self.octets) + _LONGEST_VARINT)

    def _single_varint(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Whether one varint fills [begins, ends), of which varints are known to fill it."""
        sizes = ends - begins
        low = _LOW_BYTES[np.clip(sizes - 1, 0, 8)] & _HIGH_BITS
        good = (sizes >= 1) & (sizes <= _LONGEST_VARINT) & (self._words[begins] & low == low)
        if (sizes == _LONGEST_VARINT).any():
            good &= (sizes < _LONGEST_VARINT) | (self.octets[np.minimum(begins + 8, ends)] >= 0x80)
        return good


def content_begins(octets: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Where the content of the length-delimited field at each place begins. octets: as for `ValueFinder`."""
    return at + 1 + _lengths(_words(octets)[at] >> 8)[1]


def decode_varints(octets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The integers that varints stand for. octets: as for `ValueFinder`. starts, stops: (n,). Returns (n,) int64."""
    words, sizes = _words(octets), stops - starts
    values = np.zeros(len(starts), np.int64)
    for place in range(int(sizes.max(initial=0))):
        values |= np.where(place < sizes, words[np.minimum(starts + place, len(words) - 1)] & 0x7F, 0) << 7 * place
    return values


def _owners_of_pairs(hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """The records in which a hash occurs twice."""
    mixed = hashes * _MIX + owners * _MIX_OWNER
    ordered = np.sort(mixed)
    if not (ordered[1:] == ordered[:-1]).any():
        return owners[:0]
    order = np.argsort(mixed, kind="stable")
    again = order[1:][mixed[order][1:] == mixed[order][:-1]]
    return owners[again]


def _name_words(name: bytes) -> tuple[int, np.ndarray]:
    return len(name), np.frombuffer(name + bytes(-len(name) % 8), "<i8")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _lengths(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Varints of up to five bytes. words: (n,) int64 that begin with one. Returns (value, size, whether it is one, and
    minimal)."""
    values, sizes, more = words & 0x7F, 1, words >> 7 & 1
    for place in range(1, 5):
        sizes = sizes + more
        values = values | (words >> 8 * place & 0x7F) * more << 7 * place
        more = words >> 8 * place + 7 & more
    return values, sizes, (more == 0) & ((sizes == 1) | (values >> 7 * (sizes - 1) > 0))
