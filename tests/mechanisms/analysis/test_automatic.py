"""Choice of the mechanism: errors against their definition, and the choice that theory predicts at both extremes."""

import numpy as np
import pytest
from labeldp.mechanisms import Prior
from labeldp.mechanisms.analysis.automatic import CANDIDATES, CLOSE, choose_mechanism
from labeldp.mechanisms.analysis.quality import variances
from labeldp.mechanisms.center.truncation import MODEL_PARAMETERS

LABELS = np.arange(21.0)
PRIOR = Prior(LABELS, np.exp(-LABELS / 6))


@pytest.mark.parametrize("records", [50, 10**4])
def test_errors_are_squared_bias_and_the_share_of_the_noise(records: int) -> None:
    choice = choose_mechanism(PRIOR, 1.0, records, residuals=False)
    for name, mechanism in CANDIDATES.items():
        randomizer = mechanism.solve(PRIOR, 1.0)
        noise, bias = PRIOR.weights @ variances(randomizer), PRIOR.weights @ randomizer.bias() ** 2
        assert choice.errors[name] == pytest.approx(bias + min(MODEL_PARAMETERS / records, 1) * noise)
    close = [name for name, error in choice.errors.items() if error <= CLOSE * min(choice.errors.values())]
    assert choice.name == close[0]
    assert (choice.range.first, choice.range.last) == (0, 20)


def test_many_records_choose_no_bias_and_few_choose_the_least_error_of_a_label() -> None:
    assert choose_mechanism(PRIOR, 1.0, 10**8, residuals=False).name == "unbiased"
    assert choose_mechanism(PRIOR, 0.2, 100, residuals=False).name == "rr_on_bins"
    biases = [choose_mechanism(PRIOR, 0.5, records, residuals=False).name for records in (10**3, 10**4, 10**5, 10**6)]
    order = [list(CANDIDATES).index(name) for name in biases]
    assert order == sorted(order, reverse=True)


def test_residuals_are_clipped_and_no_candidate_is_worse_than_its_whole_range() -> None:
    residuals = Prior(np.arange(-20.0, 21), np.exp(-np.abs(np.arange(-20.0, 21)) / 1.5))
    clipped = choose_mechanism(residuals, 1.0, 10**4, residuals=True)
    whole = choose_mechanism(residuals, 1.0, 10**4, residuals=False)
    assert 0 < clipped.range.first < clipped.range.last < 40
    assert all(clipped.errors[name] <= whole.errors[name] for name in CANDIDATES)
    assert clipped.errors[clipped.name] < 0.7 * whole.errors[whole.name]


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
