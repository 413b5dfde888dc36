"""Shared parts of the additive mechanisms: the end of an unclipped output grid, and domains of one label."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from ..core.alias_table import TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer

FOLDED_TAIL = 40 * log(2)
"""An unclipped grid ends where at most exp(-FOLDED_TAIL) of a label's probability lies further out on that side."""


def single_label_randomizer(
    name: str, prior: Prior, epsilon: float, parameters: dict[str, Any], delta: float = 0.0
) -> Randomizer:
    """Builds the randomizer of a domain with one label, which always reports that label."""
    weights = np.full((1, 1), TOTAL, np.uint64)
    return Randomizer(prior.labels, prior.labels, weights, epsilon, name, parameters, delta=delta)
