"""PrivatizeFiles on object stores, in this process, and on a runner whose workers are elsewhere."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from labeldp import PrivatizeFiles
from labeldp.pipelines.api import privatize_files
from labeldp.pipelines.publish import release_steps
from labeldp.transforms.errors import InputError

pytestmark = pytest.mark.xdist_group("stores")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
LEDGER = "labeldp_ledger.jsonl"
LOG = "in/a.parquet"


@pytest.fixture
def files(emulator: Any, on_store: Any) -> Callable[..., PrivatizeFiles]:
    """Function (argument=value, ...) -> PrivatizeFiles with the flags of `on_store`."""
    on_store()
    given: dict[str, Any] = {
        "input": emulator.url("in/*.parquet"), "label": "y", "noise_key_file": emulator.url("key/noise.key"),
        "output": emulator.url("out/released"), "num_shards": 2, "for_": "labels", "epsilon": 1, "label_min": 0,
        "label_max": 4, "label_step": 1,
    }  # fmt: skip
    return lambda **arguments: PrivatizeFiles(**{**given, **arguments})


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Callable[[], None]]:
    """Function (transform) -> function that runs its submitted pipeline, as often as it is called."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "finish"))
    monkeypatch.setenv("LABELDP_TESTS_GRAPH", str(tmp_path / "graph"))

    def submit(transform: Any) -> Callable[[], None]:
        import detached_runner  # type: ignore[import-not-found]

        pipeline = beam.Pipeline(runner=detached_runner.DetachedRunner())
        _ = pipeline | transform
        pipeline.run()
        return lambda: sys.modules["detached_runner"].run_graph(str(tmp_path / "graph"))

    return submit


def here(transform: Any) -> Callable[[], Any]:
    """A pipeline of a transform in this process."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | transform
    return pipeline.run


@STORES
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_the_folder_is_that_of_the_command(
    place: str, emulator: Any, on_store: Any, files: Any, elsewhere: Any, invoke: Any
) -> None:
    run = (here if place == "here" else elsewhere)(files())
    assert emulator.objects("out/") == {}
    run()
    found = emulator.objects("out/")
    assert {name for name in found if not name.startswith("released/")} == {LEDGER}
    invoke(on_store(**{"for": "labels"}, output=emulator.url("out/command"))).ok()
    command = {name.replace("command/", "released/"): content for name, content in emulator.objects("out/").items()
               if name.startswith("command/")}  # fmt: skip
    assert {name: content for name, content in found.items() if name != LEDGER} == command
    first, second = map(json.loads, emulator.objects("out/")[LEDGER].decode().splitlines())
    assert first["charges"] == second["charges"]
    with pytest.raises(Exception, match="out/released exists and is not empty: name another, or delete it"):
        run()
    assert emulator.objects("out/released/").keys() == {name.removeprefix("released/") for name in command}


@S3
def test_workers_elsewhere_make_no_key(emulator: Any, files: Any, elsewhere: Any, tmp_path: Path) -> None:
    key = tmp_path / "new.key"
    with pytest.raises(ValueError, match=r"^noise_key_file .*/new.key does not exist: create it where all workers"):
        elsewhere(files(noise_key_file=key))
    assert (key.exists(), emulator.objects("out/")) == (False, {})


@S3
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_run_that_can_never_be_released_leaves_nothing(
    place: str, emulator: Any, files: Any, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its labels exceed the cap once they are known to be others than those of the release that it repeats."""
    here(files(output=emulator.url("out/first"), epsilon_cap=1.5))()
    before = emulator.objects("out/")
    run = (here if place == "here" else elsewhere)(files(epsilon_cap=1.5))
    emulator.put(LOG, changed(emulator.objects(LOG)[""]))
    with pytest.raises(Exception, match=r"epsilon_cap 1.5 would be exceeded: with this run"):
        run()
    if place == "here":
        (work,) = privatize_files._HELD
        privatize_files._give_up(work)
    assert emulator.objects("out/") == before


def changed(content: bytes) -> bytes:
    """The log with other labels."""
    table, file = pq.read_table(io.BytesIO(content)), io.BytesIO()
    pq.write_table(table.set_column(1, "y", pa.array(4 - table["y"].to_numpy())), file)
    return file.getvalue()


@S3
@pytest.mark.parametrize("end", ["again", "finish"])
def test_a_job_that_starts_again_continues_its_run(
    end: str, emulator: Any, files: Any, elsewhere: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last stage has failed before the charge, and again after it. No other run writes to the output meanwhile."""
    run = elsewhere(files())
    for step in ("charge_of", "publish_folder"):
        with monkeypatch.context() as patched:
            patched.setattr(release_steps, step, broken)
            with pytest.raises(Exception, match="a fault"):
                run()
        assert "`labeldp finish " in invoke(on_store()).error
        with pytest.raises(Exception, match="`labeldp finish "):
            here(files())()
    if end == "finish":
        invoke(["finish", emulator.url("out/released"), "--timeout=0"]).ok()
    else:
        run()
    found = emulator.objects("out/")
    assert {name for name in found if not name.startswith("released/")} == {LEDGER}
    charges = [json.loads(line)["charges"] for line in found[LEDGER].decode().splitlines()]
    # It adds the same charge, which costs nothing: whether it was charged before, only the ledger says.
    assert charges == charges[:1] * 2
    assert "PASS" in invoke(["audit", "--data", emulator.url("out/released")]).ok().out


def broken(*_: Any) -> None:
    """Fails, as a step whose worker is lost."""
    raise InputError("a fault")
