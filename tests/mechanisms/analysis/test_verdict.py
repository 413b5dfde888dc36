"""Verdicts: what they say holds for the models that they speak of, and their proposals hold when they are followed."""

import re

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.released_facts import CenterFacts, ReleasedFacts
from labeldp.mechanisms.analysis.verdict import LOSS, debiasing, parameters_of, percent, verdict, worth_of_label

PRIOR = Prior(np.arange(53.0), np.exp(-np.arange(53.0) / 8))
UNBIASED, BINS = solve("unbiased", PRIOR, 1.0), solve("rr_on_bins", PRIOR, 1.0)


def loss(facts: ReleasedFacts, records: float, parameters: float) -> float:
    moments = facts.whole_utility
    return moments.best_use(records / parameters)[0].total / moments.variance


@pytest.mark.parametrize(
    ("records", "level"), [(10**6, "good"), (10_000, "small"), (1_000, "averages"), (100, "none"), (None, "unknown")]
)
def test_the_level_follows_from_the_loss(records: int | None, level: str) -> None:
    facts = ReleasedFacts(UNBIASED, PRIOR, 0.1, records)
    found = verdict(facts)

    assert found.level == level
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*\d|\d", found.text)]
    if level == "good":
        assert found.proposals == ()
        assert loss(facts, 10**6, 100) <= LOSS
        assert found.text == f"good for training: a model of 100 parameters loses at most about {percent(loss(facts, 10**6, 100))} of the variance of the labels to noise"  # fmt: skip  # noqa: E501
    elif level == "small":
        assert records is not None
        assert loss(facts, records, numbers[0]) <= LOSS < loss(facts, records, 1.1 * numbers[0] + 1)
    elif level == "averages":
        assert loss(facts, numbers[0], 1) <= LOSS < loss(facts, numbers[0] / 1.2, 1)
    elif level == "none":
        assert loss(facts, 100, 1) > LOSS
    else:
        assert loss(facts, numbers[1], 100) <= LOSS < loss(facts, numbers[1] / 1.2, 100)


def test_bias_is_called_that_and_the_proposal_holds() -> None:
    facts = ReleasedFacts(BINS, PRIOR, 0.1, 100_000)
    found = verdict(facts)

    assert found.level == "bias"
    assert loss(facts, 1e12, 1) > LOSS
    (proposal,) = found.proposals
    share = loss(ReleasedFacts(UNBIASED, PRIOR, 0.1, 100_000), 100_000, 100)
    assert proposal == f"with --mechanism unbiased, the same epsilon costs a model {percent(share)}"
    assert share <= LOSS


def test_a_larger_epsilon_and_more_records_are_enough() -> None:
    """53 labels are few enough for proposals to be computed exactly."""
    facts = ReleasedFacts(UNBIASED, PRIOR, 0.1, 10_000)
    epsilon, records, center = verdict(facts).proposals

    proposed = float(epsilon.removeprefix("raise --epsilon to about "))
    followed = ReleasedFacts(solve("unbiased", PRIOR, proposed - 0.1), PRIOR, 0.1, 10_000)
    assert verdict(followed).level == "good"
    before = ReleasedFacts(solve("unbiased", PRIOR, (proposed - 0.1) / 1.5), PRIOR, 0.1, 10_000)
    assert verdict(before).level != "good"
    more = int(re.sub(r"\D", "", records))
    assert verdict(ReleasedFacts(UNBIASED, PRIOR, 0.1, more)).level == "good"
    assert verdict(ReleasedFacts(UNBIASED, PRIOR, 0.1, int(more / 1.2))).level != "good"
    assert "--center_column" in center


def test_an_epsilon_is_proposed_for_all_records_of_a_unit() -> None:
    alone, unit = (verdict(ReleasedFacts(UNBIASED, PRIOR, 0.1, 10_000, records_per_unit=most)) for most in (1, 4))

    one, all_records = (float(found.proposals[0].removeprefix("raise --epsilon to about ")) for found in (alone, unit))
    assert all_records == pytest.approx(4 * one, rel=0.06)
    assert unit.proposals[1:] == alone.proposals[1:]


def test_large_domains_are_proposed_for_on_a_coarser_grid() -> None:
    labels = np.arange(401.0)
    prior = Prior(labels, np.exp(-labels / 60))
    facts = ReleasedFacts(solve("rr_on_bins", prior, 1.0), prior, 0.1, 3_000)
    proposals = verdict(facts).proposals

    proposed = float(re.findall(r"raise --epsilon to about ([\d.]+)", ", ".join(proposals))[0])
    followed = ReleasedFacts(solve("unbiased", prior, proposed - 0.1), prior, 0.1, 3_000)
    assert loss(followed, 3_000, 100) <= 1.2 * LOSS


def test_a_model_of_all_features_is_judged_if_it_is_larger() -> None:
    assert parameters_of(ReleasedFacts(UNBIASED, PRIOR, 0.1, 10**6, features=12)) == 100
    facts = ReleasedFacts(UNBIASED, PRIOR, 0.1, 10**6, features=99_999)
    assert parameters_of(facts) == 100_000
    assert verdict(facts).level == "small"


def test_around_a_center_the_bias_of_clipping_counts() -> None:
    whole = Prior(np.arange(-52.0, 53), np.exp(-np.abs(np.arange(-52.0, 53)) / 6))
    inner = Prior(whole.labels[48:57], whole.weights[48:57])
    randomizer = solve("unbiased", inner, 4.0)
    clipped = ReleasedFacts(randomizer, inner, 0.1, 10**7, center=CenterFacts(whole, (0.0, 52.0), 0))

    moved = np.clip(whole.labels, -4, 4) - whole.labels
    spread = whole.weights @ whole.labels**2
    assert worth_of_label(clipped, 1e9).bias == pytest.approx(whole.weights @ moved**2 / spread, rel=1e-6)  # type: ignore[union-attr]
    assert verdict(clipped).level == "bias"
    assert "residuals" in verdict(clipped).text
    assert verdict(ReleasedFacts(randomizer, inner, 0.1, 10**7)).level == "good"


def test_around_a_linear_center_losses_are_shares_of_the_variance_of_the_labels() -> None:
    """A bias of clipping that is a fifth of the residuals' variance may be one percent of that of the labels."""
    whole = Prior(np.arange(-52.0, 53), np.exp(-np.abs(np.arange(-52.0, 53)) / 6))
    inner = Prior(whole.labels[48:57], whole.weights[48:57])
    randomizer = solve("unbiased", inner, 4.0)
    spread = float(whole.weights @ whole.labels**2)
    center = CenterFacts(whole, (0.0, 52.0), 0, label_variance=20 * spread)
    known = ReleasedFacts(randomizer, inner, 0.1, 10**7, center=center)
    unknown = ReleasedFacts(randomizer, inner, 0.1, 10**7, center=CenterFacts(whole, (0.0, 52.0), 0))

    assert (verdict(unknown).level, verdict(known).level) == ("bias", "good")
    parts = [worth_of_label(facts, 1e5) for facts in (known, unknown)]
    assert parts[0] is not None
    assert parts[1] is not None
    assert parts[0].error == pytest.approx(parts[1].error / 20)
    assert parts[0].bias == pytest.approx(parts[1].bias / 20)
    assert parts[0].worth == parts[1].worth
    text = verdict(known).text
    assert f"at most about {percent(parts[0].error)} of the variance of the labels to noise and bias" in text
    assert text.endswith("; the center alone misses about 5 %")
    # A model that errs by more than all residuals is worse than the center.
    few = verdict(ReleasedFacts(randomizer, inner, 0.1, 30, center=center)).text
    assert "the center alone misses about 5 %, and predicts better than such a model may" in few


def test_a_single_value_is_not_usable() -> None:
    prior = Prior(np.arange(2.0), np.array([1.0, 0.0]))
    facts = ReleasedFacts(solve("rr", prior, 1.0), prior, 0.1, 1000)
    assert verdict(facts).level == "none"
    assert worth_of_label(facts, 10) is None


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


def test_a_label_can_be_worth_less_than_nothing() -> None:
    facts = ReleasedFacts(UNBIASED, PRIOR, 0.1, 1000)
    some, none = worth_of_label(facts, 1e4), worth_of_label(facts, 2)
    assert some is not None
    assert none is not None
    assert (some.less_than_nothing, none.less_than_nothing) == (False, True)
    assert some.worth == pytest.approx(none.worth)
    assert some.by_share[0] > some.by_share[1]
