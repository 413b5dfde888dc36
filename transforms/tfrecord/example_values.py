"""Positions of values in serialized tf.Examples, found without decoding them, for a batch of records at a time.

Only records in the canonical form of `example_walk` are located; all others are left to the caller, who decodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .entry_forms import EntryForms
from .example_walk import ExampleWalk, Values


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
    """Locates the values of some features, batch after batch, and learns the forms of map entries on the way.

    Attributes:
      names: The features.
    """

    def __init__(self, names: Sequence[str], forms: EntryForms | None = None):
        """Starts a finder.

        Args:
          names: Features whose values are wanted.
          forms: Forms that were learned before, to which others are added; none by default.
        """
        self.names = tuple(names)
        self._forms = EntryForms() if forms is None else forms

    def find(self, octets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> FoundValues:
        """Locates the values in a batch of records.

        Args:
          octets: Content with `framing.PADDING` bytes after the last record, shape (m,), uint8.
          starts: Offset of each record's first byte, shape (n,), int64.
          stops: Offset after each record's last byte, shape (n,), int64.

        Returns:
          Offsets into `octets` for the records in canonical form.
        """
        walk = ExampleWalk(octets, starts, stops, self.names, self._forms)
        return FoundValues(walk.canonical, walk.values)
