"""Flink and Beam never store, show or log the key, and nothing that remains after a job contains a raw label."""

import base64
import bz2
import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PortableMetrics
from labeldp.transforms import job_metrics

SHOWN = ("", "/config", "/plan", "/exceptions", "/accumulators")
RECORDS = 4000
SECONDS_TO_RELEASE = 20.0
SECONDS_OF_A_PAGE = 20.0
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, its IPv6-mapped form and ::1, in the notation of /proc."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, leaks: Any) -> Path:
    """Folder with a log of rare labels and the file of the label domain."""
    folder = tmp_path_factory.mktemp("sentinels")
    labels = (leaks.SENTINELS[i % len(leaks.SENTINELS)] for i in range(RECORDS))
    (folder / "log.csv").write_text("f,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    (folder / "domain").write_text("".join(f"{label}\n" for label in leaks.DOMAIN))
    return folder


@pytest.fixture(scope="module")
def flags(log: Path) -> dict[str, Any]:
    """Flags of a job over that log. Ids name its records, so the noise does not depend on the folder."""
    domain = {"label_min": None, "label_max": None, "label_step": None, "label_values": log / "domain"}
    return {"input": log / "log.csv", "input_format": "csv", "id_column": "f", **domain}


@contextlib.contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` repeatedly while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            # Jobs and workers may end while they are inspected.
            with contextlib.suppress(OSError):
                look()
            ended.wait(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@pytest.fixture
def seen(flink: Any, tree: Callable[..., dict[str, bytes]]) -> Iterator[dict[str, bytes]]:
    """Contents visible on the cluster while the test runs: all files, and the job pages of the web interface."""
    contents: dict[str, bytes] = {}
    read: dict[Path, tuple[int, int]] = {}

    def look() -> None:
        # Jars are left out: they were downloaded by Maven and hold no data of the job.
        contents.update({path: found for path, found in tree(flink.folder, read).items() if found[:2] != b"PK"})
        for name in flink.running_jobs():
            contents.update(shown(flink, name))

    with looking(look):
        yield contents


@pytest.fixture
def open_ports(flink: Any, leaks: Any) -> Iterator[dict[str, set[str]]]:
    """Addresses on which Flink's JobManager and the Python workers listen while the test runs.

    Beam's job server, and the ports that TaskManagers open for workers, listen on all interfaces; this cannot be
    configured.
    """
    found: dict[str, set[str]] = {"flink": set(), "workers": set()}

    def look() -> None:
        found["flink"] |= leaks.listening(flink.job_manager.pid)
        for worker in flink.workers():
            # It may end before it is looked at.
            with contextlib.suppress(OSError):
                found["workers"] |= leaks.listening(worker)

    with looking(look):
        yield found


def shown(flink: Any, name: str) -> dict[str, bytes]:
    """Pages of the web interface about a job."""
    return {f"web interface {page}": str(flink.rest(f"/jobs/{name}{page}")).encode() for page in SHOWN}


def submitted(flink: Any) -> dict[str, bytes]:
    """Graphs and options of all jobs on Beam's job server, as any client can request them."""
    contents = {}
    with grpc.insecure_channel(flink.job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        for job in service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info:
            request = beam_job_api_pb2.GetJobPipelineRequest(job_id=job.job_id)
            contents[f"graph of {job.job_name}"] = unpacked(service.GetPipeline(request).SerializeToString())
            contents[f"options of {job.job_name}"] = str(job.pipeline_options).encode()
    return contents


def counters(flink: Any, name: str) -> dict[str, int]:
    """Counters of a job, by the name that Flink shows, as any client of Beam's job server can request them."""
    with grpc.insecure_channel(flink.job_endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
        [identity] = [job.job_id for job in jobs if job.job_name == name]
        metrics = PortableMetrics(service.GetJobMetrics(beam_job_api_pb2.GetJobMetricsRequest(job_id=identity)))
    found: Counter[str] = Counter()
    for each in metrics.query(MetricsFilter().with_namespace(job_metrics.NAMESPACE))["counters"]:
        found[each.key.metric.name] += each.attempted
    return found


def unpacked(graph: bytes) -> bytes:
    """A graph followed by its decoded pickled objects, which Beam compresses and encodes in base64."""
    contents = [graph]
    for packed in re.findall(rb"QlpoO[A-Za-z0-9+/]+={0,2}", graph):
        contents.append(bz2.BZ2Decompressor().decompress(base64.b64decode(packed[: len(packed) // 4 * 4])))
    return b"\0".join(contents)


def test_of_a_job_that_succeeds(
    flags: dict[str, Any], start: Any, flink: Any, seen: dict[str, bytes], leaks: Any,
    secret: bytes, tree: Callable[..., dict[str, bytes]], open_ports: dict[str, set[str]],
) -> None:  # fmt: skip
    running = start(flink.flags, **flags)
    running.wait_until(flink.running_jobs, "it was submitted")
    [name] = flink.running_jobs()
    outcome = running.finish().ok()

    # Of how many segments, with how many bytes, depends on bundles.
    counted = counters(flink, flink.rest(f"/jobs/{name}")["name"])
    assert counted.pop("bytes_written") >= 8 * RECORDS
    assert counted.pop("segments") >= 3
    assert counted == {"records_read": 2 * RECORDS, "records_left_out": 0, "records_written": RECORDS, "passes_done": 2}

    said = {"out": outcome.out.encode(), "err": outcome.err.encode()}
    # The web interface shows a job as it was up to three seconds ago.
    ends = time.monotonic() + SECONDS_OF_A_PAGE
    while not all(each in str(flink.rest(f"/jobs/{name}/accumulators")) for each in counted):
        assert time.monotonic() < ends, "no counters among the accumulators"
        time.sleep(0.1)
    told = shown(flink, name) | submitted(flink) | said
    # These ports require no authentication.
    assert open_ports["flink"]
    assert {address.rpartition(":")[0] for address in open_ports["flink"]} <= LOOPBACK
    assert open_ports["workers"] == set()
    kept = tree(flink.logs) | tree(running.temporary) | tree(running.outputs)
    # The searched contents include the relevant places.
    assert any("disable_always_on_exception_sampling" in str(content) for content in told.values())
    assert any(
        b"finished the pass of the histogram" in content for path, content in seen.items() if path.startswith("logs/")
    )
    assert any(path.startswith("tmp/") for path in seen)
    # The job stages no file at all; `test_staging` stages one and finds it there.
    assert not any(path.startswith("tmp/artifacts/") for path in seen)
    graphs = [content for page, content in told.items() if page.startswith("graph")]
    assert any(b"noise.key" in content and b"_Randomize" in content for content in graphs)

    keys = set(leaks.key_spellings(secret))
    assert leaks.found(told | kept | seen, keys) == []
    # The four bytes of a float32 are not searched: in so many files they would occur by chance.
    labels = {spelling for spelling in leaks.LABEL_SPELLINGS if len(spelling) > 4}
    assert leaks.found(told | kept, labels) == []
    assert sorted(path.name for path in running.outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]

    # Data that Flink exchanges between tasks contains labels until the job has ended.
    until = time.monotonic() + SECONDS_TO_RELEASE
    while (left := leaks.found(tree(flink.temporary), labels)) and time.monotonic() < until:
        time.sleep(0.5)
    assert left == []


def test_of_a_job_that_fails(
    flags: dict[str, Any], start: Any, flink: Any, leaks: Any, secret: bytes, tmp_path: Path,
    tree: Callable[..., dict[str, bytes]],
) -> None:  # fmt: skip
    """An error message about the input arrives through Flink as one line, without the text that caused it."""
    (tmp_path / "log.csv").write_text(f"f,y\n1,271.8281\n2,{leaks.TEXT_SENTINEL}\n")
    running = start(flink.flags, **(flags | {"input": tmp_path / "log.csv"}))
    running.wait_until(flink.running_jobs, "it was submitted")
    [name] = flink.running_jobs()
    outcome = running.finish()

    assert outcome.code == 1
    assert "label column 'y' holds text" in outcome.error
    assert list(running.outputs.iterdir()) == []
    exceptions = shown(flink, name)
    assert b"holds text" in exceptions["web interface /exceptions"]
    contents = exceptions | tree(flink.logs) | {"err": outcome.err.encode()} | tree(running.temporary)
    labels = {spelling for spelling in leaks.LABEL_SPELLINGS if len(spelling) > 4}
    assert leaks.found(contents, labels | set(leaks.key_spellings(secret))) == []
