"""Templates: bytes that tf.Examples of one form have in common, so that a record is recognized by comparing bytes.

Records of a dataset are mostly alike: same features, same order, same length. All their bytes but those of the values
are then equal to those of one record that was walked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .example_walk import INT64, ExampleWalk


@dataclass(frozen=True, eq=False)
class Template:
    """Form of a canonical record.

    Attributes:
      mask: Bits that belong to the form, shape (w,), int64.
      expected: The record under the mask, as one item for comparison.
      values: For each feature its kind, and the offsets from the record's start at which its value starts and stops.
    """

    mask: np.ndarray
    expected: np.ndarray
    values: dict[str, tuple[int, int, int]]

    @classmethod
    def of(cls, walk: ExampleWalk) -> Template:
        """Form of the first record of a walk.

        Args:
          walk: A walk whose first record is canonical and not empty.

        Returns:
          The template.
        """
        start, length = int(walk.starts[0]), int(walk.stops[0] - walk.starts[0])
        octets = np.zeros(-(-length // 8) * 8, np.uint8)
        octets[:length] = 0xFF
        for step in walk.steps:
            # The last byte of each varint must stay the same.
            octets[int(step.starts[0]) - start : int(step.stops[0]) - start] = 0x80 if step.kinds[0] == INT64 else 0
        mask = octets.view("<i8")
        values = {
            name: (int(found.kinds[0]), int(found.starts[0]) - start, int(found.stops[0]) - start)
            for name, found in walk.values.items()
        }
        return cls(mask, _rows_as_items(record_words(walk.octets, walk.starts, length) & mask), values)

    def matches(self, words: np.ndarray) -> np.ndarray:
        """Tests which records have this form.

        Args:
          words: Records of the template's length as `record_words` gives them, shape (n, w), int64.

        Returns:
          Shape (n,), bool.
        """
        return _rows_as_items(words & self.mask) == self.expected


def group_by_length(lengths: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Groups records by length.

    Args:
      lengths: Bytes of each record, shape (n,), int64.

    Returns:
      Each length with the indices of its records, ascending.
    """
    if not len(lengths):
        return []
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
    return [(int(lengths[rows[0]]), rows) for rows in np.split(order, ends[:-1])]


def record_words(octets: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Copies records of one length as whole words.

    Args:
      octets: Content with `framing.PADDING` bytes after the last record, shape (m,), uint8.
      starts: Offset of each record's first byte, shape (n,), int64.
      length: Bytes of a record, >= 1.

    Returns:
      Shape (n, w), int64, with w = ceil(length / 8). The last word reaches into what follows the record.
    """
    width = -(-length // 8) * 8
    at = np.ndarray((len(octets) - width + 1,), f"V{width}", octets, strides=(1,))  # type: ignore[arg-type]
    return at[starts].view("<i8").reshape(len(starts), -1)


def _rows_as_items(words: np.ndarray) -> np.ndarray:
    """Each row as one item, for comparison."""
    return words.view(f"V{8 * words.shape[1]}").ravel()
