"""Cells of residuals of groups in the audit: their rows bound the channel of every residual, and no more."""

import numpy as np
import pytest
from labeldp.audit.audit_data import _grouped_histogram
from labeldp.audit.center_audit import histograms_of_groups
from labeldp.audit.documents import RefusedDocument, read_center, residual_cells
from labeldp.mechanisms.center.group_ranges import GroupRanges
from labeldp.mechanisms.center.residuals import ResidualDomain

DOMAIN = [float(label) for label in range(40)]
RANGES = [[-30, 9], [-3, 4], [-3, 4]]


def mechanism_of(channel: np.ndarray, histograms: int) -> dict:
    cells = len(residual_cells(len(DOMAIN)))
    groups = {"column": "g", "values": ["a", "b"], "records": [50, 7, 8]}
    center = {"column": "c", "domain": DOMAIN, "counts": [1] * (cells * histograms), "groups": groups}
    return {"labels": np.linspace(0, 1, len(channel)).tolist(), "center": center, "group_ranges": RANGES}


@pytest.mark.parametrize("positions", [2, 8, 30])
def test_rows_of_cells_have_the_least_and_largest_probabilities(positions: int) -> None:
    rng = np.random.default_rng(positions)
    channel = rng.dirichlet(np.ones(5), positions)
    found = _grouped_histogram(channel, mechanism_of(channel, 2))
    assert found is not None
    rows, weights, sizes = found
    widths = np.array(residual_cells(len(DOMAIN)))
    assert len(sizes) == len(weights) == 2 * len(widths)
    assert sizes.sum() == len(rows)
    ranges, steps = GroupRanges(tuple((low, high) for low, high in RANGES)), np.arange(-39, 40)
    place, cell = 0, 0
    for histogram in range(2):
        below, chance = ranges.spread(steps, histogram, positions)
        chances = channel[below] * (1 - chance)[:, None]
        chances = chances + channel[np.minimum(below + 1, positions - 1)] * chance[:, None]
        start = 0
        for width in widths.tolist():
            own, size = chances[start : start + width], sizes[cell]
            bounds = rows[place : place + size]
            assert (bounds.min(axis=0) <= own.min(axis=0) + 1e-12).all()
            assert (bounds.max(axis=0) >= own.max(axis=0) - 1e-12).all()
            if width == 1:
                np.testing.assert_allclose(bounds, own)
            start, place, cell = start + width, place + size, cell + 1


def test_groups_of_one_histogram_have_one_range() -> None:
    channel = np.full((3, 2), 0.5)
    assert histograms_of_groups(mechanism_of(channel, 2), len(residual_cells(40))) == [0, 1, 1]
    assert _grouped_histogram(channel, mechanism_of(channel, 2)) is not None
    assert _grouped_histogram(channel, mechanism_of(channel, 1)) is None


def test_histograms_are_assigned_as_by_the_job() -> None:
    from labeldp.mechanisms.center.group_ranges import histogram_of_groups

    cells, rng = len(residual_cells(40)), np.random.default_rng(0)
    assert cells == ResidualDomain(np.array(DOMAIN)).cells
    for _ in range(50):
        records, size = rng.integers(0, 4, 6).tolist(), int(rng.integers(1, 7))
        if not any(records):
            continue
        mechanism = mechanism_of(np.full((3, 2), 0.5), 1)
        mechanism["center"] |= {"counts": [1] * (cells * size), "groups": {
            "column": "g", "values": list("abcde"), "records": records,
        }}  # fmt: skip
        assert histograms_of_groups(mechanism, cells) == histogram_of_groups(records, size).tolist()


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"values": []}, "center.groups.values are not 1 to 15 texts"),
        ({"values": ["a", 1]}, "center.groups.values are not 1 to 15 texts"),
        ({"records": [1, 2]}, "center.groups.records is not one integer"),
        ({"records": [1, 2, -1]}, "center.groups.records is not one integer"),
        ({"column": 5}, "center.groups.column is not a string"),
        ({"labels": [1.0]}, "center.groups has further members"),
    ],
)
def test_malformed_groups_are_refused(groups: dict, said: str) -> None:
    mechanism = mechanism_of(np.full((3, 2), 0.5), 1)
    mechanism["center"]["groups"] |= groups
    with pytest.raises(RefusedDocument, match=said):
        read_center(mechanism)
