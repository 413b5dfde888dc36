"""The manifest of a release, release.json, read back and checked: a file is hostile until its shape is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..transforms.errors import InputError
from .release import read_text


@dataclass(frozen=True)
class Manifest:
    """What `release.manifest` says, named as there. domain: least and largest label, and how many."""

    label: str
    where: str | None
    identity: str
    adjacency: str
    mechanism: str
    records: int
    records_without_label: int
    epsilon: float
    prior_epsilon: float
    randomizer_epsilon: float
    certified_epsilon: float
    delta: float
    certified_delta: float
    max_bias: float
    domain: tuple[float, float, int]
    expected_loss: Mapping[str, float | None]
    mechanism_fingerprint: str
    input_digest: str
    shards: Mapping[str, int]
    versions: Mapping[str, str]


def read_manifest(path: str) -> Manifest:
    """Reads a release.json. Raises InputError, naming the file and the key, for what is none."""
    try:
        return parse_manifest(json.loads(read_text(path)))
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a release manifest: {error}") from None


def parse_manifest(document: Any) -> Manifest:
    """The manifest that json.loads has read. Raises ValueError, naming the key, for what is none."""
    domain = _get(document, "domain", dict)
    return Manifest(
        label=_get(document, "label", str),
        where=None if document.get("where") is None else _get(document, "where", str),
        identity=_get(document, "identity", str),
        adjacency=_get(document, "adjacency", str),
        mechanism=_get(document, "mechanism", str),
        records=_count(document, "records"),
        records_without_label=_count(document, "records_without_label"),
        epsilon=_number(document, "epsilon"),
        prior_epsilon=_number(document, "prior_epsilon"),
        randomizer_epsilon=_number(document, "randomizer_epsilon"),
        certified_epsilon=_number(document, "certified_epsilon"),
        # Releases of pure label DP that were made before there were others do not name a delta.
        delta=_number({"delta": 0.0, **document}, "delta"),
        certified_delta=_number({"certified_delta": 0.0, **document}, "certified_delta"),
        max_bias=_number(document, "max_bias"),
        domain=(_number(domain, "min"), _number(domain, "max"), _count(domain, "labels")),
        expected_loss=_members(document, "expected_loss", lambda d, key: None if d[key] is None else _number(d, key)),
        mechanism_fingerprint=_get(document, "mechanism_fingerprint", str),
        input_digest=_get(document, "input_digest", str),
        shards=_members(document, "shards", _count),
        versions=_members(document, "versions", lambda d, key: _get(d, key, str)),
    )


def _get(document: Any, key: str, kind: Any) -> Any:
    if not isinstance(document, dict) or key not in document:
        raise ValueError(f"{key} is missing")
    if not isinstance(document[key], kind) or isinstance(document[key], bool):
        raise ValueError(f"{key} is not of the right type")
    return document[key]


def _number(document: Any, key: str) -> float:
    value = _get(document, key, int | float)
    if not math.isfinite(value):
        raise ValueError(f"{key} is not finite")
    return float(value)


def _count(document: Any, key: str) -> int:
    value = _get(document, key, int)
    if value < 0:
        raise ValueError(f"{key} is negative")
    return value


def _members(document: Any, key: str, read: Any) -> dict[str, Any]:
    inner = _get(document, key, dict)
    return {name: read(inner, name) for name in inner}
