"""Releases of `release_cases`, each made once in a process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.job.release_cases import CASES, GRID, Case, write_logs


@dataclass(frozen=True)
class Base:
    """The release of a case, `folder`, beside its ledger, `ledger`; and the flags of its job, without the output."""

    case: Case
    folder: Path
    ledger: Path
    flags: dict[str, Any]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Glob of each log of the cases, by name."""
    return write_logs(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="session")
def base(
    logs: dict[str, Path], invoke: Any, command: Any, key_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Base]:
    """Function (name of a case) -> its release."""
    made: dict[str, Base] = {}

    def release(name: str) -> Base:
        if name not in made:
            case, folder = CASES[name], tmp_path_factory.mktemp("release")
            files = {"input": logs[case.log], "input_format": case.format, "noise_key_file": key_file}
            ledger = folder / "ledger.jsonl"
            flags: dict[str, Any] = {**GRID, **files, **case.flags, "ledger": ledger}
            if "label_values" in flags:
                flags["label_values"] = logs["csv"].with_name(flags["label_values"])
            invoke(command("privatize", {**flags, "output": folder / "out"})).ok()
            made[name] = Base(case, folder / "out", ledger, flags)
        return made[name]

    return release
