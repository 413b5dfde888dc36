"""`--sign`: the last file of a release, the same for the same bytes; a key that cannot be used costs nothing."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from labeldp.pipelines.cli import finish_command
from labeldp.pipelines.publish import release_steps, signature
from labeldp.transforms.errors import StageError

NAME = "signature.json"


@pytest.fixture
def key(signing_key: Path) -> Path:
    return signing_key


def test_what_is_signed(job: Any, invoke: Any, outputs: Path, key: Path, tree: Any) -> None:
    """Checked by code of the test, with the library alone."""
    invoke(job(sign=key, num_shards=3)).ok()
    files = tree(outputs / "released")
    document = json.loads(files.pop(NAME))
    expected = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    assert document["files"] == expected
    assert {"release.json", "mechanism.json", "data/part-00002-of-00003.parquet"} < set(expected)
    signed = base64.b64decode(document.pop("signature"))
    public = load_der_public_key(base64.b64decode(document["public_key"]))
    assert isinstance(public, Ed25519PublicKey)
    message = json.dumps(document, sort_keys=True, separators=(",", ":"))
    public.verify(signed, b"labeldp-signature-1\n" + message.encode())


def test_a_repeated_run_and_the_rest_of_the_release(
    job: Any, invoke: Any, outputs: Path, key: Path, tree: Any, entries: Any, tmp_path: Path
) -> None:
    first = invoke(job(sign=key)).ok().out
    signed = tree(outputs / "released")
    (outputs / "released").rename(tmp_path / "first")
    again = invoke(job(sign=key)).ok().out
    assert tree(outputs / "released") == signed
    (outputs / "released").rename(tmp_path / "second")
    plain = invoke(job()).ok().out
    unsigned = tree(outputs / "released")
    assert {name: content for name, content in signed.items() if name != NAME} == unsigned
    line = re.search(r", signed by sha256:[0-9a-f]{64}(?=\n)", first)
    assert line is not None
    assert first == again
    assert plain == first.replace(line[0], "")
    # A signature costs nothing, with or without.
    assert len({json.dumps(entry["charges"]) for entry in entries(outputs)}) == 1


def test_a_signed_release_is_not_replaced(job: Any, invoke: Any, outputs: Path, key: Path, tree: Any) -> None:
    """A request without the key over it: refused, or verified without the signature, which is said."""
    invoke(job(sign=key)).ok()
    before = tree(outputs)
    refused = invoke(job())
    assert (refused.code, "exists and is not an empty folder" in refused.error) == (2, True)
    for flags, holds in (({}, "its audit holds\n"), ({"sign": key}, "its audit and its signature hold\n")):
        assert invoke(job(if_exists="verify", **flags)).ok().out.endswith(f"charged before; {holds}")
    assert tree(outputs) == before
    shard = next((outputs / "released" / "data").iterdir())
    shard.with_name(".note").write_text("added")
    assert "its audit fails: data/.note is not one of release.shards" in invoke(job(if_exists="verify")).error
    failed = invoke(job(if_exists="verify", sign=key))
    assert failed.code == 1
    assert "exists, but its audit fails: data/.note was not signed: it was added" in failed.error
    (outputs / "released" / NAME).unlink()
    assert "signature.json is missing" in invoke(job(if_exists="verify", sign=key)).error


def test_apply(job: Any, invoke: Any, outputs: Path, key: Path) -> None:
    invoke(job("fit")).ok()
    invoke(job("apply", sign=key)).ok()
    document = json.loads((outputs / "released" / NAME).read_text())
    assert {"mechanism.json", "release.json"} < set(document["files"])


@pytest.mark.parametrize(
    ("mode", "content", "problem"),
    [
        (0o644, None, "--sign: signing key file {} is accessible to other users: run `chmod 600 {}`"),
        (0o600, b"-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n", "that cannot be read: make one"),
    ],
)
def test_a_key_that_cannot_be_used_costs_nothing(
    mode: int, content: bytes | None, problem: str, job: Any, invoke: Any, outputs: Path, key: Path
) -> None:
    if content is not None:
        key.write_bytes(content)
    key.chmod(mode)
    for flags in ({}, {"if_exists": "verify"}):
        refused = invoke(job(sign=key, **flags))
        assert (refused.code, problem.format(key, key) in refused.error) == (2, True), refused.error
    assert invoke([*job(sign=key), "--dry_run"]).code == 2
    assert list(outputs.iterdir()) == []


def test_a_key_that_is_gone_when_the_job_ends(
    job: Any, invoke: Any, outputs: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read at the beginning, so the release does not fail."""
    charge = finish_command.read_results

    def without_key(*arguments: Any) -> Any:
        key.unlink()
        return charge(*arguments)

    monkeypatch.setattr(finish_command, "read_results", without_key)
    invoke(job(sign=key)).ok()
    assert (outputs / "released" / NAME).exists()


def test_the_key_is_nowhere(
    job: Any, invoke: Any, outputs: Path, key: Path, tree: Any, secret: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its bytes nor its path: not in the request, the release, the ledger or what a run says."""
    seen: dict[str, bytes] = {}
    sign = release_steps.sign_release

    def looking(staging: Any, *rest: Any) -> Any:
        seen.update(tree(Path(staging.work)))
        return sign(staging, *rest)

    monkeypatch.setattr(release_steps, "sign_release", looking)
    outcome = invoke(job(sign=key)).ok()
    assert json.loads(seen["request.json"])["signed"] is True
    written = [*seen.values(), *tree(outputs).values(), outcome.out.encode(), outcome.err.encode()]
    body = key.read_text().splitlines()[1].encode()
    for spelled in (secret, secret.hex().encode(), body, key.name.encode()):
        assert not any(spelled in content for content in written)


def test_a_file_that_cannot_be_read_is_charged_nothing(
    job: Any, invoke: Any, outputs: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> Any:
        raise StageError(f"reading {path} failed: Input/output error")

    monkeypatch.setattr(signature, "file_digest", broken)
    failed = invoke(job(sign=key))
    assert (failed.code, "failed: Input/output error" in failed.error) == (1, True)
    assert list(outputs.iterdir()) == []


def test_a_signature_of_several_labels_and_a_validation(
    job: Any, invoke: Any, outputs: Path, key: Path, tree: Any
) -> None:
    several = {"label": "y,f", "label_max": "4,1000", "epsilon": 4, "sign": key}
    invoke([*job(**several), "--validate"]).ok()
    listed = json.loads((outputs / "released" / NAME).read_text())["files"]
    assert set(listed) == set(tree(outputs / "released")) - {NAME}
    assert {"labels/y/release.json", "labels/f/mechanism.json"} < set(listed)
    assert any(name.startswith("validation/") for name in listed)


def test_beam_transforms_do_not_sign(small_log: Path, outputs: Path, key: Path) -> None:
    from labeldp import PrivatizeFiles

    with pytest.raises(ValueError, match="PrivatizeFiles has no sign: run the command labeldp"):
        PrivatizeFiles(small_log, outputs / "released", label="y", epsilon=1, sign=key)


def test_a_report_does_not_break_the_signature(job: Any, invoke: Any, outputs: Path, key: Path, tmp_path: Path) -> None:
    invoke(job(label="y,f", label_max="4,1000", epsilon=4, sign=key)).ok()
    released = outputs / "released"
    for path in (released, released / "release.json", released / "labels" / "y"):
        refused = invoke(["report", str(path)])
        assert (refused.code, "is signed, and its signature would not hold with a page in it" in refused.error) == (
            2,
            True,
        )
    invoke(["report", str(released / "labels" / "y"), f"--output={tmp_path / 'page.html'}"]).ok()
    invoke(["audit", str(released), f"--signer={key.with_suffix('.pub')}"]).ok()
