"""Choice of how many records of a unit are released: more records, or more epsilon for the label of each.

With M records of a unit, each label gets an M-th of epsilon. Of n records those beyond the first M of their unit are
lost. The numbers of records of the units are public, so the choice costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..analysis.automatic import CANDIDATES
from ..center.residuals import COARSE, MODEL_PARAMETERS, coarse_randomizer, noise_share
from ..core.budget import MIN_EPSILON, split_budget
from ..core.prior import Prior
from ..core.randomizer import variances
from ..core.reproducible import dot
from ..registry import AUTO, Mechanism, prior_share
from .unit_bound import UnitBound

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
    units: Mapping[int, int], prior: Prior, epsilon: float, parameters: int = MODEL_PARAMETERS, shown: int = 1
) -> list[BoundOption]:
    """Compares numbers of records per unit: 1, 2, ..., 8, then in steps of about a fourth, up to 1000 at most.

    It ends where a unit has no more records, or where no larger number can be better: where the error would be larger
    than the least one even if all records were released, because less epsilon for each label gives no smaller error.

    The error is that of a model with p parameters: E b(y)^2 + p / n Var z, for labels y, released labels z of bias b,
    and the best of the candidates of `choose_mechanism`, under the prior, with the default split of a job without a
    center. Where labels say nothing, it is Var y for every number. A linear center takes a part of the budget and
    shortens the range of what is randomized; with the range, the noise of z and the variance that is left of y fall
    alike, so the comparison stays nearly the same. Records of one unit are taken to be as informative as those of
    different ones. If they resemble each other, fewer of them are needed, and a smaller M is better.

    `units` is the number of units by number of records, >= 1, and `epsilon` the budget of a unit. The prior is flat
    where nothing is known. `shown` is the number of records up to which options are listed even if none of them can be
    better. There is at least one option; they are ordered by number of records. Raises ValueError if there is no unit,
    or epsilon is too small for one record.
    """
    if not units:
        raise ValueError("no record has a unit")
    options: list[BoundOption] = []
    total = sum(count * number for count, number in units.items())
    for most in _tried(max(units)):
        record_epsilon = UnitBound("unit", most).record_share(epsilon)
        if options and record_epsilon < 2 * MIN_EPSILON:
            break
        records = sum(min(count, most) * number for count, number in units.items())
        budget = split_budget(record_epsilon, len(prior.labels), records, most=prior_share(AUTO))
        errors = [_bias_and_spread(prior, each, budget.labels) for each in CANDIDATES.values()]
        error, reachable = (
            min(bias + share * spread for bias, spread in errors)
            for share in (noise_share(records, parameters), noise_share(total, parameters))
        )
        cut = sum(number for count, number in units.items() if count > most)
        options.append(BoundOption(most, records, cut, record_epsilon, error))
        if most >= shown and reachable > best_bound(options).model_error:
            break
    return options


def _bias_and_spread(prior: Prior, mechanism: Mechanism, epsilon: float) -> tuple[float, float]:
    """E b^2, and Var z = E v + Var (y + b) for the variance v of z given y; infinite if it is not supported."""
    try:
        prior, randomizer = coarse_randomizer(prior, mechanism, epsilon, COARSE)
    except ValueError:
        return math.inf, math.inf
    bias = randomizer.bias()
    means = prior.labels + bias
    spread = dot(prior.weights, (means - dot(prior.weights, means)) ** 2)
    return dot(prior.weights, bias**2), dot(prior.weights, variances(randomizer)) + spread


def best_bound(options: list[BoundOption]) -> BoundOption:
    """Chooses the option of the least error; of equal ones that with the fewest records of a unit."""
    return min(options, key=lambda option: (option.model_error, option.max_records))


def _tried(largest: int) -> list[int]:
    """Numbers of records that are compared: 1, 2, ..., 8, 10, 12, 15, ..., up to the largest."""
    tried, number = [], 1
    while number < min(largest, _MOST_TRIED):
        tried.append(number)
        number = max(number + 1, number * 5 // 4)
    return [*tried, min(largest, _MOST_TRIED)]
