"""Choice of the number of records per unit, against brute force over records and against sampled releases."""

from fractions import Fraction

import numpy as np
import pytest
from labeldp.mechanisms.analysis.automatic import CANDIDATES
from labeldp.mechanisms.center.residuals import COARSE, mechanism_error
from labeldp.mechanisms.core.budget import split_budget
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.release.records_per_unit import best_bound, bound_options
from labeldp.mechanisms.release.unit_bound import over_limit

LABELS = np.arange(11.0)
FLAT = Prior(LABELS, np.ones(11))
UNITS = {1: 300, 2: 120, 5: 60, 12: 20, 40: 5}


def test_records_and_cut_units_are_those_of_the_selection() -> None:
    sizes = np.repeat(list(UNITS), list(UNITS.values()))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    priority = np.random.default_rng(1).integers(0, 1 << 62, len(owners))

    options = bound_options(UNITS, FLAT, 30.0)

    assert [option.max_records for option in options][:6] == [1, 2, 3, 4, 5, 6]
    for option in options:
        excluded = over_limit(owners, priority, option.max_records)
        assert option.records == (~excluded).sum()
        assert option.units_cut == len(np.unique(owners[excluded]))
        assert option.epsilon * option.max_records <= 30.0 < option.epsilon * option.max_records * (1 + 1e-12)


def model_error(prior: Prior, epsilon: float, most: int) -> float:
    """Error of a model of 100 parameters, from the probabilities of all outputs."""
    records = sum(min(size, most) * number for size, number in UNITS.items())
    # A 128th at most for the histogram, the default of a job that chooses its mechanism.
    labels = split_budget(epsilon / most, 11, records, most=Fraction(1, 128)).labels
    errors = []
    for mechanism in CANDIDATES.values():
        randomizer = mechanism.solve(prior, labels)
        joint = prior.weights[:, None] * randomizer.probabilities()
        mean = joint.sum(axis=0) @ randomizer.outputs
        spread = joint.sum(axis=0) @ (randomizer.outputs - mean) ** 2
        bias = randomizer.probabilities() @ randomizer.outputs - LABELS
        errors.append(prior.weights @ bias**2 + min(100 / records, 1) * spread)
    return min(errors)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_error_is_that_of_the_best_candidate(epsilon: float) -> None:
    prior = Prior(LABELS, np.exp(-LABELS / 3))

    for option in bound_options(UNITS, prior, epsilon):
        assert option.model_error == pytest.approx(model_error(prior, epsilon, option.max_records), rel=1e-9)


def test_where_labels_say_nothing_fewest_records_are_best() -> None:
    options = bound_options({10: 50}, FLAT, 0.05)

    assert [option.model_error for option in options] == pytest.approx([10.0] * len(options), rel=0.02)
    assert best_bound(options).max_records == 1


def test_the_error_of_an_average_is_that_of_sampled_releases() -> None:
    """A model of one parameter is the average of the released labels."""
    random = np.random.default_rng(2)
    units = {1: 40, 3: 40, 8: 10}
    for option in bound_options(units, FLAT, 12.0, parameters=1)[:4]:
        budget = split_budget(option.epsilon, 11, option.records, most=Fraction(1, 128))
        errors = {name: mechanism_error(FLAT, each, budget.labels, COARSE) for name, each in CANDIDATES.items()}
        name = min(errors, key=lambda each: errors[each][1] + errors[each][0] / option.records)
        assert name == "unbiased"
        randomizer = CANDIDATES[name].solve(FLAT, budget.labels)
        shape = (4000, option.records)
        words = random.integers(0, 1 << 64, shape, dtype=np.uint64).ravel()
        released = randomizer.sample(random.integers(0, 11, words.size), words).reshape(shape)
        error = ((released.mean(axis=1) - 5.0) ** 2).mean()
        # The mean of 4,000 squares has a relative standard deviation of 2.2 %.
        assert option.model_error == pytest.approx(error, rel=0.1)


def test_one_record_at_small_epsilon_and_more_at_large_ones() -> None:
    """Noise of M times the scale decides at a small epsilon, M times the records at a large one."""
    units = {10: 2000}
    best = [best_bound(bound_options(units, FLAT, epsilon)).max_records for epsilon in (0.25, 1.0, 4.0, 16.0, 30.0)]

    assert best[:2] == [1, 1]
    assert best == sorted(best)
    assert best[-2] >= 3
    assert best[-1] > best[-2]


def test_units_of_one_record_have_one_option() -> None:
    (option,) = bound_options({1: 1000}, FLAT, 1.0)

    assert (option.max_records, option.records, option.units_cut, option.epsilon) == (1, 1000, 0, 1.0)


@pytest.mark.parametrize("epsilon", [2.0, 16.0])
def test_no_number_that_is_left_out_is_better(epsilon: float) -> None:
    options = bound_options(UNITS, FLAT, epsilon)
    tried = {option.max_records for option in options}

    assert max(tried) < 40
    left_out = min(model_error(FLAT, epsilon, most) for most in range(1, 41, 3) if most not in tried)
    assert best_bound(options).model_error < left_out


def test_numbers_to_show() -> None:
    few, shown = bound_options(UNITS, FLAT, 1.0), bound_options(UNITS, FLAT, 1.0, shown=8)

    assert len(few) < 5
    assert shown[: len(few)] == few
    assert [option.max_records for option in shown] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert best_bound(shown) == best_bound(few)


def test_a_budget_too_small_for_two_records() -> None:
    assert [option.max_records for option in bound_options({4: 10}, FLAT, 3e-9)] == [1]
    with pytest.raises(ValueError, match="epsilon must be at least 2e-09"):
        bound_options({4: 10}, FLAT, 1.5e-9)


def test_without_units() -> None:
    with pytest.raises(ValueError, match="no record has a unit"):
        bound_options({}, FLAT, 1.0)
