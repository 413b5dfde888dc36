"""Verdicts: what they say holds for the models that they speak of, and their proposals hold when they are followed.

Warnings about a release: when they are given, and that noise alone does not give those about the domain.
"""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.utility import CenterFacts, ReleasedFacts, utility
from labeldp.mechanisms.analysis.verdict import (
    END_MARGINS,
    END_SHARE,
    LOSS,
    carried_parameters,
    debiasing,
    end_margin,
    model_note,
    noise_cost,
    parameters_of,
    percent,
    release_warnings,
    verdict,
    worth_of_label,
)
from labeldp.mechanisms.noise.noisy_histogram import noisy_priors

PRIOR = Prior(np.arange(53.0), np.exp(-np.arange(53.0) / 8))
UNBIASED, BINS = solve("unbiased", PRIOR, 1.0), solve("rr_on_bins", PRIOR, 1.0)
STATED = 1e-5


def loss(facts: ReleasedFacts, records: float, parameters: float) -> float:
    """Share of the variance that noise and bias cost, from the moments of the outputs."""
    moments = facts.whole_utility
    costs = []
    for debiased in moments.uses:
        intercept, slope = moments.line if debiased and moments.line else (0.0, 1.0)
        bias = (moments.labels + moments.bias - intercept) / slope - moments.labels
        costs.append(moments.weights @ bias**2 + moments.noise / slope**2 * parameters / records)
    return float(min(costs) / moments.variance)


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
        costs = [loss(facts, 10**6, size) for size in (10, 100, 1000)]
        assert costs[1] <= LOSS
        assert (
            f"good for training if features explain {percent(5 * costs[1])} of the variance of the labels" in found.text
        )
        assert f"noise costs a model of 10 / 100 / 1,000 parameters {' / '.join(map(percent, costs))}" in found.text
    elif level == "small":
        assert records is not None
        most = carried_parameters(facts)
        assert most is not None
        assert loss(facts, records, most) <= LOSS < loss(facts, records, 1.1 * most + 1)
        assert f"use at most {most} parameters" in found.text
    elif level == "averages":
        assert loss(facts, numbers[0], 1) <= LOSS < loss(facts, numbers[0] / 1.2, 1)
    elif level == "none":
        assert loss(facts, 100, 1) > LOSS
    else:
        assert loss(facts, numbers[-1], 100) <= LOSS < loss(facts, numbers[-1] / 1.2, 100)


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


def test_a_center_of_cells_is_judged_by_what_it_misses() -> None:
    """Labels around it have next to no budget, and no more epsilon for them is proposed."""
    labels = np.arange(-9.0, 10)
    residuals = Prior(labels, np.exp(-np.abs(labels)))
    spread = float(residuals.weights @ residuals.labels**2)
    center = CenterFacts(residuals, (0.0, 52.0), 0, 4 * spread, 0.75, 0.01, cells=True)
    cells = ReleasedFacts(solve("rr", residuals, 0.03), residuals, 0.03, 20_000, center=center)
    found = verdict(cells)

    assert (found.level, found.proposals) == ("center", ())
    assert "the center is the model: recipients learn what the log's features say, and nothing else" in found.text
    assert "features explain about 75 % (standard error 1 %)" in found.text
    assert found.text.endswith("--center linear, without --for log_features")
    assert "--center linear" in (model_note(cells) or "")
    # Where labels have much of epsilon, as those of millions of records do, they are judged as any.
    rich = verdict(ReleasedFacts(solve("unbiased", residuals, 4.0), residuals, 0.03, 10**7, center=center))
    assert rich.level == "good"
    assert "the center is the model" not in rich.text
    assert model_note(replace(cells, center=replace(center, cells=False))) is None


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
    assert "noise and bias cost" in verdict(known).text


@pytest.mark.parametrize(
    ("explained", "error", "level", "said"),
    [
        (0.5, 0.02, "good", "features explain about 50 % (standard error 2 %) of the variance of the labels or more"),
        # Noise costs a model of 100 parameters more than a fifth of what features explain.
        (0.05, 0.01, "small", "features explain about 5 % (standard error 1 %)"),
        (0.01, 0.05, "small", "the center explains at most about 6 %"),
        (0.004, 0.004, "averages", "the center explains at most about 0.8 %"),
        (0.5, 0.3, "good", "what features explain of the labels is not known"),
        (None, 0.0, "good", "what features explain of the labels is not known"),
    ],
)
def test_the_level_is_relative_to_what_features_explain(
    explained: float | None, error: float, level: str, said: str
) -> None:
    """Noise costs 100 parameters 4 % of the variance of the labels throughout."""
    grid = np.arange(-52.0, 53)
    whole = Prior(grid, np.exp(-np.abs(grid) / 6))
    randomizer = solve("unbiased", whole, 1.0)
    spread = utility(randomizer, whole).noise / 400
    center = CenterFacts(whole, (0.0, 52.0), 0, spread, explained, error)
    facts = ReleasedFacts(randomizer, whole, 0.1, 10**6, center=center)
    facts = replace(facts, records=round(100 * facts.whole_utility.noise / spread / 0.04))

    assert noise_cost(facts, 100) == pytest.approx(0.04, rel=1e-3)
    found = verdict(facts)
    assert found.level == level
    assert said in found.text
    most, allowed = carried_parameters(facts), 0.2 * max(explained, error) if explained and error <= 0.25 else LOSS
    assert most == pytest.approx(100 * allowed / 0.04, abs=1)


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
