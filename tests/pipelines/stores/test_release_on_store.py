"""Whole jobs whose input, output, key, mechanism file and ledger are on a store; killed ones; the audit."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stores")

LEDGER = "out/labeldp_ledger.jsonl"
STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
# Kills the process before it calls a function of privatize_command.
KILL = """
import os, signal, sys
from labeldp.pipelines.job import privatize_command
setattr(privatize_command, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
from labeldp.pipelines.cli.commands import main
raise SystemExit(main(sys.argv[2:]))
"""


def kill_before(step: str, argv: list[str], environment: dict[str, str]) -> None:
    """Runs a job in a process of its own, which is killed before a step."""
    run = [sys.executable, "-c", KILL, step, *argv]
    done = subprocess.run(run, env={**environment, **os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@STORES
def test_a_release_its_audit_and_a_rerun(
    emulator: Any, on_store: Any, invoke: Any, spent_on: Any, tfrecord_file: bytes
) -> None:
    """Three blocks of 256 records in five shards: two shards are objects of no bytes."""
    emulator.put("in/a.tfrecord", tfrecord_file)
    tfrecord = {"input_format": "tfrecord", "output_format": "tfrecord", "num_shards": 5}
    flags = {"input": emulator.url("in/*.tfrecord"), **tfrecord}
    invoke(on_store(**flags)).ok()
    first = emulator.objects("out/released/")
    shards = [f"data/part-{i:05d}-of-00005.tfrecord" for i in range(5)]
    assert sorted(first) == [*shards, "mechanism.json", "release.json"]
    assert sum(1 for name in shards if not first[name]) == 2
    assert set(emulator.objects("out/")) == {"labeldp_ledger.jsonl", *(f"released/{name}" for name in first)}
    assert "log/" not in first["release.json"].decode()
    spent = spent_on(emulator.objects()[LEDGER])
    assert 0.99 < spent <= 1

    for more in ([], ["--data"]):
        audited = invoke(["audit", emulator.url("out/released"), *more]).ok()
        assert audited.out.splitlines()[-1] == "PASS"
    assert "600 records in 5 shards" in audited.out

    again = {**flags, "output": emulator.url("out/again"), "epsilon_cap": 1}
    invoke(on_store(**again)).ok()
    second = emulator.objects("out/again/")
    assert {name: second[name] for name in shards} == {name: first[name] for name in shards}
    assert spent_on(emulator.objects()[LEDGER]) == spent


@pytest.mark.parametrize("emulator", ["gs"], indirect=True)
def test_the_two_halves(emulator: Any, on_store: Any, invoke: Any) -> None:
    """A mechanism file on a store, and a file of labels; the bytes are those of `privatize`."""
    emulator.put("labels", b"0\n1\n2\n3\n4\n")
    domain = {
        "label_min": None, "label_max": None, "label_step": None, "label_values": emulator.url("labels"),
    }  # fmt: skip
    invoke(on_store("fit", **domain)).ok()
    assert sorted(emulator.objects("out/")) == ["labeldp_ledger.jsonl", "m.json"]
    assert invoke(["audit", emulator.url("out/m.json")]).ok().out.splitlines()[-1] == "PASS"
    assert "exists" in invoke(on_store("fit", **domain)).error
    invoke(on_store("apply")).ok()
    invoke(on_store(output=emulator.url("out/whole"), **domain)).ok()
    objects = emulator.objects("out/")
    shards = [name for name in objects if name.startswith("released/data/")]
    assert len(shards) == 2
    assert all(objects[name] == objects[name.replace("released", "whole")] for name in shards)


@S3
def test_a_schema_on_a_store(emulator: Any, on_store: Any, invoke: Any) -> None:
    pytest.importorskip("tensorflow_data_validation", reason="the extra validation is not installed")
    schema = 'feature { name: "f" type: %s presence { min_fraction: 1 } }'
    malformed = emulator.put("malformed.pbtxt", b"feature {")
    assert "--schema s3://log/malformed.pbtxt" in invoke(on_store(schema=malformed)).error
    invoke(on_store(schema=emulator.put("right.pbtxt", (schema % "INT").encode()))).ok()
    found = [name for name in emulator.objects("out/released/") if name.startswith("validation/")]
    assert len(found) == 4


@STORES
def test_a_run_killed_before_it_is_charged_is_no_release(
    emulator: Any, on_store: Any, invoke: Any, environment: dict[str, str], spent_on: Any
) -> None:
    """The next run removes what is left of it, unless there is something else."""
    kill_before("charge_ledger", on_store(num_shards=3), environment)
    left = emulator.objects("out/")
    assert any(name.startswith("released/data/part-") for name in left)
    assert "released/release.json" not in left
    assert "labeldp_ledger.jsonl" not in left
    audited = invoke(["audit", emulator.url("out/released")])
    assert audited.code == 1
    assert "release.json" in audited.out.splitlines()[-1]

    # Another file of the user's is not deleted.
    emulator.put("out/released/notes", b"mine")
    refused = invoke(on_store())
    assert refused.code == 1
    assert "out/released/notes exists" in refused.error
    from labeldp.transforms.stores.object_store import store_of

    store_of(emulator.url("")).delete([emulator.url("out/released/notes")])
    assert "which a killed run had left behind" in invoke(on_store(epsilon_cap=1)).ok().err
    found = emulator.objects("out/")
    assert sorted(name for name in found if name.startswith("released/data/")) == [
        f"released/data/part-{i:05d}-of-00002.parquet" for i in range(2)
    ]
    assert not any(name.startswith(".") for name in found)
    assert 0.99 < spent_on(found["labeldp_ledger.jsonl"]) <= 1


@S3
def test_a_run_killed_after_it_was_charged_is_repeated_for_nothing(
    emulator: Any, on_store: Any, invoke: Any, environment: dict[str, str], spent_on: Any
) -> None:
    kill_before("publish_folder", on_store(), environment)
    before = emulator.objects("out/released/data/")
    spent = spent_on(emulator.objects()[LEDGER])
    assert "release.json" not in emulator.objects("out/released/")
    invoke(on_store(epsilon_cap=1)).ok()
    assert emulator.objects("out/released/data/") == before
    assert spent_on(emulator.objects()[LEDGER]) == spent


@pytest.mark.parametrize("emulator", ["gs"], indirect=True)
def test_a_run_that_fails_leaves_nothing(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that exceeds its cap has written its shards; nobody may keep them."""
    from labeldp.pipelines.job import privatize_command

    monkeypatch.setattr(privatize_command, "check_caps", lambda *_: None)
    refused = invoke(on_store(epsilon_cap=0.5))
    assert refused.code == 1
    assert "--epsilon_cap 0.5 would be exceeded" in refused.error
    assert emulator.objects("out/") == {}


@S3
def test_an_interrupted_run_leaves_nothing_that_looks_like_a_release(
    emulator: Any, on_store: Any, environment: dict[str, str]
) -> None:
    """Its lease stays, because its threads may still write: the next run looks for what they have written."""
    code = KILL.replace("SIGKILL", "SIGTERM")
    run = [sys.executable, "-c", code, "charge_ledger", *on_store()]
    done = subprocess.run(run, env={**environment, **os.environ}, capture_output=True, text=True, check=False)
    assert "interrupted; nothing is released" in done.stderr
    assert set(emulator.objects("out/")) == {".released.labeldp/lease.json"}


@S3
def test_an_output_with_anything_in_it_is_refused(emulator: Any, on_store: Any, invoke: Any) -> None:
    emulator.put("out/released/old", b"old")
    refused = invoke(on_store())
    assert refused.code == 2
    assert "out/released exists and is not empty" in refused.error
    assert emulator.objects("out/") == {"released/old": b"old"}


@S3
def test_a_reader_that_looks_early_sees_no_manifest(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest comes last, and no shard is copied or written a second time."""
    from labeldp.transforms.stores import s3_store

    names: list[str] = []
    write, put = s3_store.S3Store.write, s3_store._Upload.finish

    def logged_write(self: Any, path: str, *rest: Any) -> str:
        names.append(path)
        return write(self, path, *rest)

    def logged_finish(self: Any, rest: bytes) -> None:
        names.append(f"s3://log/{self._where['Key']}")
        put(self, rest)

    monkeypatch.setattr(s3_store.S3Store, "write", logged_write)
    monkeypatch.setattr(s3_store.S3Store, "copy", lambda *_: pytest.fail("a file was copied"))
    monkeypatch.setattr(s3_store._Upload, "finish", logged_finish)
    invoke(on_store()).ok()
    released = [name for name in names if name.startswith(emulator.url("out/released/"))]
    assert len(released) == len(set(released)) == 4
    assert released[-1] == emulator.url("out/released/release.json")
    assert names.index(emulator.url(LEDGER)) < names.index(released[-1])


@S3
def test_the_manifest_and_the_ledger_hold_no_credentials(emulator: Any, on_store: Any, invoke: Any) -> None:
    flags = {"s3_access_key_id": "AKIDTESTS", "s3_secret_access_key": "hushhush", "s3_region_name": "us-east-1"}
    done = invoke(on_store(**flags, s3_endpoint_url=emulator.variables["AWS_ENDPOINT_URL"])).ok()
    assert "set AWS_SECRET_ACCESS_KEY or AWS_PROFILE instead" in done.err
    everything = done.out + done.err + "".join(repr(content) for content in emulator.objects("out/").values())
    assert "hushhush" not in everything
    assert "AKIDTESTS" not in everything
    assert json.loads(emulator.objects("out/released/")["release.json"])["records"] == 600
