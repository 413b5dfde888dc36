"""Certificate of a randomizer: its true epsilon, its bias and its row sums, in exact rational arithmetic.

The randomizer draws output c for label y with probability W[y, c] / 2^b. The sampler uses the same integers W, so the
certificate holds for the sampler itself and not only for the floats of the solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from .budget import exp_below, log_above, round_up

# Rows whose sums are computed together.
_BLOCK = 256


@dataclass(frozen=True)
class Certificate:
    """Exact properties of a randomizer, computed from its integer weights.

    Attributes:
      ratio: Largest ratio of two labels' probabilities of one output; epsilon = ln(ratio). None if some output is
        possible for one label and impossible for another: then no finite epsilon holds without a delta.
      biases: Exact E[M(y)] - y for each of the k labels.
      bits: Logarithm to base 2 of every row sum.
      approximate: For (epsilon, delta)-DP, an epsilon and the `hockey_stick` divergence at it; None for pure DP.
    """

    ratio: Fraction | None
    biases: tuple[Fraction, ...]
    bits: int
    approximate: tuple[float, Fraction] | None = None

    @cached_property
    def epsilon(self) -> float:
        """Smallest float that is proven not to be below ln(ratio); infinite if no finite epsilon holds.

        For (epsilon, delta)-DP: the epsilon at which delta was computed.
        """
        if self.approximate is not None:
            return self.approximate[0]
        return math.inf if self.ratio is None else log_above(self.ratio)

    @property
    def delta(self) -> float:
        """Hockey-stick divergence at epsilon, rounded up; 0 for pure DP."""
        return 0.0 if self.approximate is None else round_up(self.approximate[1])

    @property
    def max_bias(self) -> float:
        """Largest absolute bias over the labels, rounded up, in units of the label."""
        return round_up(max(map(abs, self.biases)))

    def to_dict(self) -> dict[str, object]:
        """Converts the certificate to the JSON object of a mechanism file.

        Returns:
          Integers as decimal strings; epsilon, delta and max_bias rounded up. The proof of pure DP is the ratio, that
          of (epsilon, delta)-DP is delta.

        Raises:
          ValueError: If the randomizer satisfies no finite epsilon.
        """
        if self.approximate is not None:
            proof: dict[str, object] = {"delta": self.delta}
        elif self.ratio is not None:
            proof = {"ratio": [str(self.ratio.numerator), str(self.ratio.denominator)]}
        else:
            raise ValueError("the randomizer satisfies no finite epsilon, so its certificate cannot be written")
        return {
            "epsilon": self.epsilon,
            **proof,
            "bias": [float(bias) for bias in self.biases],
            "max_bias": self.max_bias,
            "row_sum": str(1 << self.bits),
        }


def certify(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray, bits: int) -> Certificate:
    """Certificate of integer weights, for pure DP, without a delta.

    Takes labels of shape (k,) and outputs of shape (m,) as exact rationals; weights have shape (k, m), uint64. Raises
    ValueError if a row does not sum to exactly 2^bits.
    """
    check_row_sums(weights, bits)
    return Certificate(likelihood_ratio(weights), exact_biases(labels, outputs, weights, bits), bits)


def check_row_sums(weights: np.ndarray, bits: int) -> None:
    """Raises ValueError if a row of weights, shape (k, m), uint64, does not sum to exactly 2^bits.

    The message has the index of the first such label.
    """
    # Sums of 32-bit halves, which cannot overflow 64 bits.
    high = (weights >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (weights & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    for row, (upper, lower) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        if (upper << 32) + lower != 1 << bits:
            raise ValueError(f"the weights of label index {row} do not sum to 2^{bits}")


def likelihood_ratio(weights: np.ndarray) -> Fraction | None:
    """Largest ratio of two weights within one column, exactly; None if a column has both zero and positive weights.

    Weights have shape (k, m), uint64. Columns of zeros only are outputs that never occur; they are ignored.
    """
    largest, smallest = weights.max(axis=0), weights.min(axis=0)
    largest, smallest = largest[largest > 0], smallest[largest > 0]
    if not smallest.all():
        return None
    # Two conversions and a division change a ratio by a factor of less than 1 + 2^-51: no other ratio is the largest.
    ratios = largest / smallest
    near = ratios >= ratios.max() * (1 - 2.0**-49)
    top, bottom = 0, 1
    for more, less in set(zip(largest[near].tolist(), smallest[near].tolist(), strict=True)):
        if more * bottom > top * less:
            top, bottom = more, less
    return Fraction(top, bottom)


def hockey_stick(weights: np.ndarray, epsilon: float, bits: int) -> Fraction:
    """Computes the hockey-stick divergence: the smallest delta for (epsilon, delta)-DP, as an upper bound, in [0, 1].

    It is the maximum, over ordered pairs of labels y and y', of the sum over outputs c of
    max(0, P(c | y) - E P(c | y')). E is exp_below(epsilon), and the result is exact for that E. Floats of proven
    accuracy find the pairs that can have the maximum; exact integers decide among those.

    Weights have shape (k, m), uint64, and rows that sum to 2^bits; epsilon is >= 0.
    """
    ratio = exp_below(Fraction(epsilon))
    pure = likelihood_ratio(weights)
    if pure is not None and pure <= ratio:
        return Fraction(0)
    scaled = weights * 2.0**-bits
    raised = scaled * float(ratio)
    # Upper bound of each label's sums: the comparison with the smallest probability of each output over all labels.
    bounds = np.maximum(scaled - raised.min(axis=0), 0.0).sum(axis=1)
    # Rounding in the conversions, the product and the difference changes a term by at most 2^-50 P(c | y). A negative
    # term stays negative unless it is that close to 0. The sum of m terms has a relative error of at most m 2^-52.
    slack, growth = 2.0**-50, 1 + weights.shape[1] * 2.0**-51
    best, near = 0.0, []
    for y in np.argsort(-bounds).tolist():
        if (bounds[y] + slack) * growth < best:
            break
        sums = np.maximum(scaled[y] - raised, 0.0).sum(axis=1)
        best = max(best, float(sums.max()) / growth - slack)
        near += [(value, y, other) for other, value in enumerate(sums.tolist()) if (value + slack) * growth >= best]
    pairs = {
        (weights[y].tobytes(), weights[other].tobytes()) for value, y, other in near if (value + slack) * growth >= best
    }
    return max(_divergence(np.frombuffer(p, np.uint64), np.frombuffer(q, np.uint64), ratio) for p, q in pairs) / 2**bits


def _divergence(first: np.ndarray, second: np.ndarray, ratio: Fraction) -> Fraction:
    """The sum of max(0, first - ratio * second), exactly."""
    top, bottom = ratio.numerator, ratio.denominator
    terms = (bottom * p - top * q for p, q in zip(first.tolist(), second.tolist(), strict=True))
    return Fraction(sum(term for term in terms if term > 0), bottom)


def exact_biases(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray, bits: int) -> tuple[Fraction, ...]:
    """Biases E[M(y)] - y of integer weights, one exact rational per label, in units of the labels.

    Takes labels of shape (k,) and outputs of shape (m,) as exact rationals; weights have shape (k, m), uint64, and rows
    that sum to 2^bits.
    """
    exact = [output.as_integer_ratio() for output in outputs.tolist()]
    # Floats are dyadic: multiplied by their largest denominator they are integers.
    denominator = max(bottom for _, bottom in exact)
    sums = _integer_sums(weights, [top * (denominator // bottom) for top, bottom in exact])
    scale, biases = denominator << bits, []
    for total, (top, bottom) in zip(sums, (label.as_integer_ratio() for label in labels.tolist()), strict=True):
        biases.append(Fraction(total * bottom - top * scale, scale * bottom))
    return tuple(biases)


def _integer_sums(weights: np.ndarray, factors: list[int]) -> list[int]:
    """Computes the sum of weights times factors for each row, exactly.

    Both are cut into digits so short that floats add their products without rounding, in whatever order.
    """
    bits = (53 - len(factors).bit_length()) // 2
    mask = (1 << bits) - 1
    digits = []
    while any(factors):
        # The last digit of a negative factor has its sign.
        last = all(-mask <= factor <= mask for factor in factors)
        digits.append(np.array(factors if last else [factor & mask for factor in factors], np.float64))
        factors = [] if last else [factor >> bits for factor in factors]
    sums = []
    for rows in np.split(weights, range(_BLOCK, len(weights), _BLOCK)):
        totals = [0] * len(rows)
        for shift in range(0, 64, bits):
            part = ((rows >> np.uint64(shift)) & np.uint64(mask)).astype(np.float64)
            for place, digit in enumerate(digits):
                found = np.einsum("ij,j->i", part, digit).tolist()
                totals = [old + (int(new) << (shift + place * bits)) for old, new in zip(totals, found, strict=True)]
        sums += totals
    return sums
