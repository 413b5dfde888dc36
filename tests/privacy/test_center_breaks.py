"""Attack on releases around a center: planted breaks are found, honest releases pass, and the path is that of a job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from labeldp.mechanisms import BudgetSplit, Prior, Randomizer, solve
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.noise.input_digest import digest_sums, input_digest
from labeldp.mechanisms.noise.keyed_words import NoiseRequest, derive_noise_key, integer_identities, keyed_hash, words
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts

from tests.privacy import release_function
from tests.privacy.center_checks import around_center, check_changed_centers
from tests.privacy.findings import Finding, Setting
from tests.privacy.release_function import KeyedRelease
from tests.privacy.sampler_checks import check_channel, check_histogram, check_independence
from tests.privacy.unit_checks import check_sampler

from .claims import Claim, read_claim

DOMAIN = ResidualDomain(np.arange(21.0))
STEPS = np.arange(-4.0, 4.0)
PRIOR = Prior(STEPS, np.arange(8.0, 0.0, -1.0))
CLAIM = Claim(solve("rr", PRIOR, 1.0), PRIOR, 0.5, DOMAIN)
BUDGET = BudgetSplit(0.5, CLAIM.randomizer.epsilon)
ALPHA = 1e-6 / 9
ALL = {
    "probabilities", "channel", "changed data", "other key", "duplicate ids", "histogram", "changed histogram",
    "changed centers", "their histogram",
}  # fmt: skip


def findings(sampler: Any, claim: Claim = CLAIM, draws: int = 100_000) -> dict[str, Finding]:
    assert claim.residuals is not None
    (box, around), setting = around_center(claim, sampler, claim.residuals), Setting(draws, ALPHA)
    found = [check(box, around, setting) for check in (check_channel, check_independence, check_histogram)]
    return {one.check: one for several in (*found, check_changed_centers(box, claim, setting)) for one in several}


def failed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if not finding.passed}


def of_everything(labels: np.ndarray, ids: np.ndarray, key: bytes, centers: np.ndarray) -> bytes:
    """Noise that is bound to labels and centers, as in a job."""
    sums = digest_sums(key, "y", integer_identities("id", ids), labels, ("c", centers.astype(int)))
    request = (NoiseRequest("y", DOMAIN.labels, "nearest", "c"), BUDGET)
    return derive_noise_key(key, input_digest(key, sums, *request), *request)


def keyed(**changed: Any) -> Callable[..., Any]:
    """The keyed path around centers, written once more, with parts replaced: noise_key, prior_key, clip."""

    noise_key = changed.get("noise_key", of_everything)
    parts: dict[str, Any] = {"noise_key": noise_key, "prior_key": noise_key, "clip": np.clip} | changed

    def release(labels: np.ndarray, ids: np.ndarray, key: bytes, centers: np.ndarray) -> Any:
        steps = (labels - centers).astype(int)
        random = words(parts["noise_key"](labels, ids, key, centers), b"", integer_identities("id", ids))
        released = centers + CLAIM.randomizer.sample(parts["clip"](steps, -4, 3) + 4, random)
        noise = parts["prior_key"](labels, ids, key, centers)
        return released, noisy_counts(DOMAIN.count(steps), 0.5, noise)

    return release


def of_labels_alone(labels: np.ndarray, ids: np.ndarray, key: bytes, centers: np.ndarray) -> bytes:
    """Noise that does not change if only the centers do."""
    sums = digest_sums(key, "y", integer_identities("id", ids), labels)
    request = (NoiseRequest("y", DOMAIN.labels, "nearest", "c"), BUDGET)
    return derive_noise_key(key, input_digest(key, sums, *request), *request)


# Honest releases.


@pytest.mark.parametrize(
    ("mechanism", "low", "high"), [("rr", -4, 3), ("unbiased", -20, 20), ("rr_on_bins", 2, 9), ("laplace", -1, 0)]
)
def test_an_honest_release_passes_all_checks(mechanism: str, low: int, high: int) -> None:
    """A short range, the whole one, one that a biased center has, and one of two residuals."""
    steps = np.arange(float(low), high + 1)
    prior = Prior(steps, np.ones(len(steps)))
    claim = Claim(solve(mechanism, prior, 1.0), prior, 0.5, DOMAIN)
    found = findings(KeyedRelease(claim.randomizer, 0.5, DOMAIN), claim)
    assert failed(found) == set(), found
    assert set(found) == ALL
    assert "refused" in found["duplicate ids"].text


def test_the_attack_reaches_all_residuals_and_clipped_ones() -> None:
    box, around = around_center(CLAIM, keyed(), DOMAIN)
    steps = box.domain - DOMAIN.labels[box.center]
    assert steps.tolist() == list(range(-5, 5))
    np.testing.assert_array_equal(around.randomizer.weights[0], around.randomizer.weights[1])
    np.testing.assert_array_equal(around.randomizer.weights[1:-1], CLAIM.randomizer.weights)
    found = findings(keyed())
    assert failed(found) == {"duplicate ids"}, "ids are not checked there"
    assert found["channel"].epsilon is not None
    assert found["channel"].epsilon > 0.8 * CLAIM.epsilon


# Planted breaks.


def test_noise_that_is_reused_when_only_centers_change_is_found() -> None:
    """Labels and histograms have the same noise around two centers: nothing else about the release is wrong."""
    assert failed(findings(keyed(noise_key=of_labels_alone))) == {
        "duplicate ids", "changed centers", "their histogram",
    }  # fmt: skip


def test_noise_of_the_histogram_that_is_reused_when_only_centers_change_is_found() -> None:
    assert failed(findings(keyed(prior_key=of_labels_alone))) == {"duplicate ids", "their histogram"}


def test_words_that_are_reused_when_only_centers_change_are_found() -> None:
    release = keyed(noise_key=of_labels_alone, prior_key=of_everything)
    assert failed(findings(release)) == {"duplicate ids", "changed centers"}


def test_noise_of_residuals_is_found_where_labels_change() -> None:
    """Bound to the residuals in any order, which is their histogram: a record's residual may change without notice."""

    def of_residuals(labels: np.ndarray, ids: np.ndarray, key: bytes, centers: np.ndarray) -> bytes:
        return keyed_hash(key, b"residuals", DOMAIN.count((labels - centers).astype(int)).tobytes())

    assert failed(findings(keyed(noise_key=of_residuals))) >= {"changed data"}


def test_residuals_that_are_not_clipped_are_found() -> None:
    """Residuals outside the range give rows that wrap around: the channel is not that of the file."""

    def wrapped(steps: np.ndarray, low: int, high: int) -> np.ndarray:
        return (steps - low) % (high - low + 1) + low

    assert failed(findings(keyed(clip=wrapped))) == {"duplicate ids", "probabilities"}


# The path and the command.


def test_it_is_what_a_job_releases(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, secret: bytes, shard_paths: Any
) -> None:
    """`privatize --center_column` over a file with ids; labels and noised counts are equal bit for bit."""
    rng = np.random.default_rng(2)
    ids, centers = np.arange(600)[::-1] * 5 - 99, rng.integers(0, 21, 600)
    labels = np.clip(centers + rng.integers(-3, 4, 600), 0, 20)
    log = tmp_path / "log.csv"
    log.write_text(
        "id,center,label\n" + "".join(f"{i},{c},{y}\n" for i, c, y in zip(ids, centers, labels, strict=True))
    )
    names = {"label": release_function.COLUMN, "id_column": release_function.ID_COLUMN}
    flags = names | {"center_column": release_function.CENTER_COLUMN, "label_max": 20, "rounding": "nearest"}
    invoke(job(input=log, **flags)).ok()

    shards = [pyarrow.parquet.read_table(path).to_pydict() for path in shard_paths(outputs / "released")]
    released = {i: y for shard in shards for i, y in zip(shard["id"], shard["label"], strict=True)}
    text = (outputs / "released" / "mechanism.json").read_text()
    document = json.loads(text)
    function = KeyedRelease(Randomizer.from_json(text), document["prior"]["epsilon"], DOMAIN)
    ours, counts = function(labels.astype(float), ids, secret, centers.astype(float))
    assert dict(zip(ids.tolist(), ours.tolist(), strict=True)) == released
    assert counts is not None
    assert counts.tolist() == document["center"]["counts"]

    found = check_sampler(read_claim(str(outputs / "released"), "released"), Setting(20_000, 1e-6 / 9))
    assert all(finding.passed for finding in found.values())
    assert found.keys() >= ALL


def test_centers_and_residuals_belong_together() -> None:
    with pytest.raises(ValueError, match="takes centers"):
        KeyedRelease(CLAIM.randomizer, 0.5, DOMAIN)(np.zeros(3), np.arange(3), bytes(32))
    with pytest.raises(ValueError, match="takes centers"):
        KeyedRelease(CLAIM.randomizer, 0.5)(np.zeros(3), np.arange(3), bytes(32), np.zeros(3))
