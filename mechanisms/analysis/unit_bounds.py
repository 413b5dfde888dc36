"""Choice of how many records of a unit are released: more records, or more epsilon for the label of each.

With M records of a unit, each label gets an M-th of epsilon. Of n records those beyond the first M of their unit are
lost. The numbers of records of the units are public, so the choice costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..center.truncation import MODEL_PARAMETERS, noise_share, training_error
from ..core.budget import MIN_EPSILON, split_budget
from ..core.prior import Prior
from ..core.reproducible import dot
from ..release.unit_bound import UnitBound
from .automatic import CANDIDATES

_MOST_TRIED = 1000


@dataclass(frozen=True)
class BoundOption:
    """A number of records per unit, and what it is worth.

    Attributes:
      max_records: Largest number M of records of a unit.
      records: Records that are released.
      units_cut: Units with more than M records.
      epsilon: Epsilon of one record, for histogram and label together.
      model_error: Expected squared error of a model trained on the labels, in squared units of the label.
    """

    max_records: int
    records: int
    units_cut: int
    epsilon: float
    model_error: float


def bound_options(
    units: Mapping[int, int], prior: Prior, epsilon: float, parameters: int = MODEL_PARAMETERS
) -> list[BoundOption]:
    """Compares numbers of records per unit, from 1 to the largest number that a unit has, in steps of about a fourth.

    The error is that of a model with p parameters: E b^2 + p / n (E v + Var y), for bias b and variance v of the better
    of the candidates of `choose_mechanism`, under the prior. Records of one unit are taken to be as informative as
    those of different ones. If they resemble each other, fewer of them are needed, and a smaller M is better.

    Args:
      units: Number of units by number of records, >= 1.
      prior: Prior over the label domain; a flat one where nothing is known.
      epsilon: Budget of a unit.
      parameters: Parameters p of the model.

    Returns:
      The options, by number of records; at least one.

    Raises:
      ValueError: If there is no unit, or epsilon is too small for one record.
    """
    if not units:
        raise ValueError("no record has a unit")
    mean = dot(prior.weights, prior.labels)
    spread = dot(prior.weights, (prior.labels - mean) ** 2)
    options = []
    for most in _tried(max(units)):
        share = UnitBound("unit", most).record_share(epsilon)
        if options and share < 2 * MIN_EPSILON:
            break
        records = sum(min(count, most) * number for count, number in units.items())
        budget = split_budget(share, len(prior.labels), records, most=max(0.5 / len(prior.labels), 1 / 128))
        errors = (training_error(prior, each, budget.labels, records, parameters) for each in CANDIDATES.values())
        error = min(errors) + noise_share(records, parameters) * spread
        cut = sum(number for count, number in units.items() if count > most)
        options.append(BoundOption(most, records, cut, share, error if math.isfinite(error) else math.inf))
    return options


def best_bound(options: list[BoundOption]) -> BoundOption:
    """Chooses the option of the least error; of equal ones that with the fewest records of a unit.

    Args:
      options: The options, of `bound_options`.

    Returns:
      The best one.
    """
    return min(options, key=lambda option: (option.model_error, option.max_records))


def _tried(largest: int) -> list[int]:
    """Numbers of records that are compared: 1, 2, ..., 5, 6, 8, 10, 13, ..., up to the largest."""
    tried, number = [], 1
    while number < min(largest, _MOST_TRIED):
        tried.append(number)
        number = max(number + 1, number * 5 // 4)
    return [*tried, min(largest, _MOST_TRIED)]
