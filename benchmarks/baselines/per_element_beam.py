"""Per-element Beam pipeline, as usually written: a tf.train.Example for each record, labels randomized one by one.

The randomization is that of the project: the same Randomizer, sampled exactly, with one keyed 64-bit word per record.
A draw is a binary search in a list of Python integers, which for a single record is several times faster than
`Randomizer.sample` on arrays of one element.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import tensorflow
from apache_beam.options.pipeline_options import PipelineOptions
from labeldp.mechanisms.core.integer_weights import BITS
from labeldp.mechanisms.core.randomizer import Randomizer

tf: Any = tensorflow


class RandomizeLabel(beam.DoFn):
    """Replaces the label of a tf.train.Example by a draw from the randomizer."""

    def __init__(self, mechanism_file: str, key_file: str, label: str, id_column: str):
        """Keeps the arguments; files are read in `setup`.

        Args:
          mechanism_file: Mechanism file of `labeldp solve`.
          key_file: File with the noise key.
          label: Name of the label feature, a float.
          id_column: Name of the feature that identifies a record, an integer.
        """
        self._mechanism_file = mechanism_file
        self._key_file = key_file
        self._label = label
        self._id_column = id_column

    def setup(self) -> None:
        with open(self._mechanism_file, encoding="utf-8") as file:
            randomizer = Randomizer.from_json(file.read())
        with open(self._key_file, "rb") as file:
            self._key = file.read()
        labels = randomizer.labels.tolist()
        self._midpoints = [(low + high) / 2 for low, high in itertools.pairwise(labels)]
        self._outputs = randomizer.outputs.tolist()
        self._cumulated = [list(itertools.accumulate(row)) for row in randomizer.weights.tolist()]

    def process(self, example: Any) -> Iterator[Any]:
        feature = example.features.feature
        identity = feature[self._id_column].int64_list.value[0]
        label = feature[self._label].float_list.value
        word = hashlib.blake2b(identity.to_bytes(8, "little"), key=self._key, digest_size=8).digest()
        row = self._cumulated[bisect.bisect_right(self._midpoints, label[0])]
        label[0] = self._outputs[bisect.bisect_right(row, int.from_bytes(word, "little") >> (64 - BITS))]
        yield example


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the pipeline on Beam's local runner. Unknown flags go to the runner.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("input", "output", "mechanism_file", "key_file", "label", "id_column"):
        parser.add_argument(f"--{flag}", required=True)
    args, others = parser.parse_known_args(argv)
    randomize = RandomizeLabel(args.mechanism_file, args.key_file, args.label, args.id_column)
    # `labeldp` uses this runner, too, for DirectRunner.
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(others)) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromTFRecord(args.input)
            | "Parse" >> beam.Map(tf.train.Example.FromString)
            | "Randomize" >> beam.ParDo(randomize)
            | "Serialize" >> beam.Map(lambda example: example.SerializeToString())
            | beam.io.WriteToTFRecord(f"{args.output}/part", file_name_suffix=".tfrecord")
        )


if __name__ == "__main__":
    main()
