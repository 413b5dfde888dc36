"""Reading the manifest: its form is that of documents.json."""

import json
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.publish.manifest import parse_manifest, read_document
from labeldp.transforms.errors import InputError

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "audit" / "release.json").read_text())


def test_it_is_what_the_file_says() -> None:
    manifest, domain = parse_manifest(DOCUMENT), DOCUMENT["domain"]
    assert manifest.domain == (domain["min"], domain["max"], domain["labels"])
    for key in ("label", "records", "epsilon", "expected_loss", "shards", "versions", "mechanism", "max_bias"):
        assert getattr(manifest, key) == DOCUMENT[key]


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000, '{"epsilon": 1e999}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"release\.json is not a release manifest"):
        read_document(str(path))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text(json.dumps(DOCUMENT))
    assert read_document(str(path)) == DOCUMENT
