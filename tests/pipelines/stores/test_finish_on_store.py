"""`labeldp finish` on object stores: the lease passes from the command that submitted a job to the one that ends it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeldp.transforms.stores import lease as lease_module

pytestmark = pytest.mark.xdist_group("stores")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
RUNNER = "--runner=detached_runner.DetachedRunner"


@pytest.fixture
def run_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Function that runs the job that was submitted last."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "finish"))
    monkeypatch.setenv("LABELDP_TESTS_GRAPH", str(tmp_path / "graph"))
    return lambda: sys.modules["detached_runner"].run_graph(str(tmp_path / "graph"))


@pytest.fixture
def finish(emulator: Any, invoke: Any) -> Callable[..., Any]:
    """Function -> outcome of `labeldp finish`, which looks once."""
    return lambda name="out/released", *flags: invoke(["finish", emulator.url(name), "--timeout=0", *flags])


def clear(emulator: Any) -> dict[str, bytes]:
    """Deletes all outputs; returns them."""
    from labeldp.transforms.io.filesystems import store_of

    found = emulator.objects("out/")
    store_of(emulator.url("")).delete([emulator.url(f"out/{name}") for name in found])
    return found


def charges(found: dict[str, bytes]) -> list[Any]:
    """Charges of each line of the ledger."""
    return [json.loads(line)["charges"] for line in found["labeldp_ledger.jsonl"].decode().splitlines()]


def files(found: dict[str, bytes]) -> dict[str, bytes]:
    """Objects of the release."""
    return {name: content for name, content in found.items() if name.startswith("released/")}


@STORES
def test_a_submitted_job(emulator: Any, on_store: Any, invoke: Any, run_job: Any, finish: Any) -> None:
    invoke(on_store()).ok()
    waited = clear(emulator)
    submitted = [*on_store(), RUNNER, "--no_wait_until_finish"]
    invoke(submitted).ok()
    assert {name.rpartition("/")[2] for name in emulator.objects("out/")} == {
        "lease.json", "request.json", "submitted.json",
    }  # fmt: skip
    assert "not all there" in finish().error
    refused = invoke(on_store())
    assert (refused.code, "run `labeldp finish` with this output" in refused.error) == (1, True)
    run_job()
    finish().ok()
    found = emulator.objects("out/")
    assert files(found) == files(waited)
    assert sorted(found) == sorted(waited)
    assert charges(found) == charges(waited)
    assert finish().ok().out.endswith("published before; its audit holds\n")
    assert emulator.objects("out/") == found


@S3
def test_the_two_halves(emulator: Any, on_store: Any, invoke: Any, run_job: Any, finish: Any) -> None:
    invoke(on_store("fit")).ok()
    waited = clear(emulator)
    invoke([*on_store("fit"), RUNNER, "--no_wait_until_finish"]).ok()
    run_job()
    finish("out/m.json").ok()
    assert sorted(found := emulator.objects("out/")) == sorted(waited)
    assert found["m.json"] == waited["m.json"]
    assert finish("out/m.json").ok().out.endswith("published before; its audit holds\n")


@S3
def test_a_client_that_may_live_is_waited_for(
    emulator: Any, on_store: Any, invoke: Any, run_job: Any, finish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of a client that was killed on another machine does not change."""
    monkeypatch.setattr(lease_module, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(lease_module, "_POLL_SECONDS", 0.05)
    invoke([*on_store(), RUNNER, "--no_wait_until_finish"]).ok()
    run_job()
    url = emulator.url("out/.released.labeldp/lease.json")
    from labeldp.transforms.io.filesystems import store_of

    lease = json.loads(emulator.objects("out/")[".released.labeldp/lease.json"])
    del lease["job"]
    store_of(url).write(url, json.dumps(lease | {"machine": "another", "idle": False}).encode())
    renewals: list[str] = []
    renew = store_of(url).read

    def renewed(self: Any, path: str) -> Any:
        found = renew(path)
        if path == url:
            renewals.append(path)
            assert found is not None
            return found[0], f"{found[1]}-{len(renewals)}"
        return found

    with monkeypatch.context() as patched:
        patched.setattr(type(store_of(url)), "read", renewed)
        busy = finish()
    assert (busy.code, "another run is writing there" in busy.error) == (1, True), busy.err
    finish().ok()
    assert "PASS" in invoke(["audit", "--data", emulator.url("out/released")]).ok().out


@S3
def test_a_worker_that_outlives_a_claim_writes_nothing(
    emulator: Any, on_store: Any, invoke: Any, run_job: Any, finish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the release, the job starts again."""
    invoke([*on_store(), RUNNER, "--no_wait_until_finish"]).ok()
    run_job()
    finish().ok()
    found = files(emulator.objects("out/"))
    with pytest.raises(Exception, match=r"StageError|has taken over|lease"):
        run_job()
    assert files(emulator.objects("out/")) == found
