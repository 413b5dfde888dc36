"""Privacy loss distribution of a randomizer, for one record and for several together, as upper bounds in integers.

The worst-pair curve h(E) is the maximum, over ordered pairs of labels y and y', of the sum over outputs of
max(0, P(c | y) - E P(c | y')). A single pair need not attain it everywhere: one pair may have the largest ratio and
another one the largest total variation. As a maximum of convex functions h is convex, and it is the divergence of one
pair of distributions, which is then worse than every pair of labels: a dominating pair. If every label of a unit
changes, each by a pair of its own, the divergence of all outputs is at most that of independent copies of the
dominating pair, also if later randomizers depend on earlier outputs (Zhu, Dong, Wang 2022, "Optimal accounting of
differential privacy via characteristic function", Proposition 8 and Theorem 10).

Values of the curve are exact rationals from the integer weights. Floats only sort ratios into cells of the grid, with a
margin inside which integers decide.

The curve is joined by straight lines (Doroshenko et al. 2022, "Connect the dots: tighter discrete approximations of
privacy loss distributions", Algorithm 1). The result is the curve of a pair of distributions whose losses are multiples
of the grid's step: it lies above the worst-pair curve, and is exact for randomized response. The losses of several
records add up, so their distribution is a power of one polynomial, and

    delta(epsilon) = sum over losses l > epsilon of (1 - exp(epsilon - l)) P(l) + P(infinity).

Every term grows with the masses. So masses are integers, multiples of 10^-30 rounded up, and the result is an upper
bound, with the same bits on every CPU. A Fourier transform of floats would give other bits on other CPUs, and the label
epsilon, hence every released label, depends on the result. No decision depends on the second opinion by Google's
dp-accounting, which composes that way.

Polynomials are multiplied as single numbers whose groups of digits are the coefficients (Kronecker substitution): the
decimal module multiplies millions of digits exactly, in fractions of a second.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from fractions import Fraction

import numpy as np

from ..core.budget import exp_above, exp_below, log_above
from ..core.certificate import check_row_sums, likelihood_ratio

STEPS = 32
"""Steps of the grid from loss 0 to the largest loss."""

MAX_RECORDS = 1000
"""Most records of a unit for which the composition is computed."""

_FACTOR_BITS = 200
_LEAST_STEP = 2.0**-40  # floats cannot tell cells of smaller steps apart; the grid is then a single step
_HALF = np.uint64(31)
_LOW = np.uint64((1 << 31) - 1)
_MOST_OUTPUTS = 1 << 22
_MOST_BITS = 62
_DIGITS = 30
_UNIT = 10**_DIGITS
# Digits of a coefficient of a product. Masses sum to 1 and a little, so coefficients stay below 10^(2 _DIGITS + 1).
_WIDTH = 2 * _DIGITS + 2
_ZEROS = "0" * _DIGITS
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
# Denominator of the fixed-point numbers below 1 that weigh the masses.
_FINE = 10**45


@dataclass(frozen=True)
class LossCurve:
    """Divergences of the worst pairs of labels at a grid of losses.

    Both orders of each pair count, so h at a negative loss follows: h(1/E) = 1 - 1/E + h(E)/E.

    Attributes:
      step: Distance of two losses of the grid, > 0.
      deltas: Upper bounds of h at exp(0), exp(step), exp(2 step), ..., descending. From the last loss on, the
        divergence is taken to be the last value: for pure DP it is 0.
    """

    step: Fraction
    deltas: tuple[Fraction, ...]


def worst_pair_curve(
    weights: np.ndarray, bits: int, steps: int = STEPS, largest_loss: float | None = None
) -> LossCurve:
    """Computes the worst-pair curve of integer weights.

    Time is O(k^2 m) for k distinct rows and m outputs: 400 rows and 800 outputs take five seconds.

    Weights have shape (k, m), uint64, and rows that sum to 2^bits. `largest_loss` is the last loss of the grid, > 0; by
    default the epsilon of the weights, which must then be finite. Values of the curve are exact for lower bounds of
    exp(loss) with a relative error of 10^-50. Raises ValueError if a row has another sum, there are more than 2^22
    outputs or 62 bits, `steps` or `largest_loss` is not positive, or no finite epsilon holds and there is no
    `largest_loss`.
    """
    check_row_sums(weights, bits)
    if weights.shape[1] > _MOST_OUTPUTS or bits > _MOST_BITS:
        raise ValueError(f"a worst-pair curve takes at most {_MOST_OUTPUTS} outputs and {_MOST_BITS} bits")
    if steps < 1 or not (largest_loss is None or largest_loss > 0):
        raise ValueError("steps and largest_loss must be positive")
    ratio = likelihood_ratio(weights)
    if ratio == 1:
        return LossCurve(Fraction(1), (Fraction(0),))
    if largest_loss is None:
        if ratio is None:
            raise ValueError("the weights satisfy no finite epsilon: a worst-pair curve needs the largest loss")
        largest_loss = log_above(ratio)
    step = Fraction(largest_loss) / (steps if largest_loss >= steps * _LEAST_STEP else 1)
    count = int(Fraction(largest_loss) / step) + 1
    factors = [int(each * 2**_FACTOR_BITS) for each in exp_of_steps(step, count)]
    ends = ratio is not None and log_above(ratio) <= largest_loss
    deltas = _largest_divergences(np.unique(weights, axis=0), bits, step, factors[:-1] if ends else factors)
    return LossCurve(step, (*deltas, Fraction(0)) if ends else tuple(deltas))


@functools.lru_cache(maxsize=8)
def exp_of_steps(step: Fraction, count: int) -> tuple[Fraction, ...]:
    """Lower bounds of exp(0), exp(step), exp(2 step), ..., with a relative error of 10^-50.

    The step, > 0, is the distance of two losses of a grid, and `count` the number of its losses. The last grids are
    kept: a curve and its distribution share one.
    """
    return tuple(exp_below(i * step) for i in range(count))


def response_curve(epsilon: float) -> LossCurve:
    """Curve of binary randomized response of an epsilon >= 0, which lies above that of every other randomizer.

    Its grid has one step.
    """
    if epsilon == 0:
        return LossCurve(Fraction(1), (Fraction(0),))
    ratio = exp_above(Fraction(epsilon))
    return LossCurve(Fraction(epsilon), ((ratio - 1) / (ratio + 1), Fraction(0)))


def _largest_divergences(rows: np.ndarray, bits: int, step: Fraction, factors: list[int]) -> list[Fraction]:
    """The largest divergence over ordered pairs of rows at each factor, exactly."""
    with np.errstate(divide="ignore"):
        logs = np.log(rows.astype(np.float64))
    scales = np.array([factor / 2**_FACTOR_BITS for factor in factors])
    # Sums are at most 2^bits, so conversion, product and difference change a value by less than 2^(bits - 50).
    slack = 2.0 ** (bits - 48)
    best = np.zeros(len(factors))
    candidates: list[set[tuple[int, int]]] = [set() for _ in factors]
    for y in range(len(rows)):
        own, others = _sums_above(rows, logs, y, step, factors)
        values = own - scales * others
        first = values.argmax(axis=0)
        best = np.maximum(best, values.max(axis=0))
        for i, row in enumerate(first.tolist()):
            if values[row, i] < best[i] - slack:
                continue
            candidates[i].add((int(own[row, i]), int(others[row, i])))
            ties = (values[:, i] >= best[i] - slack) & ((own[:, i] != own[row, i]) | (others[:, i] != others[row, i]))
            candidates[i].update(zip(own[ties, i].tolist(), others[ties, i].tolist(), strict=True))
    return [
        Fraction(max(((p << _FACTOR_BITS) - factor * q for p, q in pairs), default=0), 1 << (_FACTOR_BITS + bits))
        for factor, pairs in zip(factors, candidates, strict=True)
    ]


def _sums_above(
    rows: np.ndarray, logs: np.ndarray, y: int, step: Fraction, factors: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the weights of label y, and of every label, over the outputs whose ratio is at least each factor.

    Both have shape (k, factors) and are exact.
    """
    other, output = np.nonzero(rows[y] > rows)
    own_weights, weights = rows[y, output], rows[other, output]
    places = (logs[y, output] - logs[other, output]) / float(step)
    cells = np.clip(np.floor(places), 0, len(factors) - 1).astype(np.int64)
    # Logarithms of weights are below 64, so those of four units in the last place differ with an error below 2^-43.
    nearest = np.rint(np.clip(places, 0, len(factors)))
    close = np.flatnonzero(
        (np.abs(places - nearest) <= 2.0**-43 / float(step) + 2.0**-40 * len(factors))
        & (nearest >= 1)
        & (nearest < len(factors))
    )
    if len(close):
        cases = np.stack([own_weights[close], weights[close], nearest[close].astype(np.uint64)])
        distinct, place = np.unique(cases, axis=1, return_inverse=True)
        decided = [i if p << _FACTOR_BITS >= factors[i] * q else i - 1 for p, q, i in distinct.T.tolist()]
        cells[close] = np.array(decided)[place.ravel()]
    flat, shape = other * len(factors) + cells, (len(rows), len(factors))
    return _cumulated(flat, own_weights, shape), _cumulated(flat, weights, shape)


def _cumulated(flat: np.ndarray, weights: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sums of weights over each cell and those above it, as int64; floats add halves of 31 bits exactly."""
    high, low = (
        np.bincount(flat, half.astype(np.float64), shape[0] * shape[1]).astype(np.int64)
        for half in (weights >> _HALF, weights & _LOW)
    )
    cells = ((high << 31) + low).reshape(shape)
    return np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]


@dataclass(frozen=True)
class LossDistribution:
    """Upper bounds of the masses of privacy losses.

    Attributes:
      step: Distance of two losses, > 0.
      masses: Masses at the losses -n step, ..., 0, ..., n step, each in units of 10^-30.
      infinite: Mass at an infinite loss, in the same units; 0 for pure DP.
    """

    step: Fraction
    masses: tuple[int, ...]
    infinite: int = 0

    def composed(self, records: int) -> LossDistribution:
        """Distribution of the sum of `records` independent losses, from 1 to 1000, all with this distribution.

        Raises ValueError if `records` is out of range.
        """
        if not 1 <= records <= MAX_RECORDS:
            raise ValueError(f"a composition takes 1 to {MAX_RECORDS} records, not {records}")
        power = list(self.masses)
        for bit in bin(records)[3:]:
            power = _product(power, power)
            if bit == "1":
                power = _product(power, list(self.masses))
        finite = sum(self.masses)
        infinite = -((finite**records - (finite + self.infinite) ** records) // _UNIT ** (records - 1))
        return LossDistribution(self.step, tuple(power), infinite)

    def delta(self, epsilon: float) -> Fraction:
        """Bounds the delta for which these losses satisfy an epsilon >= 0.

        It is an upper bound of the hockey-stick divergence at exp(epsilon), at most 1.
        """
        exact = Fraction(epsilon)
        first = exact // self.step + 1
        mass, weighted = self._above(first)
        # exp(epsilon - first step) from below.
        share = 1 / exp_above(first * self.step - exact)
        return min((Fraction(mass + self.infinite) - share * weighted) / _UNIT, Fraction(1))

    def epsilon(self, delta: float) -> float:
        """Bounds the epsilon that these losses satisfy with a delta in [0, 1).

        It is an upper bound of the smallest epsilon >= 0 with `delta(epsilon)` at most `delta`, or infinity.
        """
        wanted = Fraction(delta) * _UNIT
        if self.infinite > wanted:
            return math.inf
        shrink = _shrink(self.step)
        # Integers are above `wanted` times _FINE if they are above its floor.
        most = wanted * _FINE // 1 - self.infinite * _FINE
        mass, weighted, place = 0, 0, len(self.masses) // 2 + 1
        # From the largest loss downwards, until the loss before `place` has too large a divergence.
        while place > 1:
            place -= 1
            mass += self.masses[len(self.masses) // 2 + place]
            weighted = self.masses[len(self.masses) // 2 + place] + weighted * shrink // _FINE
            if mass * _FINE - weighted * shrink > most:
                break
        else:
            return 0.0
        # mass + infinite - exp(epsilon - place step) weighted = wanted
        ratio = (mass + self.infinite - wanted) / weighted * exp_above(place * self.step)
        return log_above(max(ratio, Fraction(1)))

    def _above(self, first: int) -> tuple[int, int]:
        """Sums of P(l) and of exp(first step - l) P(l), rounded down, over the losses l >= first step."""
        shrink, mass, weighted = _shrink(self.step), 0, 0
        for value in reversed(self.masses[max(len(self.masses) // 2 + first, 0) :]):
            mass += value
            weighted = value + weighted * shrink // _FINE
        return mass, weighted


def loss_distribution(curve: LossCurve) -> LossDistribution:
    """Joins a worst-pair curve by straight lines: the distribution of one record's loss, as an upper bound.

    With g = exp(step), a line between each two points of the grid has the mass

        P(j step) = (g (d[j-1] - d[j]) - (d[j] - d[j+1])) / (g - 1)

    at each inner point. Masses at negative losses follow from P(-l) = exp(-l) P(l), that at 0 from d[-1].
    """
    exponentials = exp_of_steps(curve.step, len(curve.deltas))
    low, high = exp_below(curve.step), exp_above(curve.step)
    deltas = (*curve.deltas, curve.deltas[-1])
    above: list[int] = []
    below: list[int] = []
    for j in range(1, len(curve.deltas)):
        before, after = deltas[j - 1] - deltas[j], deltas[j] - deltas[j + 1]
        # Rounding of the curve can make a mass negative, by less than 10^-30. A mass of 0 is still an upper bound.
        mass = max(before + (before - after) / ((low if before >= after else high) - 1), Fraction(0))
        above.append(_units(mass))
        below.append(_units(mass / exponentials[j]))
    rest = 1 - deltas[0] - 2 * (deltas[0] - deltas[1]) / (high - 1)
    middle = _units(max(rest, Fraction(0)))
    return LossDistribution(curve.step, (*reversed(below), middle, *above), _units(curve.deltas[-1]))


def _shrink(step: Fraction) -> int:
    """exp(-step), rounded down to a multiple of 10^-45."""
    return int(_FINE / exp_above(step))


def _units(mass: Fraction) -> int:
    """A mass in units of 10^-30, rounded up."""
    return -(-mass.numerator * _UNIT // mass.denominator)


def _product(first: list[int], second: list[int]) -> list[int]:
    """Coefficients of the product of two polynomials, in units of 10^-30, rounded up."""
    length = len(first) + len(second) - 1
    packed = _packed(first)
    # A square of one object takes decimal fewer transforms than a product of two.
    other = packed if second is first else _packed(second)
    digits = str(_EXACT.multiply(packed, other)).zfill(length * _WIDTH)
    found = []
    for start in range(0, length * _WIDTH, _WIDTH):
        middle, end = start + _WIDTH - _DIGITS, start + _WIDTH
        found.append(int(digits[start:middle]) + (digits[middle:end] != _ZEROS))
    return found


def _packed(coefficients: list[int]) -> Decimal:
    return Decimal("".join([f"{value:0{_WIDTH}d}" for value in coefficients]))
