"""Reading the manifest: every key is required and must have the right type."""

import json
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.publish.manifest import Manifest, parse_manifest, read_manifest
from labeldp.transforms.errors import InputError

DOCUMENT: dict[str, Any] = {
    "format": "labeldp-release-1",
    "parameters": {},
    "rounding": "nearest",
    "label": "y",
    "where": "f=1",
    "identity": "file and row",
    "adjacency": "label",
    "mechanism": "rr",
    "records": 10,
    "records_without_label": 1,
    "epsilon": 1.0,
    "prior_epsilon": 0.25,
    "randomizer_epsilon": 0.75,
    "certified_epsilon": 0.95,
    "delta": 1e-6,
    "certified_delta": 1e-7,
    "max_bias": 0.5,
    "domain": {"min": 0, "max": 2.5, "labels": 3},
    "expected_loss": {"squared": 1.5, "poisson": None},
    "mechanism_fingerprint": "00",
    "input_digest": "11",
    "shards": {"part-00000-of-00001.parquet": 10},
    "versions": {"labeldp": "0.1.0"},
    "loss": "squared",
    "features": None,
    "warnings": ["label_error"],
}


def test_it_is_what_the_file_says() -> None:
    members: dict[str, Any] = DOCUMENT | {"domain": (0.0, 2.5, 3), "warnings": ("label_error",)}
    read = {key: value for key, value in members.items() if key not in ("format", "parameters", "rounding")}
    assert parse_manifest(DOCUMENT) == Manifest(**read)


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000, '{"epsilon": 1e999}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"release\.json is not a release manifest"):
        read_manifest(str(path))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text(json.dumps(DOCUMENT))
    assert read_manifest(str(path)) == parse_manifest(DOCUMENT)
