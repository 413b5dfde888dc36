"""`labeldp finish` on object stores: it ends what a command that was killed, or that did not wait, has left there."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeldp.transforms.io.filesystems import store_of
from labeldp.transforms.stores.claim import StagedRun

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
        "request.json", "state", "submitted.json",
    }  # fmt: skip
    assert "not all there" in finish().error
    refused = invoke(on_store())
    assert (refused.code, "`labeldp finish " in refused.error) == (1, True)
    run_job()
    finish().ok()
    found = emulator.objects("out/")
    assert files(found) == files(waited)
    assert sorted(found) == sorted(waited)
    assert charges(found) == charges(waited)
    assert finish().ok().out.endswith("published before; its audit holds\n")
    assert emulator.objects("out/") == found


@S3
def test_a_job_that_starts_again_after_its_release_changes_nothing_of_it(
    emulator: Any, on_store: Any, invoke: Any, run_job: Any, finish: Any
) -> None:
    invoke([*on_store(), RUNNER, "--no_wait_until_finish"]).ok()
    run_job()
    finish().ok()
    found = files(emulator.objects("out/"))
    run_job()
    assert finish().ok().out.endswith("published before; its audit holds\n")
    assert files(emulator.objects("out/")) == found
    # What it has written beside the release goes with the next one.
    store_of(emulator.url("")).delete([emulator.url(f"out/{name}") for name in found])
    invoke(on_store()).ok()
    assert sorted(emulator.objects("out/")) == sorted([*found, "labeldp_ledger.jsonl"])


@S3
def test_a_scheduler_repeats_a_command_that_was_killed_as_it_published(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(StagedRun, "publish", killed)
        patched.setattr(StagedRun, "give_up", lambda _: True)
        invoke(on_store())
    again = on_store(if_exists="verify")
    assert invoke([*again, "--dry_run"]).ok()
    assert "released/release.json" not in emulator.objects("out/")
    assert "verified " in invoke(again).ok().out
    found = emulator.objects("out/")
    assert len({json.dumps(charge) for charge in charges(found)}) == 1
    assert not any("labeldp/" in name for name in found)


@S3
@pytest.mark.parametrize("step", ["copies", "the end of the claim"])
@pytest.mark.parametrize("name", ["remove", "domain"])
def test_a_command_without_a_job_that_is_killed_as_it_publishes(
    emulator: Any, on_store: Any, invoke: Any, finish: Any, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    """A removal is published by `finish`; `domain` is repeated, which costs nothing."""
    emulator.put("rows", b"part-00000-of-00002.parquet,3\n")
    emulator.put("key/noise.key", bytes(range(32)))
    if name == "remove":
        invoke(on_store()).ok()
        argv = ["remove", emulator.url("out/released"), f"--rows={emulator.url('rows')}"]
        argv += [f"--output={emulator.url('out/new')}", "--removed_on=2026-01-31"]
    else:
        on_store()
        argv = ["domain", f"--input={emulator.url('in/*.parquet')}", "--input_format=parquet", "--label=y"]
        argv += ["--epsilon=1", f"--domain_file={emulator.url('out/new')}"]
        argv += [f"--noise_key_file={emulator.url('key/noise.key')}"]
    with monkeypatch.context() as patched:
        # What a killed process does not do.
        patched.setattr(StagedRun, "publish" if step == "copies" else "end", killed)
        patched.setattr(StagedRun, "give_up", lambda _: True)
        with contextlib.suppress(Killed):
            invoke(argv)
    claimed = emulator.objects("out/")[".new.labeldp/claim"]
    assert claimed.startswith(b"claimed ")
    if step == "copies":
        assert (invoke(argv).code, "`labeldp finish" in invoke(argv).error) == (1, True)
    finish("out/new")
    if name == "domain" and step == "copies":
        invoke(argv).ok()
    found = emulator.objects("out/")
    assert [path for path in found if "labeldp/" in path] == []
    assert [path for path in found if path.startswith("new")] != []
    if name == "domain":
        assert len({json.dumps(charge) for charge in charges(found)}) == 1
    else:
        assert invoke(["audit", emulator.url("out/new"), "--data"]).ok().out.splitlines()[-1] == "PASS"


class Killed(BaseException):
    """Stands for the end of a process."""


def killed(*_: Any) -> None:
    """Ends the process."""
    raise Killed
