"""Mechanism files done by hand, and changes of them; response.json and approximate.json are two."""

import copy
import hashlib
import json
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.audit.written_files import write_document


def fingerprint_of(document: Any) -> str:
    """Fingerprint of a mechanism file."""
    signed = {key: document[key] for key in ("bits", "columns", "labels", "outputs")}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def at(document: Any, path: tuple) -> Any:
    """The value at path, a tuple of keys and indices."""
    for key in path:
        document = document[key]
    return document


def changed(document: Any, path: tuple, value: Any) -> Any:
    """A copy with the value at path replaced; ... removes it."""
    document = copy.deepcopy(document)
    place = at(document, path[:-1])
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def run_lengths(values: Any) -> list[Any]:
    """The runs of equal values, as a mechanism file has them: pairs of text and length."""
    runs = []
    for value in map(str, values):
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def valid_mechanism(rows: Any, labels: Any, outputs: Any, bits: int) -> dict[str, Any]:
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
        "columns": [run_lengths(column) for column in zip(*rows, strict=True)],
        "certificate": {
            "epsilon": epsilon,
            "ratio": [str(ratio.numerator), str(ratio.denominator)],
            "bias": [float(value) for value in bias],
            "max_bias": math.nextafter(float(most), math.inf),
            "row_sum": str(2**bits),
        },
    }
    return {**document, "gap": None, "fingerprint": fingerprint_of(document)}


def random_row(rng: Any, outputs: int, bits: int) -> list[int]:
    """Weights of one label, all positive."""
    cuts = [0, *sorted(rng.sample(range(1, 2**bits), outputs - 1)), 2**bits]
    return [right - left for left, right in pairwise(cuts)]


def write(path: Path, document: Any) -> str:
    """Writes a document as a release has it. Returns the path as text."""
    write_document(path, document)
    return str(path)


def resigned(document: Any) -> Any:
    """A copy with the fingerprint recomputed: another check must find the error."""
    return changed(document, ("fingerprint",), fingerprint_of(document))
