"""Cancelling a job on Flink: Beam's job server only stops waiting for it, and Flink would go on with it."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from typing import Any

_SECONDS_TO_ANSWER = 5.0


_SECONDS_TO_END = 20.0


def cancel(master: str, job_name: str) -> None:
    """Cancels the jobs of that name, and waits some seconds for their end.

    master: Flink's REST address, as --flink_master has it. Raises OSError when nothing answers there.
    """
    address = master if "://" in master else f"http://{master}"
    until = time.monotonic() + _SECONDS_TO_END
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
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_SECONDS_TO_ANSWER) as answer:
        return json.load(answer)
