"""Arrays of numbers and of classes: places of released classes, class probabilities, and the simplex they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Probabilities of a record may add up to 1 but for the rounding of float32 over some hundred classes.
_TOLERANCE = 1e-4


def read_places(values: ArrayLike, place_of: dict[object, int], name: str) -> np.ndarray:
    """Reads a column of classes as places, shape (n,), integers. Raises ValueError, which names a row."""
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise ValueError(f"{name} must have shape (n,) with at least one record, not {column.shape}")
    try:
        # A list of text and numbers would become text as an array.
        rows = values if isinstance(values, list | tuple) else column.tolist()
        places = np.array([place_of.get(value, -1) for value in rows])
    except TypeError:
        raise ValueError(f"{name} must hold text, integers, booleans or floats, and not lists of them") from None
    if places.min() < 0:
        raise ValueError(f"row {int(places.argmin())} of {name} is missing, or none of the classes of the release")
    return places


def class_place(value: object, place_of: dict[object, int], name: str) -> int:
    """Place of a class, by its value or its name as text. Raises ValueError if it is none of the classes."""
    try:
        return place_of[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} must be one of the classes of the release, not {value!r}") from None


def class_probabilities(predictions: ArrayLike | None, records: int | None, classes: int, name: str) -> np.ndarray:
    """Reads predicted class probabilities as shape (n, K); of two classes those of the second may be given alone.

    `records` is the number n that there must be, if it is known. Raises ValueError, which names a row.
    """
    found = np.asarray(predictions, np.float64)
    if found.ndim == 1 and classes == 2:
        found = np.stack([1 - found, found], axis=1)
    if found.ndim != 2 or found.shape[1] != classes or (records is not None and len(found) != records):
        size = "n" if records is None else records
        second = f" or ({size},), the probabilities of the second class," if classes == 2 else ""
        raise ValueError(
            f"{name} must have shape ({size}, {classes}){second} with columns as in release.classes, not "
            f"{np.asarray(predictions).shape}"
        )
    # False for NaN, too.
    right = (found >= -_TOLERANCE).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= _TOLERANCE)
    if not right.all():
        raise ValueError(f"row {int(right.argmin())} of {name} holds no probabilities of classes, which add up to 1")
    return np.maximum(found, 0.0)


def on_simplex(values: np.ndarray) -> np.ndarray:
    """Probabilities that are closest to each row, shape (n, K) (Duchi et al. 2008, Figure 1)."""
    descending = -np.sort(-values, axis=1)
    ranks = np.arange(1, values.shape[1] + 1)
    # Highest amount that all entries above it, less it, add up to 1.
    excess = (np.cumsum(descending, axis=1) - 1) / ranks
    kept = (descending > excess).sum(axis=1)
    return np.maximum(values - excess[np.arange(len(values)), kept - 1][:, None], 0.0)


def score_probabilities(scores: np.ndarray) -> np.ndarray:
    """Class probabilities of scores, shape (n, K): the softmax of K scores, or of 0 and a score of two classes."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def numbers(values: ArrayLike | None, name: str, shape: Sequence[int] | None = None) -> np.ndarray:
    """Reads finite numbers, shape (n,), or that of another argument. Raises ValueError, which names a row."""
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"{name} must have shape (n,) with at least one record, not {found.shape}")
    if shape is not None and found.shape != tuple(shape):
        raise ValueError(f"{name} has shape {found.shape}, not {tuple(shape)}")
    missing = ~np.isfinite(found)
    if missing.any():
        raise ValueError(f"row {int(missing.argmax())} of {name} is missing or infinite: leave such records out")
    return found
