"""A log whose labels are partly linear in the features, and its released center of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center.cell_center import CellCenter, CellDesign, CellTables, design_cells, noised_cells
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums
from labeldp.mechanisms.center.residuals import ResidualDomain

LABELS = 41
SAMPLED = 12_000
KEYS = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))


@dataclass(frozen=True, eq=False)
class Log:
    """Records with the linear center and the design of cells that are made of them."""

    columns: dict[str, Any]
    sample: dict[str, Any]
    indices: np.ndarray
    linear: LinearCenter
    design: CellDesign

    @property
    def residuals(self) -> ResidualDomain:
        return ResidualDomain(np.arange(LABELS, dtype=np.float64))

    @property
    def cells(self) -> np.ndarray:
        tree, centers = self.design.partition.tree, self.linear.indices(self.columns)
        return tree.cells(self.design.partition.codes(self.columns, self.linear, centers))

    @property
    def steps(self) -> np.ndarray:
        return self.indices - self.linear.indices(self.columns)

    @property
    def tables(self) -> CellTables:
        return CellTables.of_records(self.cells, len(self.design.partition.tree.leaves), self.steps, self.residuals)

    def release(self, keys: tuple[bytes, bytes] = KEYS[1:]) -> CellCenter:
        return CellCenter.of(self.linear, noised_cells(self.design, self.linear, self.tables, *keys))


def log_of(seed: int, records: int = 20_000, linear: float = 1.0, epsilon: float = 1.0) -> Log:
    """Labels that are `linear` in features, with an interaction of two of them."""
    random = np.random.Generator(np.random.PCG64(seed))
    a, b, missing = random.normal(size=records), random.normal(size=records), random.random(records) < 0.05
    kinds = random.integers(-1, 4, records)
    columns: dict[str, Any] = {
        "a": a,
        "b": np.where(missing, np.nan, b),
        "kind": Categories(kinds, ("w", "x", "y", "z")),
    }
    labels = 20 + linear * (5 * a + 2 * (kinds == 1)) + 4 * np.sign(a) * np.where(missing, 0, b)
    indices = np.clip(np.rint(labels + random.normal(size=records)), 0, LABELS - 1).astype(np.int64)
    sample = {
        name: Categories(column.codes[:SAMPLED], column.values) if isinstance(column, Categories) else column[:SAMPLED]
        for name, column in columns.items()
    }
    design = design_center(sample, records, epsilon)
    sums = moment_sums(design.map.rows(columns), indices, LABELS)
    noised = noised_sums(sums, design.map.norm, LABELS, design.epsilon, KEYS[0])
    center = LinearCenter.fit(design, LABELS, noised)
    cells = design_cells(sample, center, records, epsilon)
    assert cells is not None
    return Log(columns, sample, indices, center, cells)


@pytest.fixture(scope="session")
def log() -> Log:
    return log_of(1)


@pytest.fixture(scope="session")
def released(log: Log) -> CellCenter:
    return log.release()
