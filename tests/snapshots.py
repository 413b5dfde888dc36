"""Whole texts that the product prints or writes, compared with the files in `snapshots/`.

LABELDP_RENEW=1 writes them anew: then read the difference as a user would. What differs from run to run or from machine
to machine is left out of the comparison: times, versions, hashes, integers of mechanisms, and digits of floats.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("snapshots")
_PACKAGES = "apache-beam|cryptography|labeldp|numpy|pyarrow|python|scipy"
_VARYING: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?", "TIME"),
    (rf"\b({_PACKAGES})(`?) (`?)\d+(\.\w+)+", r"\1\2 \3VERSION"),
    # What rounding and solvers leave of 0.
    (r"\b\d(\.\d+)?e[-\u2212](1[3-9]|[2-9]\d)\b|\b\d\.\d+e[-\u2212](0[89]|1\d)\b", "TINY"),
    (r"\d*\.\d{7,}(e[-+]?\d+)?", lambda found: f"{float(found[0]):.4g}~"),
    (r"\b\d{17,}\b", "INTEGER"),
    (r"\b(?=\d*[a-f])[0-9a-f]{16,}\b", "HEX"),
    # Of a long table, the first rows.
    (r"((?:^.* \| .*\n){5})(?:^.* \| .*\n)+", r"\1...\n"),
)


def without_varying(text: str, places: Iterable[tuple[Path, str]] = ()) -> str:
    """Replaces what differs from run to run; `places` are folders with the names that take their place."""
    for folder, name in places:
        text = text.replace(str(folder), name)
    for pattern, replacement in _VARYING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def file_name(name: str) -> str:
    """Name of a state as that of a file."""
    return re.sub(r"[^\w/]+", "_", name)


def compare(name: str, text: str, *places: tuple[Path, str]) -> None:
    """Compares a text with `snapshots/NAME.txt`."""
    path, found = FOLDER / f"{file_name(name)}.txt", without_varying(text, places)
    if os.environ.get("LABELDP_RENEW") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found)
    assert found == path.read_text(), f"{path}: LABELDP_RENEW=1 writes it anew"


@pytest.fixture(scope="session")
def snapshot() -> Callable[..., None]:
    """Function (name, text, (folder, name that takes its place), ...), which compares the text with its snapshot."""
    return compare


def names(folder: str) -> set[str]:
    """Names of the snapshots in a folder: a test compares them with its table, so that none is left over."""
    return {path.stem for path in (FOLDER / folder).iterdir()}
