"""Sizes of serialized tf.Examples without their labels, by which batches of large records are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .example_decoder import ExampleDecoder
from .example_encoder import encode_examples
from .example_values import find_values
from .framing import Frames
from .label_widening import integer_entries
from .varints import content_offsets
from .wire import INT64


class FeatureSizes:
    """Measures the records of one source."""

    def __init__(self, source: str, labels: Sequence[str]):
        """Starts a source; `labels` are the private features."""
        self._source = source
        self._labels = labels

    def __call__(self, frames: Frames) -> np.ndarray:
        """Bytes of the features of each record, shape (n,), int64.

        They are the same whatever numbers the record's labels are. Records that are no tf.Examples have their own size.
        """
        found = find_values(frames.content, frames.starts, frames.stops, self._labels)
        canonical = found.canonical
        sizes = frames.stops - frames.starts
        contents = np.minimum(content_offsets(frames.octets, frames.starts), frames.stops)
        sizes[canonical] = (frames.stops - contents)[canonical]
        for label in self._labels:
            values = found.values[label]
            integer = values.kinds == INT64
            # A float label takes the same bytes whatever its value.
            sizes[integer] -= values.stops[integer] - integer_entries(frames, label, values)[0]
        for row in np.flatnonzero(~canonical).tolist():
            sizes[row] = self._size_alone(bytes(frames.content[frames.starts[row] : frames.stops[row]]))
        return sizes

    def _size_alone(self, record: bytes) -> int:
        """Bytes of a record that is not canonical, encoded anew without its labels."""
        try:
            batch = ExampleDecoder(self._source).decode([record])
        except InputError:
            return len(record)
        names = [name for name in batch.schema.names if name not in self._labels]
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        return len(encode_examples(pa.RecordBatch.from_arrays(columns, names), with_nulls=False)[0]) if names else 0
