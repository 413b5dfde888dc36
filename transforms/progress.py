"""Progress of long work, as log lines under the name `labeldp`. Record counts are public; nothing else is said."""

from __future__ import annotations

import logging
import time

LOGGER = logging.getLogger("labeldp")
_SECONDS_BETWEEN_LINES = 2.0


class Progress:
    """Logs how many records a stage has handled in this process, at most every two seconds."""

    def __init__(self, doing: str):
        """doing: what is being done to records, as in "privatized"."""
        self._doing = doing
        self._records = 0
        self._last = time.monotonic()

    def add(self, records: int) -> None:
        """Counts records, and logs when it is time."""
        self._records += records
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            LOGGER.info("%s %s records", self._doing, f"{self._records:,}")
