"""Positions of values in serialized tf.Examples, found without decoding them, for a batch of records at a time.

Only records in the canonical form of `example_walk` are located; all others are left to the caller, who decodes them.
Records are compared with the templates of records seen before, and those that match none are walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .example_templates import Template, group_by_length, record_words
from .example_walk import ExampleWalk, Values

_TEMPLATES_PER_LENGTH = 4
# Fewer records of one length are walked faster than compared.
_MIN_GROUP = 128
# After so many batches in which less than half of the records matched, no more are compared.
_MAX_FAILURES = 4


@dataclass(frozen=True, eq=False)
class FoundValues:
    """Positions found in n records.

    Attributes:
      canonical: Records whose values were located, shape (n,), bool.
      values: Values by feature, defined for canonical records.
    """

    canonical: np.ndarray
    values: dict[str, Values]


class ValueFinder:
    """Locates the values of some features, batch after batch, and learns the forms of records on the way.

    Attributes:
      names: The features.
    """

    def __init__(self, names: Sequence[str]):
        """Starts without templates.

        Args:
          names: Features whose values are wanted.
        """
        self.names = tuple(names)
        self._templates: dict[int, list[Template]] = {}
        self._failures = 0

    def find(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> FoundValues:
        """Locates the values in a batch of records.

        Args:
          octets: Content with `framing.PADDING` bytes after the last record, shape (m,), uint8.
          starts: Offset of each record's first byte, shape (n,), int64.
          stops: Offset after each record's last byte, shape (n,), int64.

        Returns:
          Offsets into `octets` for the records in canonical form.
        """
        rows = np.arange(len(starts))
        found = FoundValues(np.zeros(len(starts), bool), {name: Values.none(len(starts)) for name in self.names})
        # Where map entries come in any order, there are too many forms to learn.
        if self._failures < _MAX_FAILURES:
            rows = self._compare(octets, starts, stops, found)
            self._failures += 2 * len(rows) > len(starts) >= _MIN_GROUP
        if len(rows):
            walk = ExampleWalk(octets, starts[rows], stops[rows], self.names)
            found.canonical[rows] = walk.canonical
            for name, values in found.values.items():
                values.put(rows, **vars(walk.values[name]))
        return found

    def _compare(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray, found: FoundValues) -> np.ndarray:
        """Locates values of records that match a template. Returns the other records, ascending."""
        left = [
            self._compare_group(octets, starts, length, rows, found) for length, rows in group_by_length(stops - starts)
        ]
        return np.sort(np.concatenate(left)) if left else np.arange(0)

    def _compare_group(
        self, octets: np.ndarray, starts: np.ndarray, length: int, rows: np.ndarray, found: FoundValues
    ) -> np.ndarray:
        """Does the same for records of one length."""
        if len(rows) < _MIN_GROUP or not length:
            return rows
        known, words = self._templates.setdefault(length, []), record_words(octets, starts[rows], length)
        for place in range(_TEMPLATES_PER_LENGTH):
            if place == len(known):
                walk = ExampleWalk(octets, starts[rows[:1]], starts[rows[:1]] + length, self.names)
                if not walk.canonical[0]:
                    break
                known.append(Template.of(walk))
            alike = known[place].matches(words)
            chosen = rows[alike]
            for name, values in found.values.items():
                kind, start, stop = known[place].values[name]
                values.put(chosen, kind, starts[chosen] + start, starts[chosen] + stop)
            found.canonical[chosen] = True
            rows, words = rows[~alike], words[~alike]
            if not len(rows):
                break
        return rows
