"""Choice of the mechanism: errors against their definition, and the choice that theory predicts at both extremes."""

import numpy as np
import pytest
from labeldp.mechanisms import Prior
from labeldp.mechanisms.analysis.automatic import CANDIDATES, CLOSE, choose_mechanism, least_records, solve_choice
from labeldp.mechanisms.analysis.findings import LOSS
from labeldp.mechanisms.center.residuals import MODEL_PARAMETERS
from labeldp.mechanisms.core.randomizer import variances

LABELS = np.arange(21.0)
PRIOR = Prior(LABELS, np.exp(-LABELS / 6))


@pytest.mark.parametrize("records", [50, 10**4])
def test_errors_are_squared_bias_and_the_share_of_the_noise(records: int) -> None:
    choice = choose_mechanism(PRIOR, 1.0, records, residuals=False)
    for name, mechanism in CANDIDATES.items():
        randomizer = mechanism.solve(PRIOR, 1.0)
        noise, bias = PRIOR.weights @ variances(randomizer), PRIOR.weights @ randomizer.bias() ** 2
        assert choice.errors[name] == pytest.approx(bias + choice.share * noise)
    unbiased = PRIOR.weights @ variances(CANDIDATES["unbiased"].solve(PRIOR, 1.0))
    spread = PRIOR.weights @ (LABELS - PRIOR.weights @ LABELS) ** 2
    assert choice.share == pytest.approx(min(MODEL_PARAMETERS / records, 1, LOSS * spread / unbiased))
    close = [name for name, error in choice.errors.items() if error <= CLOSE * min(choice.errors.values())]
    assert choice.name == close[0]
    assert (choice.range.first, choice.range.last) == (0, 20)


def test_the_bias_falls_with_the_records_and_is_none_for_many() -> None:
    assert choose_mechanism(PRIOR, 1.0, 10**8, residuals=False).name == "unbiased"
    biases = [choose_mechanism(PRIOR, 0.5, records, residuals=False).name for records in (10**3, 10**4, 10**5, 10**6)]
    order = [list(CANDIDATES).index(name) for name in biases]
    assert order == sorted(order, reverse=True)


def test_residuals_are_clipped_and_no_candidate_is_worse_than_its_whole_range() -> None:
    residuals = Prior(np.arange(-20.0, 21), np.exp(-np.abs(np.arange(-20.0, 21)) / 1.5))
    clipped = choose_mechanism(residuals, 1.0, 10**4, residuals=True)
    whole = choose_mechanism(residuals, 1.0, 10**4, residuals=False)
    assert 0 < clipped.range.first < clipped.range.last < 40
    # Ranges are chosen for 100 parameters, with 1 % of the noise.
    assert all(clipped.ranges[name].error(0.01) <= whole.ranges[name].error(0.01) for name in CANDIDATES)
    assert clipped.range.error(0.01) < 0.7 * whole.range.error(0.01)


def test_domains_beyond_the_unbiased_mechanisms_take_the_mechanism_of_labels() -> None:
    labels = np.arange(5000.0)
    choice = choose_mechanism(Prior(labels, np.ones(5000)), 1.0, 10**9, residuals=False)
    assert choice.name == "rr_on_bins"
    assert np.isinf(choice.errors["unbiased"])


def test_uneven_domains_are_summed_up_between_their_own_labels() -> None:
    labels = np.concatenate([np.arange(40.0), 40 + 10 * np.arange(40.0)])
    choice = choose_mechanism(Prior(labels, np.ones(80)), 2.0, 10**6, residuals=False)
    exact = CANDIDATES["unbiased"].solve(Prior(labels, np.ones(80)), 2.0)
    noise = float(np.mean(variances(exact))) * MODEL_PARAMETERS / 10**6
    assert choice.errors["unbiased"] == pytest.approx(noise, rel=0.05)


@pytest.mark.parametrize("rest", [0.0, 1e-12])
@pytest.mark.parametrize("records", [20, 60])
def test_labels_for_models_are_never_a_constant(records: int, rest: float) -> None:
    """With few records a constant has the least error, and says nothing."""
    labels = np.arange(-10.0, 11.0)
    prior = Prior(labels, np.where(labels == 2, 1.0, rest))
    choice = choose_mechanism(prior, 0.3, records, residuals=True)
    assert np.ptp(choice.mechanism.solve(prior, 0.3).outputs) < 1e-9
    randomizer = solve_choice(prior, 0.3, choice)
    assert np.ptp(randomizer.outputs) >= 1
    assert randomizer.choice is not None
    assert randomizer.choice["mechanism"] != choice.name


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 4.0])
def test_the_least_number_of_records_tells_the_mean_as_well_as_the_domain(epsilon: float) -> None:
    """Randomized response between the ends, for labels that are equally often each one of the domain."""
    labels = np.linspace(0, 1, 2001)
    keep = 1 / (1 + np.exp(-epsilon))
    low = 0.5 - 0.5 / (2 * keep - 1)
    above = labels * keep + (1 - labels) * (1 - keep)
    variance = above * (1 - above) * (1 - 2 * low) ** 2
    assert np.allclose(low + above * (1 - 2 * low), labels)
    needed = float(variance.mean()) / np.var(labels)
    assert needed - 0.01 <= least_records(epsilon) <= 1.01 * needed + 1.01
