"""Progress of long work, as log lines under the name `labeldp`. Record counts are public; nothing else is said."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("labeldp")


_RECORDS_BETWEEN_LINES = 1_000_000


class Progress:
    """Logs how many records a stage has handled in this process: a line for every million, and no other number.

    How many records a batch has can depend on labels: CSV files are cut by bytes, and so are parts of Parquet files. A
    line by the clock would say how far such batches had come; multiples are the same however records are cut.
    """

    def __init__(self, doing: str):
        """doing: what is being done to records, as in "privatized"."""
        self._doing = doing
        self._records = 0

    def add(self, records: int) -> None:
        """Counts records, and logs the multiples that they reach."""
        before = self._records // _RECORDS_BETWEEN_LINES
        self._records += records
        reached = self._records // _RECORDS_BETWEEN_LINES
        for multiple in range(before + 1, reached + 1):
            LOGGER.info("%s %s records", self._doing, f"{multiple * _RECORDS_BETWEEN_LINES:,}")
