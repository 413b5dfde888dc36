"""Bytes of releases by command, format and option, compared with hashes in `golden_releases.json`.

The same key, input and flags must give the same release in every version: another one would be charged again. Each
record has an id, so that its noise does not depend on where the input lies. LABELDP_RENEW=1 writes the file anew, which
is for changes that are meant to change releases; the changelog says so then.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.release_cases import CASES, GRID, LABELS, LINEAR, columns, over

GOLDEN = Path(__file__).with_name("golden_releases.json")


@pytest.fixture(scope="module")
def golden() -> Any:
    """Hashes by name of the job; renewed at the end of the module where LABELDP_RENEW=1."""
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    yield known
    if os.environ.get("LABELDP_RENEW") == "1":
        GOLDEN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


@pytest.fixture
def check(golden: dict[str, Any]) -> Callable[[str, dict[str, str]], None]:
    """Function (name, hash by file) that compares the hashes with the known ones."""

    def compare(name: str, found: dict[str, str]) -> None:
        if os.environ.get("LABELDP_RENEW") == "1":
            golden[name] = found
        assert golden.get(name) == found

    return compare


def _hashes(folder: Path) -> dict[str, str]:
    """Hash of each file of a release; without versions of libraries and folders of inputs, which differ."""
    found = {}
    for path in sorted(folder.rglob("*") if folder.is_dir() else [folder]):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "release.json":
                document = json.loads(content)
                assert document.pop("versions")
                content = json.dumps(document).encode()
            if path.name == "dead_letters.jsonl":
                content = re.sub(rb'"[^"]*/', b'"', content)
            name = str(path.relative_to(folder)) if folder.is_dir() else "file"
            found[name] = hashlib.sha256(content).hexdigest()[:32]
    return found


@over([name for name, case in CASES.items() if case.flags.get("id_column", "id")])
def test_a_release_keeps_its_bytes(name: str, base: Any, check: Any) -> None:
    folder = base(name).folder
    if base(name).flags.get("center") == "cells":
        assert json.loads((folder / "center.json").read_text())["linear"]["cells"]["sums"]
    check(name, _hashes(folder))


@pytest.mark.parametrize("flags", [LABELS, LINEAR], ids=["labels", "linear"])
def test_fit_and_apply_keep_their_bytes(
    flags: Any, logs: Any, invoke: Any, command: Any, outputs: Path, key_file: Path, check: Any
) -> None:
    files = {"input": logs["parquet"], "input_format": "parquet", "noise_key_file": key_file}
    mechanism, title = outputs / "m.json", "linear" if flags is LINEAR else "labels"
    invoke(command("fit", {**GRID, **files, **flags, "mechanism_file": mechanism})).ok()
    check(f"fit, {title}", _hashes(mechanism))
    applied = {"label": "y", "id_column": "id", **files, "mechanism_file": mechanism, "output": outputs / "out"}
    invoke(command("apply", applied)).ok()
    check(f"apply, {title}", _hashes(outputs / "out"))


def test_domain_keeps_its_bytes(
    logs: Any, invoke: Any, command: Any, outputs: Path, key_file: Path, check: Any
) -> None:
    files = {"input": logs["csv"], "input_format": "csv", "noise_key_file": key_file}
    asked = {"label": "y", "id_column": "id", "epsilon": 1, "domain_file": outputs / "domain.json"}
    invoke(command("domain", {**files, **asked})).ok()
    check("domain", _hashes(outputs / "domain.json"))


def test_labels_in_python_keep_their_bytes(outputs: Path, secret: bytes, check: Any) -> None:
    """Here records are named by their rows."""
    from labeldp import LabelPrivatizer

    privatizer = LabelPrivatizer(
        label_min=0, label_max=10, label_step=0.5, epsilon=2, source="/logs/golden", noise_key=secret,
        ledger=outputs / "ledger", label="y",
    )  # fmt: skip
    released = privatizer.fit_transform(np.array(columns()["y"]))
    check("python", {"labels": hashlib.sha256(released.astype("<f8").tobytes()).hexdigest()[:32]})
