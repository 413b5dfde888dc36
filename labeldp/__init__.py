"""Label differential privacy for numbers and classes, as one Apache Beam job.

The names below are loaded when they are first used, so that `import labeldp` costs milliseconds. Those of
`labeldp.mechanisms` need numpy and scipy only, `LabelPrivatizer` and `privatize` pyarrow as well; those of
`labeldp.transforms` load Apache Beam. `labeldp.training` is a module of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeldp.mechanisms import (
        ABSOLUTE,
        LOSSES,
        MECHANISMS,
        POISSON,
        SQUARED,
        BudgetSplit,
        CenterModel,
        Certificate,
        ClassModel,
        LabelClasses,
        Loss,
        Prior,
        Quality,
        Randomizer,
        label_grid,
        loss_named,
        mechanism_named,
        quality,
        solve,
        split_budget,
    )
    from labeldp.pipelines.api import (
        LabelPrivatizer,
        NotFittedError,
        PrivatizeFiles,
        ReleasedFrame,
        ReleaseWarning,
        UsageError,
        privatize,
    )
    from labeldp.transforms import (
        BatchesToRows,
        BindNoise,
        BoundUnits,
        BoundUnitsById,
        Carried,
        CountRows,
        CountUnits,
        DeadLetter,
        DivideRows,
        Equals,
        Format,
        InputError,
        LabelColumn,
        LabelledBatch,
        LabelMeaning,
        LeaveOut,
        Limits,
        NoiseKeyFile,
        NoisyPrior,
        PriorRelease,
        PrivatizedLabels,
        PrivatizeLabels,
        ReadRecordBatches,
        ReleaseShards,
        RowsToBatches,
        ShardFile,
        SolveRandomizer,
        StageError,
        StreamBinding,
        Threshold,
        UnitBound,
        ValidateExamples,
        Validation,
        WriteParquet,
        WriteTFRecords,
        row_fields,
    )

__version__ = "0.1.0"

__all__ = [
    "ABSOLUTE",
    "LOSSES",
    "MECHANISMS",
    "POISSON",
    "SQUARED",
    "BatchesToRows",
    "BindNoise",
    "BoundUnits",
    "BoundUnitsById",
    "BudgetSplit",
    "Carried",
    "CenterModel",
    "Certificate",
    "ClassModel",
    "CountRows",
    "CountUnits",
    "DeadLetter",
    "DivideRows",
    "Equals",
    "Format",
    "InputError",
    "LabelClasses",
    "LabelColumn",
    "LabelMeaning",
    "LabelPrivatizer",
    "LabelledBatch",
    "LeaveOut",
    "Limits",
    "Loss",
    "NoiseKeyFile",
    "NoisyPrior",
    "NotFittedError",
    "Prior",
    "PriorRelease",
    "PrivatizeFiles",
    "PrivatizeLabels",
    "PrivatizedLabels",
    "Quality",
    "Randomizer",
    "ReadRecordBatches",
    "ReleaseShards",
    "ReleaseWarning",
    "ReleasedFrame",
    "RowsToBatches",
    "ShardFile",
    "SolveRandomizer",
    "StageError",
    "StreamBinding",
    "Threshold",
    "UnitBound",
    "UsageError",
    "ValidateExamples",
    "Validation",
    "WriteParquet",
    "WriteTFRecords",
    "__version__",
    "label_grid",
    "loss_named",
    "mechanism_named",
    "privatize",
    "quality",
    "row_fields",
    "solve",
    "split_budget",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from the package that defines it (PEP 562)."""
    if name in __all__:
        # In the order of the layers: a name of the first is found without loading Beam.
        for package in ("labeldp.mechanisms", "labeldp.pipelines.api", "labeldp.transforms"):
            module = importlib.import_module(package)
            if hasattr(module, name):
                value = globals()[name] = getattr(module, name)
                return value
    if name == "training":
        return importlib.import_module("labeldp.training")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
