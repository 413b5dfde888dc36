"""Raw sums of the pass that counts labels, for tests of what follows from them."""

from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.label_records import LabelRecords, PassSums
from labeldp.mechanisms.release.plan import Histogram
from labeldp.transforms import LabelledBatch
from labeldp.transforms import release_passes as passes

HISTOGRAM = Histogram(1.0)


def count_labels(records: LabelRecords, secret: bytes) -> PassSums:
    """Counts records by label, or by cell of residuals."""
    return HISTOGRAM.summarize(records, {}, True, None, secret)


def summarize(batch: LabelledBatch, column: LabelColumn, secret: bytes) -> PassSums:
    """Counts the records of a batch as a job does."""
    return passes.summarize(HISTOGRAM, batch, column, True, None, secret)
