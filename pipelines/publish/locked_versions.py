"""Versions of the packages of requirements.lock, and how many of those that are installed are others than these."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LOCKED = Path(__file__).with_suffix(".json")


@functools.cache
def bill_statement() -> str:
    """Tells which bill this version of labeldp has, and how many installed packages have other versions than it."""
    return statement(json.loads(LOCKED.read_text()), _installed)


def statement(locked: Mapping[str, Any], installed: Callable[[str], str | None]) -> str:
    """The statement for the content of locked_versions.json; `installed` gives the version of a package by its name."""
    found = {name: installed(name) for name in locked["versions"]}
    others = sum(found[name] not in (None, pinned) for name, pinned in locked["versions"].items())
    digest = f"sha256:{locked['sbom_sha256']}"
    if not others:
        return digest
    return f"{digest}, but {others} installed {'package has' if others == 1 else 'packages have'} another version"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
