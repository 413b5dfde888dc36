"""The optimal randomizer with no bias, or with a limited one, solved without an output grid.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy". Their
Theorem 6 (Claims 11 to 14) shows that some optimum consists of staircase columns on intervals of labels, so those are
all that is searched: columns are generated, not taken from a grid of outputs. A program over the columns of some
intervals, with any outputs, is solved by an interior-point method; its prices then show, for all k (k + 1) / 2
intervals at once, which to add and how far the optimum can be.

Up to 64 labels take all intervals from the start. More labels are solved for at half the resolution first: where its
columns start and stop, moved by a label or two, is nearly all that the full resolution needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.label_rounding import RANDOMIZED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..response.debiased_rr import DebiasedResponse
from .column_generation import multiscale_solution
from .feasibility import FeasibleTable, feasible_tables, rebalanced
from .staircase_columns import Program

MAX_LABELS = 1 << 12
"""Beyond, columns take gigabytes and minutes."""


# Parts of the gap that are solved for: the rest is for what follows.
_DEPTHS = (0.05, 1e-3)


_LEAST_GAP = 1e-15


# Refinement ends when what rows lack has not fallen for some steps: near the rounding of floats it goes up and down.
_MOST_REFINEMENTS, _PATIENCE = 100, 4


# How much less than the epsilon and the bias that were asked for is solved for; of the bias that is allowed or of that
# which is not, whichever is less.
_SMALL_EPSILON_HAIR, _LEAST_HAIR = 1e-7, 1e-14


_BIAS_HAIR = 1e-8


_LEAST_BIAS = 1e-9


@dataclass(frozen=True)
class Unbiased:
    """The randomizer of least squared loss among those with E[M(y)] = y for every label.

    gap: the relative optimality gap to reach; what was reached is in the randomizer's file.
    """

    name: ClassVar[str] = "unbiased"
    rounding: ClassVar[str] = RANDOMIZED
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Some hundreds of labels take a fraction of a second. Raises ValueError for an epsilon out of range, or too
        many labels."""
        return _solve(self.name, prior, epsilon, 0.0, self.gap, {})


@dataclass(frozen=True)
class BiasLimited:
    """The randomizer of least squared loss among those with |E[M(y)] - y| <= bias * (largest - smallest label).

    bias: 0 gives `unbiased`, 1 or more allows any bias, which gives the loss of `rr_on_bins`. gap: as for `unbiased`,
    or 1e-12 of the squared range where that is more: floats do not tell losses apart that are smaller, as those of
    nearly any bias under a prior of one label.
    """

    name: ClassVar[str] = "bias_limited"
    rounding: ClassVar[str] = RANDOMIZED
    bias: float = 0.1
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """As `Unbiased.solve`. Raises ValueError for a bias that is negative or not a number, too."""
        if not self.bias >= 0:
            raise ValueError(f"bias must be at least 0, a fraction of the label range, not {self.bias:g}")
        return _solve(self.name, prior, epsilon, min(self.bias, 1.0), self.gap, {"bias": self.bias})


def _solve(
    name: str, prior: Prior, epsilon: float, bias: float, gap: float, parameters: dict[str, float]
) -> Randomizer:
    check_epsilon(epsilon)
    if not gap >= 0:
        raise ValueError(f"gap must be at least 0, a fraction of the loss, not {gap:g}")
    labels = prior.labels
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels; at most {MAX_LABELS}: use a larger label step")
    if len(labels) == 1:
        return Randomizer(labels, labels, integer_weights(np.ones((1, 1)), epsilon), epsilon, name, parameters, 0.0)
    middle, half = (labels[0] + labels[-1]) / 2, (labels[-1] - labels[0]) / 2
    scaled = (labels - middle) / half
    # What is proven is proven for what was asked; a little less is solved for, so that rounding stays within.
    asked = Program(scaled, prior.weights, 1 / float(np.expm1(epsilon)), 2 * bias)
    hair = max(min(EPSILON_MARGIN, _SMALL_EPSILON_HAIR * epsilon), _LEAST_HAIR)
    slack = 2 * (bias - _BIAS_HAIR * min(bias, 1 - bias)) if bias > _LEAST_BIAS else 0.0
    program = Program(scaled, prior.weights, 1 / float(np.expm1(epsilon - hair)), slack)
    table, bound = _optimum(program, asked, gap)
    if table is None:
        response = DebiasedResponse().solve(prior, epsilon)
        outputs, weights = response.outputs, response.weights
    else:
        outputs, weights = table.outputs * half + middle, integer_weights(table.probabilities, epsilon)
        outputs = rebalanced(prior, outputs, weights, bias * (labels[-1] - labels[0]))
    randomizer = Randomizer(labels, outputs, weights, epsilon, name, parameters)
    distances = (randomizer.outputs - middle) / half - scaled[:, None]
    loss = float(prior.weights @ (randomizer.probabilities() * distances**2).sum(axis=1))
    randomizer.gap = max(1 - bound / loss, 0.0) if loss > 0 else 0.0
    return randomizer


def _optimum(program: Program, asked: Program, gap: float) -> tuple[FeasibleTable | None, float]:
    """A solution of the program whose rows hold to the rounding of floats, and a bound on the loss of any that `asked`
    allows. None for debiased randomized response, where it is within the gap or nothing better is found."""
    response, potentials = asked.debiased_response()
    bound = asked.proof(potentials).bound if asked.slack == 0 else 0.0
    best, least = None, asked.loss(response)

    def improved(table: FeasibleTable | None) -> bool:
        nonlocal best, least
        if table is not None and table.loss < least:
            best, least = table, table.loss
        return least * (1 - gap) <= bound

    if improved(_constant(asked) if asked.slack >= 1 else None):
        return best, bound
    for depth in _DEPTHS:
        interior, _ = multiscale_solution(program, max(gap * depth, _LEAST_GAP))
        bound = max(bound, asked.proof(interior.potentials).bound)
        if any(improved(table) for table in feasible_tables(program, asked.slack, interior, gap)):
            break
    return best, bound


def _constant(program: Program) -> FeasibleTable:
    """The best output for all labels alike, where the bias allows one."""
    output = float(np.clip(program.mean, 1 - program.slack, program.slack - 1))
    loss = float(program.weights @ (program.labels - output) ** 2)
    return FeasibleTable(np.ones((len(program.labels), 1)), np.array([output]), loss)
