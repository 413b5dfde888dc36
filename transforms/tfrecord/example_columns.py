"""Single-valued features of tf.Examples as Arrow columns. Decodes only non-canonical records.

Records that are not in the canonical form of `wire_reference` are decoded and encoded again first. Content that a
parser ignores is thereby removed from them, and their features come in the order of their names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .encoded_batches import EncodedRecords, binary_array
from .example_decoder import ExampleDecoder, changed_type, undecodable
from .example_encoder import encode_examples
from .example_values import FoundValues, Values, find_values
from .framing import Frames
from .label_widening import widen_integer_labels
from .varints import decode_varints
from .wire import FLOAT, INT64


class ExampleColumns:
    """Reads some features of the records of one source, batch after batch."""

    def __init__(self, source: str, names: Sequence[str]):
        """Starts a source, named in error messages; `names` are the wanted features."""
        self._source = source
        self._names = tuple(names)
        self._decoder = ExampleDecoder(source)
        self._kinds: dict[str, int] = {}

    def canonical(self, frames: Frames) -> tuple[Frames, pa.RecordBatch]:
        """Makes all records of a batch canonical, and reads the features.

        Returns the columns of `read`, and raises InputError as `read` does.
        """
        frames, found = self._found(frames)
        return frames, pa.RecordBatch.from_pydict(self._columns(frames, found))

    def read(self, frames: Frames) -> pa.RecordBatch:
        """Reads a flat column of float32, int64 or binary for each feature that occurs.

        Nulls stand for no value or several. Raises InputError if a record is not a tf.Example, or a feature changes its
        type.
        """
        return pa.RecordBatch.from_pydict(self._columns(*self._found(frames)))

    def read_encoded(self, frames: Frames, labels: Sequence[str]) -> tuple[pa.RecordBatch, EncodedRecords]:
        """Reads the columns of `read` and carries the records along.

        `labels` are the wanted features that are going to be replaced, at least one. Raises InputError as `read` does.
        """
        frames, found = self._found(frames)
        columns = pa.RecordBatch.from_pydict(self._columns(frames, found))
        for label in labels:
            if (found.values[label].kinds == INT64).any():
                frames, offsets = widen_integer_labels(frames, label, found.values[label])
                if len(labels) == 1:
                    return columns, EncodedRecords.of(frames, {label: offsets})
                # The other labels have moved.
                found = self._found(frames)[1]
        places = {label: found.values[label] for label in labels}
        label_offsets = {
            label: np.where(values.kinds == FLOAT, values.starts - frames.bounds[:-1], -1)
            for label, values in places.items()
        }
        return columns, EncodedRecords.of(frames, label_offsets)

    def _found(self, frames: Frames) -> tuple[Frames, FoundValues]:
        """The records, all made canonical, and the positions of their values."""
        found = find_values(frames.content, frames.starts, frames.stops, self._names)
        odd = np.flatnonzero(~found.canonical)
        if not len(odd):
            return frames, found
        records = frames.records()
        decoded = self._decoder.decode([records[row] for row in odd.tolist()])
        for row, record in zip(odd.tolist(), encode_examples(decoded, with_nulls=False), strict=True):
            records[row] = record
        reencoded = Frames.of(records)
        again = find_values(reencoded.content, reencoded.starts[odd], reencoded.stops[odd], self._names)
        if not again.canonical.all():
            raise undecodable(self._source)
        moved = reencoded.bounds[:-1] - frames.bounds[:-1]
        for name, values in found.values.items():
            values.starts[:] += moved
            values.stops[:] += moved
            values.put(odd, **vars(again.values[name]))
        return reencoded, found

    def _columns(self, frames: Frames, found: FoundValues) -> dict[str, pa.Array]:
        return {name: self._column(frames, name, values) for name, values in found.values.items() if values.kinds.any()}

    def _column(self, frames: Frames, name: str, values: Values) -> pa.Array:
        kinds = set(np.unique(values.kinds).tolist()) - {0, -1}
        if not kinds:
            return pa.nulls(len(frames))
        if kinds != {self._kinds.setdefault(name, min(kinds))}:
            raise changed_type(self._source, name)
        (kind,) = kinds
        missing = values.kinds <= 0
        starts, stops = (np.where(missing, 0, offsets) for offsets in (values.starts, values.stops))
        mask = missing if missing.any() else None
        if kind == FLOAT:
            return pa.array(np.ndarray(len(frames.content) - 3, "<f4", frames.content, strides=(1,))[starts], mask=mask)
        if kind == INT64:
            return pa.array(decode_varints(frames.octets, starts, stops), mask=mask)
        present = np.flatnonzero(~missing)
        # Every second part of the content is a value; values come in the order of the records.
        bounds = np.stack([starts[present], stops[present]], axis=1).ravel()
        places = np.zeros(len(missing), np.int64)
        places[present] = 2 * np.arange(len(present))
        return binary_array(pa.py_buffer(frames.content), bounds).take(pa.array(places, mask=mask))
