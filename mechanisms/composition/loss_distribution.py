"""Privacy loss distribution on a grid, and that of several records together, as upper bounds in integers.

A worst-pair curve is joined by straight lines (Doroshenko et al. 2022, "Connect the dots: tighter discrete
approximations of privacy loss distributions", Algorithm 1). The result is the curve of a pair of distributions whose
losses are multiples of the grid's step: it lies above the worst-pair curve, and is exact for randomized response. The
losses of several records add up, so their distribution is a power of one polynomial, and

    delta(epsilon) = sum over losses l > epsilon of (1 - exp(epsilon - l)) P(l) + P(infinity).

Every term grows with the masses. So masses are integers, multiples of 10^-30 rounded up, and the result is an upper
bound, with the same bits on every CPU. A Fourier transform of floats would give other bits on other CPUs, and the label
epsilon, hence every released label, depends on the result.

Polynomials are multiplied as single numbers whose groups of digits are the coefficients (Kronecker substitution): the
decimal module multiplies millions of digits exactly, in fractions of a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from fractions import Fraction

import numpy as np

from ..core.exact_bounds import exp_above, exp_below, log_above
from .loss_curve import STEPS, LossCurve, exp_of_steps, worst_pair_curve

MAX_RECORDS = 1000
"""Most records of a unit for which the composition is computed."""

_DIGITS = 30
_UNIT = 10**_DIGITS
# Digits of a coefficient of a product. Masses sum to 1 and a little, so coefficients stay below 10^(2 _DIGITS + 1).
_WIDTH = 2 * _DIGITS + 2
_ZEROS = "0" * _DIGITS
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
# Denominator of the fixed-point numbers below 1 that weigh the masses.
_FINE = 10**45


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


def composed_losses(weights: np.ndarray, bits: int, records: int, steps: int = STEPS) -> LossDistribution:
    """Computes the loss distribution of all records of a unit, each with its own draw from one randomizer.

    Its `delta` and `epsilon` bound what the unit is guaranteed, if all labels of the unit may change. Weights have
    shape (k, m), uint64, and rows that sum to 2^bits, at most 2^62; no output is impossible for some labels only.
    `records` is the largest number of records of a unit, from 1 to 1000. The grid has `steps` steps from loss 0 to the
    epsilon of the weights.
    """
    return loss_distribution(worst_pair_curve(weights, bits, steps)).composed(records)


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
