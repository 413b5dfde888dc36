"""Label DP mechanisms: solvers that turn a prior and an epsilon into a randomizer. No Beam, no I/O."""

from .center.center_model import CenterModel
from .center.class_model import ClassModel
from .core.budget import BudgetSplit, split_budget
from .core.certificate import Certificate
from .core.label_classes import LabelClasses
from .core.label_grid import label_grid
from .core.losses import ABSOLUTE, LOSSES, POISSON, SQUARED, Loss, loss_named
from .core.prior import Prior
from .core.randomizer import Quality, Randomizer, quality
from .registry import MECHANISMS, mechanism_named, solve

__all__ = [
    "ABSOLUTE",
    "LOSSES",
    "MECHANISMS",
    "POISSON",
    "SQUARED",
    "BudgetSplit",
    "CenterModel",
    "Certificate",
    "ClassModel",
    "LabelClasses",
    "Loss",
    "Prior",
    "Quality",
    "Randomizer",
    "label_grid",
    "loss_named",
    "mechanism_named",
    "quality",
    "solve",
    "split_budget",
]
