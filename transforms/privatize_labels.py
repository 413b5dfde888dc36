"""The stage that replaces labels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.noise.input_digest import RawSums, add_sums, digest_sums, input_digest
from ..mechanisms.noise.keyed_words import labelled_words, words
from ..mechanisms.noise.record_identities import Identities
from .batches import LabelledBatch, label_values, record_identities, replace_label
from .errors import InputError, redact_errors
from .label_column import LabelColumn
from .noise_binding import NoiseBinding
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress
from .unbounded import StreamBinding

_BATCHES = "batches"


_DEAD_LETTERS = "dead_letters"


_SUMS = "sums"


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be privatized: where it is and why; never what it holds."""

    source: str
    row: int
    stage: str
    error: str

    def to_json(self) -> str:
        """One line of a dead letter file."""
        return json.dumps({"source": self.source, "row": self.row, "stage": self.stage, "error": self.error})


class PrivatizedLabels(NamedTuple):
    """What `PrivatizeLabels` gives.

    batches: privatized batches, which nobody may see before the digest is there. dead_letters: records that were left
    out. digest: one number, the keyed digest of the labels that went in, once it is known to be the binding's; None
    for a stream.
    """

    batches: PCollection[LabelledBatch]
    dead_letters: PCollection[DeadLetter]
    digest: PCollection[int] | None


@dataclass
class PrivatizeLabels(beam.PTransform):
    """Replaces every label by a draw from the randomizer.

    Takes a PCollection of LabelledBatch; gives `PrivatizedLabels`: the same rows in the same order with the label
    column replaced (float64, or a list of one float32), less the records without a usable label, which become dead
    letters. The output depends only on the batch, the randomizer and the noise key, so a retried bundle gives the
    same bytes.

    The job fails with InputError when the input changed between the two passes over it: the noise is bound to what the
    first one saw, and the same noise over two versions of the data reveals their exact difference. By then batches
    have gone on, so that memory stays flat, and a failing stage does not undo what others wrote. Release nothing but
    what waited for the digest: shards by `ReleaseShards`; anything else in a stage with AsSingleton(digest) as a side
    input, before which runners keep all of its input. Whatever was written without it must be thrown away if the job
    fails.

    An input without an end, in windows, is privatized with a randomizer and a StreamBinding, both values: it has no
    digest, and its records need ids.

    randomizer: exactly one, as a PCollection or a value. binding: exactly one NoiseBinding (a PriorRelease is
    one), as a PCollection; or a StreamBinding. column: the private column; its domain is the randomizer's. key: the
    secret.
    """

    randomizer: PCollection[Randomizer] | Randomizer
    binding: PCollection[NoiseBinding] | StreamBinding
    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        """Raises ValueError for a stream whose records have no ids."""
        super().__init__()
        if isinstance(self.binding, StreamBinding) and self.column.id_column is None:
            raise ValueError("records of a stream have no file and row that names them: give an id_column")

    def expand(self, batches: PCollection[LabelledBatch]) -> PrivatizedLabels:
        """Raises InputError for an unbounded input without a StreamBinding."""
        binding = self.binding if isinstance(self.binding, StreamBinding) else AsSingleton(self.binding)
        endless = binding is self.binding
        if not (batches.is_bounded or endless):
            raise InputError("an unbounded input has no digest to bind noise to: give a StreamBinding")
        randomizer = self.randomizer if isinstance(self.randomizer, Randomizer) else AsSingleton(self.randomizer)
        outputs: Any = batches | "Randomize" >> beam.ParDo(
            _Randomize(self.column, self.key), randomizer, binding
        ).with_output_types(LabelledBatch).with_outputs(_DEAD_LETTERS, _SUMS, main=_BATCHES)
        if endless:
            return PrivatizedLabels(outputs[_BATCHES], outputs[_DEAD_LETTERS], None)
        digest: Any = (
            outputs[_SUMS]
            | "AddSums" >> beam.CombineGlobally(add_sums)
            # Beam's coder of int holds 64 bits.
            | "Digest" >> beam.ParDo(_Digest(self.key), binding).with_output_types(object)
        )
        return PrivatizedLabels(outputs[_BATCHES], outputs[_DEAD_LETTERS], digest)


def privatize_batch(
    batch: LabelledBatch,
    values: np.ndarray,
    identities: Identities,
    column: LabelColumn,
    randomizer: Randomizer,
    noise_key: bytes,
    secret: bytes,
    endless: bool = False,
) -> LabelledBatch:
    """The batch with each label replaced by a draw under the record's own word.

    values: (n,) finite float64, the labels. identities: their records' names. noise_key, secret: 32 bytes each.
    endless: whether the key is of a StreamBinding, so that words have to be bound to the labels.
    """
    indices = column.indices(values, identities, secret)
    if endless:
        drawn = labelled_words(noise_key, randomizer.fingerprint, identities, values)
    else:
        drawn = words(noise_key, randomizer.fingerprint, identities)
    outputs = randomizer.sample(indices, drawn)
    return dataclasses.replace(batch, batch=replace_label(batch.batch, column.name, outputs))


class _Randomize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("privatized")
        self._prepared: dict[tuple[bytes, NoiseBinding | StreamBinding], tuple[Randomizer, bytes]] = {}

    @redact_errors("privatizing labels")
    def process(
        self, batch: LabelledBatch, randomizer: Randomizer, binding: NoiseBinding | StreamBinding
    ) -> Iterator[LabelledBatch | TaggedOutput]:
        randomizer, noise_key = self._prepare(randomizer, binding)
        values = label_values(batch, self._column.name)
        usable = np.isfinite(values)
        for row in batch.rows[~usable].tolist():
            letter = DeadLetter(batch.source, row, "privatize", "unusable label")
            yield TaggedOutput(_DEAD_LETTERS, letter)
        kept, values = batch.keep(usable), values[usable]
        identities = record_identities(kept, self._column.id_column)
        endless = isinstance(binding, StreamBinding)
        if not endless:
            yield TaggedOutput(_SUMS, digest_sums(self._secret, identities, values))
        if len(values):
            yield privatize_batch(kept, values, identities, self._column, randomizer, noise_key, self._secret, endless)
        self._progress.add(len(values))

    def _prepare(self, randomizer: Randomizer, binding: NoiseBinding | StreamBinding) -> tuple[Randomizer, bytes]:
        """The randomizer whose alias table is built already, and the noise key: side inputs come anew per bundle."""
        wanted = (randomizer.fingerprint, binding)
        if wanted not in self._prepared:
            if tuple(randomizer.labels.tolist()) != self._column.domain:
                raise InputError("the mechanism is for another label domain than the one declared")
            if isinstance(binding, StreamBinding):
                noise_key = binding.noise_key(self._secret, self._column)
            else:
                noise_key = binding.noise_key(self._secret)
            self._prepared = {wanted: (randomizer, noise_key)}
        return self._prepared[wanted]


class _Digest(beam.DoFn):
    """Raw sums to their digest, which is safe to show, if it is that of the binding."""

    def __init__(self, key: NoiseKeyFile):
        self._key = key

    @redact_errors("comparing the passes")
    def process(self, sums: RawSums, binding: NoiseBinding) -> Iterator[int]:
        digest = input_digest(self._key.load(), sums)
        if digest != binding.digest:
            raise InputError(
                "the input changed while the job ran: nothing of it may be released; run again when the files are "
                "complete"
            )
        yield digest
