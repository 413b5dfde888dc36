"""Worth of released classes against Fisher information and trained models; verdicts, corrections and warnings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior
from labeldp.mechanisms.analysis.class_utility import ClassUtility
from labeldp.mechanisms.analysis.release_warnings import release_warnings
from labeldp.mechanisms.analysis.utility import ClassCounts, ReleasedFacts
from labeldp.mechanisms.analysis.verdict import debiasing, verdict
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.response.randomized_response import RandomizedResponse
from labeldp.mechanisms.response.rr_top_k import RRTopK


def prior_of(weights):
    return Prior(np.arange(len(weights), dtype=float), np.array(weights, float))


def facts_of(weights, epsilon, records=None, mechanism=None, prior_epsilon=0.1, other=0, features=None):
    prior = prior_of(weights)
    classes = LabelClasses(tuple("abcdefgh"[: len(weights)]), other)
    randomizer = (mechanism or RandomizedResponse()).solve(prior, epsilon)
    return ReleasedFacts(randomizer, prior, prior_epsilon, records, features, "zero_one", classes=classes)


WEIGHTS = st.lists(st.integers(1, 50), min_size=2, max_size=6)


@given(WEIGHTS, st.sampled_from([0.1, 1.0, 4.0]))
def test_worth_is_the_mean_share_of_fisher_information(weights, epsilon):
    """Mean of the eigenvalues of I(true)^-1 I(released) for the K - 1 free probabilities."""
    moments = ClassUtility(RandomizedResponse().solve(prior_of(weights), epsilon), prior_of(weights))
    p, chances = moments.prior.weights, moments.randomizer.probabilities()
    basis = np.vstack([np.eye(len(p) - 1), -np.ones(len(p) - 1)])
    true = basis.T @ np.diag(1 / p) @ basis
    released = basis.T @ chances @ np.diag(1 / (p @ chances)) @ chances.T @ basis
    expected = np.trace(np.linalg.solve(true, released)) / (len(p) - 1)
    assert moments.worth == pytest.approx(expected, rel=1e-6)
    assert 0 < moments.worth < 1


def test_worth_at_the_ends():
    assert ClassUtility(RandomizedResponse().solve(prior_of([1, 1, 1]), 30.0), prior_of([1, 1, 1])).worth > 0.9999
    assert ClassUtility(RandomizedResponse().solve(prior_of([1, 1]), 1e-6), prior_of([1, 1])).worth < 1e-9
    assert ClassUtility(RandomizedResponse().solve(prior_of([1, 0]), 1.0), prior_of([1, 0])).worth == 0


def test_the_loss_of_a_model_is_what_a_trained_one_loses():
    """Maximum likelihood of the shares of 40 groups, one parameter each, from labels of randomized response."""
    random, groups, records, epsilon = np.random.default_rng(5), 40, 40_000, 1.5
    facts = facts_of([0.7, 0.3], epsilon, records)
    moments = ClassUtility(facts.randomizer, facts.prior)
    chances = facts.randomizer.probabilities()
    lost = []
    for _ in range(60):
        labels = random.random(records) < 0.3
        drawn = np.where(labels, random.random(records) < chances[1, 1], random.random(records) < chances[0, 1])
        shares = drawn.reshape(groups, -1).mean(axis=1)
        found = np.clip((shares - chances[0, 1]) / (chances[1, 1] - chances[0, 1]), 1e-3, 1 - 1e-3)
        lost.append(np.mean(0.3 * np.log(0.3 / found) + 0.7 * np.log(0.7 / (1 - found))))
    expected = moments.loss(records / groups) * moments.entropy
    # 2,400 losses of chi-squared form have a relative standard error of sqrt(2 / 2400).
    assert np.mean(lost) == pytest.approx(expected, rel=0.15)


def test_shares_are_corrected():
    facts = facts_of([0.5, 0.3, 0.2], 1.0, 1000)
    line = debiasing(facts).formula
    assert line is not None
    less, over = (float(text) for text in line.removeprefix("true share = (released share - ").split(") / "))
    released = facts.prior.weights @ facts.randomizer.probabilities()
    np.testing.assert_allclose((released - less) / over, facts.prior.weights, atol=1e-5)


def test_classes_that_are_never_released():
    facts = facts_of([0.9, 0.06, 0.04], 0.5, 1000, RRTopK())
    assert debiasing(facts).formula is None
    lost = next(warning for warning in release_warnings(facts) if warning.name == "lost_classes")
    assert lost.text.startswith("'b', 'c': never released")
    assert "--mechanism rr keeps" in lost.text


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ((500, 401, 999), ""),
        ((100_000, 0, -30), "'b', 'c'"),
        ((400, 0, 3000), "'a', 'b'"),
        ((0, 500, 5000), "'a'"),
        ((10, 20, 30), "'a', 'b', 'c'"),
        ((5000,) * 2 + (0,) * 6, "'c', 'd', 'e', 'f', 'g', 'h'"),
        ((5000,) + (0,) * 7, "'b', 'c', 'd', 'e', 'f', 'g' and 1 more"),
        (None, ""),
    ],
)
@pytest.mark.parametrize("center_epsilon", [None, 0.5])
def test_classes_whose_counts_noise_alone_may_give(counts, named, center_epsilon):
    facts = facts_of([1] * len(counts or "ab"), 5.0, None, other=1)
    noised = counts and ClassCounts(counts, deviation=100.0)
    found = release_warnings(replace(facts, class_counts=noised, center_epsilon=center_epsilon))
    assert [warning.name for warning in found] == ["unseen_classes"] * bool(named)
    assert [warning.text.split(": by the released counts, of at most 400 rec")[0] for warning in found if named] == [
        named
    ] * bool(named)
    assert all("that are not listed count as 'b'" in warning.text for warning in found)


@pytest.mark.parametrize(
    ("weights", "epsilon", "expected"),
    [
        ([1, 1], 1.0, []),
        ([1, 1], 1.1, ["frequent_classes"]),
        ([0.98, 0.02], 4.0, []),
        ([1] * 5, 1.5, []),
        ([1] * 5, 1.7, ["frequent_classes"]),
        ([1, 0], 4.0, []),
    ],
)
def test_the_warning_of_classes_that_a_center_blurs(weights, epsilon, expected):
    classes = LabelClasses(tuple("abcde"[: len(weights)]), 0)
    facts = ReleasedFacts(None, prior_of(weights), 0.0, 1000, classes=classes, center_epsilon=epsilon)
    found = release_warnings(facts)
    assert [warning.name for warning in found] == expected
    assert all(warning.text.endswith("say more than the center: --center none") for warning in found)
    assert all(warning.text.endswith(": center= none") for warning in release_warnings(facts, "{}=".format))
    assert verdict(facts).level == "center"


def test_the_warning_of_single_labels():
    assert [warning.name for warning in release_warnings(facts_of([1, 1, 1], 0.5, 10**6))] == ["label_error"]
    assert release_warnings(facts_of([1, 1, 1], 2.0, 10**6)) == []
