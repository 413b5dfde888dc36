"""Beam PTransforms that wire mechanisms to PCollections of Arrow record batches."""

from .batches import LabelledBatch
from .errors import InputError, StageError
from .noise_key import NoiseKeyFile
from .prior import BindNoise, LabelColumn, NoiseBinding, NoisyPrior, PriorRelease, Threshold
from .privatize import DeadLetter, PrivatizedLabels, PrivatizeLabels
from .read import Equals, Format, ReadRecordBatches
from .solve import SolveRandomizer
from .unique_ids import CountUniqueIds
from .write import ShardFile, WriteParquet, WriteTFRecords

__all__ = [
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
    "ShardFile",
    "SolveRandomizer",
    "StageError",
    "Threshold",
    "WriteParquet",
    "WriteTFRecords",
]
