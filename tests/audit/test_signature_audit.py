"""Planted breaks of a signed release: each fails the check of its signature, which names the file."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from labeldp.audit.audit_release import NoRecords, audit_path
from labeldp.audit.signature_audit import NoPublicKey, Signer, signature_report

from tests.audit.written_files import write_document
from tests.commands import write_key

SEED = bytes(range(32))
NAME = "signature.json"
KINDS = [
    "center.json", "data/part-00000-of-00002.parquet", "data/part-00001-of-00002.parquet",
    "dead_letters.jsonl", "mechanism.json", "release.json", "validation/schema.pbtxt",
]  # fmt: skip
LABELS = [f"labels/{label}/{name}.json" for label in "yz" for name in ("mechanism", "release")]


def key_files(folder: Path, seed: bytes) -> tuple[Path, Path]:
    """Files of a private and of its public key."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    private, public = folder / f"{seed[0]}.pem", folder / f"{seed[0]}.pub"
    write_key(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return key_files(tmp_path_factory.mktemp("keys"), SEED)


@pytest.fixture(scope="module")
def signer(keys: tuple[Path, Path]) -> Signer:
    return Signer.read(str(keys[1]))


@pytest.fixture(scope="module")
def sign(keys: tuple[Path, Path], invoke: Any, command: Any, base: Any) -> Callable[..., Path]:
    """Function (folder, case, flags) -> that release, signed; around a linear center and with dead letters."""

    def run(folder: Path, case: str = "records without a label, linear", **flags: Any) -> Path:
        own = {"num_shards": 2, "sign": keys[0], "output": folder / "released", "ledger": None}
        outcome = invoke(command("privatize", base(case).flags | own | flags)).ok()
        assert ", signed by sha256:" in outcome.out
        return folder / "released"

    return run


@pytest.fixture(scope="module")
def made(sign: Callable[..., Path], keys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with files of all kinds, signed. That of a validation is of the test: the job takes long to make it."""
    from labeldp.pipelines.publish.output_folder import Staging
    from labeldp.pipelines.publish.signature import sign_release
    from labeldp.pipelines.spec.signing_key import SigningKeyFile

    folder = tmp_path_factory.mktemp("signed")
    released = sign(folder)
    document = json.loads((released / "release.json").read_text())
    place = [*document].index("output")
    stated = [*document.items()]
    write_document(released / "release.json", dict([*stated[:place], ("validation", "given schema"), *stated[place:]]))
    (released / "validation").mkdir()
    (released / "validation" / "schema.pbtxt").write_text('feature { name: "f" }\n')
    names = [each.relative_to(released).as_posix() for each in released.rglob("*.*") if each.name != "signature.json"]
    sign_release(Staging(str(folder), str(released)), names, ("release.json",), SigningKeyFile(str(keys[0])).load())
    return released


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return Path(shutil.copytree(made, tmp_path / "released"))


@pytest.fixture(scope="module")
def several(sign: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sign(tmp_path_factory.mktemp("several"), "several labels")


def problems(folder: Path, signer: Signer) -> str:
    return " | ".join(audit_path(str(folder), signer=signer).problems)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_signed_release_passes(made: Path, several: Path, signer: Signer) -> None:
    assert sorted(json.loads((made / NAME).read_text())["files"]) == KINDS
    assert set(LABELS) < set(json.loads((several / NAME).read_text())["files"])
    for folder in (made, several):
        audit = audit_path(str(folder), data=True, signer=signer)
        assert audit.problems == ()
        assert f"by sha256:{signer.fingerprint}: " in audit.data_lines[-1]
    # A manifest, and the folder of one label, stand for the release.
    assert audit_path(str(made / "release.json"), signer=signer).problems == ()
    assert audit_path(str(several / "labels" / "z"), signer=signer).problems == ()


@pytest.mark.parametrize("place", [0, -1, 0.5])
@pytest.mark.parametrize("name", KINDS)
def test_a_changed_byte(name: str, place: float, release: Path, signer: Signer) -> None:
    path = release / name
    flip(path, int(place * path.stat().st_size) if place == 0.5 else int(place))
    assert f"{name} is not as it was signed" in problems(release, signer)


@pytest.mark.parametrize("name", LABELS)
def test_a_changed_byte_of_one_of_several_labels(name: str, several: Path, tmp_path: Path, signer: Signer) -> None:
    folder = shutil.copytree(several, tmp_path / "released")
    flip(folder / name, -1)
    assert f"{name} is not as it was signed" in problems(folder, signer)
    # Seen from the other label as well.
    assert f"{name} is not as it was signed" in problems(folder / "labels" / "y", signer)


def test_every_byte_of_the_signature(release: Path, signer: Signer) -> None:
    """Changed, removed or added, whatever it stands for: a digit, a letter of a path, a space."""
    path, files = release / NAME, digests(release)
    content = path.read_bytes()
    assert signature_report(release, signer, files)[0] == ()
    for place, byte in enumerate(content):
        # In turn: one bit, which is the case of a letter, a byte less, and a byte more.
        other = (bytes([byte ^ 1]), bytes([byte ^ 32]), b"", b" " + bytes([byte]))[place % 4]
        path.write_bytes(content[:place] + other + content[place + 1 :])
        found, line = signature_report(release, signer, files)
        assert (NAME in found[0], line) == (True, ""), place
    for end in range(0, len(content), 13):
        path.write_bytes(content[:end])
        assert NAME in signature_report(release, signer, files)[0][0]
    path.write_bytes(content + b"\n")
    assert NAME in signature_report(release, signer, files)[0][0]


def digests(folder: Path) -> dict[str, tuple[int, str]]:
    """Sizes and digests of the files of a release, by code of the test."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_removed_or_renamed(name: str, release: Path, signer: Signer) -> None:
    path = release / name
    path.rename(path.with_name("renamed"))
    found, renamed = problems(release, signer), path.with_name("renamed").relative_to(release)
    assert f"{name} was signed, but is missing" in found
    assert f"{renamed} was not signed: it was added" in found
    path.with_name("renamed").unlink()
    assert f"{name} was signed, but is missing" in problems(release, signer)


@pytest.mark.parametrize("name", ["added", ".hidden", "data/.hidden", "data/part-00002-of-00003.parquet", "new/a\nb"])
def test_a_file_that_is_added(name: str, release: Path, signer: Signer) -> None:
    (release / name).parent.mkdir(exist_ok=True)
    (release / name).write_bytes(b"")
    shown = name.replace("\n", "\\n")
    assert f"{shown} was not signed: it was added" in problems(release, signer)
    (release / name).unlink()
    if name.startswith("new/"):
        assert "new/ is an empty folder" in problems(release, signer)


def test_two_shards_that_are_exchanged(release: Path, signer: Signer) -> None:
    first, second = sorted((release / "data").iterdir())
    contents = first.read_bytes(), second.read_bytes()
    assert contents[0] != contents[1]
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for path in (first, second):
        assert f"data/{path.name} is not as it was signed" in problems(release, signer)
    # Without the signature nothing tells: both have as many records.
    (release / NAME).unlink()
    assert audit_path(str(release)).problems == ()


@pytest.mark.parametrize("linked", ["data/part-00000-of-00002.parquet", "data"])
def test_a_link_in_place_of_a_file(linked: str, release: Path, signer: Signer, tmp_path: Path) -> None:
    path = release / linked
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert f"{linked} is not a regular file" in problems(release, signer)


def test_the_signature_of_another_release(
    sign: Callable[..., Path], release: Path, signer: Signer, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(sign(other, epsilon=1, num_shards=1) / NAME, release / NAME)
    found = problems(release, signer)
    for name in ("mechanism.json", "release.json", "center.json"):
        assert f"{name} is not as it was signed" in found
    assert "data/part-00000-of-00001.parquet was signed, but is missing" in found


def test_another_key(release: Path, keys: tuple[Path, Path], tmp_path: Path, signer: Signer) -> None:
    other = Signer.read(str(key_files(tmp_path, bytes([9] * 32))[1]))
    found = problems(release, other)
    assert found == f"{NAME} is by another key, sha256:{signer.fingerprint}, than that of --signer, sha256:" + (
        other.fingerprint
    )
    # A signature that names the wanted key, but was made by another one.
    document = json.loads((release / NAME).read_text())
    unsigned = {name: document[name] for name in ("format", "public_key", "files")}
    text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"))
    forged = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32)).sign(f"labeldp-signature-1\n{text}".encode())
    document["signature"] = base64.b64encode(forged).decode()
    (release / NAME).write_text(json.dumps(document, indent=2) + "\n")
    assert problems(release, signer) == f"{NAME}: the signature is not one of this document by its key"


@pytest.mark.parametrize(
    ("member", "value", "problem"),
    [
        ("signature", "AAAA", "signature is not a text of the form"),
        ("signature", "A" * 86 + "=", "signature is not a text of the form"),
        ("signature", 7, "signature is not of type string"),
        ("public_key", "AAAA", "public_key is not a text of the form"),
        ("files", {}, "does not list files in the order of their paths"),
        ("files", {"b": {"bytes": 1, "sha256": "0" * 64}, "a": {"bytes": 1, "sha256": "0" * 64}}, "in the order of"),
        ("files", {"a": {"bytes": -1, "sha256": "0" * 64}}, "files.a.bytes is not a number from 0 to"),
        ("files", {"a": {"sha256": "0" * 64}}, "files.a lacks members that labeldp writes: bytes"),
        ("files", {"a": 7}, "files.a is not of type object"),
        ("format", "labeldp-signature-2", "format is not labeldp-signature-1"),
    ],
)
def test_a_malformed_signature(member: str, value: Any, problem: str, release: Path, signer: Signer) -> None:
    document = json.loads((release / NAME).read_text())
    (release / NAME).write_text(json.dumps({**document, member: value}, indent=2) + "\n")
    assert problem in problems(release, signer)


def test_what_is_not_signed(release: Path, signer: Signer, invoke: Any, keys: tuple[Path, Path]) -> None:
    command = ["audit", str(release), f"--signer={keys[1]}"]
    assert (
        invoke(command).ok().out.splitlines()[-2].startswith(f"signature    by sha256:{signer.fingerprint}: 7 files, ")
    )
    assert invoke(command[:2]).ok().out.splitlines()[-2:] == [
        "signature    not checked: name its signer with --signer", "PASS",
    ]  # fmt: skip
    (release / NAME).unlink()
    outcome = invoke(command)
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == f"FAIL: {NAME} is missing: the release is not signed"
    assert "signature" not in invoke(command[:2]).ok().out
    bad = invoke(["audit", str(release / "mechanism.json"), f"--signer={keys[1]}"])
    assert (bad.code, "--signer needs a release, but" in bad.error) == (2, True)
    with pytest.raises(NoRecords):
        audit_path(str(release / "mechanism.json"), signer=signer)


def test_names_of_a_signer(keys: tuple[Path, Path], signer: Signer, tmp_path: Path, invoke: Any, release: Path) -> None:
    for text in (signer.fingerprint, f"sha256:{signer.fingerprint}", f"SHA256:{signer.fingerprint.upper()}"):
        assert Signer.read(text) == signer
    (tmp_path / "rsa.pub").write_text("-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n")
    for text, problem in [
        (str(keys[0]), "holds a private key: give the public one"),
        (str(tmp_path / "none"), "cannot be read (No such file or directory): name the PEM file"),
        (signer.fingerprint[:-1], "or its fingerprint of 64 hexadecimal digits"),
        (str(tmp_path / "rsa.pub"), "holds no public key in PEM"),
        ("a\0b", "cannot be read (no path)"),
    ]:
        with pytest.raises(NoPublicKey, match=re.escape(problem)):
            Signer.read(text)
    outcome = invoke(["audit", str(release), "--signer=none.pub"])
    assert (outcome.code, "--signer 'none.pub' cannot be read" in outcome.error) == (2, True)
