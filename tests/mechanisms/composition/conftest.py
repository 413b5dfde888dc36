"""Compositions that only tests compute."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.composition.loss_distribution import (
    STEPS,
    LossCurve,
    LossDistribution,
    loss_distribution,
    worst_pair_curve,
)


@pytest.fixture(scope="session")
def composed_losses() -> Callable[..., LossDistribution]:
    """Function (weights, bits, records, steps) for the losses of all records of a unit, each with its own draw."""

    def compose(weights: np.ndarray, bits: int, records: int, steps: int = STEPS) -> LossDistribution:
        return loss_distribution(worst_pair_curve(weights, bits, steps)).composed(records)

    return compose


@pytest.fixture(scope="session")
def accounting_distribution() -> Callable[[LossCurve, int], Any]:
    """Function (curve, records) that composes the joined worst-pair curve with dp-accounting."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    def compose(curve: LossCurve, records: int) -> Any:
        step, above = float(curve.step), [float(delta) for delta in curve.deltas]
        below = [-math.expm1(-j * step) + math.exp(-j * step) * delta for j, delta in enumerate(above)]
        steps = len(above) - 1
        single = create_pmf_pessimistic_connect_dots_fixed_gap(step, -steps, steps, [*below[:0:-1], *above])
        return PrivacyLossDistribution(single).self_compose(records)

    return compose
