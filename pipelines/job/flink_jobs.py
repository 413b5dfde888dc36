"""Cancellation of a job on Flink. Beam's job server only stops waiting for a job; Flink would continue it."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from typing import Any

_ANSWER_SECONDS = 5.0
_END_SECONDS = 20.0


def cancel_flink_jobs(master: str, job_name: str) -> None:
    """Cancels the running jobs of a name and waits up to 20 seconds for their end.

    `master` is Flink's REST address, as in `--flink_master`. Raises OSError if nothing answers there.
    """
    address = master if "://" in master else f"http://{master}"
    until = time.monotonic() + _END_SECONDS
    while (running := _running(address, job_name)) and time.monotonic() < until:
        for job in running:
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                _call("PATCH", f"{address}/jobs/{job}?mode=cancel")
        time.sleep(0.2)


def _running(address: str, job_name: str) -> list[str]:
    jobs = _call("GET", f"{address}/jobs/overview")["jobs"]
    return [job["jid"] for job in jobs if job["name"] == job_name and job["end-time"] < 0]


def _call(method: str, url: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_ANSWER_SECONDS) as answer:
        return json.load(answer)
