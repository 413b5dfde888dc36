"""What a randomizer's integers prove: its true epsilon, its bias and its row sums, in exact rational arithmetic.

The randomizer draws output c for label y with probability W[y, c] / 2^b, and W is what the sampler uses; so the
certificate speaks of what runs, not of what a solver meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import mul

import numpy as np

from .exact_bounds import exp_below, log_above, round_up


@dataclass(frozen=True)
class Certificate:
    """JobResult recomputed from integer weights.

    ratio: the largest ratio of two labels' probabilities of one output; epsilon = ln(ratio). None where some
    output is possible for one label and not for another: no epsilon holds by itself.
    biases: (k,) exact E[M(y)] - y. bits: every row sums to 2^bits.
    approximate: for (epsilon, delta)-DP, an epsilon and the `hockey_stick` divergence at it; None for pure DP.
    """

    ratio: Fraction | None
    biases: tuple[Fraction, ...]
    bits: int
    approximate: tuple[float, Fraction] | None = None

    @cached_property
    def epsilon(self) -> float:
        """The smallest float that is certainly not below ln(ratio); infinite where no epsilon holds.

        For (epsilon, delta)-DP: the epsilon at which delta was computed.
        """
        if self.approximate is not None:
            return self.approximate[0]
        return math.inf if self.ratio is None else log_above(self.ratio)

    @property
    def delta(self) -> float:
        """0 for pure DP; else the hockey-stick divergence at epsilon, rounded up."""
        return 0.0 if self.approximate is None else round_up(self.approximate[1])

    @property
    def max_bias(self) -> float:
        """The largest absolute bias, rounded up. In units of the label."""
        return round_up(max(map(abs, self.biases)))

    def to_dict(self) -> dict[str, object]:
        """For a mechanism file: integers as decimal strings; epsilon, delta and max_bias rounded up.

        Pure DP is proven by the ratio, (epsilon, delta)-DP by delta.
        """
        if self.approximate is not None:
            proof: dict[str, object] = {"delta": self.delta}
        elif self.ratio is not None:
            proof = {"ratio": [str(self.ratio.numerator), str(self.ratio.denominator)]}
        else:
            raise ValueError("a randomizer without an epsilon has no certificate to write")
        return {
            "epsilon": self.epsilon,
            **proof,
            "bias": [float(bias) for bias in self.biases],
            "max_bias": self.max_bias,
            "row_sum": str(1 << self.bits),
        }


def certify(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray, bits: int) -> Certificate:
    """The certificate of integer weights.

    labels: (k,) and outputs: (m,) float64, taken as the exact rationals that they are. weights: (k, m) uint64.
    Raises ValueError when a row does not sum to exactly 2^bits.
    """
    check_row_sums(weights, bits)
    return Certificate(likelihood_ratio(weights), exact_biases(labels, outputs, weights, bits), bits)


def check_row_sums(weights: np.ndarray, bits: int) -> None:
    """Raises ValueError, naming the first label's index, unless every row of weights sums to exactly 2^bits."""
    # Halves of 32 bits, so that no sum wraps around.
    high = (weights >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (weights & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    for row, (upper, lower) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        if (upper << 32) + lower != 1 << bits:
            raise ValueError(f"the weights of label index {row} do not sum to 2^{bits}")


def likelihood_ratio(weights: np.ndarray) -> Fraction | None:
    """The largest ratio within a column of weights, exactly; None when a column mixes zero and positive weights.

    weights: (k, m) uint64. Columns of zeros only are outputs that never occur and do not count.
    """
    largest, smallest = weights.max(axis=0).tolist(), weights.min(axis=0).tolist()
    columns = [(top, bottom) for top, bottom in zip(largest, smallest, strict=True) if top]
    if any(bottom == 0 for _, bottom in columns):
        return None
    return max(Fraction(top, bottom) for top, bottom in columns)


def hockey_stick(weights: np.ndarray, epsilon: float, bits: int) -> Fraction:
    """The least delta for (epsilon, delta)-DP, from above: the maximum, over ordered pairs of labels y and y', of the
    sum over outputs c of max(0, P(c | y) - E P(c | y')), E = exp_below(epsilon). Exact for that E.

    Floats of a proven accuracy find the pairs that may have the maximum; integers decide among those.

    weights: (k, m) uint64, every row summing to 2^bits.
    """
    ratio = exp_below(Fraction(epsilon))
    pure = likelihood_ratio(weights)
    if pure is not None and pure <= ratio:
        return Fraction(0)
    scaled = weights * 2.0**-bits
    raised = scaled * float(ratio)
    # Against the least probability of each output, no label's sum is below what it is against another label.
    bounds = np.maximum(scaled - raised.min(axis=0), 0.0).sum(axis=1)
    # Conversions, the product and the difference move a term by at most 2^-50 P(c | y), and terms below 0 stay there
    # unless they are that near to 0; adding m terms up is off by a relative m 2^-52 at most.
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
    """The sum of max(0, first - ratio second), exactly."""
    top, bottom = ratio.numerator, ratio.denominator
    terms = (bottom * p - top * q for p, q in zip(first.tolist(), second.tolist(), strict=True))
    return Fraction(sum(term for term in terms if term > 0), bottom)


def exact_biases(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray, bits: int) -> tuple[Fraction, ...]:
    """The biases E[M(y)] - y of integer weights, one exact rational per label.

    Args:
      labels: Shape (k,), float64, taken as the exact rationals that they are.
      outputs: Shape (m,), float64, likewise.
      weights: Shape (k, m), uint64; every row sums to 2^bits.
      bits: Logarithm to base 2 of a row's sum.

    Returns:
      k fractions, in units of the labels.
    """
    exact = [Fraction(output) for output in outputs.tolist()]
    # Floats are dyadic: over their largest denominator they are integers, and integer products are fast.
    denominator = max(output.denominator for output in exact)
    numerators = [output.numerator * (denominator // output.denominator) for output in exact]
    scale = denominator << bits
    return tuple(
        Fraction(sum(map(mul, row.tolist(), numerators)), scale) - Fraction(label)
        for row, label in zip(weights, labels.tolist(), strict=True)
    )
