"""Bare loop of C++ codecs: tf.data reads, tfx_bsl decodes and encodes, TensorFlow writes. No Beam, no noise.

tf.data reads ahead in a thread of its own. With --parallel it reads as many files at a time as it finds best
(AUTOTUNE), a batch from each in turn. Decoding, encoding and writing follow each other in one thread.

`num_parallel_reads` of TFRecordDataset, which takes a record from each file in turn, is not used: it costs several
times the CPU time of reading one file after the other.
"""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Sequence
from typing import Any

import tensorflow
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder, RecordBatchToExamplesEncoder

tf: Any = tensorflow
_BATCH_ROWS = 1 << 14


def _batches(files: Any) -> Any:
    return tf.data.TFRecordDataset(files).batch(_BATCH_ROWS)


def _several_files(files: Sequence[str]) -> Any:
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        _batches, cycle_length=len(files), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Copies all input records into one file, through Arrow.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("input", "output"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--parallel", action="store_true", help="read several files at a time")
    args = parser.parse_args(argv)
    os.makedirs(args.output)
    decoder, encoder = ExamplesToRecordBatchDecoder(), RecordBatchToExamplesEncoder()
    files = sorted(glob.glob(args.input))
    batches = _several_files(files) if args.parallel else _batches(files)
    with tf.io.TFRecordWriter(os.path.join(args.output, "part.tfrecord")) as writer:
        for batch in batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
            for example in encoder.encode(decoder.DecodeBatch(batch.tolist())):
                writer.write(example)


if __name__ == "__main__":
    main()
