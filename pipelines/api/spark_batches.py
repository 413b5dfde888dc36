"""Passes over Arrow batches of a Spark frame, and the draw of its labels, as they run on executors. Loads no Beam.

What a pass returns to the driver is encrypted under a key of the secret: Spark writes results to disk, compresses them
and shows their sizes, which for raw sums would depend on labels.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...mechanisms.center.feature_rows import Columns
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.noise.input_digest import RawSums, add_sums
from ...mechanisms.noise.keyed_words import Identities, keyed_hash, labelled_words, words
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.center_passes import Pass, PassResult
from ...mechanisms.release.drawing import Drawing
from ...mechanisms.release.feature_sample import sample_words
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.label_records import LabelRecords, PassSums, add_passes, label_sums
from ...mechanisms.release.unit_bound import UnitBound, at_limit, priorities, unit_words
from ...transforms.arrow_values import column_identities, single_ids
from ...transforms.center.feature_columns import center_columns, feature_columns
from ...transforms.class_values import class_column
from ...transforms.errors import CHANGED_INPUT, InputError, describe, redact_errors
from ...transforms.noise_key_file import NoiseKeyFile
from .feature_frames import FeatureFrame, check_namesakes, read_frame, released_frame, without_columns
from .label_arrays import LabelArray, read_numbers, read_units
from .memory_release import as_shares, read_classes

PART, PROBLEM = "part", "problem"
Batches = Iterator[pa.RecordBatch]
Value = TypeVar("Value")
OTHER_KEY = "executors read another secret key than this process: noise_key_file must be one file for all of them"
# Flips the sign, so that Spark, which has no unsigned integers, orders words as they are.
_SIGN = np.uint64(1 << 63)
_NONCE_BYTES = 12
_NO_LIMITS = np.zeros(0, np.uint64), np.zeros(0, np.uint64)


class Batch(NamedTuple):
    """Records of a batch: all of its labels and features, and those records that are released, of a mask.

    With the words of the units of these, 0 without, and a sum of those of all units and records that were bounded.
    """

    labels: LabelArray
    features: FeatureFrame
    identities: Identities
    kept: np.ndarray
    released: LabelRecords
    units: np.ndarray
    bounded: int


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the records of batches.

    Attributes:
      column: The private column.
      key: Reference to the secret key, which every executor reads itself.
      check: Keyed hash that tells another key.
      kind: Type of a text column of classes, of which batches have the places; None for any other label.
      limits: Units with too many records, and the priorities from which theirs are left out, as of `at_limit`.
    """

    column: LabelColumn
    key: NoiseKeyFile
    check: bytes
    kind: pa.DataType | None = None
    limits: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: _NO_LIMITS, repr=False)

    def secret(self) -> bytes:
        """Loads the secret key. Raises InputError if it cannot be read, or is another one."""
        secret = self.key.load()
        if key_check(secret) != self.check:
            raise InputError(OTHER_KEY)
        return secret

    def read(self, batch: pa.RecordBatch, secret: bytes, linear: LinearCenter | None = None) -> Batch:
        """Reads a batch; `linear` makes the centers of its records. Raises InputError if a column cannot be read."""
        column, frame = self.column, read_frame(batch, "frame")
        labels = self._labels(frame)
        usable = kept = np.isfinite(labels.values)
        identities, all_units, bounded = self.identities(frame), np.zeros(len(usable), np.uint64), 0
        if isinstance(column.unit, UnitBound):
            units, present = _checked(read_units, frame.column(column.unit.column), column.unit.column)
            all_units[present] = unit_words(secret, units)
            own, ranks, kept = all_units[present], priorities(secret, identities.keep(present)), usable & present
            bounded = int((own * ranks)[usable[present]].sum())
            kept[present] &= ~at_limit(own, ranks, *self.limits)
        centers, missing = None, 0
        if linear is not None:
            # As a column that is read, which is rounded to float32 first.
            places, _ = column.center_indices(column.labels)
            centers = places[linear.indices(center_columns(frame.keep(kept), linear.map))]
        elif column.around_center and column.center in frame.names:
            given = _checked(read_numbers, frame.column(column.center), "center").values
            centers, missing = column.center_indices(given[kept])
        unusable = int((~usable).sum())
        released = LabelRecords(column, labels.values[kept], identities.keep(kept), centers, unusable, missing)
        return Batch(labels, frame, identities, kept, released, all_units[kept], bounded)

    def identities(self, frame: FeatureFrame) -> Identities:
        """Identities of all records. Raises InputError if a record has no id."""
        name = self.column.id_column
        assert name is not None
        column = frame.column(name)
        values, present = _checked(single_ids, column, problem=f"id_column {name!r} holds numbers that are not whole")
        if not present.all():
            raise InputError(f"a record has no id in {name!r}: each record needs one")
        found = column_identities(values, name)
        if found is None:
            raise InputError(f"id_column {name!r} holds {values.type}, not integers, text or bytes")
        return found

    def _labels(self, frame: FeatureFrame) -> LabelArray:
        column, kind = self.column, self.kind
        data, classes, missing = frame.column(column.name), column.classes, column.meaning.missing
        if classes is None:
            return _checked(read_numbers, data, "labels", missing)
        if kind is None:
            return _checked(read_classes, data, classes, "labels", missing)
        read = _checked(read_numbers, data, "labels", missing)

        def restore(places: np.ndarray) -> pa.Array:
            return class_column(np.where(np.isfinite(places), places, 0).astype(np.int64), kind, classes)

        return LabelArray(read.values, read.nulls, restore)


def _checked(read: Callable[..., Value], *arguments: Any, problem: str | None = None) -> Value:
    try:
        return read(*arguments)
    except ValueError as error:
        text = problem or str(error)
    raise InputError(text)


def key_check(secret: bytes) -> bytes:
    """Keyed hash that tells one secret key from another, and nothing else."""
    return keyed_hash(secret, b"labeldp key", b"spark")[:16]


def sealed(secret: bytes, result: Any) -> bytes:
    """Encrypts a result of a fixed size, whatever the labels are."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(secret).encrypt(nonce, pickle.dumps(result), None)


def unsealed(secret: bytes, cell: bytes) -> Any:
    """Decrypts a result that holders of the secret key have made. Raises InputError for any other."""
    try:
        return pickle.loads(_cipher(secret).decrypt(cell[:_NONCE_BYTES], cell[_NONCE_BYTES:], None))
    except InvalidTag:
        raise InputError(OTHER_KEY) from None


def _cipher(secret: bytes) -> AESGCM:
    return AESGCM(keyed_hash(secret, b"labeldp parts", b"spark"))


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """Function of the batches of a partition, of which the driver adds the results."""

    reader: Reader

    @abstractmethod
    def result(self, batches: Batches, secret: bytes) -> Any:
        """Makes the result of a partition; None for one without a batch."""

    def __call__(self, batches: Batches) -> Batches:
        """Gives one record, of the encrypted result, or of what is wrong."""
        cell, problem = None, None
        try:
            secret = self.reader.secret()
            cell = sealed(secret, self.result(batches, secret))
        except InputError as error:
            problem = str(error)
        except Exception as error:
            # Texts of libraries may quote a label.
            problem = f"{type(self).__name__} failed: {describe(error)}"
        columns = [pa.array([cell], pa.binary()), pa.array([problem], pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [PART, PROBLEM])


class Summed(NamedTuple):
    """Raw sums of a partition, and the sum of its units that were bounded."""

    sums: PassSums
    bounded: int


@dataclass(frozen=True, eq=False)
class Sum(Part):
    """Raw sums of a pass of a plan."""

    step: Pass
    design: Any
    released: PassResult

    def result(self, batches: Batches, secret: bytes) -> Summed | None:
        """Sums the records of a partition."""
        row_map, found, bounded = self.step.row_map(self.design, self.released), None, 0
        linear = self.released if row_map is None and isinstance(self.released, LinearCenter) else None
        for batch in batches:
            read = self.reader.read(batch, secret, linear)
            features = {} if row_map is None else center_columns(read.features.keep(read.kept), row_map)
            sums = self.step.summarize(read.released, features, self.design, self.released, secret)
            left_out = int(np.isfinite(read.labels.values).sum()) - len(read.released)
            vars(sums).update(left_out=left_out)
            found, bounded = add_passes([sums] if found is None else [found, sums]), bounded + read.bounded
        return None if found is None else Summed(found, bounded)


class MapKeys(Part):
    """Looks for the label's name among the keys of maps."""

    def result(self, batches: Batches, secret: bytes) -> None:
        """Raises InputError if a map has it."""
        for batch in batches:
            _checked(check_namesakes, batch, self.reader.column.name, ())


@dataclass(frozen=True, eq=False)
class Words:
    """Function of the batches of a partition to rows of words `a`, `b` and more, which Spark groups, orders or adds.

    `rows` gives words of the records of a batch, shape (r,) each, uint64.
    """

    reader: Reader
    rows: Callable[[Reader, pa.RecordBatch, bytes], tuple[np.ndarray, ...]]

    @redact_errors("reading ids")
    def __call__(self, batches: Batches) -> Batches:
        secret = self.reader.secret()
        for batch in batches:
            columns = [pa.array((words ^ _SIGN).view(np.int64)) for words in self.rows(self.reader, batch, secret)]
            yield pa.RecordBatch.from_arrays(columns, list("abc")[: len(columns)])


def words_of_ids(reader: Reader, batch: pa.RecordBatch, secret: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Identities of all records."""
    blocks = reader.identities(read_frame(batch, "frame")).blocks
    return blocks[:, 0].copy(), blocks[:, 1].copy()


def words_of_units(reader: Reader, batch: pa.RecordBatch, secret: bytes) -> tuple[np.ndarray, ...]:
    """Units of the records that may be released, while no limit is known; their priorities; products of both."""
    read = reader.read(batch, secret)
    ranks = priorities(secret, read.released.identities)
    return read.units, ranks, read.units * ranks


def words_of_sample(most: int, reader: Reader, batch: pa.RecordBatch, secret: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The lowest words of a batch, of records from which so many features are sampled."""
    drawn = np.sort(_sampled_words(reader, batch, secret)[1])[:most]
    return drawn, drawn


def _sampled_words(reader: Reader, batch: pa.RecordBatch, secret: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Mask of the records from which features are sampled, and their words."""
    frame = read_frame(batch, "frame")
    identities, mask = reader.identities(frame), np.ones(len(frame), bool)
    if isinstance(reader.column.unit, UnitBound):
        read = reader.read(batch, secret)
        mask = read.kept | ~np.isfinite(read.labels.values)
    return mask, sample_words(secret, identities.keep(mask))


@dataclass(frozen=True, eq=False)
class SampleFeatures(Part):
    """Words and features of the records up to a word, and the number of all that are sampled from."""

    bound: int
    names: Sequence[str]

    def result(self, batches: Batches, secret: bytes) -> tuple[np.ndarray, list[Columns], list[int], int]:
        """Samples the records of a partition."""
        drawn, parts, records = [np.zeros(0, np.uint64)], [], 0
        for batch in batches:
            mask, own = _sampled_words(self.reader, batch, secret)
            records += len(own)
            mask[mask] = own <= np.uint64(self.bound)
            drawn.append(own[own <= np.uint64(self.bound)])
            parts.append(feature_columns(read_frame(batch, "frame").keep(mask), self.names))
        return np.concatenate(drawn), parts, [len(own) for own in drawn[1:]], records


@dataclass(frozen=True, eq=False)
class Draw:
    """Draws the labels of batches.

    Attributes:
      reader: Reader of the records.
      drawing: How labels are drawn.
      binding: Binding of the noise.
      left_out: Columns that are left out.
      bound: Largest word of the records that are compared with what they were; -1 for none yet.
      tags: Words of these records, ascending, and a keyed hash of each with its label, center and unit, shape (t, 2),
        uint64.
    """

    reader: Reader
    drawing: Drawing
    binding: NoiseBinding
    left_out: Sequence[str] = ()
    bound: int = -1
    tags: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.uint64), repr=False)

    def read(self, batch: pa.RecordBatch, secret: bytes) -> Batch:
        """Reads a batch with its centers."""
        made = self.drawing.made
        return self.reader.read(batch, secret, made if isinstance(made, LinearCenter) else None)

    def draw(
        self, records: LabelRecords, features: FeatureFrame, secret: bytes
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draws labels of records with these features; returns the centers that are released as well, if any."""
        drawing, centers = self.drawing, None
        features_of = functools.partial(center_columns, features)
        coded = drawing.probabilities(features_of)
        if coded is not None:
            centers = as_shares(coded)
        elif isinstance(drawing.made, LinearCenter):
            centers = drawing.centers(features_of)
        return drawing.draw(records, _noise_key(self.binding, secret), secret, coded), centers

    def compared(self, read: Batch, secret: bytes, bound: int) -> tuple[np.ndarray, np.ndarray]:
        """Mask of the records up to a word, and their words and hashes, by words."""
        drawn = words(secret, b"labeldp compared", read.released.identities)
        mask = drawn <= np.uint64(bound)
        kept = read.released.keep(mask)
        # Bound to the noise, so that hashes tell nothing of two releases.
        key = _noise_key(self.binding, secret)
        tags = labelled_words(key, b"labeldp compared", kept.identities, kept.values, kept.centers)
        return mask, np.stack([drawn[mask], tags ^ read.units[mask]], axis=1)

    def released(self, batch: pa.RecordBatch, secret: bytes) -> tuple[pa.RecordBatch, LabelRecords]:
        """Releases a batch. Raises InputError if a record is another one than when the release was made."""
        read = self.read(batch, secret)
        if self.bound >= 0:
            _, tags = self.compared(read, secret, self.bound)
            places = np.minimum(np.searchsorted(self.tags[:, 0], tags[:, 0]), len(self.tags) - 1)
            if len(tags) and (not len(self.tags) or not np.array_equal(self.tags[places], tags)):
                raise InputError(CHANGED_INPUT)
        drawn, centers = self.draw(read.released, read.features.keep(read.kept), secret)
        labels = np.full(len(read.kept), np.nan)
        labels[read.kept] = drawn
        named, name = None, self.drawing.column
        if centers is not None and name is not None:
            around = np.zeros((len(read.kept), *centers.shape[1:]))
            around[read.kept] = centers
            named = name, around
        place = batch.schema.get_field_index(self.reader.column.name)
        frame = released_frame(batch, place, read.labels.restore(labels), read.kept, named)
        return without_columns(frame, self.left_out), read.released

    @redact_errors("drawing labels")
    def __call__(self, batches: Batches) -> Batches:
        secret = self.reader.secret()
        for batch in batches:
            yield self.released(batch, secret)[0]


@functools.lru_cache(maxsize=8)
def _noise_key(binding: NoiseBinding, secret: bytes) -> bytes:
    """Noise key of a binding, which is derived once for all batches."""
    return binding.noise_key(secret)


class Compared(NamedTuple):
    """Second look at a partition: sums of all its records and units, hashes of some, and released values of these."""

    sums: RawSums
    bounded: int
    tags: np.ndarray
    labels: list[np.ndarray]
    centers: list[np.ndarray]
    features: list[Columns]


@dataclass(frozen=True, eq=False)
class Compare(Part):
    """Second look at the labels, with the hashes of the records up to a word, and what is released of them."""

    drawn: Draw
    bound: int
    seen: Sequence[str]

    def result(self, batches: Batches, secret: bytes) -> Compared:
        """Looks at the labels of a partition."""
        total = Compared(add_sums([]), 0, np.zeros((0, 2), np.uint64), [], [], [])
        for batch in batches:
            read = self.drawn.read(batch, secret)
            mask, tags = self.drawn.compared(read, secret, self.bound)
            sums = add_sums([total.sums, label_sums(read.released, secret)])
            bounded = total.bounded + read.bounded
            total = total._replace(sums=sums, bounded=bounded, tags=np.concatenate([total.tags, tags]))
            if self.drawn.drawing.solved is not None and mask.any():
                sampled = read.kept.copy()
                sampled[read.kept] = mask
                records, features = read.released.keep(mask), read.features.keep(sampled)
                total.labels.append(self.drawn.draw(records, features, secret)[0])
                if records.centers is not None:
                    total.centers.append(records.column.labels[records.centers])
                total.features.append(feature_columns(features, self.seen))
        return total


class Shard(NamedTuple):
    """Shard of a partition: its number, the file, its records and the sums of their true labels."""

    partition: int
    name: str
    records: int
    sums: RawSums


@dataclass(frozen=True, eq=False)
class WriteShard(Part):
    """Writes the released records of a partition to a file of its own in a folder that the driver reads, too.

    An attempt that is repeated leaves a file of another name.
    """

    drawn: Draw
    folder: str

    def result(self, batches: Batches, secret: bytes) -> Shard | None:
        """Writes the file of a partition."""
        # Loads Beam.
        from ...transforms.shards.shard_formats import GroupWriter

        context: Any = importlib.import_module("pyspark").TaskContext.get()
        first = next(batches, None)
        if first is None:
            return None
        name, records, sums = f"{os.urandom(16).hex()}.parquet", 0, add_sums([])
        schema = self.drawn.released(first.slice(0, 0), secret)[0].schema
        with open(os.path.join(self.folder, name), "xb") as file, GroupWriter(file, schema, "none") as writer:
            for batch in itertools.chain([first], batches):
                released, own = self.drawn.released(batch, secret)
                writer.write(released)
                records, sums = records + released.num_rows, add_sums([sums, label_sums(own, secret)])
        return Shard(context.partitionId(), name, records, sums)
