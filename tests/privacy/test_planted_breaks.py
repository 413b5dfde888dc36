"""Each planted break of a sampler is found by the check that is there for it, and an honest sampler passes all checks.

The test keys are fixed, so every result is the same in every run.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import BudgetSplit, Prior, Randomizer, mechanism_named, solve
from labeldp.mechanisms.core.integer_weights import TOTAL
from labeldp.mechanisms.noise.input_digest import digest_sums, input_digest
from labeldp.mechanisms.noise.keyed_words import NoiseRequest, derive_noise_key, integer_identities, keyed_hash, words
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts

from tests.privacy.findings import Claim, Finding, Setting
from tests.privacy.release_function import BlackBox, KeyedRelease
from tests.privacy.sampler_checks import check_channel, check_histogram, check_independence

Check = Callable[[BlackBox, Claim, Setting], Iterator[Finding]]
ALPHA = 1e-6 / 7
LABELS = np.arange(8.0)
PRIOR = Prior(LABELS, np.arange(8.0, 0.0, -1.0))
BUDGET = BudgetSplit(0.5, 1.0)
CLAIM = Claim(solve("rr", PRIOR, 1.0), 0.5)
CHECKS: tuple[Check, ...] = (check_channel, check_independence, check_histogram)


def findings(
    sampler: Any, claim: Claim = CLAIM, draws: int = 100_000, checks: tuple[Check, ...] = CHECKS
) -> dict[str, Finding]:
    box, setting = BlackBox(sampler, claim.randomizer.labels), Setting(draws, ALPHA)
    return {finding.check: finding for check in checks for finding in check(box, claim, setting)}


def failed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if not finding.passed}


def keyed(**changed: Any) -> Callable[[np.ndarray, np.ndarray, bytes], Any]:
    """The keyed path, written once more, with parts replaced: noise_key, draw, prior. Ids are not checked."""

    def noise_key(labels: np.ndarray, ids: np.ndarray, key: bytes) -> bytes:
        sums, request = (
            digest_sums(key, "label", integer_identities("id", ids), labels),
            (NoiseRequest("label", LABELS, "nearest"), BUDGET),
        )
        return derive_noise_key(key, input_digest(key, sums, *request), *request)

    def draw(indices: np.ndarray, random: np.ndarray) -> np.ndarray:
        return CLAIM.randomizer.sample(indices, random)

    def prior(counts: np.ndarray, key: bytes) -> np.ndarray:
        return Prior.from_counts(LABELS, noisy_counts(counts, 0.5, key)).weights

    parts: dict[str, Any] = {"noise_key": noise_key, "draw": draw, "prior": prior} | changed

    def release(labels: np.ndarray, ids: np.ndarray, key: bytes) -> Any:
        indices, noise = np.searchsorted(LABELS, labels), parts["noise_key"](labels, ids, key)
        random = words(noise, CLAIM.randomizer.fingerprint, integer_identities("id", ids))
        return parts["draw"](indices, random), parts["prior"](np.bincount(indices, minlength=8), noise)

    return release


# Honest samplers.


@pytest.mark.parametrize(
    ("name", "epsilon", "parameters"),
    [
        ("rr", 0.1, {}),
        ("rr", 5.0, {}),
        ("rr_on_bins", 1.0, {}),
        ("unbiased", 2.0, {}),
        ("laplace", 1.0, {}),
        ("laplace", 1.0, {"clip": False}),
        ("gaussian", 1.0, {"delta": 1e-3}),
    ],
)
def test_an_honest_mechanism_passes_all_checks(name: str, epsilon: float, parameters: dict[str, Any]) -> None:
    claim = Claim(mechanism_named(name, **parameters).solve(PRIOR, epsilon), 0.5)
    found = findings(KeyedRelease(claim.randomizer, 0.5), claim)
    assert failed(found) == set(), found
    assert set(found) == {
        "probabilities", "channel", "changed data", "other key", "duplicate ids", "histogram", "changed histogram",
    }  # fmt: skip
    assert "refused" in found["duplicate ids"].text
    assert found["channel"].epsilon is not None
    if epsilon >= 1 and not parameters:
        # The attack has power: without a fault it proves most of the epsilon that is spent.
        assert found["channel"].epsilon > 0.8 * claim.epsilon


def test_the_bound_holds_under_many_seeds() -> None:
    """At confidence 1/2 for all checks together, a bound that were not valid would exceed epsilon often."""
    seeds, alpha = 60, 0.1
    box, claim = BlackBox(KeyedRelease(CLAIM.randomizer, 0.0), LABELS), Claim(CLAIM.randomizer, 0.0)
    alarms = sum(
        not finding.passed for seed in range(seeds) for finding in check_channel(box, claim, Setting(5000, alpha, seed))
    )
    # Two findings a seed, each false with probability 0.1 at most; P(Binomial(120, 0.1) > 30) is below 1e-5.
    assert alarms <= 30


def test_a_domain_of_one_label_has_nothing_to_tell_apart() -> None:
    prior = Prior(np.array([3.0]), np.array([1.0]))
    claim = Claim(solve("rr", prior, 1.0), 0.0)
    found = findings(KeyedRelease(claim.randomizer, 0.0), claim, checks=(check_channel, check_histogram))
    assert failed(found) == set()
    assert found["channel"].epsilon == 0


# Planted breaks.


def test_a_float_sampler_with_a_clamped_tail_is_found() -> None:
    """Noise beyond some bound is clamped, so that the far outputs are impossible for some labels."""
    mechanism = solve("laplace", PRIOR, 1.0)
    step = mechanism.outputs[1] - mechanism.outputs[0]

    def sampler(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
        uniform = np.random.default_rng(list(key)).uniform(-0.5, 0.5, len(labels))
        noise = -7.0 * np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
        values = np.clip(labels + np.clip(noise, -6.5, 6.5), mechanism.outputs[0], mechanism.outputs[-1])
        return mechanism.outputs[np.rint((values - mechanism.outputs[0]) / step).astype(int)]

    found = findings(sampler, Claim(mechanism, 0.0))
    assert failed(found) >= {"probabilities", "channel"}
    assert found["channel"].epsilon is not None
    assert found["channel"].epsilon > 2


def test_words_that_are_reused_over_changed_labels_are_found() -> None:
    found = findings(keyed(noise_key=lambda labels, ids, key: keyed_hash(key, b"fixed", b"")))
    # With the same noise, the prior of changed data tells the exact change, too. One release alone shows nothing.
    assert failed(found) == {"changed data", "duplicate ids", "changed histogram"}


def test_words_bound_to_the_histogram_only_are_found() -> None:
    def noise_key(labels: np.ndarray, ids: np.ndarray, key: bytes) -> bytes:
        return keyed_hash(key, b"histogram", np.bincount(labels.astype(int), minlength=8).tobytes())

    assert "changed data" in failed(findings(keyed(noise_key=noise_key)))


def test_words_without_the_key_are_found() -> None:
    """The noise is bound to the data, but anyone can compute it."""

    def noise_key(labels: np.ndarray, ids: np.ndarray, key: bytes) -> bytes:
        return keyed_hash(bytes(32), b"public", labels.tobytes() + ids.tobytes())

    found = findings(keyed(noise_key=noise_key), checks=(check_independence,))
    assert failed(found) == {"other key", "duplicate ids"}


def test_words_of_a_label_are_found() -> None:
    """The words of a stream are bound to id and label: equal labels of one id always have equal outputs."""

    def sampler(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
        identities = integer_identities("id", ids * 8 + labels.astype(np.int64))
        return CLAIM.randomizer.sample(labels.astype(int), words(key, b"", identities))

    assert failed(findings(sampler, Claim(CLAIM.randomizer, 0.0))) == {"changed data", "duplicate ids"}


@pytest.mark.parametrize("labels", [2, 8])
def test_an_epsilon_off_by_five_percent_is_found(labels: int) -> None:
    prior = Prior(np.arange(float(labels)), np.ones(labels))
    claim = Claim(solve("rr", prior, 1.0), 0.0)
    found = findings(KeyedRelease(solve("rr", prior, 1.05), 0.0), claim, 10**6, (check_channel,))
    assert "channel" in failed(found)
    assert found["channel"].epsilon is not None
    assert 1 < found["channel"].epsilon <= 1.05


def test_a_prior_without_noise_is_found() -> None:
    found = findings(keyed(prior=lambda counts, key: counts / counts.sum()), checks=(check_histogram,))
    assert failed(found) == {"histogram", "changed histogram"}


def test_a_prior_with_a_quarter_of_the_noise_is_found() -> None:
    claim = Claim(CLAIM.randomizer, 1.0)
    found = findings(
        keyed(prior=lambda counts, key: Prior.from_counts(LABELS, noisy_counts(counts, 4.0, key)).weights),
        claim, 10**6, checks=(check_histogram,),
    )  # fmt: skip
    assert "histogram" in failed(found)
    assert found["histogram"].epsilon is not None
    assert 1 < found["histogram"].epsilon <= 4


def test_duplicate_ids_that_share_a_word_are_found() -> None:
    """The keyed path without the check for duplicates."""
    found = findings(keyed())
    assert failed(found) == {"duplicate ids"}


def test_duplicate_ids_with_independent_noise_pass() -> None:
    """A sampler with random numbers of its own, which refuses nothing."""
    source = np.random.default_rng(5)

    def sampler(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
        random = source.integers(0, 1 << 64, len(labels), np.uint64, endpoint=False)
        return CLAIM.randomizer.sample(labels.astype(int), random)

    assert failed(findings(sampler, checks=(check_independence,))) == set()


def test_weights_off_by_one_row_are_found() -> None:
    """The channel is as private as before, but not the one of the file: its bias and its loss are others."""

    def draw(indices: np.ndarray, random: np.ndarray) -> np.ndarray:
        return CLAIM.randomizer.sample(np.minimum(indices + 1, 7), random)

    assert failed(findings(keyed(draw=draw), checks=(check_channel,))) == {"probabilities"}


def test_one_row_of_edited_weights_is_found() -> None:
    """The own label of row 3 gains a quarter of what is left: epsilon is 1.49 there."""
    weights = CLAIM.randomizer.weights.copy()
    weights[3] -= weights[3] // np.uint64(4)
    weights[3, 3] += np.uint64(TOTAL) - weights[3].sum(dtype=np.uint64)
    edited = Randomizer(LABELS, CLAIM.randomizer.outputs, weights, 3.0, "edited")
    found = findings(keyed(draw=edited.sample), checks=(check_channel,))
    assert failed(found) == {"probabilities", "channel"}
    assert found["channel"].epsilon is not None
    assert found["channel"].epsilon <= edited.certificate().epsilon


def test_values_that_are_not_outputs_are_found() -> None:
    """Low bits of floats that depend on the label (Mironov 2012)."""

    def draw(indices: np.ndarray, random: np.ndarray) -> np.ndarray:
        return CLAIM.randomizer.sample(indices, random) + indices * 2.0**-50

    found = findings(keyed(draw=draw), checks=(check_channel,))
    assert failed(found) >= {"probabilities"}
    assert "not outputs" in found["probabilities"].text
