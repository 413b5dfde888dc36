"""Signing key file: an Ed25519 key in PEM and PKCS8 of its owner; anything else is refused without a word of it."""

import hashlib
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from labeldp.pipelines.spec.signing_key import SigningKeyFile
from labeldp.transforms.errors import InputError

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def pem(key: Any = PRIVATE, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(password) if password else NoEncryption())


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Function (content, mode) -> the reference to a key file."""

    def write(content: bytes, mode: int = 0o600, group: bool = False) -> SigningKeyFile:
        path = tmp_path / "sign.pem"
        path.write_bytes(content)
        path.chmod(mode)
        return SigningKeyFile(str(path), group)

    return write


def test_the_key_of_openssl(tmp_path: Path) -> None:
    """The lines of the guide: openssl makes the key, and its fingerprint is the one that labeldp prints."""
    private, public = tmp_path / "sign.pem", tmp_path / "sign.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    private.chmod(0o600)
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", public, "-outform", "DER"], check=True, capture_output=True
    ).stdout
    key = SigningKeyFile(str(private)).load()
    assert key.fingerprint == hashlib.sha256(der).hexdigest()
    assert key.public == public.read_text().splitlines()[1]


def test_one_message_has_one_signature(written: Any) -> None:
    first, second = (written(pem()).load() for _ in range(2))
    assert first.sign(b"a") == second.sign(b"a") != first.sign(b"b")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (pem(password=b"secret"), "is encrypted: decrypt it with `openssl pkey"),
        (pem(rsa.generate_private_key(65537, 1024)), "holds a key of another kind than Ed25519: make one with"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "holds a key of another kind than Ed25519"),
        (pem(ed448.Ed448PrivateKey.generate()), "holds a key of another kind than Ed25519"),
        (pem(form=PrivateFormat.OpenSSH), "does not hold a private key in PEM and PKCS8"),
        (PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "holds a public key"),
        (PRIVATE.private_bytes_raw(), "does not hold a private key in PEM and PKCS8"),
        (pem().replace(b"MC4C", b"MC4D"), "holds a private key that cannot be read"),
        (pem()[:60], "holds a private key that cannot be read"),
        (b"", "does not hold a private key in PEM and PKCS8: make one with `openssl genpkey -algorithm ed25519"),
    ],
    ids=["encrypted", "rsa", "p256", "ed448", "openssh", "public", "raw", "corrupt", "cut", "empty"],
)
def test_other_keys_are_refused(content: bytes, problem: str, written: Any) -> None:
    key = written(content)
    with pytest.raises(InputError) as caught:
        key.load()
    text = str(caught.value)
    assert problem in text
    assert key.path in text
    # Nothing of the file is quoted.
    body = [line for line in content.decode("ascii", "replace").splitlines() if len(line) > 20 and "-----" not in line]
    assert not any(line[:20] in text for line in body)


@pytest.mark.parametrize(("mode", "group"), [(0o644, False), (0o640, False), (0o660, True), (0o604, True)])
def test_a_key_that_others_can_read_is_refused(mode: int, group: bool, written: Any) -> None:
    with pytest.raises(InputError, match="is accessible to other users: run `chmod 600"):
        written(pem(), mode, group).load()


def test_a_key_of_a_mounted_secret(written: Any) -> None:
    assert written(pem(), 0o440, True).load().private.public_key() == PRIVATE.public_key()
    with pytest.raises(InputError, match="or, for a mounted secret, give `noise_key_mode` group"):
        written(pem(), 0o440).load()


def test_the_key_is_in_no_text_and_no_pickle(written: Any) -> None:
    file = written(pem())
    key, secret = file.load(), PRIVATE.private_bytes_raw()
    assert secret.hex() not in repr(key) + str(vars(key)) + repr(file)
    assert secret not in pickle.dumps(file)
    with pytest.raises(TypeError):
        pickle.dumps(key)
