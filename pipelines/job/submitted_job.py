"""Jobs on a cluster: what names them there, whether they have failed, and their end.

A job on Flink is cancelled through its REST interface: Beam's job server only stops waiting for it.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import FlinkRunnerOptions, GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES
from apache_beam.runners.runner import PipelineResult

from ...transforms.errors import StageError
from .runner_options import runner_name

_ANSWER_SECONDS = 5.0
_END_SECONDS = 20.0
_ACCEPT_SECONDS = 120.0
_MOST_ANSWER_BYTES = 1 << 26
JobState = Literal["running", "ended", "failed", "unknown"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FAILED = ("FAILED", "CANCELED", "CANCELLED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def submitted_job(options: PipelineOptions, result: PipelineResult) -> dict[str, str]:
    """Public facts with which a job that was submitted is found on its cluster."""
    cloud, facts = options.view_as(GoogleCloudOptions), {"runner": runner_name(options)}
    known = {"job_name": cloud.job_name, "flink_master": _master(options)}
    if facts["runner"] == "dataflowrunner":
        known |= {"project": cloud.project, "region": cloud.region}
        # The launcher of a template writes the graph only, and has no job yet.
        with contextlib.suppress(Exception):
            known["job_id"] = result.job_id()  # type: ignore[attr-defined]
    return facts | {name: str(value) for name, value in known.items() if value}


def _master(options: PipelineOptions) -> str | None:
    master = options.view_as(FlinkRunnerOptions).flink_master
    return None if master in MAGIC_HOST_NAMES else master


def wait_until_accepted(options: PipelineOptions, result: PipelineResult) -> None:
    """Waits until a job server that ends with this process has handed the job to its cluster, Flink.

    Raises StageError if that takes more than two minutes, or the job failed.
    """
    master, name = _master(options), options.view_as(GoogleCloudOptions).job_name
    if runner_name(options) != "flinkrunner" or master is None:
        return
    until = time.monotonic() + _ACCEPT_SECONDS
    while time.monotonic() < until:
        if _jobs(_address(master), name):
            return
        if str(result.state) in _FAILED:
            break
        time.sleep(0.2)
    raise StageError(f"Flink at {master} has not accepted the job; see the log of the JobManager for the reason")


def state_of_job(facts: Mapping[str, Any], options: PipelineOptions) -> JobState:
    """State of a job on Flink, as its REST interface tells; "unknown" for other runners, and if nothing answers.

    An address that is not this machine's is asked only if the options name it: a file of the run may say anything.
    """
    master, name = facts.get("flink_master"), facts.get("job_name")
    if not isinstance(master, str) or not isinstance(name, str):
        return "unknown"
    if master != _master(options) and not _is_own(master):
        return "unknown"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        states = {str(job["state"]) for job in _jobs(_address(master), name)}
        if states:
            return "failed" if states <= {*_FAILED} else "ended" if states <= {"FINISHED", *_FAILED} else "running"
    return "unknown"


def _is_own(master: str) -> bool:
    with contextlib.suppress(ValueError):
        return urlsplit(_address(master)).hostname in _LOOPBACK
    return False


def _address(master: str) -> str:
    """URL of Flink's REST interface. Raises ValueError if it is none of HTTP, such as that of a file."""
    address = master if "://" in master else f"http://{master}"
    if not address.startswith(("http://", "https://")):
        raise ValueError("the address of Flink is not one of HTTP")
    return address


def cancel_flink_jobs(master: str, job_name: str) -> None:
    """Cancels the running jobs of a name and waits up to 20 seconds for their end.

    `master` is Flink's REST address, as in `--flink_master`. Raises OSError if nothing answers there.
    """
    address = _address(master)
    until = time.monotonic() + _END_SECONDS
    while (running := _running(address, job_name)) and time.monotonic() < until:
        for job in running:
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                _call("PATCH", f"{address}/jobs/{job}?mode=cancel")
        time.sleep(0.2)


def _running(address: str, job_name: str) -> list[str]:
    return [job["jid"] for job in _jobs(address, job_name) if job["end-time"] < 0]


def _jobs(address: str, job_name: str) -> list[dict[str, Any]]:
    return [job for job in _call("GET", f"{address}/jobs/overview")["jobs"] if job["name"] == job_name]


def _call(method: str, url: str) -> Any:
    # An answer may not lead elsewhere, as to a file or another server.
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(urllib.request.Request(url, method=method), timeout=_ANSWER_SECONDS) as answer:
        return json.loads(answer.read(_MOST_ANSWER_BYTES))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirections, as errors of HTTP."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None
