"""Stage that replaces each class by a draw from the probabilities that a center of classes predicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection, TaggedOutput

from ..mechanisms.center.class_center import PROBABILITY_UNIT, ClassCenter, draw_classes
from ..mechanisms.center.class_model import center_fingerprint
from ..mechanisms.noise.keyed_words import words
from ..mechanisms.release.bound_noise import NoiseBinding
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import label_sums
from .batches import Carried, LabelledBatch, as_argument, as_side_input, replace_label
from .center.feature_columns import center_columns
from .center.fit_center import check_features
from .errors import InputError, redact_errors
from .label_summary import UsableRecords, usable_records
from .noise_key_file import NoiseKeyFile
from .privatize_labels import (
    BATCHES,
    DEAD_LETTERS,
    DIGEST,
    DRAWN,
    MECHANISM,
    CompareDigests,
    Drawn,
    PrivatizedLabels,
    add_drawn,
    dead_letters,
)
from .progress_log import Progress


@dataclass
class DrawClasses(beam.PTransform):
    """Replaces each class by a draw from the probabilities that the center predicts, and adds these as a column.

    Takes a PCollection of LabelledBatch with all columns; returns `PrivatizedLabels`, whose mechanism is the
    fingerprint of the center. As `PrivatizeLabels`, the job fails with InputError if the input changed between its
    passes, or not all classes were drawn from one center.

    The column of probabilities has a list of K floats for each record: multiples of 1 / 65,536, which float32 holds
    exactly, that add up to 1.

    Attributes:
      center: Exactly one ClassCenter, as a PCollection or carried by the batches.
      binding: Exactly one NoiseBinding, as a PCollection or carried.
      column: The private column; `column.center` is the name of the new column.
      key: Reference to the secret key.
    """

    center: PCollection[ClassCenter] | Carried[ClassCenter] | ClassCenter
    binding: PCollection[NoiseBinding] | Carried[NoiseBinding]
    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PrivatizedLabels:
        outputs: Any = batches | "Draw" >> beam.ParDo(
            _Draw(self.column, self.key), as_argument(self.center), as_argument(self.binding)
        ).with_output_types(LabelledBatch).with_outputs(DEAD_LETTERS, DRAWN, main=BATCHES)
        compared: Any = (
            outputs[DRAWN]
            | "AddDrawn" >> beam.CombineGlobally(add_drawn)
            | "Digest"
            >> beam.ParDo(
                CompareDigests(self.column, self.key), as_side_input(self.center), as_side_input(self.binding)
            )
            .with_output_types(object)
            .with_outputs(MECHANISM, main=DIGEST)
        )
        return PrivatizedLabels(outputs[BATCHES], outputs[DEAD_LETTERS], compared[DIGEST], compared[MECHANISM])


def draw_batch(records: UsableRecords, center: ClassCenter, noise_key: bytes) -> LabelledBatch:
    """Draws the classes of a batch, each with the random word of its record, and adds their probabilities."""
    batch, column = records.batch, records.labels.column
    fingerprint = center_fingerprint(center)
    probabilities = center.probabilities(center_columns(batch, center.linear.design.map))
    drawn = draw_classes(probabilities, words(noise_key, fingerprint.encode(), records.labels.identities))
    replaced = replace_label(batch, column.name, drawn, column.classes)
    mechanism = fingerprint if batch.mechanism is None else f"{batch.mechanism},{fingerprint}"
    return dataclasses.replace(_with_probabilities(replaced, probabilities, column), mechanism=mechanism)


def _with_probabilities(batch: LabelledBatch, probabilities: np.ndarray, column: LabelColumn) -> LabelledBatch:
    """Adds the column of probabilities. Raises InputError if there is one of its name."""
    name = column.center
    assert name is not None
    if batch.column(name) is not None:
        raise InputError(
            f"{batch.source}: there is a column {name!r} already: name the new column of probabilities with "
            "--center_column"
        )
    records, classes = probabilities.shape
    offsets = pa.array(np.arange(records + 1, dtype=np.int32) * np.int32(classes))
    shares = (probabilities.ravel() / PROBABILITY_UNIT).astype(np.float32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(shares))
    schema = batch.batch.schema.append(pa.field(name, lists.type))
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays([*batch.batch.columns, lists], schema=schema))


class _Draw(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("privatized")

    @redact_errors("drawing classes")
    def process(self, batch: LabelledBatch, center: Any, binding: Any) -> Iterator[LabelledBatch | TaggedOutput]:
        center, binding = batch.resolve(center), batch.resolve(binding)
        check_features(self._column, center.linear.design.map)
        records = usable_records(batch, self._column, centered=False)
        yield from dead_letters(records)
        mechanisms: frozenset[str] = frozenset()
        if len(records.labels):
            mechanisms = frozenset([center_fingerprint(center)])
            yield draw_batch(records, center, binding.noise_key(self._secret))
        yield TaggedOutput(DRAWN, Drawn(label_sums(records.labels, self._secret), mechanisms))
        self._progress.add(len(records.labels))
