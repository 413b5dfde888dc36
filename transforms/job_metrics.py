"""Beam metrics of a job, for whoever watches it, in the namespace `labeldp`.

All are public facts: they are equal for two logs that differ in labels alone (docs/threat_model.md has the reason for
each). None counts clamped labels, sizes of files or encoded labels. `solve_milliseconds` is a time; what is solved for
is the noised histogram. Runners count a bundle that they repeat again.
"""

from __future__ import annotations

import pyarrow as pa
from apache_beam.metrics import Metrics

NAMESPACE = "labeldp"

RECORDS_READ = Metrics.counter(NAMESPACE, "records_read")
"""Records that files gave, of all passes together."""
RECORDS_LEFT_OUT = Metrics.counter(NAMESPACE, "records_left_out")
"""Records without a usable label, or beyond the bound of their unit."""
RECORDS_WRITTEN = Metrics.counter(NAMESPACE, "records_written")
BYTES_WRITTEN = Metrics.counter(NAMESPACE, "bytes_written")
"""Bytes of the written columns in memory, without the labels."""
SEGMENTS = Metrics.counter(NAMESPACE, "segments")
PASSES = Metrics.counter(NAMESPACE, "passes_done")
"""Passes over all records that are complete, of each label; also one that had nothing to sum."""
SOLVE_MILLISECONDS = Metrics.distribution(NAMESPACE, "solve_milliseconds")


def public_bytes(batch: pa.RecordBatch, labels: frozenset[str]) -> int:
    """Bytes of the columns of a batch in memory, without those of labels: a class takes as many as its text."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return sum(column.nbytes for name, column in columns if name not in labels)
