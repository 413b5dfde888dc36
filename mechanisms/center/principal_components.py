"""Leading principal components of whole-number matrices, with the same bits on every CPU.

Subspace iteration (Golub and Van Loan 2013, Section 8.2.4) followed by a Rayleigh-Ritz step with Jacobi's method
(Section 8.5). Products with the matrix are sums of integers below 2^53, which BLAS adds exactly in whatever order; all
other sums are numpy's over an axis, whose order is fixed.

The encoded features of a sample are a matrix that is only multiplied, with the indicators of categories stored
sparsely: 16,384 records with 4,096 encoded features have 0.5 GB as a dense matrix, almost all of it the means of
indicators that are 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from ..core.reproducible import dot, matmul, matvec, vecmat
from .feature_rows import Category, Columns, Encoder, Number, indicators

_ITERATIONS = 12
_SWEEPS = 30
# Bits of the vectors: with 12 bits of the matrix and 2^15 records, products and sums stay below 2^53.
_VECTOR_UNIT = 1 << 24
# Components of a smaller variance than the largest one times this are rounding errors or duplicates of others.
_NEGLIGIBLE = 1e-6


def principal_components(matrix: np.ndarray | EncodedFeatures, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Computes the leading principal components of a matrix, without subtracting means.

    The matrix has shape (n, w), n <= 2^15, w <= 2^12, and whole float64 of at most 2^12 in absolute value. The result
    is directions, shape (w, m), orthonormal columns, and the mean squares of the matrix along them, shape (m,),
    descending and positive. m <= `most` is smaller where the matrix has fewer components.
    """
    records, width = matrix.shape
    basis = _orthonormal(_start(width, min(width, most + 8)))
    for _ in range(_ITERATIONS):
        basis = _orthonormal(_product(matrix.T, _product(matrix, basis)))
        if not basis.shape[1]:
            return np.zeros((width, 0)), np.zeros(0)
    image = _product(matrix, basis)
    values, rotation = _jacobi(matmul(image.T, image) / records)
    order = np.argsort(-values, kind="stable")[:most]
    order = order[values[order] > _NEGLIGIBLE * max(values[order[0]], 0.0)]
    return matmul(basis, rotation[:, order]), values[order]


def _start(width: int, size: int) -> np.ndarray:
    """Fixed vectors in general position: the columns of a matrix of whole numbers of a linear congruential sequence."""
    states = np.empty(width * size, np.float64)
    state = 1
    for i in range(len(states)):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        states[i] = (state >> 44) - (1 << 19)
    return states.reshape(width, size)


def _product(matrix: np.ndarray | EncodedFeatures | TransposedFeatures, vectors: np.ndarray) -> np.ndarray:
    """Product of a matrix of whole numbers with vectors, which are rounded to 24 bits of their largest entry."""
    unit = np.abs(vectors).max(axis=0, initial=0.0)
    unit[unit == 0] = 1.0
    whole = np.rint(vectors / unit * _VECTOR_UNIT)
    return (matrix @ whole) * (unit / _VECTOR_UNIT)


def _orthonormal(vectors: np.ndarray) -> np.ndarray:
    """Orthonormalizes vectors by Gram and Schmidt, twice for each; those that depend on earlier ones are left out."""
    found = np.empty_like(vectors)
    size = 0
    largest = float(np.sqrt((vectors**2).sum(axis=0).max(initial=0.0)))
    for vector in vectors.T:
        rest = vector
        for _ in range(2):
            rest = rest - matvec(found[:, :size], vecmat(rest, found[:, :size]))
        length = float(np.sqrt(dot(rest, rest)))
        if length > 1e-10 * largest:
            found[:, size] = rest / length
            size += 1
    return found[:, :size]


def _jacobi(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors, as columns, of a symmetric matrix, by cyclic Jacobi rotations."""
    size = len(matrix)
    # Beside the matrix, the eigenvectors as rows: rotations of rows rotate both.
    both = np.concatenate([(matrix + matrix.T) / 2, np.eye(size)], axis=1)
    matrix = both[:, :size]
    for _ in range(_SWEEPS):
        off = np.abs(matrix - np.diag(np.diag(matrix))).max(initial=0.0)
        if off <= 1e-14 * np.abs(np.diag(matrix)).max(initial=0.0):
            break
        for i in range(size - 1):
            for j in range(i + 1, size):
                _rotate(both, matrix, i, j)
    return np.diag(matrix).copy(), both[:, size:].T


def _rotate(both: np.ndarray, matrix: np.ndarray, i: int, j: int) -> None:
    """Makes entry (i, j) of the matrix, the first columns of `both`, zero by a rotation of rows and columns i and j."""
    entry = matrix.item(i, j)
    if entry == 0:
        return
    theta = (matrix.item(j, j) - matrix.item(i, i)) / (2 * entry)
    tangent = (1.0 if theta >= 0 else -1.0) / (abs(theta) + math.sqrt(theta * theta + 1))
    cosine = 1 / math.sqrt(tangent * tangent + 1)
    sine = tangent * cosine
    for array in (both, matrix.T):
        first, second = array[i], array[j]
        turned = sine * first
        turned += cosine * second
        first *= cosine
        second *= sine
        first -= second
        second[:] = turned


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
            (each, slice(start, start + each.width)) for each, start in pairs if isinstance(each, Category)
        ]
        # The indicators of all categories beside each other, and of missing values after each.
        self._ones = indicators([each for each, _ in self._categories], columns)
        self._ones_of_places = csr_array(self._ones.T)

    def __matmul__(self, vectors: np.ndarray) -> np.ndarray:
        """Computes X V, shape (n, m), exactly.

        V has shape (w, m), whole float64 of at most 2^24 in absolute value.
        """
        found = self._numbers @ vectors[self._places]
        if self._categories:
            found += self._ones @ np.concatenate([each.steps(vectors[places]) for each, places in self._categories])
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
        for each, places, sums in self._split(self._ones_of_places @ vectors):
            found[places] = each.gathered(sums)
        return found

    def squares(self) -> float:
        """Computes the sum of the squares of all entries."""
        total = float((self._numbers**2).sum(axis=0).sum())
        for each, _, counts in self._split(self._ones.sum(axis=0)):
            total += each.squares(counts[: each.width])
        return total

    def _split(self, values: np.ndarray) -> Iterator[tuple[Category, slice, np.ndarray]]:
        """Each category with its encoded features, and the values of its indicators."""
        start = 0
        for each, places in self._categories:
            yield each, places, values[start : start + each.width + 1]
            start += each.width + 1


class TransposedFeatures:
    """Transposed matrix X^T of encoded features."""

    def __init__(self, features: EncodedFeatures):
        """Takes the matrix X."""
        self._features = features

    def __matmul__(self, vectors: np.ndarray) -> np.ndarray:
        """Computes X^T V; see `EncodedFeatures.transposed_product`."""
        return self._features.transposed_product(vectors)
