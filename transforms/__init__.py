"""Beam PTransforms that apply mechanisms to PCollections of Arrow record batches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..mechanisms.release.bound_noise import NoiseBinding, StreamBinding
    from ..mechanisms.release.label_column import LabelColumn, LabelMeaning
    from ..mechanisms.release.prior_release import PriorRelease
    from ..mechanisms.release.unit_bound import UnitBound
    from .batches import Carried, LabelledBatch
    from .beam_rows import BatchesToRows, RowsToBatches, row_fields
    from .errors import InputError, StageError
    from .input_checks import CountUniqueIds
    from .io.input_format import Equals, Format
    from .io.limits import Limits
    from .missing_labels import Threshold
    from .noise_key_file import NoiseKeyFile
    from .privatize_labels import DeadLetter, PrivatizedLabels, PrivatizeLabels
    from .readers.file_reader import ReadRecordBatches
    from .release_passes import BindNoise, NoisyPrior
    from .shards.publish_shards import ReleaseShards
    from .shards.shard_formats import WriteParquet, WriteTFRecords
    from .shards.shard_ranges import CountRows, DivideRows
    from .shards.shard_writer import ShardFile
    from .solve_randomizer import SolveRandomizer
    from .units.bounds_by_id import BoundUnitsById
    from .units.unit_bounds import BoundUnits, LeaveOut
    from .units.unit_counts import CountUnits
    from .validation.validate_examples import ValidateExamples, Validation

# Loaded when they are first used: code that needs no Beam imports modules of this package, too.
_MODULES = {
    "..mechanisms.release.bound_noise": ("NoiseBinding", "StreamBinding"),
    "..mechanisms.release.label_column": ("LabelColumn", "LabelMeaning"),
    "..mechanisms.release.prior_release": ("PriorRelease",),
    "..mechanisms.release.unit_bound": ("UnitBound",),
    ".batches": ("Carried", "LabelledBatch"),
    ".beam_rows": ("BatchesToRows", "RowsToBatches", "row_fields"),
    ".errors": ("InputError", "StageError"),
    ".io.input_format": ("Equals", "Format"),
    ".io.limits": ("Limits",),
    ".readers.file_reader": ("ReadRecordBatches",),
    ".shards.publish_shards": ("ReleaseShards",),
    ".shards.shard_formats": ("WriteParquet", "WriteTFRecords"),
    ".shards.shard_ranges": ("CountRows", "DivideRows"),
    ".shards.shard_writer": ("ShardFile",),
    ".input_checks": ("CountUniqueIds",),
    ".missing_labels": ("Threshold",),
    ".noise_key_file": ("NoiseKeyFile",),
    ".release_passes": ("BindNoise", "NoisyPrior"),
    ".privatize_labels": ("DeadLetter", "PrivatizeLabels", "PrivatizedLabels"),
    ".solve_randomizer": ("SolveRandomizer",),
    ".units.bounds_by_id": ("BoundUnitsById",),
    ".units.unit_bounds": ("BoundUnits", "LeaveOut"),
    ".units.unit_counts": ("CountUnits",),
    ".validation.validate_examples": ("ValidateExamples", "Validation"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BatchesToRows",
    "BindNoise",
    "BoundUnits",
    "BoundUnitsById",
    "Carried",
    "CountRows",
    "CountUniqueIds",
    "CountUnits",
    "DeadLetter",
    "DivideRows",
    "Equals",
    "Format",
    "InputError",
    "LabelColumn",
    "LabelMeaning",
    "LabelledBatch",
    "LeaveOut",
    "Limits",
    "NoiseBinding",
    "NoiseKeyFile",
    "NoisyPrior",
    "PriorRelease",
    "PrivatizeLabels",
    "PrivatizedLabels",
    "ReadRecordBatches",
    "ReleaseShards",
    "RowsToBatches",
    "ShardFile",
    "SolveRandomizer",
    "StageError",
    "StreamBinding",
    "Threshold",
    "UnitBound",
    "ValidateExamples",
    "Validation",
    "WriteParquet",
    "WriteTFRecords",
    "row_fields",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that defines it (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
