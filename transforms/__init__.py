"""Beam PTransforms that apply mechanisms to PCollections of Arrow record batches."""

from .batches import LabelledBatch
from .beam_rows import BatchesToRows, RowsToBatches, row_fields
from .center.label_groups import LabelGroups
from .errors import InputError, StageError
from .io.input_format import Equals, Format
from .io.parquet_writer import WriteParquet
from .io.publish_shards import ReleaseShards
from .io.read_files import ReadRecordBatches
from .io.shard_writer import ShardFile
from .io.tfrecord_writer import WriteTFRecords
from .label_column import LabelColumn
from .noise_binding import BindNoise, NoiseBinding, StreamBinding, Threshold
from .noise_key_file import NoiseKeyFile
from .noisy_prior import NoisyPrior, PriorRelease
from .privatize_labels import DeadLetter, PrivatizedLabels, PrivatizeLabels
from .solve_randomizer import SolveRandomizer
from .unique_ids import CountUniqueIds
from .validation.validate_examples import ValidateExamples, Validation

__all__ = [
    "BatchesToRows",
    "BindNoise",
    "CountUniqueIds",
    "DeadLetter",
    "Equals",
    "Format",
    "InputError",
    "LabelColumn",
    "LabelGroups",
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
