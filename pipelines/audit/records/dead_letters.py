"""Audit of the files that list the records without a usable label: their names, line counts and members."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..documents import RefusedDocument, printable

_NAME = re.compile(r"dead_letters(?:-([0-9]{5})-of-([0-9]{5}))?\.jsonl")
_MEMBERS = {"source": str, "row": int, "stage": str, "error": str}
_LINE_BYTES = 1 << 20


def letter_problems(folder: Path, release: dict[str, Any]) -> Iterator[str]:
    """Compares the dead letters in the folder of a release with its manifest, which passed its audit.

    A manifest without the member `dead_letters` is of a release without such records, or of an earlier version, which
    wrote one file at most and did not state its lines.

    Yields one line for each failed check.
    """
    found = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    expected = release["records_without_label"]
    stated = release.get("dead_letters")
    if stated is None:
        stated = {"dead_letters.jsonl": expected} if found else {}
    elif not _is_stated(stated):
        yield "release.dead_letters is not an object of names of dead letter files and numbers of their lines"
        return
    elif sum(stated.values()) != expected:
        yield "release.dead_letters do not add up to release.records_without_label"
    yield from (f"{name} is not one of release.dead_letters" for name in found if name not in stated)
    for name, count in stated.items():
        if name not in found:
            yield f"{name} is missing"
            continue
        try:
            lines = _lines(folder / name)
        except RefusedDocument as refused:
            yield f"{name} {refused}"
        else:
            if lines != count:
                yield f"{name} does not have as many lines as release.json states"


def _is_stated(stated: Any) -> bool:
    """Tells whether a member lists one file, or all files of one set, each with a positive number of lines."""
    if not isinstance(stated, dict) or not stated:
        return False
    parts = [_NAME.fullmatch(name) for name in stated]
    if not all(parts) or not all(type(count) is int and count > 0 for count in stated.values()):
        return False
    numbers = [(int(part[1]), int(part[2])) for part in parts if part is not None and part[1] is not None]
    if not numbers:
        return True
    # A file of no lines is not written: numbers may be left out.
    return len(numbers) == len(parts) and len({files for _, files in numbers}) == 1 and all(
        number < files for number, files in numbers
    )  # fmt: skip


def _lines(path: Path) -> int:
    """Counts the dead letters of a file, each of which has the members of one and nothing else, in ascending order."""
    if not path.is_file():
        raise RefusedDocument("is not a regular file")
    count, last = 0, None
    try:
        with path.open("rb") as file:
            while line := file.readline(_LINE_BYTES):
                letter = json.loads(line.decode())
                # Nothing else fits in a line that is written in one way: no label, and no second member of a name.
                if not _is_letter(letter) or f"{json.dumps(letter)}\n".encode() != line:
                    raise RefusedDocument(f"has a line that is not a dead letter: line {count + 1}")
                place = letter["source"], letter["row"]
                if last is not None and place <= last:
                    raise RefusedDocument(f"lists records twice or in another order: line {count + 1}")
                count, last = count + 1, place
    except OSError as error:
        raise RefusedDocument(f"cannot be read: {printable(error.strerror or '')}") from None
    except (ValueError, RecursionError):
        raise RefusedDocument(f"has a line that is not a dead letter: line {count + 1}") from None
    return count


def _is_letter(letter: Any) -> bool:
    return (
        isinstance(letter, dict)
        and list(letter) == list(_MEMBERS)
        and all(type(letter[name]) is kind for name, kind in _MEMBERS.items())
        and letter["row"] >= 0
    )
