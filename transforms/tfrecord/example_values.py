"""Positions of values in serialized tf.Examples, found without decoding them, for a batch of records at a time.

Only records in the canonical form of `wire_reference` are located; all others are left to the caller, who decodes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .wire import walk_examples

# Only hashes depend on it, and they leave no process.
_SEED = os.urandom(16)


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

    def put(self, rows: np.ndarray | slice, kinds: Any, starts: Any, stops: Any) -> None:
        """Sets the values of the records with indices `rows`."""
        self.kinds[rows], self.starts[rows], self.stops[rows] = kinds, starts, stops


@dataclass(frozen=True, eq=False)
class FoundValues:
    """Positions found in n records.

    Attributes:
      canonical: Records whose values were located, shape (n,), bool.
      values: Values by feature; of kind 0 in records that are not canonical.
    """

    canonical: np.ndarray
    values: dict[str, Values]


@dataclass(frozen=True, eq=False)
class Entries:
    """Map entries of several records. All arrays have shape (e,).

    Attributes:
      rows: Index of each entry's record, int64.
      hashes: Hash of its key, int64; equal keys have equal hashes in one process.
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


def find_values(
    content: bytes | memoryview, starts: np.ndarray, stops: np.ndarray, names: Sequence[str]
) -> FoundValues:
    """Locates the values of some features in a batch of records that are in canonical form.

    `starts` and `stops` are the offsets of each record's first byte and after its last byte in `content`, shape (n,),
    int64; other bytes may surround the records. The result holds offsets into `content`.
    """
    canonical, found = np.empty(len(starts), bool), np.zeros((len(names), 3, len(starts)), np.int64)
    walk_examples(content, starts, stops, tuple(name.encode() for name in names), canonical, found, False, _SEED)
    return FoundValues(canonical, {name: Values(*found[place]) for place, name in enumerate(names)})


def list_entries(content: bytes | memoryview, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, Entries]:
    """Lists the map entries of a batch of records; arguments as for `find_values`.

    Returns (canonical, entries): whether each record is in canonical form, shape (n,), bool, and the entries of those
    that are, record by record.
    """
    canonical = np.empty(len(starts), bool)
    found = np.zeros((0, 3, len(starts)), np.int64)
    listed = walk_examples(content, starts, stops, (), canonical, found, True, _SEED)
    return canonical, Entries(*np.ascontiguousarray(np.frombuffer(listed, np.int64).reshape(-1, 8).T))
