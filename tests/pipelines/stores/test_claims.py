"""Claims of an output: a run that is stopped before any request, while others act, changes nothing of theirs."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
from labeldp.transforms.errors import InputError, StoreConflict, StoreNotFound
from labeldp.transforms.io.filesystems import store_of
from labeldp.transforms.stores.claim import Output, OutputClaimed

pytestmark = pytest.mark.xdist_group("stores")
httpsession: Any = pytest.importorskip("botocore.httpsession", reason="the extra aws is not installed")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
OWN, OTHER = "0" * 32, "1" * 32
SIZES = {"empty": 0, "small": 3, "large": 20_000}


class Stop:
    """Stops all threads of a run before the request of a number, and has others act then."""

    def __init__(self, number: int, act: Callable[[], None]):
        self.number, self.act, self.count = number, act, 0
        self._lock = threading.Lock()
        self._actor: threading.Thread | None = None

    def before_request(self) -> None:
        if threading.current_thread() is not self._actor and not _is_of(self._actor):
            with self._lock:
                self.count += 1
                if self.count == self.number:
                    self._actor = threading.Thread(target=self.act, name="actor")
                    self._actor.start()
                    self._actor.join()


def _is_of(actor: threading.Thread | None) -> bool:
    """Tells whether this is a thread of a pool of the actor, which lives while the stopped ones wait."""
    return actor is not None and actor.is_alive()


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Function (number, run, act) -> number of requests of a run, which is stopped before that of the number."""
    current: list[Stop] = []
    for session in (httpsession.URLLib3Session, requests.Session):
        send = session.send

        def hooked(self: Any, request: Any, *rest: Any, send: Any = send, **options: Any) -> Any:
            if current:
                current[-1].before_request()
            return send(self, request, *rest, **options)

        monkeypatch.setattr(session, "send", hooked)

    def begin(number: int, run: Callable[[], None], act: Callable[[], None]) -> int:
        current.append(Stop(number, act))
        run()
        return current.pop().count

    return begin


def files(run: str) -> dict[str, bytes]:
    """Files of a run: no other one has data of these names."""
    data = {f"data/{run[0]}-{name}": run[:1].encode() * size for name, size in SIZES.items()}
    return {**data, "release.json": run.encode()}


def stage(output: Output, name: str) -> None:
    """Writes all files of a run into its folder."""
    run = output.run(name)
    run.open()
    for file, content in files(name).items():
        output.store.write(f"{run.work}/{file}", content)


def publish(output: Output, name: str) -> str:
    """Publishes a run whose files are there; returns how that ended."""
    run, last = output.run(name), f"{output.target}/release.json"
    try:
        run.claim()
        run.publish({f"{run.work}/{file}": f"{output.target}/{file}" for file in files(name)}, last)
    except (OutputClaimed, StoreNotFound, StoreConflict):
        return "refused"
    run.end()
    return "released"


@STORES
@pytest.mark.parametrize("others", ["another run", "finish", "finish, a user and another run"])
def test_a_run_that_is_stopped_before_a_request(
    emulator: Any, stopped: Callable[..., int], others: str, subtests: pytest.Subtests
) -> None:
    """The output is of one run, whole; nothing else is left, once the one that was stopped has continued."""
    url = emulator.url("out/t")
    output, number, count = Output(store_of(url), url), 1, 1
    while number <= count:
        with subtests.test(number=number):
            ends: dict[str, str] = {}
            stage(output, OWN)

            def act(ends: dict[str, str] = ends) -> None:
                if "finish" in others:
                    ends["finish"] = publish(output, OWN)
                if "user" in others:
                    output.store.delete([info.path for info in output.store.list(f"{url}/")])
                if "another" in others:
                    stage(output, OTHER)
                    ends["other"] = publish(output, OTHER)

            count = stopped(number, lambda ends=ends, act=act: ends.update(own=publish(output, OWN)), act)
            released = emulator.objects("out/t/")
            run = released["release.json"].decode()
            assert released == files(run)
            assert emulator.objects("out/.t.labeldp/") == {}
            if emulator.scheme == "s3":
                uploads = pytest.importorskip("boto3").client("s3").list_multipart_uploads(Bucket="log")
                assert "Uploads" not in uploads
            if others == "another run":
                assert (ends["own"], ends["other"]) == (
                    ("released", "refused") if run == OWN else ("refused", "released")
                )
            elif others == "finish":
                assert ends["finish"] == "released"
            else:
                assert (run, ends["other"]) == (OTHER, "released")
        output.store.delete([info.path for info in output.store.list(emulator.url("out/"))])
        number += 1
    assert count > len(SIZES)


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
def test_a_claim_that_labeldp_has_not_written(emulator: Any) -> None:
    url = emulator.url("out/t")
    emulator.put("out/.t.labeldp/claim", b"claimed ../../other")
    with pytest.raises(InputError, match="is no claim that labeldp has written: delete it"):
        Output(store_of(url), url).settle()
