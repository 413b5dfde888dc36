"""Logs with classes that depend on features, linearly and otherwise, and releases of their center."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from labeldp.mechanisms.center.class_center import (
    ClassCenter,
    ReleasedClassCells,
    design_class_cells,
    design_classes,
    noised_class_counts,
    released_shares,
    split_class_budget,
)
from labeldp.mechanisms.center.class_logit import LinearClasses, class_sums, noised_class_sums
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.core.budget import CLASS_SHARE, split_budget
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts

KEYS = tuple(bytes([place]) * 32 for place in range(3))
NAMES = ("w", "x", "y", "z")


@dataclass(frozen=True, eq=False)
class ClassLog:
    """Records with their classes and the probabilities that these were drawn with, shape (n, K)."""

    columns: dict[str, Any]
    classes: np.ndarray
    truth: np.ndarray

    @property
    def size(self) -> int:
        return self.truth.shape[1]

    def sample(self, seed: int, most: int = 4000) -> dict[str, Any]:
        chosen = np.random.default_rng(seed).permutation(len(self.classes))[:most]
        # The set is the same for all seeds if it holds every record; its order is not.
        return {
            name: Categories(column.codes[chosen], column.values) if isinstance(column, Categories) else column[chosen]
            for name, column in self.columns.items()
        }

    def release(self, epsilon: float, seed: int = 0, keys: tuple[bytes, ...] = KEYS, most: int = 4000) -> ClassCenter:
        size, sample, records = self.size, self.sample(seed, most), len(self.classes)
        budget = split_class_budget(split_budget(epsilon, size, records, most=CLASS_SHARE))
        counts = noisy_counts(np.bincount(self.classes, minlength=size), budget.counts, keys[0])
        shares = released_shares(counts, records, budget.counts)
        design = design_classes(sample, shares, records, budget.sums)
        assert design is not None
        rows, sums = design.map.rows(self.columns), ()
        if design.epsilon:
            raw = class_sums(rows, self.classes, size)
            sums = noised_class_sums(raw, design.map.norm, design.epsilon, keys[1])
        linear = LinearClasses.fit(design, sums)
        center = ClassCenter(budget, counts, linear, None)
        cells = design_class_cells(sample, center)
        if cells is None:
            return center
        partition = cells.sample.partition
        places = partition.tree.cells(partition.codes(self.columns, linear, rows, linear.logits(rows)))
        raw = np.bincount(places * size + self.classes, minlength=cells.cells * size).reshape(-1, size)
        noised = noised_class_counts(raw, cells.epsilon, keys[2])
        return ClassCenter(budget, counts, linear, ReleasedClassCells.fit(cells, linear, noised))


def class_log(seed: int, records: int = 6000, size: int = 3, linear: float = 1.5, other: float = 2.0) -> ClassLog:
    """Logits that are `linear` in two features and a category, with an interaction of two others."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(records, 4))
    kinds = random.integers(-1, 4, records)
    fixed = np.random.default_rng(7).normal(size=(4, size))
    logits = linear * (x[:, :2] @ fixed[:2] + (kinds == 1)[:, None] * fixed[2])
    logits += other * (np.sign(x[:, 2]) * np.sign(x[:, 3]))[:, None] * fixed[3]
    truth = np.exp(logits)
    truth /= truth.sum(axis=1, keepdims=True)
    classes = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    columns: dict[str, Any] = {f"x{place}": x[:, place] for place in range(4)}
    columns["x1"] = np.where(random.random(records) < 0.02, np.nan, columns["x1"])
    return ClassLog({**columns, "kind": Categories(kinds, NAMES)}, classes, truth)


def default_log(seed: int, records: int = 3000) -> ClassLog:
    """Some 3 % of defaults that depend on one of three features, of the kind of ISLR's `Default`."""
    random = np.random.default_rng(seed)
    balance, income = np.maximum(random.normal(835, 484, records), 0), random.normal(33_500, 13_300, records)
    truth = 1 / (1 + np.exp(10.7 - 0.0055 * balance))
    columns = {"student": Categories(random.integers(0, 2, records), ("no", "yes")), "balance": balance}
    classes = (random.random(records) < truth).astype(int)
    return ClassLog({**columns, "income": income}, classes, np.stack([1 - truth, truth], axis=1))


def excess(log: ClassLog, probabilities: np.ndarray) -> float:
    """Mean log loss in excess of the entropy of the truth."""
    return float((log.truth * np.log(log.truth * (1 << 16) / probabilities)).sum(axis=1).mean())
