"""Labels that never end: applying a mechanism that was fitted before to an unbounded, windowed input."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..mechanisms.noise.keyed_words import keyed_hash
from .label_column import LabelColumn


@dataclass(frozen=True)
class StreamBinding:
    """What the noise of an unbounded input is bound to, besides the secret. Safe to show.

    There is no digest of an input that has no end, so each word is bound to its record alone: to its id and its label.
    A record that is delivered twice, or computed again for a retry, gets the same output, and nothing is averaged
    away. One whose label changed gets independent noise, which by itself holds epsilon for each of the two; but who
    sees two different outputs for one id knows that its label changed. So an id stands for one event with one label;
    an event that is corrected needs another id, and then costs its epsilon again.

    release: the name of the stream, of the user's choice. The same records under another name get independent noise,
    and are charged again.
    """

    release: str

    def noise_key(self, secret: bytes, column: LabelColumn) -> bytes:
        """The 32-byte key of all noise of this stream. secret: 32 bytes. column: the private column."""
        bound_to = [self.release, column.name, [label.hex() for label in column.domain], column.rounding]
        return keyed_hash(secret, b"labeldp endless", json.dumps(bound_to).encode())
