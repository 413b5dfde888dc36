"""Progress of long stages, as log lines of the logger `labeldp`. They contain record counts, which are public."""

from __future__ import annotations

import logging
import threading

from .progress_bar import advance

LOGGER = logging.getLogger("labeldp")

_RECORDS_BETWEEN_LINES = 1_000_000


class Progress:
    """Counts the records that a stage handled in this process, and logs one line per million.

    Lines name rows, never bytes or times. Multiples of a million are the same however records are cut into batches. The
    threads of a process can share one, by a handle of `apache_beam.utils.shared.Shared`.
    """

    def __init__(self, doing: str):
        """Starts at zero; `doing` is a participle that describes the work, as in "privatized"."""
        self._doing = doing
        self._records = 0
        self._lock = threading.Lock()

    def add(self, records: int) -> None:
        """Adds records, >= 0, and logs the multiples of a million that were reached; a terminal shows all."""
        advance(self._doing, records)
        with self._lock:
            before = self._records // _RECORDS_BETWEEN_LINES
            self._records += records
            reached = self._records // _RECORDS_BETWEEN_LINES
            for multiple in range(before + 1, reached + 1):
                LOGGER.info("%s %s records", self._doing, f"{multiple * _RECORDS_BETWEEN_LINES:,}")
