"""Losses: their formulas and divergences, and the conventions of the Poisson loss at zero."""

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, LOSSES, POISSON, SQUARED
from labeldp.mechanisms.core.losses import loss_named

SIMPLE = {
    "squared": lambda t, y: (t - y) ** 2,
    "absolute": lambda t, y: abs(t - y),
    "poisson": lambda t, y: t - y * math.log(t),
}
POSITIVE = st.floats(1e-6, 1e6)
ANY = st.floats(-1e6, 1e6)


@settings(deadline=None)
@pytest.mark.parametrize("name", SIMPLE)
@given(st.data())
def test_value_is_the_simple_formula(name, data):
    numbers = POSITIVE if name == "poisson" else ANY
    t, y = data.draw(numbers), data.draw(numbers)
    found = LOSSES[name].value(np.array([t]), np.array([y]))
    np.testing.assert_allclose(found, [SIMPLE[name](t, y)], rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@pytest.mark.parametrize("name", SIMPLE)
@given(st.data())
def test_divergence_is_value_above_its_minimum_and_never_negative(name, data):
    numbers = POSITIVE if name == "poisson" else ANY
    loss = LOSSES[name]
    t, y = np.array([data.draw(numbers)]), np.array([data.draw(numbers)])
    divergence = loss.divergence(t, y)
    value, minimum = loss.value(t, y), loss.value(y, y)
    assert divergence[0] >= 0
    # The difference has the rounding error of the two values.
    scale = max(abs(value[0]), abs(minimum[0]), t[0], y[0])
    np.testing.assert_allclose(divergence, value - minimum, rtol=1e-12, atol=1e-14 * scale)
    assert loss.divergence(y, y)[0] == 0


def test_poisson_conventions_at_zero():
    outputs, labels = np.array([0.0, 0.0, 2.0]), np.array([0.0, 1.0, 0.0])
    np.testing.assert_array_equal(POISSON.value(outputs, labels), [0.0, math.inf, 2.0])
    np.testing.assert_array_equal(POISSON.divergence(outputs, labels), [0.0, math.inf, 2.0])


@pytest.mark.parametrize("label", [0.3, 1.0, 400.0])
@pytest.mark.parametrize("step", [1e-3, -1e-3, 1e-6, -1e-6, 1e-9])
def test_poisson_divergence_is_precise_near_the_label(label, step):
    """For t near y the error is a few roundings of (t - y) / y; a larger one would be multiplied by exp(epsilon)."""
    output = label * (1 + step)
    with localcontext(Context(prec=60)):
        t, y = Decimal(output), Decimal(label)
        exact = float(y * (y / t).ln() - y + t)
    found = POISSON.divergence(np.array([output]), np.array([label]))[0]
    assert found == pytest.approx(exact, rel=1e-15, abs=4 * math.ulp(step) * label)


def test_check_refuses_negative_labels_for_poisson_only():
    labels = np.array([-0.5, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"poisson loss needs labels >= 0, but the domain starts at -0\.5"):
        POISSON.check(labels)
    POISSON.check(labels[1:])
    SQUARED.check(labels)
    ABSOLUTE.check(labels)


def test_losses_are_found_by_name():
    assert [loss_named(name) for name in ("squared", "absolute", "poisson")] == [SQUARED, ABSOLUTE, POISSON]
    with pytest.raises(ValueError, match="unknown loss 'huber'; known: squared, absolute, poisson"):
        loss_named("huber")
