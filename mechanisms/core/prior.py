"""Prior: a probability distribution over the labels of the public domain."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from .label_grid import check_domain

# Weights whose sum is this close to 1 count as normalized.
_SUM_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Prior:
    """Probabilities of the labels of a public domain.

    Attributes:
      labels: Shape (k,), float64, finite and strictly ascending.
      weights: Shape (k,), float64, >= 0. Any finite weights with a positive sum may be given; they are normalized to
        sum to 1.

    Raises:
      ValueError: If the domain is invalid, or a weight is negative or not finite, or none is positive.
    """

    labels: np.ndarray
    weights: np.ndarray

    def __post_init__(self) -> None:
        """Validates and normalizes; the arrays are copied and made read-only."""
        labels = np.array(self.labels, np.float64)
        weights = np.array(self.weights, np.float64)
        check_domain(labels)
        if weights.shape != labels.shape:
            raise ValueError(f"{len(labels)} labels need as many weights, not {weights.size}")
        if not np.all(np.isfinite(weights)) or np.min(weights) < 0:
            raise ValueError("weights must be finite and not negative")
        largest = np.max(weights)
        if largest <= 0:
            raise ValueError("at least one weight must be positive")
        # Normalized weights are kept bit for bit, so that a prior read from a file equals the prior that was written.
        if largest > 1 or abs(weights.sum() - 1) > _SUM_TOLERANCE:
            weights = weights / largest
            weights /= weights.sum()
        labels.setflags(write=False)
        weights.setflags(write=False)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_counts(cls, labels: np.ndarray, counts: np.ndarray) -> Prior:
        """Normalizes a noisy histogram to a prior.

        Args:
          labels: Shape (k,), the label domain.
          counts: Shape (k,); negative counts become 0.

        Returns:
          The prior; uniform if no count is positive.
        """
        clipped = np.maximum(np.asarray(counts, np.float64), 0.0)
        return cls(labels, clipped if clipped.any() else np.ones_like(clipped))

    @classmethod
    def from_text(cls, text: str) -> Prior:
        """Parses a prior from CSV or JSON.

        Args:
          text: CSV lines of label,weight, optionally after a header line; or a JSON object with the lists `labels` and
            `weights`; or a mechanism file, whose noisy prior is used.

        Returns:
          The prior.

        Raises:
          ValueError: If the text is none of these; for CSV the message has the line number.
        """
        text = text.removeprefix("\ufeff")
        if text.lstrip().startswith("{"):
            return cls._from_json(text)
        pairs: dict[float, float] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                label, weight = (float(cell) for cell in line.split(","))
            except ValueError:
                cells = line.split(",")
                if number == 1 and len(cells) == 2 and not any(map(_is_number, cells)):
                    continue
                raise ValueError(f"line {number} must have two numbers: label,weight") from None
            if label in pairs:
                raise ValueError(f"line {number} repeats a label")
            pairs[label] = weight
        if not pairs:
            raise ValueError("no line has a label and a weight")
        labels = sorted(pairs)
        return cls(np.array(labels), np.array([pairs[label] for label in labels]))

    @classmethod
    def _from_json(cls, text: str) -> Prior:
        try:
            document = json.loads(text)
            labels = document["labels"]
            weights = document["prior"]["weights"] if "prior" in document else document["weights"]
            values = np.array(labels, np.float64), np.array(weights, np.float64)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise ValueError("a JSON prior must be an object with the lists labels and weights, of numbers") from None
        return cls(*values)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
