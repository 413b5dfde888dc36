"""Stage that replaces each label by a draw from its randomizer, or from the probabilities of a center of classes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import DoOutputsTuple, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from ..mechanisms.center.class_center import PROBABILITY_UNIT
from ..mechanisms.center.feature_rows import MappedColumns, RowMap
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.noise.input_digest import RawSums, add_sums, input_digest
from ..mechanisms.release.bound_noise import NoiseBinding, StreamBinding
from ..mechanisms.release.drawing import Drawing, drawing_of
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import label_sums
from ..mechanisms.release.unit_bound import SINGLE
from .batches import (
    Argument,
    Carried,
    LabelledBatch,
    as_argument,
    as_side_input,
    check_new,
    check_whole_input,
    replace_label,
)
from .beam_internals import typed_outputs
from .center.append_center import check_features
from .center.feature_columns import center_columns
from .errors import CHANGED_INPUT, OTHER_MECHANISM, InputError, redact_errors
from .job_metrics import PASSES, RECORDS_LEFT_OUT
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress
from .shown_transform import ShownTransform
from .units.bounds_by_id import BoundedRecords, BoundUnitsById
from .usable_records import UsableRecords, usable_records

BATCHES = "batches"
DEAD_LETTERS = "dead_letters"
DRAWN = "drawn"
DIGEST = "digest"
MECHANISM = "mechanism"


@dataclass(frozen=True)
class DeadLetter:
    """Record that was left out of the release: its place and the reason, never its content.

    Attributes:
      source: Input file.
      row: Row of the record in that file, from 0.
      stage: Stage that left it out.
      error: Reason.
    """

    source: str
    row: int
    stage: str
    error: str

    def to_json(self) -> str:
        """Converts the dead letter to one line of the dead letter file.

        Returns:
          A JSON object, without a line break.
        """
        return json.dumps({"source": self.source, "row": self.row, "stage": self.stage, "error": self.error})


class PrivatizedLabels(NamedTuple):
    """Outputs of `PrivatizeLabels`.

    Attributes:
      batches: Privatized batches. They must not be released before the digest is available.
      dead_letters: Records without a usable label, which were left out.
      digest: Exactly one integer, the keyed digest of the input labels, available only once it has been found equal to
        that of the binding, and all labels have been found to come from one mechanism. None for a stream.
      mechanism: Exactly one string, the fingerprint of the randomizer that drew all labels, in hexadecimal digits;
        available with the digest. A mechanism that is published must have this fingerprint. None for a stream.
    """

    batches: PCollection[LabelledBatch]
    dead_letters: PCollection[DeadLetter]
    digest: PCollection[int] | None
    mechanism: PCollection[str] | None


@dataclass
class PrivatizeLabels(ShownTransform):
    """Replaces each label by a draw from the randomizer.

    Takes a PCollection of LabelledBatch and returns `PrivatizedLabels`: the same rows in the same order with the label
    column replaced (see `replace_label`), except for records without a usable label, which become dead
    letters. The output depends only on the batch, the randomizer, the noise key and the secret key, so a retried bundle
    produces the same bytes.

    The job fails with InputError if the input changed between its two passes: the noise is bound to the input of the
    first pass, and the same noise over two versions of the data would reveal their exact difference. The digests can be
    compared only after the last batch. Batches are passed on before that, to keep memory use constant, and a failing
    stage does not undo what other stages wrote. Therefore release only what has waited for the digest: shards through
    `ReleaseShards`, anything else in a stage with AsSingleton(digest) as a side input, for which runners hold back the
    stage's input. Data written without waiting must be deleted if the job fails.

    The job fails as well if not all labels were drawn by one randomizer. This can happen where the stage that solves
    for it is computed once for each worker or consumer: solvers may give other results on another CPU. The fingerprint
    of the randomizer that drew its labels stays with every batch, and with every shard that is written from it.

    With a center column, a label y with center c becomes c + M(clip(y - c)). The randomizer M takes the residuals of a
    range, to which they are clipped. The center column stays as it is.

    Classes may be drawn from the probabilities that their center predicts, which become a column of their own
    (`privatize_batch`).

    Of several private columns, each has a stage of its own, one after the other, with the others in
    `LabelColumn.others`. Their epsilons add up.

    Streaming (unbounded, windowed) input takes a randomizer and a StreamBinding, both as values. It has no digest, and
    its records need ids.

    Attributes:
      randomizer: Exactly one drawing, of `SolveRandomizer`, or a Randomizer alone, as a PCollection, carried by the
        batches, or as a value.
      binding: Exactly one NoiseBinding (a PriorRelease is one), as a PCollection or carried; or a StreamBinding.
      column: The private column. Its domain must be that of the drawing; with a center, the labels of its randomizer
        must be consecutive residuals.
      key: Reference to the secret key.
    """

    randomizer: PCollection[Drawing] | Carried[Drawing] | Drawing | Randomizer
    binding: PCollection[NoiseBinding] | Carried[NoiseBinding] | StreamBinding
    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        """Raises ValueError for a StreamBinding without an id column."""
        if isinstance(self.binding, StreamBinding) and self.column.id_column is None:
            raise ValueError("records of a stream are not identified by file and row: give an id_column")

    def expand(self, batches: PCollection[LabelledBatch]) -> PrivatizedLabels:
        """Raises InputError for an unbounded input or windows without a StreamBinding."""
        streaming = isinstance(self.binding, StreamBinding)
        if streaming and self.column.unit != SINGLE:
            bounded: BoundedRecords = batches | "BoundUnits" >> BoundUnitsById(self.column, self.key)
            batches = bounded.batches
        if not (batches.is_bounded or streaming):
            raise InputError("the noise of an unbounded input cannot be bound to a digest: give a StreamBinding")
        if not streaming:
            check_whole_input(batches, self)
        randomized: DoOutputsTuple = batches | "Randomize" >> beam.ParDo(
            _Randomize(self.column, self.key), as_argument(self.randomizer), as_argument(self.binding)
        ).with_output_types(object).with_outputs(DEAD_LETTERS, DRAWN, main=BATCHES)
        outputs = typed_outputs(randomized, {BATCHES: LabelledBatch, DEAD_LETTERS: DeadLetter, DRAWN: Drawn})
        if streaming:
            return PrivatizedLabels(outputs[BATCHES], outputs[DEAD_LETTERS], None, None)
        compared: DoOutputsTuple = (
            outputs[DRAWN]
            | "AddDrawn" >> beam.CombineGlobally(add_drawn)
            # A digest has 256 bits; Beam's coder of int holds 64.
            | "Digest"
            >> beam.ParDo(
                CompareDigests(self.column, self.key), as_side_input(self.randomizer), as_side_input(self.binding)
            )
            .with_output_types(object)
            .with_outputs(MECHANISM, main=DIGEST)
        )
        return PrivatizedLabels(outputs[BATCHES], outputs[DEAD_LETTERS], compared[DIGEST], compared[MECHANISM])


def privatize_batch(
    records: UsableRecords, drawing: Drawing, noise_key: bytes, secret: bytes, streaming: bool = False
) -> LabelledBatch:
    """Replaces each label of a batch by a draw with the random word of its record; arguments as of `Drawing.draw`.

    Returns the batch with its label column replaced, and the fingerprint of what drew them. Classes that are drawn from
    probabilities get a column of them: a list of K floats for each record, multiples of 1 / 65,536, which float32 holds
    exactly, that add up to 1. Raises InputError if there is a column of its name, or a feature is the label.
    """
    batch, column = records.batch, records.labels.column

    def features(row_map: RowMap) -> MappedColumns:
        check_features(column, row_map)
        return center_columns(batch, row_map)

    probabilities = drawing.probabilities(features)
    drawn = drawing.draw(records.labels, noise_key, secret, probabilities, streaming)
    released = replace_label(batch, column.name, drawn, column.classes)
    if probabilities is not None:
        released = _with_probabilities(released, probabilities, column)
    # Perhaps after a mechanism that has drawn another private column.
    mechanism = ",".join(name for name in (batch.mechanism, drawing.fingerprint) if name)
    return dataclasses.replace(released, mechanism=mechanism)


def _with_probabilities(batch: LabelledBatch, probabilities: np.ndarray, column: LabelColumn) -> LabelledBatch:
    """Adds the column of probabilities. Raises InputError if there is one of its name."""
    name = column.center
    assert name is not None
    check_new(batch, name, "name the new column of probabilities with `center_column`")
    records, classes = probabilities.shape
    offsets = pa.array(np.arange(records + 1, dtype=np.int32) * np.int32(classes))
    shares = (probabilities.ravel() / PROBABILITY_UNIT).astype(np.float32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(shares))
    schema = batch.batch.schema.append(pa.field(name, lists.type))
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays([*batch.batch.columns, lists], schema=schema))


def dead_letters(records: UsableRecords) -> Iterator[TaggedOutput]:
    """Dead letters of the records of a batch without a usable label."""
    for row in records.unusable.tolist():
        yield TaggedOutput(DEAD_LETTERS, DeadLetter(records.batch.source, row, "privatize", "unusable label"))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Summary of privatized records: raw sums of their true labels, and the mechanisms that drew the new ones."""

    sums: RawSums
    mechanisms: frozenset[str]


def add_drawn(parts: Iterable[Drawn]) -> Drawn:
    """Adds summaries of disjoint sets of records."""
    parts = list(parts)
    return Drawn(add_sums(part.sums for part in parts), frozenset().union(*(part.mechanisms for part in parts)))


class _Randomize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key
        self._shared = Shared()

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = self._shared.acquire(lambda: Progress("privatized"))
        self._drawings: dict[tuple[str, NoiseBinding | StreamBinding], tuple[Drawing, bytes]] = {}

    @redact_errors("privatizing labels")
    def process(
        self, batch: LabelledBatch, drawing: Argument[Drawing], binding: Argument[NoiseBinding | StreamBinding]
    ) -> Iterator[LabelledBatch | TaggedOutput]:
        drawing, binding = drawing_of(batch.resolve(drawing), self._column), batch.resolve(binding)
        records, streaming = usable_records(batch, self._column), isinstance(binding, StreamBinding)
        yield from dead_letters(records)
        # The first of several labels leaves out the records that lack any of them.
        if batch.mechanism is None:
            RECORDS_LEFT_OUT.inc(len(records.unusable) + batch.left_out)
        mechanisms: frozenset[str] = frozenset()
        if len(records.labels):
            mechanisms = frozenset([drawing.fingerprint])
            yield privatize_batch(records, *self._cached(drawing, binding), self._secret, streaming)
        if not streaming:
            sums = label_sums(records.labels, self._secret)
            yield TaggedOutput(DRAWN, Drawn(sums, mechanisms))
        self._progress.add(len(records.labels))

    def _cached(self, drawing: Drawing, binding: NoiseBinding | StreamBinding) -> tuple[Drawing, bytes]:
        """Returns an equal drawing, whose alias table is built already, and the noise key.

        Cached, because side inputs are decoded again for each bundle.
        """
        wanted = (drawing.fingerprint, binding)
        if wanted not in self._drawings:
            if not drawing.fits(self._column):
                raise InputError("the label domain of the mechanism differs from the declared one")
            if isinstance(binding, StreamBinding):
                noise_key = binding.noise_key(self._secret, self._column)
            else:
                noise_key = binding.noise_key(self._secret)
            self._drawings = {wanted: (drawing, noise_key)}
        return self._drawings[wanted]


class CompareDigests(beam.DoFn):
    """Converts the raw sums to their digest, which is safe to show, and compares it with that of the binding.

    The mechanisms that drew the labels are compared with the drawing as this stage sees it.
    """

    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    @redact_errors("comparing the passes")
    def process(
        self, drawn: Drawn, drawing: Drawing | Randomizer, binding: NoiseBinding
    ) -> Iterator[int | TaggedOutput]:
        column = self._column
        digest = input_digest(self._key.load(), drawn.sums, column.request, binding.budget)
        if digest != binding.digest:
            raise InputError(CHANGED_INPUT)
        mechanism = drawing_of(drawing, column).fingerprint
        if drawn.mechanisms - {mechanism}:
            raise InputError(OTHER_MECHANISM)
        PASSES.inc()
        yield digest
        yield TaggedOutput(MECHANISM, mechanism)
