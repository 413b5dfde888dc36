"""Claims, findings of the checks of samplers and releases, and the setting that all checks share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from labeldp.mechanisms.core.randomizer import Randomizer


@dataclass(frozen=True)
class Claim:
    """A randomizer, whose certified epsilon and delta are the claim for the labels, and the claim for the histogram.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Claimed epsilon of the released histogram; 0 for a public prior.
    """

    randomizer: Randomizer
    prior_epsilon: float

    @property
    def epsilon(self) -> float:
        """Certified epsilon of the labels."""
        return self.randomizer.certificate().epsilon

    @property
    def delta(self) -> float:
        """Certified delta of the labels; 0 for pure label DP."""
        return self.randomizer.certificate().delta


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
      check: Name of the check.
      passed: False if the check contradicts a claim.
      text: What was found, one line of ASCII.
      epsilon: Lower bound on epsilon, at the confidence of the attack; None for checks without one.
    """

    check: str
    passed: bool
    text: str
    epsilon: float | None = None


@dataclass(frozen=True)
class Setting:
    """Numbers that all checks share.

    Attributes:
      draws: Records drawn by each half of the channel check.
      alpha: Probability that one check reports a break that is not there.
      seed: Seed of the test keys; the same seed gives the same result.
    """

    draws: int
    alpha: float
    seed: int = 0

    def keys(self, purpose: str) -> Iterator[bytes]:
        """Generates test keys of 32 bytes, without end. They are public, and protect nothing.

        Different purposes have different keys.
        """
        number = 0
        while True:
            text = f"labeldp attack {self.seed} {purpose} {number}"
            yield hashlib.blake2b(text.encode(), digest_size=32).digest()
            number += 1


def output_codes(outputs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index of each released label among the outputs of a randomizer, or m for a value that is not an output.

    `outputs`, shape (m,), ascend; values and result have shape (n,).
    """
    places = np.minimum(np.searchsorted(outputs, values), len(outputs) - 1)
    return np.where(outputs[places] == values, places, len(outputs))
