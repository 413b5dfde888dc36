"""RRWithPrior, or RR-Top-k: randomized response over the most likely labels.

Source: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, "Deep Learning with Label Differential Privacy", Algorithms 2
and 3, optimal for the probability of keeping the label; Ghazi et al. 2022, Appendix G, for regression labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import MAX_CELLS, TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import exp
from .randomized_response import randomized_response


@dataclass(frozen=True)
class RRTopK:
    """Randomized response over the k' most likely labels; any other label is replaced by a uniform one of them.

    k' maximizes the probability that the label is kept, under the prior. Distances between labels are ignored.

    Attributes:
      name: Name on the command line and in mechanism files.
    """

    name: ClassVar[str] = "rr_top_k"

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the randomizer that keeps the label most often. Cost O(k k').

        Raises ValueError if epsilon is out of range, or there are too many labels times outputs.
        """
        check_epsilon(epsilon)
        labels, chosen = prior.labels, top_labels(prior, epsilon)
        if len(labels) * len(chosen) > MAX_CELLS:
            raise ValueError(
                f"{len(labels)} labels times {len(chosen)} outputs is more than {MAX_CELLS}: use a larger label step"
            )
        kept = randomized_response(labels[chosen], labels[chosen], np.arange(len(chosen)), epsilon, self.name).weights
        # The remainder of 2^62 over the k' outputs is less than one unit for each.
        share, rest = divmod(TOTAL, len(chosen))
        weights = np.full((len(labels), len(chosen)), share, np.uint64)
        weights[:, :rest] += np.uint64(1)
        weights[chosen] = kept
        return Randomizer(labels, labels[chosen], weights, epsilon, self.name)


def top_labels(prior: Prior, epsilon: float) -> np.ndarray:
    """Finds the k' most likely labels that maximize E / (E + k' - 1) times their mass, E = exp(epsilon).

    Of equally good k' the smallest is taken. Equally likely labels are all in or all out: one more label is worth its
    mass if its mass is above the value so far, and then the value stays below that mass. The result has the indices of
    the labels, shape (k',), ascending integers.
    """
    order = np.argsort(-prior.weights, kind="stable")
    # Both sides divided by E, which may be large.
    noise = 1 + np.arange(len(order)) * exp(-epsilon)
    best = int(np.argmax(np.cumsum(prior.weights[order]) / noise))
    return np.sort(order[: best + 1])
