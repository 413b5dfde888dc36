"""A release, done by hand, for the tests of the audit.

response.json is randomized response over 3 labels with epsilon ln 2: a true label has 128/256, the others 64/256.
"""

import json
from pathlib import Path

import pytest

from tests.audit.mechanism_files import write
from tests.audit.written_files import PRIOR


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release of 5 records in two shards, which are empty files; its documents pass the audit."""
    response, release = (
        json.loads(Path(__file__).with_name(name).read_text()) for name in ("response.json", "release.json")
    )
    write(tmp_path / "mechanism.json", response | {"prior": PRIOR, "rounding": "nearest"})
    write(tmp_path / "release.json", release)
    (tmp_path / "data").mkdir()
    for name in release["shards"]:
        (tmp_path / "data" / name).write_bytes(b"")
    return tmp_path
