"""`labeldp remove` where the release and the new one are on an object store."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stores")
STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)


@STORES
def test_a_removal_on_a_store(
    emulator: Any, on_store: Any, invoke: Any, tfrecord_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.put("in/a.tfrecord", tfrecord_file)
    tfrecord = {"input_format": "tfrecord", "output_format": "tfrecord", "num_shards": 3}
    invoke(on_store(input=emulator.url("in/*.tfrecord"), id_column="f", **tfrecord)).ok()
    before = emulator.objects("out/")
    ids = emulator.put("ids.txt", b"3\n599\n")

    argv = ["remove", emulator.url("out/released"), f"--ids={ids}", f"--output={emulator.url('out/reduced')}"]
    invoke([*argv, "--removed_on=2026-01-31"]).ok()
    after = emulator.objects("out/")
    assert {name: after.pop(name) for name in before} == before
    assert sorted(after) == sorted(
        name.replace("released", "reduced") for name in before if name.startswith("released/")
    )
    stated = json.loads(after["reduced/release.json"])
    assert (stated["records"], stated["removals"][0]["records"]) == (600, 2)
    middle = "data/part-00001-of-00003.tfrecord"
    assert after[f"reduced/{middle}"] == before[f"released/{middle}"]
    first = "data/part-00000-of-00003.tfrecord"
    assert 0 < len(after[f"reduced/{first}"]) < len(before[f"released/{first}"])
    said = invoke(["audit", emulator.url("out/reduced"), "--data"]).ok().out.splitlines()
    assert said[-1] == "PASS"

    # The release is there: it is not written over, and nothing of it changes.
    outcome = invoke([*argv, "--removed_on=2026-01-31"])
    assert (outcome.code, "exists and is not empty" in outcome.error) == (2, True)
    assert emulator.objects("out/reduced/") == {name.partition("/")[2]: each for name, each in after.items()}

    # A download.
    invoke(["remove", emulator.url("out/reduced"), f"--ids={ids}", f"--output={tmp_path}/x", "--missing_ok"])
    assert not (tmp_path / "x").exists()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.txt").write_text("7\n")
    invoke(["remove", emulator.url("out/reduced"), "--ids=more.txt", "--output=again"]).ok()
    assert invoke(["audit", "again", "--data"]).ok().out.splitlines()[-1] == "PASS"


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
def test_a_half_published_release_is_refused(
    emulator: Any, on_store: Any, invoke: Any, tfrecord_file: bytes, tmp_path: Path
) -> None:
    from labeldp.transforms.io.filesystems import store_of

    emulator.put("in/a.tfrecord", tfrecord_file)
    flags = {"input_format": "tfrecord", "output_format": "tfrecord", "id_column": "f"}
    invoke(on_store(input=emulator.url("in/*.tfrecord"), **flags)).ok()
    url = emulator.url("out/released/release.json")
    store_of(url).delete([url])
    (tmp_path / "ids").write_text("3\n")
    argv = ["remove", emulator.url("out/released"), f"--ids={tmp_path}/ids", f"--output={emulator.url('out/reduced')}"]
    outcome = invoke(argv)
    assert (outcome.code, "it has no release.json, which is written last" in outcome.error) == (2, True)
    assert not emulator.objects("out/reduced/")
