"""Kit for those who train on a release: corrected metrics with standard errors, objectives and weights.

It needs numpy at import; opening a release loads the readers of its files. Users import it as `labeldp.training`.
"""

from __future__ import annotations

from .block_weights import block_weights
from .estimates import METRICS, Estimate, GroupMeans, compare, estimate, group_means
from .objectives import LIBRARIES, LOSSES, objective
from .release import Release
from .selection import Stage, early_stopping, evaluation

__all__ = [
    "LIBRARIES",
    "LOSSES",
    "METRICS",
    "Estimate",
    "GroupMeans",
    "Release",
    "Stage",
    "block_weights",
    "compare",
    "early_stopping",
    "estimate",
    "evaluation",
    "group_means",
    "objective",
]
