"""Coefficients of the logits of classes from class sums and counts of cells together.

The counts of cells say about the linear part of the logits, too, along the features that cells are cut by; for rare
classes they say more than the class sums. The coefficients minimize the squared distances of sums and counts from those
expected, each in the metric of its covariance, and of the coefficients from 0 in that of their a-priori variance
(generalized method of moments, Hansen 1982). All of it is post-processing of noised numbers.
"""

from __future__ import annotations

import numpy as np

from .boosting import FOLDS, held_out
from .class_logit import LOGIT_UNIT, LinearClasses, moments_of, precisions
from .class_trees import CellCounts
from .feature_rows import ROW_UNIT
from .latest_fit import keep_latest
from .logit_fit import exact_product, minimized, row_sums, softmax

_ROUNDS, _STEPS = 2, 30


def refitted(
    linear: LinearClasses, rows: np.ndarray, targets: CellCounts, held: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Computes coefficients, shape (m + 1, K), float64, from class sums and the cells that are not held out.

    `rows` are coarse rows of the sample, shape (s, m + 1), int64; `held`, shape (c,), bool; `base` are logits that
    constants start from, shape (K,).
    """
    design, size = linear.design, len(rows)
    records, classes = design.records, design.classes
    whole = rows.astype(np.float64)
    across = np.ascontiguousarray(whole.T)
    start = linear.coefficients / LOGIT_UNIT
    start[0] += base
    shares = softmax(base[None])[0]
    precision = precisions(np.array(design.signal), classes)
    target = inverse = None
    if linear.sums:
        moments, shares = moments_of(design, np.array(linear.sums, np.float64) / ROW_UNIT), linear.shares
        means, own = (np.add.reduce(each, axis=0) / (ROW_UNIT * len(each)) for each in (design.rows, rows))
        target, precision = moments.target + shares * (own - means)[:, None], moments.precision
        inverse = (classes - 1) / classes / moments.variances
    curvature = shares * (1 - shares)
    scale = precision + records * curvature**2 / (curvature + targets.noise * len(targets.counts) / records)
    if inverse is not None:
        scale = scale + (records * curvature) ** 2 * inverse
    seen = np.where(held, 0.0, 1.0)[:, None]

    def value(weights: np.ndarray) -> tuple[float, np.ndarray]:
        chances = softmax(exact_product(whole, weights) / ROW_UNIT)
        residuals = targets.residuals(targets.means(chances))
        white = targets.whitened(residuals, typical) * seen
        loss = float((residuals * white).sum()) / 2 + float((precision * weights * weights).sum()) / 2
        pull = white[targets.cells] * targets.weights
        if target is not None and inverse is not None:
            missed = records * (target - exact_product(across, chances) / (ROW_UNIT * size))
            scaled = missed * inverse
            loss += float((missed * scaled).sum()) / 2
            pull = pull + exact_product(whole, scaled) * (records / (ROW_UNIT * size))
        gradient = chances * (pull - row_sums(chances * pull)[:, None])
        return loss, precision * weights - exact_product(across, gradient) / ROW_UNIT

    for _ in range(_ROUNDS):
        typical = targets.means(softmax(exact_product(whole, start) / ROW_UNIT))
        start = minimized(value, start, scale, _STEPS)
    return start


@keep_latest
def refitted_by_fold(
    linear: LinearClasses, rows: np.ndarray, targets: CellCounts, base: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Computes the coefficients of each fold, from the cells that it does not hold out."""
    size = len(targets.counts)
    return tuple(refitted(linear, rows, targets, held_out(size, fold), base) for fold in range(FOLDS))
