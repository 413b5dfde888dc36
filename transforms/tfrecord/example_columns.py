"""Single-valued features of tf.Examples as Arrow columns; hardly a record is decoded for them.

Records that are not in the canonical form of `example_wire` are decoded and encoded again first: what a parser does
not see in them is gone then, and their features come in the order of their names.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .encoded_batches import encoded_batch
from .example_decoder import ExampleDecoder, not_examples
from .example_encoder import encode_examples
from .example_wire import FLOAT, INT64, Found, ValueFinder, Values, decode_varints
from .framing import Frames
from .label_widening import with_room_for_floats


class ExampleColumns:
    """Reads some features of the records of one source, batch after batch."""

    def __init__(self, source: str, finder: ValueFinder):
        """finder: of the features wanted; it may come from another source, having learned there."""
        self._source = source
        self._finder = finder
        self._again = ValueFinder(finder.names)
        self._decoder = ExampleDecoder(source)
        self._kinds: dict[str, int] = {}

    def read(self, frames: Frames) -> pa.RecordBatch:
        """A flat column of float32, int64 or binary for each feature that occurs; null for no value or several.

        Raises InputError for what is no tf.Example, or a feature that changes its type.
        """
        return pa.RecordBatch.from_pydict(self._columns(*self._found(frames)))

    def read_encoded(self, frames: Frames, label: str) -> pa.RecordBatch:
        """The same, with the records as they stand in the file, for `encoded`. label: the feature to be replaced."""
        frames, found = self._found(frames)
        columns = self._columns(frames, found)
        values = found.values[label]
        if (values.kinds == INT64).any():
            frames, places = with_room_for_floats(frames, label, values)
        else:
            places = np.where(values.kinds == FLOAT, values.starts - frames.bounds[:-1], -1)
        return encoded_batch(frames, places, columns)

    def _found(self, frames: Frames) -> tuple[Frames, Found]:
        """Where the values are, in records that are all canonical."""
        found = self._finder.find(frames.octets, frames.starts, frames.stops)
        odd = np.flatnonzero(~found.canonical)
        if not len(odd):
            return frames, found
        records = frames.records()
        decoded = self._decoder.decode([records[row] for row in odd.tolist()])
        for row, record in zip(odd.tolist(), encode_examples(decoded, with_nulls=False), strict=True):
            records[row] = record
        mended = Frames.of(records)
        again = self._again.find(mended.octets, mended.starts[odd], mended.stops[odd])
        if not again.canonical.all():
            raise not_examples(self._source)
        moved = mended.bounds[:-1] - frames.bounds[:-1]
        for name, values in found.values.items():
            values.starts[:] += moved
            values.stops[:] += moved
            values.put(odd, **vars(again.values[name]))
        return mended, found

    def _columns(self, frames: Frames, found: Found) -> dict[str, pa.Array]:
        return {name: self._column(frames, name, values) for name, values in found.values.items() if values.kinds.any()}

    def _column(self, frames: Frames, name: str, values: Values) -> pa.Array:
        kinds = set(np.unique(values.kinds).tolist()) - {0, -1}
        if not kinds:
            return pa.nulls(len(frames))
        if kinds != {self._kinds.setdefault(name, min(kinds))}:
            raise not_examples(self._source)
        (kind,) = kinds
        missing = values.kinds <= 0
        starts, stops = (np.where(missing, 0, places) for places in (values.starts, values.stops))
        mask = missing if missing.any() else None
        if kind == FLOAT:
            return pa.array(np.ndarray(len(frames.content) - 3, "<f4", frames.content, strides=(1,))[starts], mask=mask)
        if kind == INT64:
            return pa.array(decode_varints(frames.octets, starts, stops), mask=mask)
        content = frames.content
        texts = [content[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return pa.array(texts, pa.large_binary(), mask=mask)
