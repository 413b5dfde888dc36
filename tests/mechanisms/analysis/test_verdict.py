"""Verdicts follow from the lower end of the measured interval, in one short sentence; and the lines that debias."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.explained import Measured, Share
from labeldp.mechanisms.analysis.utility import CenterFacts, ReleasedFacts, utility
from labeldp.mechanisms.analysis.verdict import (
    carried_parameters,
    debiasing,
    is_model,
    parameters_of,
    verdict,
)

PRIOR = Prior(np.arange(53.0), np.exp(-np.arange(53.0) / 8))
UNBIASED, BINS = solve("unbiased", PRIOR, 1.0), solve("rr_on_bins", PRIOR, 1.0)
FACTS = ReleasedFacts(UNBIASED, PRIOR, 0.1, 10_000)


def measured(value: float, error: float, parameters: float = 12.0, records: int = 10_000, seen: int = 5) -> Measured:
    return Measured(Share(value, error, value - 2 * error), parameters, 0.001, records, seen)


@pytest.mark.parametrize(
    ("found", "level", "line"),
    [
        (
            measured(0.38, 0.02), "good",
            "good for training: a ridge on these features alone explains 38 % +- 2 % of the variance; noise costs "
            "its 12 parameters 1.2 %",
        ),
        (
            measured(0.38, 0.09), "small",
            "for small models: a ridge on these features alone explains 38 % +- 9 % of the variance; noise costs "
            "its 12 parameters 1.2 %; better: 3 times --epsilon",
        ),
        (
            measured(0.38, 0.09, parameters=0.0), "small",
            "for small models: a ridge on these features alone explains 38 % +- 9 % of the variance; noise costs its 1 "
            "parameter 0.1 %; better: 3 times --epsilon",
        ),
        (
            measured(-0.02, 0.06), "unknown",
            "cannot be told from these records: a ridge on these features alone explains -2 % +- 6 % of the "
            "variance; better: 3 times --epsilon",
        ),
        (
            measured(0.001, 0.002), "averages",
            "for averages: a ridge on these features alone explains at most 0.5 % of the variance",
        ),
        (
            measured(0.0, 0.01, seen=0), "averages",
            "for averages: no features are here; noise moves the mean of all records by 3.2 % of a label's deviation",
        ),
        (None, "unknown", "not measured here: labeldp report measures it on the released records"),
    ],
)  # fmt: skip
def test_the_word_follows_from_the_interval(found: Measured | None, level: str, line: str) -> None:
    judged = verdict(FACTS, found)
    assert (judged.level, judged.line) == (level, line)


@given(st.floats(-0.5, 1.2), st.floats(1e-4, 2), st.floats(0, 999), st.integers(10, 10**9), st.floats(1e-3, 8))
def test_a_verdict_is_short(value: float, error: float, parameters: float, records: int, epsilon: float) -> None:
    prior = Prior(np.arange(2.0), np.ones(2))
    facts = ReleasedFacts(solve("unbiased", prior, epsilon), prior, 0.1, records)
    found = verdict(facts, measured(value, error, parameters, min(records, 100_000)))
    assert len(found.line) <= 160
    assert (found.level in ("unknown", "averages")) == (value - 2 * error <= 0)


def test_a_large_release_is_judged_by_all_of_its_records() -> None:
    found = measured(0.05, 0.01, records=100_000)
    assert verdict(replace(FACTS, records=100_000), found).level == "small"
    assert verdict(replace(FACTS, records=10**7), found).level == "good"


def test_labels_with_bias_are_measured_after_their_line() -> None:
    text = "for small models: a ridge of debiased labels explains 38 % +- 9 % of the variance"
    assert verdict(replace(FACTS, solved=BINS), measured(0.38, 0.09)).text.startswith(text)


def test_before_labels_are_released() -> None:
    assert verdict(ReleasedFacts(UNBIASED, PRIOR, 0.1)).text.startswith("measured once labels are released")


def test_a_model_of_all_features_is_judged_if_it_is_larger() -> None:
    assert parameters_of(ReleasedFacts(UNBIASED, PRIOR, 0.1, 10**6, features=12)) == 100
    assert parameters_of(ReleasedFacts(UNBIASED, PRIOR, 0.1, 10**6, features=99_999)) == 100_000


def test_a_center_of_cells_is_the_model() -> None:
    """Labels around it have next to no budget, and no more epsilon for them is proposed."""
    labels = np.arange(-9.0, 10)
    residuals = Prior(labels, np.exp(-np.abs(labels)))
    spread = float(residuals.weights @ residuals.labels**2)
    center = CenterFacts(residuals, (0.0, 52.0), 0, 4 * spread, 0.75, 0.01, cells=True)
    cells = ReleasedFacts(solve("rr", residuals, 0.03), residuals, 0.03, 20_000, center=center)
    found = verdict(cells, measured(0.75, 0.01))

    assert found.level == "center"
    assert found.text == "the center is the model: recipients learn what the log's features say, and nothing else"
    assert found.line.endswith("; better: --center linear, without --for log_features, for labels that say more")
    # Where labels have much of epsilon, as those of millions of records do, they are judged as any.
    rich = ReleasedFacts(solve("unbiased", residuals, 4.0), residuals, 0.03, 10**7, center=center)
    assert not is_model(rich)
    assert verdict(rich, measured(0.75, 0.01)).level == "good"
    assert not is_model(replace(cells, center=replace(center, cells=False)))


@pytest.mark.parametrize(
    ("explained", "error", "allowed"),
    [(0.5, 0.02, 0.1), (0.05, 0.01, 0.01), (0.01, 0.05, 0.01), (0.5, 0.3, 0.1), (None, 0.0, 0.1)],
)
def test_predicted_sizes_are_relative_to_what_features_explain(
    explained: float | None, error: float, allowed: float
) -> None:
    """Noise costs 100 parameters 4 % of the variance of the labels throughout."""
    grid = np.arange(-52.0, 53)
    whole = Prior(grid, np.exp(-np.abs(grid) / 6))
    randomizer = solve("unbiased", whole, 1.0)
    spread = utility(randomizer, whole).noise / 400
    center = CenterFacts(whole, (0.0, 52.0), 0, spread, explained, error)
    facts = ReleasedFacts(randomizer, whole, 0.1, 10**6, center=center)
    facts = replace(facts, records=round(100 * facts.whole_utility.noise / spread / 0.04))

    assert carried_parameters(facts) == pytest.approx(math.floor(100 * allowed / 0.04), abs=1)


@pytest.mark.parametrize("mechanism", ["rr_on_bins", "rr", "laplace", "bias_limited"])
def test_the_line_debiases_the_average(mechanism: str) -> None:
    """The formula is pasted and evaluated: for labels of the prior, the mean of the result is the mean label."""
    randomizer = solve(mechanism, PRIOR, 1.0)
    found = debiasing(ReleasedFacts(randomizer, PRIOR, 0.1, 10**7))

    assert found.formula is not None
    assert found.formula.startswith("true = ")
    released = randomizer.outputs
    true = eval(found.formula.removeprefix("true = "), {"released": released})
    chances = PRIOR.weights @ randomizer.probabilities()
    # The formula has six digits: the intercept is off by at most 5e-5, which is divided by the slope, at least 0.01.
    assert chances @ true == pytest.approx(PRIOR.weights @ PRIOR.labels, abs=5e-3)
    assert abs(chances @ released - PRIOR.weights @ PRIOR.labels) > 1e-3 or mechanism == "rr_on_bins"
    # And it is the line of least squares: what remains is not correlated with the label.
    rest = randomizer.probabilities() @ true - PRIOR.labels
    centred = PRIOR.labels - PRIOR.weights @ PRIOR.labels
    assert PRIOR.weights @ (rest * centred) == pytest.approx(0, abs=float(1e-3 * (PRIOR.weights @ centred**2)))


def test_the_line_around_a_center() -> None:
    grid = np.arange(-10.0, 11)
    residuals = Prior(grid, np.exp(-np.abs(grid) / 3))
    facts = ReleasedFacts(
        solve("rr", residuals, 1.0), residuals, 0.1, 10**7, center=CenterFacts(residuals, (0.0, 10.0), 0)
    )
    formula = debiasing(facts).formula
    assert formula is not None
    randomizer, centre = facts.randomizer, 7.0
    true = eval(formula.removeprefix("true = "), {"released": centre + randomizer.outputs, "center": centre})
    assert (residuals.weights @ randomizer.probabilities()) @ true == pytest.approx(centre + residuals.weights @ grid)


def test_labels_without_a_line() -> None:
    assert debiasing(ReleasedFacts(UNBIASED, PRIOR, 0.1)).line == "needs none: the labels are unbiased"
    single = Prior(np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    assert "there is no line" in debiasing(ReleasedFacts(solve("rr", single, 1.0), single, 0.1)).line
    few = debiasing(ReleasedFacts(BINS, PRIOR, 0.1, 200))
    assert few.line.endswith("a model of so few records is better without it")
