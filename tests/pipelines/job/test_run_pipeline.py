"""Cancellation of Flink jobs, on a server that imitates Flink's REST interface, and what Beam is made to keep.

tests/engines uses a real cluster.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.job.submitted_job import cancel_flink_jobs


class Flink(BaseHTTPRequestHandler):
    """Imitation of Flink's REST interface, in which a job ends at the second request to cancel it."""

    jobs: dict[str, tuple[str, int]]
    asked: list[str]

    def do_GET(self) -> None:
        jobs = [{"jid": jid, "name": name, "end-time": end} for jid, (name, end) in self.jobs.items()]
        self._answer({"jobs": jobs} if self.path == "/jobs/overview" else {})

    def do_PATCH(self) -> None:
        self.asked.append(self.path)
        jid = self.path.split("/")[2].partition("?")[0]
        if self.asked.count(self.path) == 2:
            self.jobs[jid] = (self.jobs[jid][0], 1)
        self._answer({})

    def _answer(self, document: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Suppresses the request log."""


@pytest.fixture
def master() -> Iterator[str]:
    """The address of a server with three jobs."""
    Flink.jobs = {"a": ("labeldp-1", -1), "b": ("labeldp-2", -1), "c": ("labeldp-1", 5)}
    Flink.asked = []
    with HTTPServer(("localhost", 0), Flink) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_cancels_what_runs_under_the_name_and_waits_for_its_end(
    master: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("labeldp.pipelines.job.submitted_job.time.sleep", pauses.append)
    cancel_flink_jobs(scheme + master, "labeldp-1")
    assert Flink.asked == ["/jobs/a?mode=cancel"] * 2
    assert pauses == [0.2] * 2
    assert Flink.jobs["b"] == ("labeldp-2", -1)


def test_says_when_nothing_answers() -> None:
    with pytest.raises(OSError, match="refused"):
        cancel_flink_jobs("localhost:1", "labeldp-1")


def test_a_job_parses_its_options_and_reads_signatures_few_times(
    job: Any, invoke: Any, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, 600 parsers of command lines are built, and 16,000 signatures read, which takes a second."""
    import inspect

    from apache_beam.options.pipeline_options import PipelineOptions

    invoke(job()).ok()
    made, read = [], []
    init, signature = PipelineOptions.__init__, inspect.signature
    monkeypatch.setattr(PipelineOptions, "__init__", lambda *args, **named: made.append(1) or init(*args, **named))
    monkeypatch.setattr(inspect, "signature", lambda *args, **named: read.append(1) or signature(*args, **named))

    invoke(job(output=outputs / "second")).ok()

    assert 0 < len(made) < 60
    assert 0 < len(read) < 1_000
