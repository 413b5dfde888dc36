"""Environments of containers: another locale, another time zone, no home folder; the release is the same."""

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"TZ": "Pacific/Kiritimati"}, {"HOME": "/nonexistent"}],
    ids=lambda variables: next(iter(variables)),
)
def test_the_release_is_the_same(
    variables: dict[str, str], job: Any, forked: Any, after_job: Any, outputs: Path, tree: Any, tmp_path: Path
) -> None:
    after_job()
    expected = tree(outputs / "released")
    forked(job(output=tmp_path / "there"), **variables).wait().ok()
    assert tree(tmp_path / "there") == expected
