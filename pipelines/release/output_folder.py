"""The output folder: staged beside its place, and moved in when everything is done."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ...transforms.io.filesystems import delete_folder, is_remote
from .manifest import MANIFEST_NAME

DEAD_LETTERS_NAME = "dead_letters.jsonl"


DATA_NAME = "data"


_DELETIONS = 3


@contextlib.contextmanager
def staging_folder(target: str) -> Iterator[str]:
    """A hidden folder beside the target, removed with all that is left in it when the block ends."""
    parent, name = FileSystems.split(target.rstrip("/"))
    staging = FileSystems.join(parent, f".{name}.{uuid.uuid4().hex[:12]}")
    FileSystems.mkdirs(staging)
    try:
        yield staging
    finally:
        # More than once: a runner that was interrupted may still be writing.
        for _ in range(_DELETIONS):
            with contextlib.suppress(BeamIOError, OSError):
                delete_folder(staging)


def publish_folder(staging: str, output: str) -> None:
    """Moves a finished folder to its place; on a local disk in one step."""
    if is_remote(output):
        found = FileSystems.match([FileSystems.join(staging, "**")])[0].metadata_list
        moves = [(entry.path, output.rstrip("/") + entry.path[len(staging.rstrip("/")) :]) for entry in found]
        # The manifest comes last: a folder without one is not a release.
        moves.sort(key=lambda move: move[1].endswith(MANIFEST_NAME))
        for source, destination in moves:
            FileSystems.rename([source], [destination])
        return
    # An empty folder is replaced; anything else makes this fail.
    os.rename(staging, output)
