"""Beam PTransforms that wire mechanisms to PCollections of Arrow record batches."""

from .batches import LabelledBatch
from .errors import InputError, StageError
from .noise_key import NoiseKeyFile
from .prior import BindNoise, LabelColumn, NoiseBinding, NoisyPrior, PriorRelease, Threshold
from .privatize import DeadLetter, PrivatizedLabels, PrivatizeLabels
from .publish import ReleaseShards
from .read import Equals, Format, ReadRecordBatches
from .rows import BatchesToRows, RowsToBatches, row_fields
from .solve import SolveRandomizer
from .stream import StreamBinding
from .unique_ids import CountUniqueIds
from .validate import ValidateExamples, Validation
from .write import ShardFile, WriteParquet, WriteTFRecords

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
