"""Evidence of parts of the records: its expectation is 1 or less, by enumeration of all draws."""

import itertools
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from labeldp.audit import part_scan
from labeldp.audit.class_columns import PROBABILITY_UNIT
from labeldp.audit.drawn_classes import DrawnClasses
from labeldp.audit.drawn_outputs import DrawnOutputs
from labeldp.audit.shard_columns import Column

RECORDS = 7


def columns_of(rows: np.ndarray) -> dict[str, Column]:
    none = np.zeros(0, np.intp)
    return {"f": Column(rows % 2 * 1.0, none, none, [])}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one record at first: 7 records have runs of four blocks, which were merged once."""
    monkeypatch.setattr(part_scan, "BLOCKS", 4)
    monkeypatch.setattr(part_scan, "FIRST_BLOCK", 1)


def test_expectation_for_classes() -> None:
    random = np.random.default_rng(1)
    first = random.integers(1, PROBABILITY_UNIT, RECORDS)
    chances = np.stack([first, PROBABILITY_UNIT - first], axis=1)
    cells = SimpleNamespace(counts=[[3, 1], [0, 4]], epsilon=Fraction(2))
    center: Any = SimpleNamespace(counts=[0, 0], cells=cells)
    means = np.zeros(2)
    for classes in itertools.product((0, 1), repeat=RECORDS):
        tallies, labels = DrawnClasses(center), np.array(classes, float)
        for part in (slice(0, 3), slice(3, RECORDS)):
            tallies.parts.next_shard()
            rows = np.arange(RECORDS)[part]
            tallies.add(chances[part], labels[part], rows % 2, columns_of(rows))
        likely = np.prod(chances[np.arange(RECORDS), classes] / PROBABILITY_UNIT)
        means += likely * np.exp([each.logarithm for each in (tallies.parts.evidence(), tallies.evidence_of_cells())])
    assert means[0] == pytest.approx(1)
    # Bounds of blocks with records of different probabilities take some of it.
    assert 0.9 < means[1] <= 1 + 1e-9


@pytest.mark.parametrize("label", [0, 1, 2])
def test_expectation_for_outputs(label: int) -> None:
    """For records of any label: each has an output less often than the channel allows, or as often."""
    rows = [[4, 2, 2], [1, 6, 1], [2, 3, 3]]
    columns = [[[str(row[place]), 1] for row in rows] for place in range(3)]
    mechanism = {"columns": columns, "labels": [0, 1, 2], "bits": 3}
    mean = 0.0
    for drawn in itertools.product(range(3), repeat=RECORDS):
        outputs = DrawnOutputs(mechanism, np.arange(3))
        outputs.parts.next_shard()
        outputs.add(np.array(drawn), columns_of(np.arange(RECORDS)))
        mean += np.prod([rows[label][each] / 8 for each in drawn]) * np.exp(outputs.parts.evidence().logarithm)
    assert 0.1 < mean <= 1 + 1e-9


def test_evidence_of_no_records() -> None:
    assert part_scan.PartScan(np.eye(2)).evidence() == (0.0, 0)
