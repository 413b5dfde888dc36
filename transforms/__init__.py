"""Beam PTransforms that apply mechanisms to PCollections of Arrow record batches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..mechanisms.release.bound_noise import NoiseBinding, StreamBinding
    from ..mechanisms.release.label_column import LabelColumn
    from ..mechanisms.release.prior_release import PriorRelease
    from .batches import LabelledBatch
    from .beam_rows import BatchesToRows, RowsToBatches, row_fields
    from .errors import InputError, StageError
    from .io.input_format import Equals, Format
    from .io.parquet_writer import WriteParquet
    from .io.publish_shards import ReleaseShards
    from .io.read_files import ReadRecordBatches
    from .io.shard_writer import ShardFile
    from .io.tfrecord_writer import WriteTFRecords
    from .noise_binding import BindNoise, Threshold
    from .noise_key_file import NoiseKeyFile
    from .noisy_prior import NoisyPrior
    from .privatize_labels import DeadLetter, PrivatizedLabels, PrivatizeLabels
    from .solve_randomizer import SolveRandomizer
    from .unique_ids import CountUniqueIds
    from .validation.validate_examples import ValidateExamples, Validation

# Loaded when they are first used: code that needs no Beam imports modules of this package, too.
_MODULES = {
    "..mechanisms.release.bound_noise": ("NoiseBinding", "StreamBinding"),
    "..mechanisms.release.label_column": ("LabelColumn",),
    "..mechanisms.release.prior_release": ("PriorRelease",),
    ".batches": ("LabelledBatch",),
    ".beam_rows": ("BatchesToRows", "RowsToBatches", "row_fields"),
    ".errors": ("InputError", "StageError"),
    ".io.input_format": ("Equals", "Format"),
    ".io.parquet_writer": ("WriteParquet",),
    ".io.publish_shards": ("ReleaseShards",),
    ".io.read_files": ("ReadRecordBatches",),
    ".io.shard_writer": ("ShardFile",),
    ".io.tfrecord_writer": ("WriteTFRecords",),
    ".noise_binding": ("BindNoise", "Threshold"),
    ".noise_key_file": ("NoiseKeyFile",),
    ".noisy_prior": ("NoisyPrior",),
    ".privatize_labels": ("DeadLetter", "PrivatizeLabels", "PrivatizedLabels"),
    ".solve_randomizer": ("SolveRandomizer",),
    ".unique_ids": ("CountUniqueIds",),
    ".validation.validate_examples": ("ValidateExamples", "Validation"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BatchesToRows",
    "BindNoise",
    "CountUniqueIds",
    "DeadLetter",
    "Equals",
    "Format",
    "InputError",
    "LabelColumn",
    "LabelledBatch",
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
