"""Order of the records of a release that follows from its key, so that the place of a record tells nothing.

Shards follow files and their rows otherwise, and both may follow from labels: files of one class each, or a sorted log.
A record is placed by a random word of its identity, of AES-256 under the noise key, as its noise is. So shards and
order are the same for any bundles, workers and retries, and a changed input has another order.

Segments are Arrow streams with the two halves of the word before the columns of a record. A shard has the words of one
range, ascending: it is sorted in memory when it is assembled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...mechanisms.noise.keyed_words import word_pairs
from ...mechanisms.release.bound_noise import NoiseBinding
from ..batches import Carried, LabelledBatch, filter_batch, record_identities
from ..errors import InputError
from ..noise_key_file import NoiseKeyFile

_WORDS = [pa.field("", pa.uint64())] * 2
_MOST_BYTES = 1 << 31
"""Size of the segments of a shard, of which sorting takes about three times as much memory."""


@dataclass(eq=False)
class KeyedOrder:
    """Key of the order of records.

    Attributes:
      binding: Exactly one NoiseBinding, carried by the batches.
      id_column: Column of record ids; None for records that are identified by file and row.
      key: Reference to the secret key.
    """

    binding: Carried[NoiseBinding] | None
    id_column: str | None
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        """Has derived no key yet."""
        self._of: NoiseBinding | None = None

    def words(self, batch: LabelledBatch, binding: NoiseBinding) -> np.ndarray:
        """Words of the records of a batch, shape (n, 2), uint64."""
        if binding is not self._of:
            self._of, self._key = binding, binding.noise_key(self.key.load())
        return word_pairs(self._key, b"order of records", record_identities(batch, self.id_column))


def by_shard(columns: pa.RecordBatch, words: np.ndarray, num_shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divides records among shards by their words, shape (n, 2).

    Yields the number of each shard that gets any, and their words and columns.
    """
    shards = (((words[:, 0] >> np.uint64(32)) * np.uint64(num_shards)) >> np.uint64(32)).astype(np.int64)
    order = np.argsort(shards, kind="stable")
    shards, words = shards[order], words[order]
    arrays = [pa.array(np.ascontiguousarray(half)) for half in words.T]
    schema = pa.schema([*_WORDS, *columns.schema])
    whole = pa.RecordBatch.from_arrays([*arrays, *filter_batch(columns, order).columns], schema=schema)
    for start, stop in itertools.pairwise(np.flatnonzero(np.diff(shards, prepend=-1, append=num_shards)).tolist()):
        yield int(shards[start]), whole.slice(start, stop - start)


def without_words(schema: bytes) -> bytes:
    """The serialized schema of a segment without its words."""
    return pa.schema([*pa.ipc.read_schema(pa.py_buffer(schema))][len(_WORDS) :]).serialize().to_pybytes()


def check_size(size: int, path: str, num_shards: int) -> None:
    """Raises InputError if the segments of a shard, `size` bytes, are too large to be sorted in memory."""
    if size > _MOST_BYTES:
        raise InputError(
            f"{path} would have about {size / 1e9:.1f} GB, which `shuffle` sorts in memory: give `num_shards` "
            f"{num_shards * -(-size // (_MOST_BYTES >> 3))}"
        )


def sorted_records(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, conformed: Callable[[pa.RecordBatch, pa.Schema], Any]
) -> pa.Table:
    """The records of segments in the order of their words, without these.

    `schema` is that of their columns in the shard, as which `conformed` makes a batch.
    """
    words, columns = [np.empty((2, 0), np.uint64)], []
    for batch in batches:
        words.append(np.stack([batch.column(half).to_numpy() for half in range(len(_WORDS))]))
        own = pa.schema([*batch.schema][len(_WORDS) :])
        columns.append(conformed(pa.RecordBatch.from_arrays(batch.columns[len(_WORDS) :], schema=own), schema))
    order = np.lexsort(np.concatenate(words, axis=1)[::-1])
    return pa.Table.from_batches(columns, schema).unify_dictionaries().take(pa.array(order))
