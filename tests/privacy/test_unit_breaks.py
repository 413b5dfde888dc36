"""Attack on whole units: planted breaks of their bound and of their noise are found, and honest samplers pass.

The test keys are fixed, so every result is the same in every run.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.release.unit_bound import UnitBound

from tests.privacy import release_function
from tests.privacy.center_checks import around_center
from tests.privacy.findings import Finding, Setting
from tests.privacy.release_function import BlackBox, KeyedRelease, SamplerError
from tests.privacy.unit_checks import check_sampler, check_units

from .claims import Claim, read_claim

ALPHA = 1e-6 / 9
LABELS = np.arange(8.0)
PRIOR = Prior(LABELS, np.arange(8.0, 0.0, -1.0))
UNIT = UnitBound("user", 3)
# Two labels, between which the adversary tells with the fewest draws.
TWO = Prior(LABELS[:2], np.ones(2))
CLAIM = Claim(solve("rr", TWO, 0.4), TWO, 0.2, unit=UNIT)


def findings(sampler: Any, claim: Claim = CLAIM, draws: int = 200_000) -> dict[str, Finding]:
    box = BlackBox(sampler, claim.randomizer.labels, has_units=True)
    return {finding.check: finding for finding in check_units(box, claim, Setting(draws, ALPHA))}


def failed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if not finding.passed}


@pytest.mark.parametrize("mechanism", ["rr", "rr_on_bins", "unbiased", "laplace"])
@pytest.mark.parametrize("most", [1, 3])
def test_an_honest_sampler_passes(mechanism: str, most: int) -> None:
    unit = UnitBound("user", most)
    claim = Claim(solve(mechanism, PRIOR, 0.4), PRIOR, 0.2, unit=unit)
    found = findings(KeyedRelease(claim.randomizer, 0.2, unit=unit), claim)

    assert list(found) == ["bound of units", "labels of a unit", "whole unit"]
    assert failed(found) == set()


def test_most_of_the_claim_is_shown_to_be_spent() -> None:
    bound = findings(KeyedRelease(CLAIM.randomizer, 0.2, unit=UNIT), draws=500_000)["labels of a unit"].epsilon
    assert bound is not None
    # More than one record spends.
    assert 2 * 0.4 < bound <= 3 * 0.4


def test_an_honest_sampler_around_a_center_passes() -> None:
    residuals = ResidualDomain(LABELS)
    inner = Prior(np.arange(-2.0, 3.0), np.ones(5))
    claim = Claim(solve("unbiased", inner, 0.4), inner, 0.2, residuals, UNIT)
    box, attacked = around_center(claim, KeyedRelease(claim.randomizer, 0.2, residuals, UNIT), residuals)
    found = {each.check: each for each in check_units(box, attacked, Setting(100_000, ALPHA))}

    assert list(found) == ["bound of units", "labels of a unit", "whole unit"]
    assert failed(found) == set()


def test_a_public_prior_is_no_part_of_a_unit() -> None:
    claim = Claim(CLAIM.randomizer, TWO, 0.0, unit=UNIT)
    assert list(findings(KeyedRelease(CLAIM.randomizer, 0.0, unit=UNIT), claim)) == [
        "bound of units", "labels of a unit",
    ]  # fmt: skip


def test_a_bound_that_is_not_enforced() -> None:
    found = findings(KeyedRelease(CLAIM.randomizer, 0.2, unit=UnitBound("user", 9)))

    assert "9 of 9 records of a unit are released, 3 are allowed" in found["bound of units"].text
    # The adversary does not need to count: the released labels alone say too much.
    assert failed(found) >= {"bound of units", "labels of a unit"}


def test_a_bound_within_each_file_alone() -> None:
    """Units of a record in an odd file and of one in an even file are not recognized as one."""
    honest = KeyedRelease(CLAIM.randomizer, 0.2, unit=UNIT)

    def sampler(labels: np.ndarray, ids: np.ndarray, key: bytes, units: np.ndarray) -> Any:
        return honest(labels, ids, key, units=2 * units + (ids >= len(ids) // 2))

    assert failed(findings(sampler)) >= {"bound of units", "labels of a unit"}


def test_records_that_are_chosen_by_their_labels() -> None:
    honest = KeyedRelease(CLAIM.randomizer, 0.2, unit=UNIT)

    def sampler(labels: np.ndarray, ids: np.ndarray, key: bytes, units: np.ndarray) -> Any:
        order = np.lexsort((-labels, units))
        first = np.flatnonzero(np.diff(units[order], prepend=-1))
        rank = np.arange(len(units)) - np.repeat(first, np.diff(np.append(first, len(units))))
        kept = np.zeros(len(units), bool)
        kept[order[rank < 3]] = True
        released = np.full(len(labels), np.nan)
        released[kept], prior = honest(labels[kept], ids[kept], key, units=units[kept])
        return released, prior

    found = findings(sampler)
    assert failed(found) == {"bound of units"}
    assert found["bound of units"].text == "which records of a unit are released depends on their labels"


def test_labels_with_the_whole_budget_of_a_unit_each() -> None:
    found = findings(KeyedRelease(solve("rr", TWO, 1.2), 0.2, unit=UNIT))
    assert failed(found) >= {"labels of a unit"}


def test_a_histogram_whose_noise_is_not_multiplied() -> None:
    """Noise of the scale for one record, where a unit has five: the histogram alone spends five times its claim."""
    unit = UnitBound("user", 5)
    randomizer = solve("rr", TWO, 0.02)
    claim = Claim(randomizer, TWO, 0.2, unit=unit)
    found = findings(KeyedRelease(randomizer, 1.0, unit=unit), claim, 500_000)
    assert failed(found) == {"whole unit"}


def test_a_histogram_of_all_records() -> None:
    """Records beyond the bound are left out of the labels, but not of the histogram."""
    unit = UnitBound("user", 5)
    randomizer = solve("rr", TWO, 0.02)
    labels, counts = KeyedRelease(randomizer, 0.2, unit=unit), KeyedRelease(randomizer, 0.2)

    def sampler(values: np.ndarray, ids: np.ndarray, key: bytes, units: np.ndarray) -> Any:
        return labels(values, ids, key, units=units)[0], counts(values, ids, key)[1]

    found = findings(sampler, Claim(randomizer, TWO, 0.2, unit=unit), 800_000)
    assert failed(found) == {"whole unit"}


def test_units_that_are_too_large_for_the_draws() -> None:
    unit = UnitBound("user", 400)
    claim = Claim(CLAIM.randomizer, TWO, 0.2, unit=unit)
    found = findings(KeyedRelease(CLAIM.randomizer, 0.2, unit=unit), claim)
    assert "at most 400 of 1,200 records" in found["bound of units"].text
    assert found["labels of a unit"].text == "not attacked: give --draws of at least 480,000 for such units"
    assert list(found) == ["bound of units", "labels of a unit"]


def test_a_sampler_that_takes_no_units() -> None:
    with pytest.raises(SamplerError, match="units"):
        findings(lambda labels, ids, key: labels)
    with pytest.raises(ValueError, match="takes units"):
        KeyedRelease(CLAIM.randomizer, 0.2, unit=UNIT)(np.zeros(2), np.arange(2), bytes(32))
    with pytest.raises(ValueError, match="takes units"):
        KeyedRelease(CLAIM.randomizer, 0.2)(np.zeros(2), np.arange(2), bytes(32), units=np.arange(2))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """CSV file of 900 records of 200 units."""
    rows = [f"{row * 7 - 99},{row % 200 if row % 4 else row % 3},{row * row % 7 % 5}" for row in range(900)]
    path = tmp_path / "log.csv"
    header = f"{release_function.ID_COLUMN},{release_function.UNIT_COLUMN},{release_function.COLUMN}"
    path.write_text("".join(f"{line}\n" for line in [header, *rows]))
    return path


@pytest.fixture
def released(log: Path, job: Any, invoke: Any, outputs: Path) -> Path:
    """Release of the log, with at most 3 records of a unit."""
    flags = {
        "input": log, "label": release_function.COLUMN, "id_column": release_function.ID_COLUMN, "mechanism": "rr",
        "unit_column": release_function.UNIT_COLUMN, "max_records_per_unit": 3, "epsilon": 3,
    }  # fmt: skip
    invoke(job(**flags)).ok()
    return outputs / "released"


def test_the_default_sampler_is_what_a_job_releases(released: Path, log: Path, secret: bytes, shard_paths: Any) -> None:
    """The same records with the same labels, bit for bit."""
    shards = [pyarrow.parquet.read_table(path).to_pydict() for path in shard_paths(released)]
    expected = {i: y for shard in shards for i, y in zip(shard["id"], shard["label"], strict=True)}
    ids, units, labels = np.loadtxt(log, delimiter=",", skiprows=1, dtype=np.int64).T
    text = (released / "mechanism.json").read_text()
    claim = read_claim(str(released), str(released))

    sampler = KeyedRelease(Randomizer.from_json(text), claim.prior_epsilon, unit=claim.unit)
    ours, _ = sampler(labels.astype(float), ids, secret, units=units)
    kept = ~np.isnan(ours)
    assert dict(zip(ids[kept].tolist(), ours[kept].tolist(), strict=True)) == expected


def test_the_unit_of_a_release_is_attacked(released: Path) -> None:
    claim = read_claim(str(released), str(released))
    found = check_sampler(claim, Setting(50_000, 1e-6 / 9))
    assert all(finding.passed for finding in found.values())
    assert claim.unit == UnitBound(release_function.UNIT_COLUMN, 3)
    assert found.keys() >= {"bound of units", "labels of a unit", "whole unit"}
    about = f"claimed {3 * claim.epsilon:.6g}; all labels of a unit of 9 records changed"
    assert about in found["labels of a unit"].text
