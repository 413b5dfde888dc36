"""Sealed job results: bound to the request of their run and to their mechanism file, under the secret key.

A worker seals what the job has found. The command that publishes the release may run later and elsewhere, and trusts no
file between: it refuses results of another run, a request or mechanism file that was changed, and results that were
made without the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from ...mechanisms.noise.keyed_words import keyed_blake2b
from ...transforms.errors import InputError
from ...transforms.noise_key_file import NoiseKeyFile
from .job_result import JobResult

_SEAL_BYTES = 32
_USE = b"labeldp result"


def sealed(result: JobResult, mechanism: str, run: str, key: NoiseKeyFile) -> str:
    """Seals the result of a label as JSON.

    `mechanism` is the text of its mechanism file, and `run` the digest of the request.
    """
    content = [run, mechanism_digest(mechanism), result.to_json()]
    return json.dumps({"content": content, "seal": _seal(content, key)})


def unsealed(path: str, text: str, mechanism: str, run: str, key: NoiseKeyFile) -> JobResult:
    """Opens the sealed result in a file.

    Raises InputError if it is not the result of this run, with this mechanism file and under this key.
    """
    try:
        document = json.loads(text)
        content, seal = document["content"], str(document["seal"])
        of_run, of_mechanism, result = map(str, content)
    except (LookupError, RecursionError, TypeError, ValueError):
        raise InputError(f"{path} is not the result of a job") from None
    if not hmac.compare_digest(seal, _seal([of_run, of_mechanism, result], key)):
        raise InputError(f"{path} was changed, or its job had another key than {key.path}: nothing is released")
    if of_run != run:
        raise InputError(f"{path} is the result of another run, or the request was changed: nothing is released")
    if of_mechanism != mechanism_digest(mechanism):
        raise InputError(f"{path} belongs to another mechanism file than the one that is there: nothing is released")
    return JobResult.from_json(result)


def mechanism_digest(text: str) -> str:
    """Digest of a mechanism file; hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _seal(content: list[str], key: NoiseKeyFile) -> str:
    state = keyed_blake2b(key.load(), _SEAL_BYTES, _USE)
    state.update(json.dumps(content).encode())
    return state.hexdigest()
