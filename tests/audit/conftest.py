"""Shared fixtures of the audit tests: a mechanism file and a release, done by hand, and functions that change them.

response.json is randomized response over 3 labels with epsilon ln 2: a true label has 128/256, the others 64/256.
"""

import copy
import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.audit.written_files import PRIOR, write_document


def _fingerprint_of(document):
    signed = {key: document[key] for key in ("bits", "columns", "labels", "outputs")}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _at(document: Any, path: tuple) -> Any:
    """The value at path, a tuple of keys and indices."""
    for key in path:
        document = document[key]
    return document


def _changed(document, path, value):
    """A copy with the value at path replaced; ... removes it."""
    document = copy.deepcopy(document)
    place = _at(document, path[:-1])
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def _run_lengths(values):
    runs = []
    for value in map(str, values):
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def _valid_mechanism(rows, labels, outputs, bits):
    """A valid file for a matrix of positive weights, computed directly in exact arithmetic."""
    ratio = max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
    exact = [Fraction(output) for output in outputs]
    bias = [
        sum(weight * output for weight, output in zip(row, exact, strict=True)) / 2**bits - Fraction(label)
        for label, row in zip(labels, rows, strict=True)
    ]
    most = max(map(abs, bias))
    epsilon = math.log(ratio) * (1 + 1e-12) + 1e-15 if ratio > 1 else 0.0
    document = {
        "format": "labeldp-mechanism-1",
        "mechanism": "test",
        "parameters": {"of": "no concern"},
        "epsilon": epsilon,
        "bits": bits,
        "labels": labels,
        "outputs": outputs,
        "columns": [_run_lengths(column) for column in zip(*rows, strict=True)],
        "certificate": {
            "epsilon": epsilon,
            "ratio": [str(ratio.numerator), str(ratio.denominator)],
            "bias": [float(value) for value in bias],
            "max_bias": math.nextafter(float(most), math.inf),
            "row_sum": str(2**bits),
        },
    }
    return {**document, "gap": None, "fingerprint": _fingerprint_of(document)}


def _random_row(rng, outputs, bits):
    cuts = [0, *sorted(rng.sample(range(1, 2**bits), outputs - 1)), 2**bits]
    return [right - left for left, right in pairwise(cuts)]


def _write(path, document):
    write_document(path, document)
    return str(path)


def _resigned(document):
    """A copy with the fingerprint recomputed: another check must find the error."""
    return _changed(document, ("fingerprint",), _fingerprint_of(document))


@pytest.fixture(scope="session")
def fingerprint_of() -> Callable[..., Any]:
    """Function (mechanism file) -> its fingerprint."""
    return _fingerprint_of


@pytest.fixture(scope="session")
def at() -> Callable[..., Any]:
    """Function (document, path) -> the value at path, a tuple of keys and indices."""
    return _at


@pytest.fixture(scope="session")
def run_lengths() -> Callable[..., Any]:
    """Function (values) -> the runs of equal ones, as a mechanism file has them: pairs of text and length."""
    return _run_lengths


@pytest.fixture(scope="session")
def changed() -> Callable[..., Any]:
    """Function (document, path, value) -> a copy with the value at path, a tuple of keys; ... removes it."""
    return _changed


@pytest.fixture(scope="session")
def valid_mechanism() -> Callable[..., Any]:
    """Function (rows of weights, labels, outputs, bits) -> a valid mechanism file, computed in exact arithmetic."""
    return _valid_mechanism


@pytest.fixture(scope="session")
def random_row() -> Callable[..., Any]:
    """Function (generator, outputs, bits) -> weights of one label, all positive."""
    return _random_row


@pytest.fixture(scope="session")
def write() -> Callable[..., Any]:
    """Function (path, document) -> the path, as text, of a JSON file with it, written as a release has it."""
    return _write


@pytest.fixture(scope="session")
def resigned() -> Callable[..., Any]:
    """Function (mechanism file) -> a copy with its fingerprint recomputed: another check must find the error."""
    return _resigned


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release of 5 records in two shards, which are empty files; its documents pass the audit."""
    response, release = (
        json.loads(Path(__file__).with_name(name).read_text()) for name in ("response.json", "release.json")
    )
    _write(tmp_path / "mechanism.json", response | {"prior": PRIOR, "rounding": "nearest"})
    _write(tmp_path / "release.json", release)
    (tmp_path / "data").mkdir()
    for name in release["shards"]:
        (tmp_path / "data" / name).write_bytes(b"")
    return tmp_path
