"""Bounds on products of integer rows that are known to lie between two bounds."""

from __future__ import annotations

import numpy as np


def dot_bounds(low: np.ndarray, high: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the products of rows between two bounds, shape (n, m + 1), with coefficients, shape (m + 1,)."""
    ends = low * coefficients, high * coefficients
    return np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1)
