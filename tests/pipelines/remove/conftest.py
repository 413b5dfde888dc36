"""Functions that remove records of releases, and audit what stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def remove(invoke: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (release, lines, flag, *further flags) -> outcome of the removal into tmp_path / "reduced"."""

    def run(release: Path, lines: Any, flag: str = "ids", *flags: str, output: str = "reduced") -> Any:
        file = tmp_path / f"{flag}.txt"
        file.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
        standard = [f"--{flag}={file}", f"--output={tmp_path / output}", "--removed_on=2026-01-31"]
        return invoke(["remove", str(release), *standard, *flags])

    return run


@pytest.fixture
def audit(invoke: Any) -> Callable[..., str]:
    """Function (folder) -> last line of its audit with --data."""
    return lambda folder: invoke(["audit", str(folder), "--data"]).out.splitlines()[-1]
