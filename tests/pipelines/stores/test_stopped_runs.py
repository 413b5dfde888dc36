"""Runs that are stopped before a write while another run releases: when they continue, they change nothing of it."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from apache_beam.options.pipeline_options import PipelineOptions
from labeldp.pipelines.publish.output_folder import staging_folder
from labeldp.pipelines.spec.label_folders import VALIDATION_FILES
from labeldp.transforms.errors import StageError
from labeldp.transforms.io.filesystems import complete_file, join_files, store_of, write_text
from labeldp.transforms.stores import lease as lease_module

pytestmark = pytest.mark.xdist_group("stores")
httpsession: Any = pytest.importorskip("botocore.httpsession", reason="the extra aws is not installed")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
MIB = 1 << 20


@dataclass
class Stop:
    """Stops before the write of a number, and has another run act then."""

    other: Callable[[], None]
    number: int = -1
    writes: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)
    _actor: threading.Thread | None = None

    def before(self, method: str, url: str) -> None:
        """Called before each request."""
        if method in ("GET", "HEAD") or threading.current_thread() is self._actor:
            return
        # The whole run is stopped: none of its threads writes meanwhile.
        with self._lock:
            self.writes.append(f"{method} {url}")
            if len(self.writes) - 1 == self.number:
                # A thread of its own has a client of its own.
                self._actor = threading.Thread(target=self.other)
                self._actor.start()
                self._actor.join()


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stop]:
    """Function (other, number) -> the Stop, which is in force from then on. Leases are lost after 0.1 s."""
    monkeypatch.setattr(lease_module, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(lease_module, "_POLL_SECONDS", 0.05)
    current: list[Stop] = []
    for session in (httpsession.URLLib3Session, requests.Session):
        send = session.send

        def hooked(self: Any, request: Any, *rest: Any, send: Any = send, **options: Any) -> Any:
            if current:
                current[-1].before(request.method, request.url)
            return send(self, request, *rest, **options)

        monkeypatch.setattr(session, "send", hooked)

    def begin(other: Callable[[], None], number: int = -1) -> Stop:
        current.append(Stop(other, number))
        return current[-1]

    return begin


@pytest.fixture
def clear(emulator: Any) -> Callable[[], None]:
    """Function that deletes all outputs."""

    def delete() -> None:
        store = store_of(emulator.url(""))
        store.delete([info.path for info in store.list(emulator.url("out/"))])

    return delete


@pytest.fixture
def no_uploads(emulator: Any) -> Callable[[], bool]:
    """Function that tells whether no upload of S3 is unfinished."""
    boto3 = pytest.importorskip("boto3")
    return lambda: emulator.scheme != "s3" or "Uploads" not in boto3.client("s3").list_multipart_uploads(Bucket="log")


def small(url: str, temp: str, _: Sequence[tuple[str, int]]) -> None:
    """Writes some bytes."""
    write_text(url, "text", temp)


def large(url: str, temp: str, _: Sequence[tuple[str, int]]) -> None:
    """Writes more bytes than S3 takes in a part."""
    with complete_file(url, temp) as file:
        file.write(bytes(6 * MIB))


def joined(url: str, temp: str, sources: Sequence[tuple[str, int]]) -> None:
    """Joins objects."""
    join_files(sources, url, temp)


WAYS: dict[str, tuple[Callable[..., None], tuple[int, ...]]] = {
    "small": (small, ()), "large": (large, ()), "joined of none": (joined, ()), "joined of one": (joined, (3,)),
    "joined of small ones": (joined, (3, 4)), "joined of large ones": (joined, (6 * MIB, 6 * MIB, 1)),
}  # fmt: skip


@STORES
@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_writing_gets_past_a_lost_lease(
    emulator: Any, stop: Any, clear: Any, no_uploads: Any, way: str
) -> None:
    """The other run has no object of that name."""
    (write, sizes), target = WAYS[way], emulator.url("out/released")
    url, number, stopped = f"{target}/data/part-00000-of-00001.parquet", 0, True
    errors: list[StageError] = []
    while stopped:
        errors.clear()
        with ExitStack() as other, staging_folder(target) as staging:
            sources = [(f"{staging.work}/segments/{place}", size) for place, size in enumerate(sizes)]
            for source, size in sources:
                store_of(source).write(source, bytes(size))
            found = stop(lambda other=other: other.enter_context(staging_folder(target)), number)
            try:
                write(url, f"{staging.work}/segments", sources)
            except StageError as error:
                errors.append(error)
            stopped = len(found.writes) > number
            stop(lambda: None)
            # The other run removes what had appeared before.
            assert len(emulator.objects("out/released/")) == (not stopped)
            assert not errors or "another one has taken over" in str(errors[0])
        clear()
        number += 1
    assert number > 1
    assert not errors
    assert no_uploads()


@S3
def test_every_file_of_a_release_but_the_manifests_is_written_under_the_lease(
    emulator: Any, on_store: Any, invoke: Any, stop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a job writes: here also the files of several labels, a linear center and the validation."""
    from labeldp.pipelines.job import validation_passes
    from labeldp.pipelines.publish import release_steps
    from labeldp.transforms.validation.validate_examples import Validation

    def passed(*_: Any) -> None:
        for name in ("feature_stats.pb", "output_stats.pb"):
            validation_passes._write(Validation(b"statistics", "schema", ""), folders[0], name)

    folders: list[str] = []
    monkeypatch.setattr(validation_passes, "run_single_threaded", passed)
    monkeypatch.setattr(validation_passes, "_check_anomalies", lambda *_: None)
    sign, stated = release_steps.sign_release, release_steps.release_files

    def with_validation(staging: Any, *rest: Any) -> Any:
        folders.append(f"{staging.work}/validation")
        passed()
        request: Any = SimpleNamespace(output_format="parquet", partitions=())
        validation_passes.check_output(request, {}, PipelineOptions([]), staging)
        return sign(staging, *rest)

    monkeypatch.setattr(release_steps, "sign_release", with_validation)
    # The request asks for no validation.
    monkeypatch.setattr(
        release_steps,
        "release_files",
        lambda *given: stated(*given) | {f"validation/{name}" for name in VALIDATION_FILES},
    )
    found = stop(lambda: None)
    several = {"label": "y,z", "label_max": "4,4", "label_step": "1,1", "label_min": "0,0"}
    several |= {"mechanism": "unbiased", "center": "linear"}
    emulator.put("own/a.csv", b"f,y,z\n" + b"1,0,3\n2,4,1\n" * 200)
    invoke(on_store(input=emulator.url("own/a.csv"), input_format="csv", num_shards=1, **several)).ok()
    names = set(emulator.objects("out/released/"))
    assert {"labels/y/center.json", "validation/schema.pbtxt", "validation/output_stats.pb"} < names
    plain = [url for method, url in map(str.split, found.writes) if method == "PUT" and "uploadId" not in url]
    below_target = {url.partition("/out/released/")[2] for url in plain if "/out/released/" in url}
    assert below_target == {"release.json", "labels/y/release.json", "labels/z/release.json"}
