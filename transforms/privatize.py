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

from ..mechanisms.noise import add_digests, multiset_digest, words
from ..mechanisms.prior import nearest_label
from ..mechanisms.randomizer import Randomizer
from .batches import LabelledBatch, label_values, record_identities, replace_label
from .errors import InputError, guarded
from .noise_key import NoiseKeyFile
from .prior import LabelColumn, NoiseBinding
from .progress import Progress

_BATCHES = "batches"
_DEAD_LETTERS = "dead_letters"
_DIGESTS = "digests"


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

    batches: privatized batches. dead_letters: records that were left out. digest: one number, the keyed digest of
    the labels that went in.
    """

    batches: PCollection[LabelledBatch]
    dead_letters: PCollection[DeadLetter]
    digest: PCollection[int]


@dataclass
class PrivatizeLabels(beam.PTransform):
    """Replaces every label by a draw from the randomizer.

    Takes a PCollection of LabelledBatch; gives `PrivatizedLabels`: the same rows in the same order with the label
    column replaced (float64, or a list of one float32), less the records without a usable label, which become dead
    letters. The output depends only on the batch, the randomizer and the noise key, so a retried bundle gives the
    same bytes.

    The digest differs from the binding's when the input changed between the two passes over it; the noise may then
    have been used for other data before, and the output must be thrown away.

    randomizer: exactly one, as a PCollection or a value. binding: exactly one NoiseBinding (a PriorRelease is
    one), as a PCollection. column: the private column; its domain is the randomizer's. key: the secret.
    """

    randomizer: PCollection[Randomizer] | Randomizer
    binding: PCollection[NoiseBinding]
    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PrivatizedLabels:
        randomizer = self.randomizer if isinstance(self.randomizer, Randomizer) else AsSingleton(self.randomizer)
        outputs: Any = batches | "Randomize" >> beam.ParDo(
            _Randomize(self.column, self.key), randomizer, AsSingleton(self.binding)
        ).with_output_types(LabelledBatch).with_outputs(_DEAD_LETTERS, _DIGESTS, main=_BATCHES)
        return PrivatizedLabels(
            outputs[_BATCHES],
            outputs[_DEAD_LETTERS],
            outputs[_DIGESTS] | "AddDigests" >> beam.CombineGlobally(add_digests),
        )


def privatize_batch(
    batch: LabelledBatch,
    values: np.ndarray,
    identities: np.ndarray,
    column: LabelColumn,
    randomizer: Randomizer,
    noise_key: bytes,
) -> LabelledBatch:
    """The batch with each label replaced by a draw under the record's own word.

    values: (n,) finite float64, the labels. identities: (n, 24) bytes. noise_key: 32 bytes.
    """
    indices = nearest_label(randomizer.labels, values)
    outputs = randomizer.sample(indices, words(noise_key, randomizer.fingerprint, identities))
    return dataclasses.replace(batch, batch=replace_label(batch.batch, column.name, outputs))


class _Randomize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("privatized")
        self._prepared: dict[tuple[bytes, NoiseBinding], tuple[Randomizer, bytes]] = {}

    @guarded("privatizing labels")
    def process(
        self, batch: LabelledBatch, randomizer: Randomizer, binding: NoiseBinding
    ) -> Iterator[LabelledBatch | TaggedOutput]:
        randomizer, noise_key = self._prepare(randomizer, binding)
        values = label_values(batch, self._column.name)
        usable = np.isfinite(values)
        for row in batch.rows[~usable].tolist():
            letter = DeadLetter(batch.source, row, "privatize", "unusable label")
            yield TaggedOutput(_DEAD_LETTERS, letter)
        kept, values = batch.keep(usable), values[usable]
        identities = record_identities(kept, self._column.id_column)
        yield TaggedOutput(_DIGESTS, multiset_digest(self._secret, identities, values))
        if len(values):
            yield privatize_batch(kept, values, identities, self._column, randomizer, noise_key)
        self._progress.add(len(values))

    def _prepare(self, randomizer: Randomizer, binding: NoiseBinding) -> tuple[Randomizer, bytes]:
        """The randomizer whose alias table is built already, and the noise key: side inputs come anew per bundle."""
        wanted = (randomizer.fingerprint, binding)
        if wanted not in self._prepared:
            if tuple(randomizer.labels.tolist()) != self._column.domain:
                raise InputError("the mechanism is for another label domain than the one declared")
            self._prepared = {wanted: (randomizer, binding.noise_key(self._secret))}
        return self._prepared[wanted]
