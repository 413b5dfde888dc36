"""Whole jobs whose input, output, key, mechanism file and ledger are on a store; killed ones; the audit."""

import hashlib
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from labeldp.transforms.io.filesystems import store_of

pytestmark = pytest.mark.xdist_group("stores")

CLAIM_FACTS = Path(__file__).parents[3] / "docs/examples/claim_facts.yaml"
LEDGER = "out/labeldp_ledger.jsonl"
STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)


@STORES
def test_a_release_its_audit_and_a_rerun(
    emulator: Any, on_store: Any, invoke: Any, spent_on: Any, tfrecord_file: bytes
) -> None:
    emulator.put("in/a.tfrecord", tfrecord_file)
    tfrecord = {"input_format": "tfrecord", "output_format": "tfrecord", "num_shards": 5}
    flags = {"input": emulator.url("in/*.tfrecord"), **tfrecord}
    invoke(on_store(**flags)).ok()
    first = emulator.objects("out/released/")
    shards = [f"data/part-{i:05d}-of-00005.tfrecord" for i in range(5)]
    assert sorted(first) == [*shards, "mechanism.json", "release.json"]
    assert all(first[name] for name in shards)
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


@STORES
def test_a_signed_release(emulator: Any, on_store: Any, invoke: Any, signing_key: Path) -> None:
    """The objects are hashed where they are. A changed one, one more and one less fail, whatever the audit keeps."""
    invoke(on_store(sign=signing_key)).ok()
    released = emulator.objects("out/released/")
    document = json.loads(released["signature.json"])
    assert document["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in released.items()
        if name != "signature.json"
    }
    url, signer = emulator.url("out/released"), f"--signer={signing_key.with_suffix('.pub')}"
    for more in ([], ["--data"]):
        assert "signature    not checked" in invoke(["audit", url, *more]).ok().out
        assert "4 files" in invoke(["audit", url, signer, *more]).ok().out
    assert invoke(on_store(sign=signing_key, if_exists="verify")).ok().out.startswith("verified   ")
    shard = "data/part-00001-of-00002.parquet"
    emulator.put(f"out/released/{shard}", released[shard][:-1] + b"\0")
    emulator.put("out/released/.new/x", b"")
    for command in (["audit", url, signer], on_store(sign=signing_key, if_exists="verify")):
        failed = invoke(command)
        assert failed.code == 1
        said = failed.out + failed.err
        assert f"{shard} is not as it was signed; " in said or said.rstrip().endswith(
            f"{shard} is not as it was signed"
        )
        assert ".new/x was not signed: it was added" in said
    store_of(url).delete([f"{url}/{shard}"])
    assert f"{shard} was signed, but is missing" in invoke(["audit", url, signer]).out


@S3
def test_dead_letters_are_audited(emulator: Any, on_store: Any, invoke: Any) -> None:
    """Without `--data` their records are not fetched. Objects that no manifest lists are refused."""
    emulator.put("unusable/a.csv", b"f,y\n" + b"1,2\n" * 50 + b"1,\n" + b"1,2\n" * 49)
    invoke(on_store(input=emulator.url("unusable/a.csv"), input_format="csv", max_unusable_fraction=0.1)).ok()
    letters = "out/released/dead_letters.jsonl"
    assert "dead letters 1 in 1 file" in invoke(["audit", emulator.url("out/released"), "--data"]).ok().out
    emulator.put(letters, emulator.objects()[letters] * 2)
    assert invoke(["audit", emulator.url("out/released")]).code == 0
    changed = invoke(["audit", emulator.url("out/released"), "--data"])
    assert changed.code == 1
    assert "dead_letters.jsonl lists records twice" in changed.out
    for name in ("truth.csv", "data/.truth", "data/.d/x", "../x", "a//b", "folder/"):
        emulator.put(f"out/released/{name}", b"1,0,1")
        refused = invoke(["audit", emulator.url("out/released")])
        store_of(emulator.url("out")).delete([emulator.url(f"out/released/{name}")])
        assert refused.code == 1
        assert "is not a file of the release" in refused.out or "is not one of release.shards" in refused.out


@STORES
def test_folders_of_partitions(emulator: Any, on_store: Any, invoke: Any) -> None:
    content = emulator.objects("in/")["a.parquet"]
    names = ["k=1", "k=a b%2F%C3%A9"]
    for name in names:
        emulator.put(f"parts/{name}/a.parquet", content)
    flags = {"input": emulator.url("parts/*/*.parquet"), "partition_output": "k", "num_shards": 2}
    shards = {f"data/{name}/part-0000{i}-of-00002.parquet" for name in ("k=1", "k=a b%2Fé") for i in (0, 1)}
    invoke(on_store(**flags)).ok()
    released = emulator.objects("out/released/")
    assert set(released) == {*shards, "mechanism.json", "release.json"}
    for more in ([], ["--data"]):
        audited = invoke(["audit", emulator.url("out/released"), *more]).ok()
        assert audited.out.splitlines()[-1] == "PASS"
    assert "1200 records in 4 shards" in audited.out


@STORES
def test_a_report_finds_the_ledger_beside_the_release(
    emulator: Any, on_store: Any, invoke: Any, tmp_path: Path
) -> None:
    """It is beside the release that a label is in; and a folder named labels need not be one of a release."""
    several = on_store(label="y,f", label_max="4,1000", label_step="1,100")
    invoke(several).ok()
    invoke(on_store(output=emulator.url("out/labels/one"))).ok()
    for place, ledger in (("released/labels/f", LEDGER), ("labels/one", "out/labels/labeldp_ledger.jsonl")):
        page = tmp_path / f"{len(place)}.html"
        invoke(["report", emulator.url(f"out/{place}"), f"--output={page}"]).ok()
        # The date of the release is in the ledger alone.
        assert json.loads(emulator.objects()[ledger].splitlines()[0])["time"][:10] in page.read_text()


@STORES
def test_commands_that_explain_a_release(
    emulator: Any, on_store: Any, invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their output names URLs, no temporary folder; nothing stays there."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    invoke(on_store()).ok()
    release, file = emulator.url("out/released"), emulator.url("out/released/mechanism.json")

    truth = emulator.url("in/*.parquet")
    guessed = invoke(["attack", release, f"--truth={truth}", "--input_format=parquet"]).ok()
    assert f"truth              {truth}, matched by the order of the records" in guessed.out
    asked = invoke(["attack", "--features", f"--input={truth}", "--input_format=parquet", "--label=y"])
    assert asked.out.startswith("NOT FOR RELEASE")

    page = tmp_path / "page.html"
    invoke(["report", release, f"--output={page}"]).ok()
    # The date of the release is in the ledger alone.
    day = json.loads(emulator.objects()[LEDGER].splitlines()[0])["time"][:10]
    assert day in page.read_text()
    assert "--output is missing: name a local file" in invoke(["report", release]).error
    claim = ["report", release, f"--claim={tmp_path / 'claim.yaml'}", f"--claim_facts={CLAIM_FACTS}"]
    invoke(claim).ok()
    assert "The ledger has 1 run." in (tmp_path / "claim.yaml").read_text()
    assert "states this release" in invoke(["report", release, f"--check_claim={tmp_path / 'claim.yaml'}"]).ok().out

    for url in (release, file):
        solved = tmp_path / f"{len(url)}.json"
        invoke(["solve", "--prior", url, "--epsilon=1", f"--output={solved}"]).ok()
        assert solved.is_file()
    table, facts = tmp_path / "table.csv", tmp_path / "facts.json"
    compared = ["compare", f"--prior={release}", "--epsilon", "1", "--mechanism", "rr", "--processes=1"]
    outcome = invoke([*compared, f"--csv={table}", f"--json={facts}"]).ok()
    assert f"{release}: 5 labels, noised with epsilon" in outcome.out
    assert json.loads(facts.read_text())["prior"] == release
    planned = invoke(["plan", f"--prior={release}", "--epsilon", "1", "--draws=1", "--processes=1"]).ok()
    assert release in planned.out
    for argv in (["report", f"{file}x"], ["plan", "--prior", f"{file}x"]):
        failed = invoke([*argv, *([f"--output={page}2"] if argv[0] == "report" else [])])
        assert failed.code == 2
        assert f"{file}x does not exist: name a mechanism file" in failed.error
    emulator.put("out/public.csv", b"label,weight\n0,1\n1,x\n")
    failed = invoke(["plan", "--prior", emulator.url("out/public.csv"), "--records=9"])
    assert f"--prior {emulator.url('out/public.csv')}: " in failed.error
    assert not list(temporary.iterdir())


@S3
def test_flags_of_stores_need_a_url(emulator: Any, invoke: Any, small_log: Path) -> None:
    outcome = invoke(["attack", str(small_log), "--s3_endpoint_url=http://127.0.0.1:1"])
    assert outcome.code == 2
    assert "flags of an object store need a URL" in outcome.error


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


# Looked for, not imported: that takes seconds, and only the messages of a schema are used.
@pytest.mark.skipif(importlib.util.find_spec("tensorflow_data_validation") is None, reason="no extra validation")
@S3
def test_a_schema_and_the_files_of_validation(emulator: Any, on_store: Any, invoke: Any) -> None:
    """Without the validation itself, which takes half a minute and has tests of its own."""
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.job import validation_passes
    from labeldp.pipelines.spec.fields import Fields
    from labeldp.pipelines.spec.make_release import make_release
    from labeldp.transforms.validation.validate_examples import Validation

    malformed = emulator.put("malformed.pbtxt", b"feature {")
    assert "--validate s3://log/malformed.pbtxt" in invoke(on_store(validate=malformed)).error
    schema = emulator.put("schema.pbtxt", b'feature { name: "f" type: INT } feature { name: "y" type: FLOAT }')
    request = make_release("privatize", Fields.of(vars(parse(on_store(validate=schema))[0])))
    assert request.validation is not None
    assert 'name: "f"' in str(request.validation.schema)
    assert 'name: "y"' not in str(request.validation.schema)
    folder = emulator.url("out/released/validation")
    for _ in range(2):
        validation_passes._write(Validation(b"statistics", "schema", ""), folder, "feature_stats.pb")
    assert emulator.objects("out/released/") == {
        "validation/anomalies.pbtxt": b"", "validation/feature_stats.pb": b"statistics",
        "validation/schema.pbtxt": b"schema",
    }  # fmt: skip


@pytest.mark.parametrize("emulator", ["gs"], indirect=True)
def test_a_run_that_fails_leaves_nothing(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that exceeds its cap has written its shards; nobody may keep them."""
    from labeldp.pipelines.cli import privatize_command

    monkeypatch.setattr(privatize_command, "check_caps", lambda *_: None)
    refused = invoke(on_store(epsilon_cap=0.5))
    assert refused.code == 1
    assert "--epsilon_cap 0.5 would be exceeded" in refused.error
    assert emulator.objects("out/") == {}


@S3
def test_an_output_with_anything_in_it_is_refused(emulator: Any, on_store: Any, invoke: Any) -> None:
    emulator.put("out/released/old", b"old")
    refused = invoke(on_store())
    assert refused.code == 2
    assert "out/released exists and is not empty" in refused.error
    assert emulator.objects("out/") == {"released/old": b"old"}


@S3
def test_a_reader_that_looks_early_sees_no_manifest_and_nobody_sees_credentials(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store copies all files, after the charge, the manifest last: no byte is sent to a name of the release."""
    from botocore.httpsession import URLLib3Session

    requests: list[tuple[str, bool]] = []
    send = URLLib3Session.send

    def logged(self: Any, request: Any) -> Any:
        if request.method == "PUT":
            requests.append(
                (request.url.partition("/log/")[2].partition("?")[0], "x-amz-copy-source" in request.headers)
            )
        return send(self, request)

    monkeypatch.setattr(URLLib3Session, "send", logged)
    flags = {"s3_access_key_id": "AKIDTESTS", "s3_secret_access_key": "hushhush", "s3_region_name": "us-east-1"}
    several = {"label": "y,z", "label_max": "4,4", "label_step": "1,1", "label_min": "0,0"}
    several |= {"mechanism": "unbiased", "center": "linear"}
    emulator.put("own/a.csv", b"f,y,z\n" + b"1,0,3\n2,4,1\n" * 200)
    several |= {"input": emulator.url("own/a.csv"), "input_format": "csv"}
    done = invoke(on_store(**flags, **several, s3_endpoint_url=emulator.variables["AWS_ENDPOINT_URL"])).ok()
    names = [name for name, _ in requests]
    released = [name for name in names if name.startswith("out/released/")]
    assert sorted(released) == sorted(f"out/released/{name}" for name in emulator.objects("out/released/"))
    assert all(copied == (name in released) for name, copied in requests)
    assert released[-1] == "out/released/release.json"
    assert names.index(f"out/{LEDGER.rpartition('/')[2]}") < names.index(released[0])
    assert "set AWS_SECRET_ACCESS_KEY or AWS_PROFILE instead" in done.err
    everything = done.out + done.err + "".join(repr(content) for content in emulator.objects("out/").values())
    assert "hushhush" not in everything
    assert "AKIDTESTS" not in everything
