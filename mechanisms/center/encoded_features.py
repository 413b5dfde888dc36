"""Encoded features of a sample as a matrix that is only multiplied: indicators of categories are stored sparsely.

A sample of 16,384 records with 4,096 encoded features has 0.5 GB as a dense matrix, almost all of it the means of
indicators that are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .feature_rows import Category, Columns, Encoder, Number, indicators


class EncodedFeatures:
    """Matrix X of the encoded features of n records, in multiples of 1 / FEATURE_UNIT.

    Sums over records are sums of integers below 2^53, so that products do not depend on the order of the records; all
    else is elementwise, or a sum in a fixed order.

    Attributes:
      shape: Number of records n and of encoded features w.
    """

    def __init__(self, encoders: Sequence[Encoder], columns: Columns):
        """Encodes features of n records, with encoders of w encoded features in total."""
        starts = np.cumsum([0, *(each.width for each in encoders)])
        records = len(next(iter(columns.values())))
        self.shape = (records, int(starts[-1]))
        pairs = list(zip(encoders, starts.tolist(), strict=False))
        numbers = [(each, start) for each, start in pairs if isinstance(each, Number)]
        self._places = np.array([start for _, start in numbers], np.int64)
        self._numbers = np.zeros((records, len(numbers)))
        for i, (each, _) in enumerate(numbers):
            self._numbers[:, i] = each.encode(np.array(columns[each.name], np.float64))
        self._categories = [
            (each, indicators([each], columns), slice(start, start + each.width))
            for each, start in pairs
            if isinstance(each, Category)
        ]

    def __matmul__(self, vectors: np.ndarray) -> np.ndarray:
        """Computes X V, shape (n, m), exactly.

        V has shape (w, m), whole float64 of at most 2^24 in absolute value.
        """
        found = self._numbers @ vectors[self._places]
        for each, ones, places in self._categories:
            found += ones @ each.steps(vectors[places])
        return found

    @property
    def T(self) -> TransposedFeatures:
        """The transposed matrix."""
        return TransposedFeatures(self)

    def transposed_product(self, vectors: np.ndarray) -> np.ndarray:
        """Computes X^T V, shape (w, m), with a relative rounding error of 2^-52 of the largest term.

        V has shape (n, m), whole float64 of at most 2^24 in absolute value.
        """
        found = np.empty((self.shape[1], vectors.shape[1]))
        found[self._places] = self._numbers.T @ vectors
        for each, ones, places in self._categories:
            found[places] = each.gathered(ones.T @ vectors)
        return found

    def squares(self) -> float:
        """Computes the sum of the squares of all entries."""
        total = float((self._numbers**2).sum(axis=0).sum())
        for each, ones, _ in self._categories:
            total += each.squares(ones.sum(axis=0)[: each.width])
        return total


class TransposedFeatures:
    """Transposed matrix X^T of encoded features."""

    def __init__(self, features: EncodedFeatures):
        """Takes the matrix X."""
        self._features = features

    def __matmul__(self, vectors: np.ndarray) -> np.ndarray:
        """Computes X^T V; see `EncodedFeatures.transposed_product`."""
        return self._features.transposed_product(vectors)
