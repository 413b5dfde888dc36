"""Checks of what a manifest states of the records that were removed from its release since (`labeldp remove`).

`release.records` stays the number of records that were counted and released at first. The shards hold those that
remain, so both differ by the records of all removals.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .documents import RefusedDocument, read_count, read_member

REMOVALS = "removals"
_MEMBERS = {"date", "records", "manifest"}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}")


def removed_records(manifest: Mapping[str, Any]) -> int:
    """Number of records that were removed from a release, by a manifest that passed the checks; 0 without removals."""
    return sum(removal["records"] for removal in manifest.get(REMOVALS, ()))


def stated_removals(release: dict[str, Any]) -> int:
    """Adds up the removals of a manifest that has `release.` before each key; 0 without any.

    Raises RefusedDocument if a member is missing or has the wrong type.
    """
    return sum(count for _, count, _ in _removals(release))


def removal_problems(release: dict[str, Any]) -> Iterator[str]:
    """Checks the member `release.removals`; one line for each check that fails, none without removals.

    Raises RefusedDocument if a member is missing or has the wrong type.
    """
    name = f"release.{REMOVALS}"
    if name not in release:
        return
    found = list(_removals(release))
    if not found:
        yield f"{name} is empty"
    dates = [date for date, _, _ in found]
    if not all(map(_is_date, dates)):
        yield f"{name} has a date that is not YYYY-MM-DD"
    elif dates != sorted(dates):
        yield f"{name} are not in the order of their dates"
    if not all(count > 0 for _, count, _ in found):
        yield f"{name} has a removal of no record"
    hashes = [manifest for _, _, manifest in found]
    if not all(map(_HASH.fullmatch, hashes)) or len(set(hashes)) < len(hashes):
        yield f"{name} has a manifest that is not the SHA-256 of an earlier release.json, or one twice"
    if sum(count for _, count, _ in found) >= read_count(release, "release.records"):
        yield f"{name} are not fewer records than release.records"


def _removals(release: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Date, number of records and hash of the manifest before, of each removal."""
    name = f"release.{REMOVALS}"
    if name not in release:
        return
    for removal in read_member(release, name, list):
        if not isinstance(removal, dict) or set(removal) != _MEMBERS:
            raise RefusedDocument(f"{name} has something else than objects of {', '.join(sorted(_MEMBERS))}")
        stated = {f"{name}.{key}": value for key, value in removal.items()}
        yield (
            read_member(stated, f"{name}.date", str),
            read_count(stated, f"{name}.records"),
            read_member(stated, f"{name}.manifest", str),
        )


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def removals_line(manifest: dict[str, Any]) -> str:
    """Line of the report for a manifest that passed the checks; empty without removals."""
    removals = manifest.get(REMOVALS)
    if not removals:
        return ""
    removed = removed_records(manifest)
    dates = ", ".join(f"{removal['records']} on {removal['date']}" for removal in removals)
    return f"removed      {removed} of {manifest['records']} records since: {dates}; noised statistics still count them"
