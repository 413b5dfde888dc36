"""Testers by discriminators: honest samples pass, an excess of 10 % is found with enough of them; whole releases."""

from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.core.randomizer import Randomizer

from tests.privacy import release_testers
from tests.privacy.findings import Finding, Setting
from tests.privacy.release_testers import (
    TESTED,
    TESTED_PARTS,
    WHOLE,
    bound_part,
    check_testers,
    draw_samples,
)

ALPHA = 1e-4
KINDS = {case.name: case for case in TESTED}


def response(rng: np.random.Generator, draws: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomized response on one bit, and a number that says nothing."""
    kept = 1 / (1 + np.exp(-epsilon))
    first, second = rng.random((draws, 1)) < kept, rng.random((draws, 1)) >= kept
    return np.hstack([first, rng.random((draws, 1))]), np.hstack([second, rng.random((draws, 1))])


def laplace(rng: np.random.Generator, draws: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers with Laplace noise of scale 1; the first moves by epsilon."""
    return rng.laplace(size=(draws, 2)), rng.laplace([epsilon, 0], size=(draws, 2))


@pytest.mark.parametrize(("sample", "draws"), [(response, 30_000), (laplace, 120_000)])
def test_excess_of_ten_percent_is_found(sample: Any, draws: int) -> None:
    def found(epsilon: float) -> Finding:
        first, second = sample(np.random.default_rng(0), draws, epsilon)
        return bound_part("kind", WHOLE, first, second, 2.0, Setting(0, ALPHA))

    honest, broken = found(2.0), found(2.2)
    assert honest.passed
    assert 1.7 < (honest.epsilon or 0) < 2
    assert not broken.passed, broken.text


def test_small_samples_pass_and_bound_little() -> None:
    for seed in range(5):
        one, two = laplace(np.random.default_rng(seed), 200, 2.0)
        finding = bound_part("kind", WHOLE, one, two, 2.0, Setting(0, ALPHA))
        assert finding.passed
        assert 0 <= (finding.epsilon or 0) < 2


def test_neighbor_that_is_told_apart_best_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third neighbor is the only one that releases tell; all pieces of work are those of the base or of one."""
    case, calls = KINDS["classes"], []
    neighbors: list[Any] = []

    def piece(work: Any) -> Any:
        rng = np.random.default_rng(len(calls))
        calls.append(len(work.keys))
        if not any(work.records is each for each in neighbors):
            neighbors.append(work.records)
        shift = 4.0 if work.records is neighbors[-1] and len(neighbors) == 4 else 0.0
        numbers = rng.laplace(size=(len(work.keys), 1)) + shift
        return {"labels": numbers}, {WHOLE: 1.0, "labels": 1.0}

    monkeypatch.setattr(release_testers, "_release_piece", piece)
    findings = list(check_testers((case,), 400, Setting(0, ALPHA), map, lambda text: None))
    assert [finding.check for finding in findings] == ["classes, whole", "classes, labels"]
    assert not any(finding.passed for finding in findings)
    # Three pilots of 40, then all.
    assert sum(calls) == 3 * 2 * 40 + 2 * 400
    assert len(neighbors) == 4


def _samples(name: str, releases: int) -> release_testers.Samples:
    case, setting, rng = KINDS[name], Setting(0, ALPHA), np.random.default_rng(0)
    base, neighbors = case.pairs(case.make(rng), rng)
    return draw_samples(case, base, next(neighbors), releases, setting.keys("test"), map)


def test_whole_releases_have_the_parts_that_are_claimed() -> None:
    parts = {name: _samples(name, 3) for name in KINDS}
    assert {name: [*found.parts] for name, found in parts.items()} == {
        "linear center": [WHOLE, "center sums", "histogram", "labels"],
        "classes": [WHOLE, "histogram", "labels"],
        "units": [WHOLE, "histogram", "labels"],
    }
    assert sum(len(found.parts) for found in parts.values()) == TESTED_PARTS
    for found in parts.values():
        assert found.claims[WHOLE] == pytest.approx(sum(found.claims[part] for part in [*found.parts][1:]))
        assert all(len(one) == len(two) == 3 for one, two in found.parts.values())
        # Every release has noise of its own.
        assert len(np.unique(found.parts[WHOLE][0], axis=0)) > 1


def test_labels_without_noise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Randomizer, "draw", lambda self, label_indices, words: label_indices)
    found = _samples("classes", 150)
    finding = bound_part("classes", WHOLE, *found.parts[WHOLE], found.claims[WHOLE], Setting(0, 1e-2))
    assert not finding.passed, finding.text
