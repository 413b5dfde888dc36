"""Kit for those who train on a release, `labeldp.pipelines.training` under the name that users import."""

from labeldp.pipelines.training import (
    LIBRARIES,
    LOSSES,
    METRICS,
    Estimate,
    GroupMeans,
    Release,
    Stage,
    block_weights,
    compare,
    early_stopping,
    estimate,
    evaluation,
    group_means,
    objective,
)

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
