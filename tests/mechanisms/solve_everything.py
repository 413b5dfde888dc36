"""Solves mechanisms and centers; prints the hash of each mechanism file and center, as JSON.

`test_cpu_matrix.py` runs this in processes that see different CPUs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import numpy as np
from center.class_logs import ClassLog
from labeldp.mechanisms import MECHANISMS, Prior, solve
from labeldp.mechanisms.center.cell_center import CellCenter, CellTables, design_cells, noised_cells
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.class_document import class_document
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums
from labeldp.mechanisms.center.marginal_center import (
    MarginalCenter,
    common_records,
    design_marginals,
    noised_marginals,
    part_tables,
)
from labeldp.mechanisms.center.residuals import ResidualDomain

# Families whose time grows fast with the number of labels, or that search over many programs.
SLOW = {"rqm", "erm", "mvu", "optm", "quantizer", "unbiased_grid"}
WITH_LOSS = {
    "rr_on_bins": ("squared", "absolute", "poisson"),
    "staircase": ("squared", "poisson"),
    "rp_with_prior": ("poisson",),
}
WITH_LOSS |= dict.fromkeys(("rqm", "erm", "optm", "mvu", "quantizer"), ("absolute", "squared"))


def priors(many: bool) -> Iterator[tuple[str, Prior]]:
    """Yields priors with gaps, spikes and uneven labels, made without functions that differ between CPUs."""
    random = np.random.Generator(np.random.PCG64(1))
    counts = np.maximum(random.integers(-200, 400, 21), 0)
    counts[[0, -1]] = 5000, 900
    yield "21 labels", Prior(np.arange(21) / 10, counts)
    yield "4 labels", Prior(np.arange(4), random.integers(1, 1000, 4))
    yield "13 uneven labels", Prior(np.cumsum(random.integers(1, 9, 13)) / 8, random.integers(1, 1000, 13))
    if many:
        yield "53 labels", Prior(np.arange(53), np.maximum(random.integers(-50, 400, 53), 0))
        yield "101 labels", Prior(np.arange(101), np.maximum(random.integers(-300, 400, 101), 0))
        yield "150 labels", Prior(np.arange(150) / 3, random.integers(1, 100, 150))


def requests(many: bool) -> Iterator[tuple[str, Prior, float, str, dict[str, object]]]:
    """Yields name of the prior, prior, epsilon, mechanism and parameters of every request."""
    for title, prior in priors(many):
        for name in MECHANISMS:
            if name in SLOW and len(prior.labels) > (13 if many else 4):
                continue
            losses = WITH_LOSS.get(name, (None,))
            for loss in losses[:1] if name in SLOW and not many else losses:
                for epsilon in (1e-6, 0.3, 1.0, 4.0) if many and name not in SLOW else (1.0,):
                    parameters: dict[str, object] = {} if loss is None else {"loss": loss}
                    if name == "gaussian":
                        parameters["delta"] = 1e-6
                    if name == "optm" and not many:
                        parameters["outputs"] = 3
                    yield title, prior, epsilon, name, parameters


def linear_centers() -> Iterator[tuple[str, str]]:
    """Yields name and text of linear centers: their documents, and the centers of the records."""
    random = np.random.Generator(np.random.PCG64(2))
    # Uniform numbers and products of them: normal ones are made with functions that differ between CPUs.
    base = random.random((3000, 30)) - 0.5
    mixed = sum(base[:, i, None] * base[:, (i + 1) % 30, None] * base[0] for i in range(30)) + base
    values = tuple(f"v{i}" for i in range(900))
    for title, labels, epsilon, numbers in (("numbers", 53, 1.0, 30), ("numbers and categories", 401, 0.1, 5)):
        features: dict[str, np.ndarray | Categories] = {f"x{i}": mixed[:, i] for i in range(numbers)}
        if numbers < 30:
            for name, size in (("few", 5), ("many", 900)):
                features[name] = Categories(random.integers(-1, size, 3000), values[:size])
        design = design_center(features, 10**6, epsilon, 64)
        raw = moment_sums(design.map.rows(features), random.integers(0, labels, 3000), labels)
        sums = noised_sums(raw, design.map.norm, labels, design.epsilon, bytes(32))
        center = LinearCenter.fit(design, labels, sums)
        assert len(center.coefficients) > 5
        yield title, json.dumps([center_document(center), center.indices(features).tolist()])


def cell_center() -> tuple[str, str]:
    """Name and text of a center of cells: its document, and the centers of the records."""
    random = np.random.Generator(np.random.PCG64(3))
    numbers = random.random((6000, 12)) - 0.5
    features: dict[str, np.ndarray | Categories] = {f"x{i}": numbers[:, i] for i in range(12)}
    kinds = random.integers(-1, 5, 6000)
    features["kind"] = Categories(kinds, tuple("vwxyz"))
    exact = 26 + 40 * numbers[:, 0] + 2 * kinds + 60 * numbers[:, 0] * numbers[:, 1]
    indices = np.clip(np.rint(exact + 5 * numbers[:, 11]), 0, 52).astype(np.int64)
    design = design_center(features, 6000, 1.0)
    raw = moment_sums(design.map.rows(features), indices, 53)
    linear = LinearCenter.fit(design, 53, noised_sums(raw, design.map.norm, 53, design.epsilon, bytes(32)))
    cells = design_cells(features, linear, 6000, 1.0)
    assert cells is not None
    centers, tree = linear.indices(features), cells.partition.tree
    places = tree.cells(cells.partition.codes(features, linear, centers))
    residuals = ResidualDomain(np.arange(53.0))
    tables = CellTables.of_records(places, len(tree.leaves), indices - centers, residuals)
    center = CellCenter.of(linear, noised_cells(cells, linear, tables, bytes(32), bytes(range(32))))
    assert len(center.cells.trees.leaves)
    return "cells", json.dumps([center_document(center), center.indices(features).tolist()])


def marginal_center() -> tuple[str, str]:
    """Name and text of a marginal center: its document, and the predictions for the records."""
    random = np.random.Generator(np.random.PCG64(5))
    columns: dict[str, np.ndarray | Categories] = {f"x{i}": random.random(6000) for i in range(4)}
    columns |= {f"k{i}": Categories(random.integers(-1, 30, 6000), tuple(map(str, range(30)))) for i in range(4)}
    indices = (random.random(6000) * 30 + 20 * np.asarray(columns["x0"])).astype(np.int64)
    design = design_marginals(columns, 6000, 1.0)
    assert design is not None
    parts = design.parts_of(columns)
    tables = part_tables(parts, design.sizes, indices - 26, 53)
    keys = bytes(32), bytes(range(32))
    center = MarginalCenter.of(53, noised_marginals(design, 53, tables, common_records(parts, design.sizes), keys))
    return "marginals", json.dumps([center_document(center), center.indices(columns).tolist()])


def class_center() -> tuple[str, str]:
    """Name and text of a center of classes: its document, and the probabilities of the records."""
    random = np.random.Generator(np.random.PCG64(4))
    numbers = random.random((6000, 5)) - 0.5
    kinds = random.integers(-1, 4, 6000)
    columns: dict[str, np.ndarray | Categories] = {f"x{i}": numbers[:, i] for i in range(5)}
    columns["kind"] = Categories(kinds, tuple("wxyz"))
    scores = 4 * numbers[:, :3] + 8 * (numbers[:, 3] * numbers[:, 4])[:, None] * [1, -1, 0] + random.random((6000, 3))
    scores[:, 0] += kinds == 1
    # The truth of a log is for its tests alone, but for the number of classes.
    center = ClassLog(columns, scores.argmax(axis=1), scores).release(3.0)
    assert center.cells is not None
    assert len(center.cells.trees.leaves)
    return "classes", json.dumps([class_document(center), center.probabilities(columns).tolist()])


def main(many: bool) -> None:
    """Prints a JSON object of request and hash; an error counts as the result of its request."""
    found = {}
    for title, prior, epsilon, name, parameters in requests(many):
        try:
            text = solve(name, prior, epsilon, **parameters).to_json()
        except ValueError as error:
            text = str(error)
        found[f"{name} {parameters.get('loss', '')} {title} {epsilon}"] = hashlib.sha256(text.encode()).hexdigest()
    for title, text in (*linear_centers(), cell_center(), marginal_center(), class_center()):
        found[f"linear_center {title}"] = hashlib.sha256(text.encode()).hexdigest()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main("--many" in sys.argv)
