"""Kit for those who train on a release: corrected metrics with standard errors, objectives and weights.

It needs numpy at import; opening a release loads the readers of its files. Users import it as `labeldp.training`.
"""

from __future__ import annotations

from .block_weights import block_weights
from .class_curves import CalibrationBins, auc, calibration_bins, group_auc, normalized_entropy
from .class_estimates import CLASS_METRICS, Shares, shares
from .class_training import DoubledRows, doubled_rows, invert, soft_rows, start_scores
from .estimates import METRICS, compare, estimate, group_means
from .intervals import Estimate, GroupEstimates
from .objectives import LIBRARIES, LOSSES, objective
from .release import Release
from .selection import Stage, early_stopping, evaluation

__all__ = [
    "CLASS_METRICS",
    "LIBRARIES",
    "LOSSES",
    "METRICS",
    "CalibrationBins",
    "DoubledRows",
    "Estimate",
    "GroupEstimates",
    "Release",
    "Shares",
    "Stage",
    "auc",
    "block_weights",
    "calibration_bins",
    "compare",
    "doubled_rows",
    "early_stopping",
    "estimate",
    "evaluation",
    "group_auc",
    "group_means",
    "invert",
    "normalized_entropy",
    "objective",
    "shares",
    "soft_rows",
    "start_scores",
]
