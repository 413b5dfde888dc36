"""Gallery of releases: those of `release_cases`, each made once in a process."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.release_cases import CASES, GRID, Case, write_logs


@dataclass(frozen=True)
class Base:
    """The release of a case, `folder`, beside its ledger, `ledger`; the flags of its job, without the output and with a
    copy of the ledger; what the command printed."""

    case: Case
    folder: Path
    ledger: Path
    flags: dict[str, Any]
    outcome: Any


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
            for key in ("label_values", "label_classes"):
                if str(flags.get(key)).endswith(".txt"):
                    flags[key] = logs["csv"].with_name(flags[key])
            outcome = invoke(command("privatize", {**flags, "output": folder / "out"})).ok()
            # Jobs of tests with these flags are charged elsewhere.
            flags["ledger"] = shutil.copy(ledger, folder / "others.jsonl")
            made[name] = Base(case, folder / "out", ledger, flags, outcome)
        return made[name]

    return release


@pytest.fixture(scope="session")
def release(base: Callable[[str], Base]) -> Callable[[str], Path]:
    """Function (name of a case) -> the folder of its release."""
    return lambda name: base(name).folder


@pytest.fixture
def copied(release: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Function (name of a case) -> a copy of its release, which a test may change."""
    return lambda name: shutil.copytree(release(name), tmp_path / "copied")


@pytest.fixture(scope="session")
def log(logs: dict[str, Path]) -> Callable[[str], Path]:
    """Function (name of a log) -> its glob."""
    return logs.__getitem__
