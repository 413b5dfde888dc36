"""Streaming (unbounded) input: noise binding for windowed records that an already fitted mechanism privatizes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..mechanisms.noise.keyed_words import keyed_hash
from .label_column import LabelColumn


@dataclass(frozen=True)
class StreamBinding:
    """Binding of the noise of an unbounded input: everything but the secret. Safe to show.

    An unbounded input never has a final digest, so each random word is bound to its record alone: to the record's id
    and its label. A record that is delivered twice, or recomputed for a retry, gets the same output, so its noise
    cannot be averaged away. A record whose label changed gets independent noise: each of the two outputs satisfies
    epsilon-label DP on its own, but an observer who sees two different outputs for one id learns that its label
    changed. One id must therefore stand for one event with one label. A corrected event needs a new id, and costs its
    epsilon again.

    Attributes:
      release: Name of the stream, chosen by the user. The same records under another name get independent noise and
        are charged again.
    """

    release: str

    def noise_key(self, secret: bytes, column: LabelColumn) -> bytes:
        """Derives the key of all noise of this stream.

        Args:
          secret: The noise key file's 32 bytes.
          column: The private column.

        Returns:
          32 bytes.
        """
        bound_to = [self.release, column.name, [label.hex() for label in column.domain], column.rounding]
        return keyed_hash(secret, b"labeldp endless", json.dumps(bound_to).encode())
