"""Warnings about a release: when they are given, and that noise alone does not give those about the domain."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.release_warnings import END_MARGINS, END_SHARE, end_margin, release_warnings
from labeldp.mechanisms.analysis.utility import CenterFacts, ReleasedFacts
from labeldp.mechanisms.noise.noisy_histogram import noisy_priors

STATED = 1e-5


def names(facts: ReleasedFacts) -> list[str]:
    return [warning.name for warning in release_warnings(facts)]


def facts_of(prior: Prior, prior_epsilon: float = 1.0, records: int = 100_000, **more: object) -> ReleasedFacts:
    mechanism = str(more.pop("mechanism", "rr"))
    return ReleasedFacts(solve(mechanism, prior, 2.0), prior, prior_epsilon, records, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("row", "factor"), [(0, 0.4), (1, 0.35)])
@given(st.integers(3, 20_000), st.floats(0.01, 1))
def test_the_margin_gives_the_probability_that_is_stated(row: int, factor: float, labels: int, part: float) -> None:
    """The Chernoff bound of both cases, with the coefficients of the docstring, at every margin of a row."""
    most, constant, per_label = END_MARGINS[row]
    margin = part * most
    exponent = factor * (constant + labels / per_label)  # t times the margin in records, m n = s (a + k / b)

    def log_moment(*coefficients: tuple[float, int]) -> float:
        return sum(-times * math.log(1 - (factor * size) ** 2) for size, times in coefficients)

    first = log_moment((1, 1), (END_SHARE + margin, labels - 1))
    second = log_moment((1, 1), (2 + margin, 1), (margin, labels - 2))
    assert max(first, second) - exponent <= math.log(STATED)


@pytest.mark.parametrize(
    "shares",
    [
        [0.1, 0.2, 0.2, 0.2, 0.2, 0.1],  # both ends have as much as may be
        [0.4, 0.2, 0.0, 0.0, 0.133, 0.267],  # twice the label beside
        [0.1, 0, 0, 0, 0.8, 0.1],
        [0.05] + [0.95 / 52] * 52,
    ],
)
@pytest.mark.parametrize("records", [300, 2_000, 100_000])
def test_noise_does_not_give_a_false_alarm(shares: list[float], records: int) -> None:
    """Histograms at the limits, 500 draws of the noise: the probability of any alarm in a case is below 2 %."""
    counts = np.rint(np.array(shares) * records).astype(np.int64)
    labels = np.arange(float(len(shares)))
    counts[0], counts[-1] = (
        min(counts[0], max(2 * counts[1], records // 10)),
        min(counts[-1], max(2 * counts[-2], records // 10)),
    )
    randomizer = solve("rr", Prior(labels, np.ones(len(labels))), 2.0)
    epsilon = min(math.sqrt(len(labels) / records), 0.5)
    for prior in noisy_priors(labels, counts, epsilon, [draw.to_bytes(32, "little") for draw in range(500)]):
        assert not {"low_end", "high_end"} & set(names(ReleasedFacts(randomizer, prior, epsilon, int(counts.sum()))))


@pytest.mark.parametrize("records", [10_000, 10**6])
def test_a_domain_that_is_too_small_is_asked_about(records: int) -> None:
    """74 % of the labels lie on the last one, in 20 of 20 draws of the noise, at the default split."""
    counts = np.array([0.03, 0.04, 0.05, 0.07, 0.07, 0.74]) * records
    labels = np.arange(6.0)
    epsilon = math.sqrt(6 / records)
    keys = [draw.to_bytes(32, "little") for draw in range(20)]
    for prior in noisy_priors(labels, counts.astype(np.int64), epsilon, keys):
        (warning,) = (
            each for each in release_warnings(facts_of(prior, epsilon, records)) if each.name.endswith("_end")
        )
        assert warning.name == "high_end"
        assert "at the high end of the domain, 5," in warning.text
        assert "raise --label_max" in warning.text


def test_no_question_without_a_noised_histogram() -> None:
    prior = Prior(np.arange(4.0), np.array([0.0, 0, 0, 1]) + 0.01)

    assert "high_end" in names(facts_of(prior))
    assert "high_end" not in names(facts_of(prior, prior_epsilon=0.0)), "a public prior says nothing about the labels"
    assert "high_end" not in names(facts_of(prior, records=20)), "20 records cannot be told from noise"
    assert end_margin(4, 20, 1.0) is None
    center = CenterFacts(prior, (0.0, 30.0), 0)
    assert "high_end" not in names(facts_of(prior, center=center)), "residuals are clipped on purpose"


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 6))
def test_the_error_of_a_label_near_the_spread(epsilon: float) -> None:
    prior = Prior(np.arange(6.0), np.ones(6))
    for name in ("unbiased", "rr_on_bins"):
        facts = ReleasedFacts(solve(name, prior, epsilon), prior, 1.0)
        ratio = facts.utility.squared_error / facts.utility.variance
        assert ("label_error" in names(facts)) == (ratio >= 0.9)


def test_few_records_for_the_features() -> None:
    """As many records as the diabetes data, with its ten features: `unbiased` at epsilon 1, and 100 times as many."""
    prior = Prior(np.arange(25.0, 347), np.exp(-((np.arange(322.0) - 127) ** 2) / 2 / 77**2))
    randomizer = solve("unbiased", prior, 1.0)

    def warned(records: int, features: int | None) -> bool:
        return "few_records" in names(ReleasedFacts(randomizer, prior, 0.5, records, features))

    assert warned(442, 30)
    assert not warned(44_200, 30)
    assert not warned(442, None)
    noise = randomizer.outputs @ randomizer.outputs
    assert noise > 0
    edge = int(11 * ReleasedFacts(randomizer, prior, 0.5).utility.training_error(1.0).variance / 0.5 / 77**2)
    assert warned(edge // 2, 10)
    assert not warned(edge * 2, 10)


def test_poisson_loss_refuses_negative_labels() -> None:
    prior = Prior(np.arange(6.0), np.ones(6))
    assert "negative_outputs" in names(facts_of(prior, loss="poisson", mechanism="unbiased"))
    assert "negative_outputs" not in names(facts_of(prior, loss="squared", mechanism="unbiased"))
    assert "negative_outputs" not in names(facts_of(prior, loss="poisson", mechanism="rr_on_bins"))


def test_a_center_that_explains_little() -> None:
    prior = Prior(np.arange(-5.0, 6), np.ones(11))
    for width, expected in ((14.0, True), (15.0, False), (10.0, True)):
        center = CenterFacts(prior, (0.0, width), 0)
        assert ("wide_residuals" in names(facts_of(prior, center=center))) == expected
    for missing, expected in ((5_001, True), (5_000, False), (None, False)):
        center = CenterFacts(prior, (0.0, 100.0), missing)
        assert ("missing_centers" in names(facts_of(prior, center=center))) == expected


def test_texts_are_lines_without_an_end() -> None:
    prior = Prior(np.arange(6.0), np.array([1.0, 0, 0, 0, 0, 0]) + 0.01)
    center = CenterFacts(prior, (0.0, 5.0), 90_000)
    everything = [
        *release_warnings(facts_of(prior, features=10**6, loss="poisson", mechanism="unbiased")),
        *release_warnings(facts_of(prior, center=center)),
    ]
    assert {"low_end", "label_error", "few_records", "negative_outputs", "wide_residuals", "missing_centers"} <= {
        warning.name for warning in everything
    }
    assert all(warning.text.isascii() and "\n" not in warning.text for warning in everything)
    assert not any(warning.text.endswith(".") for warning in everything)
