"""Arithmetic of multinomial logits with the same bits on every CPU: probabilities, products, and a minimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..core.reproducible import exp

_MEMORY, _CLOSE = 8, 1e-7
# Of fewer columns, numpy adds the entries of a row one after the other; of more, several at a time.
_FEW = 8
_LEAST_LENGTH, _DESCENT = 1e-6, 1e-4

Steps = list[tuple[np.ndarray, np.ndarray, float]]
"""Last steps of a minimizer: changes of the weights and of the gradient, and the product of the two."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits, shape (n, K), float64."""
    weights = exp(logits - row_maxima(logits)[:, None])
    return weights / row_sums(weights)[:, None]


def row_sums(values: np.ndarray) -> np.ndarray:
    """Sums of the rows, shape (n,), of values of shape (n, K), in the order in which numpy adds them.

    For few classes, adding columns takes a tenth of the time.
    """
    if not 2 <= values.shape[1] < _FEW:
        return np.add.reduce(values, axis=1)
    total = values[:, 0] + values[:, 1]
    for column in values.T[2:]:
        total += column
    return total


def row_maxima(values: np.ndarray) -> np.ndarray:
    """Largest entries of the rows, shape (n,), of values of shape (n, K)."""
    return functools.reduce(np.maximum, values.T) if values.shape[1] < _FEW else values.max(axis=1)


def exact_product(whole: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Product of a matrix of whole float64, and one of float64 that is rounded so that BLAS adds without rounding."""
    most = float(np.add.reduce(np.abs(whole), axis=1).max(initial=1.0))
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    # Sums of whole numbers below 2^53 are exact in any order.
    bits = 52 - int(np.frexp(most)[1]) - int(np.frexp(largest)[1])
    return np.ldexp(whole @ np.rint(np.ldexp(values, bits)), -bits)


def minimized(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, scale: np.ndarray, steps: int
) -> np.ndarray:
    """Minimizes a function by limited-memory BFGS with Armijo's rule (Nocedal 1980).

    `value` gives loss and gradient; `scale`, of the shape of the weights, is about the diagonal of the second
    derivatives.
    """
    weights, (loss, gradient) = start, value(start)
    memory: Steps = []
    for _ in range(steps):
        direction = -_preconditioned(gradient, memory, scale)
        slope = float((direction * gradient).sum())
        if slope > -_CLOSE * max(abs(loss), 1e-3):
            break
        length, tried = 1.0, weights + direction
        new_loss, new_gradient = value(tried)
        while new_loss > loss + _DESCENT * length * slope and length > _LEAST_LENGTH:
            length /= 2
            tried = weights + length * direction
            new_loss, new_gradient = value(tried)
        if length <= _LEAST_LENGTH:
            break
        step, change = tried - weights, new_gradient - gradient
        product = float((step * change).sum())
        if product > 0:
            memory = [*memory[-_MEMORY + 1 :], (step, change, product)]
        weights, loss, gradient = tried, new_loss, new_gradient
    return weights


def _preconditioned(gradient: np.ndarray, memory: Steps, scale: np.ndarray) -> np.ndarray:
    """The inverse of the second derivatives, as the last steps tell, times the gradient."""
    found, factors = gradient, []
    for step, change, product in reversed(memory):
        factor = float((step * found).sum()) / product
        factors.append(factor)
        found = found - factor * change
    found = found / scale
    for (step, change, product), factor in zip(memory, reversed(factors), strict=True):
        found = found + (factor - float((change * found).sum()) / product) * step
    return found
