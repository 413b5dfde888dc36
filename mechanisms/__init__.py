"""Priors in, randomizers out: pure numpy and scipy, no Beam, no I/O."""

from .certificate import Certificate
from .losses import ABSOLUTE, LOSSES, POISSON, SQUARED, Loss
from .prior import Prior, label_grid, split_budget
from .randomizer import Randomizer
from .registry import MECHANISMS, mechanism_named, solve

__all__ = [
    "ABSOLUTE",
    "LOSSES",
    "MECHANISMS",
    "POISSON",
    "SQUARED",
    "Certificate",
    "Loss",
    "Prior",
    "Randomizer",
    "label_grid",
    "mechanism_named",
    "solve",
    "split_budget",
]
