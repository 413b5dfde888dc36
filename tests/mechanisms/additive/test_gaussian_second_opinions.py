"""The Gaussian mechanism against Google's accounting of the discrete and of the continuous Gaussian."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from labeldp.mechanisms import Prior, Randomizer, mechanism_named

BUDGETS = [(1.0, 1e-3), (0.3, 1e-6), (3.0, 1e-2)]


def unclipped(labels: int, epsilon: float, delta: float) -> Randomizer:
    prior = Prior(np.arange(float(labels)), np.ones(labels))
    return mechanism_named("gaussian", delta=delta, clip=False).solve(prior, epsilon)


@pytest.mark.parametrize("labels", [5, 53])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_delta_is_that_of_the_discrete_gaussian(labels: int, epsilon: float, delta: float) -> None:
    """Google's upper and lower bound of delta, for our sigma and the label range as the sensitivity.

    Our ends, beyond 7.1 sigma, hold a mass below 1e-12, which is added to the bounds.
    """
    parameters = unclipped(labels, epsilon, delta).parameters
    lower, upper = (
        from_discrete_gaussian_mechanism(
            parameters["sigma"] / parameters["step"],
            sensitivity=round((labels - 1) / parameters["step"]),
            value_discretization_interval=1e-5,
            pessimistic_estimate=pessimistic,
        ).get_delta_for_epsilon(epsilon)
        for pessimistic in (False, True)
    )
    assert lower - 1e-12 <= delta <= upper + 1e-12
    assert upper <= 1.01 * lower


@pytest.mark.parametrize("labels", [5, 53])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_sigma_is_that_of_the_analytic_gaussian(labels: int, epsilon: float, delta: float) -> None:
    """A sum over steps in place of an integral changes delta by a term of the order of (step / sigma)^2."""
    parameters = unclipped(labels, epsilon, delta).parameters
    analytic = dp_accounting.get_sigma_gaussian(epsilon, delta) * (labels - 1)
    assert parameters["sigma"] == pytest.approx(analytic, rel=(parameters["step"] / parameters["sigma"]) ** 2)
